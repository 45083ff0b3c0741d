//! `/cluster-app` among nodes that answer, are silent, are gone, or are malicious.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kubesim::ScriptedFault;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::listen::ServerLimits;
use super::super::listen::tests::{Site, ask, get, ground, say, soon};

const APP: &str = "aaaaaaaa-0000-4000-8000-000000000001";

/// A peer's answer to any request.
#[derive(Clone)]
enum Habit {
    Says(String),
    Silent,
    Endless,
}

/// A peer with its received requests, and its highest number of parallel connections.
#[derive(Clone, Default)]
struct Ear {
    heard: Arc<std::sync::Mutex<Vec<String>>>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

fn answer(code: u16, body: &str) -> Habit {
    Habit::Says(format!(
        "HTTP/1.1 {code} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
}

async fn peer(tasks: &mut JoinSet<()>, at: SocketAddr, habit: Habit) -> Ear {
    let (listener, ear) = (TcpListener::bind(at).await.unwrap(), Ear::default());
    let told = ear.clone();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let (habit, ear) = (habit.clone(), told.clone());
            ear.most.fetch_max(ear.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            open.spawn(async move {
                let mut head = vec![0; 1024];
                let read = stream.read(&mut head).await.unwrap_or(0);
                ear.heard.lock().unwrap().push(String::from_utf8_lossy(&head[..read]).into_owned());
                match habit {
                    Habit::Says(text) => drop(stream.write_all(text.as_bytes()).await),
                    Habit::Silent => while stream.read(&mut head).await.is_ok_and(|read| read > 0) {},
                    Habit::Endless => {
                        let head = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n";
                        drop(stream.write_all(head).await);
                        let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
                        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
                    }
                }
                ear.now.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    ear
}

/// The objects that are told.
fn objects(body: &str) -> Vec<Value> {
    let read: Value = serde_json::from_str(body).unwrap();
    read["value"].as_array().unwrap().clone()
}

fn beside(own: SocketAddr, last: u8) -> SocketAddr {
    SocketAddr::new(format!("127.0.0.{last}").parse().unwrap(), own.port())
}

impl Site {
    fn nodes(&self, count: u8) {
        for nth in 1..=count {
            let name = format!("n{nth}");
            if nth > 1 {
                self.sim.add_node(&name, &format!("22222222-2222-4222-8222-0000000000{nth:02}"));
            }
            let address = json!([{ "type": "InternalIP", "address": format!("127.0.0.{nth}") }]);
            assert!(self.sim.edit("nodes", "", &name, |node| node["status"]["addresses"] = address.clone()));
        }
    }

    fn name(&self, name: &str) {
        self.write("run/zedagent/EdgeNodeInfo/global.json", &json!({ "DeviceName": name }));
    }
}

#[tokio::test]
async fn every_node_that_answers_is_told_a_silent_one_by_its_address_and_the_others_not_at_all() {
    let (site, own) = Site::open(ground()).await;
    site.nodes(8);
    site.name("first");
    // A second node of our own kind at the same port.
    let mut second = Site::new(ServerLimits { port: own.port(), ..ground() });
    second.name("second");
    second.at("127.0.0.2").await;
    let mut tasks = JoinSet::new();
    let silent = peer(&mut tasks, beside(own, 3), Habit::Silent).await;
    peer(&mut tasks, beside(own, 5), answer(200, "{}]},{\"forged\":true")).await;
    peer(&mut tasks, beside(own, 6), Habit::Endless).await;
    peer(&mut tasks, beside(own, 7), answer(500, "{}")).await;
    let eighth = peer(&mut tasks, beside(own, 8), answer(200, "{\"hostname\": \"eighth\"}\n")).await;
    let (code, body) = soon(get(own, &format!("/cluster-app/{APP}"))).await;
    assert_eq!(code, 200);
    assert!(
        body.starts_with("{\n  \"key\": \"cluster-app\",\n  \"value\": [{\n  \"hostname\": \"first\""),
        "{body}"
    );
    assert!(body.ends_with("]\n}\n"), "{body}");
    let told = objects(&body);
    let names: Vec<&str> = told.iter().map(|it| it["hostname"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second", "127.0.0.3", "eighth"]);
    assert_eq!(told[2]["errors"], "no answer within 0.4 s");
    assert!(told[1]["appInfo"][0]["key"] == "zedagent-EdgeNodeInfo", "{body}");
    for ear in [silent, eighth] {
        let heard = ear.heard.lock().unwrap().clone();
        assert_eq!(heard.len(), 1);
        assert!(heard[0].starts_with(&format!("POST /app/{APP} HTTP/1.1\r\n")), "{heard:?}");
    }
}

#[tokio::test]
async fn without_peers_or_without_an_api_the_own_object_is_told_alone() {
    let (site, own) = Site::open(ground()).await;
    site.name("first");
    site.nodes(1);
    let alone = soon(get(own, "/cluster-app")).await;
    assert_eq!((alone.0, objects(&alone.1).len()), (200, 1));
    let (site, own) = Site::open(ground()).await;
    site.name("first");
    site.sim.faults().script("GET", "/api/v1/nodes", u32::MAX, ScriptedFault::Hang);
    let (cluster, page) = tokio::join!(soon(get(own, "/cluster-app")), soon(get(own, "/")));
    assert_eq!((cluster.0, objects(&cluster.1).len(), page.0), (200, 1, 200));
}

#[tokio::test]
async fn whoever_asks_how_often_one_round_at_a_time_goes_out() {
    let (site, own) = Site::open(ServerLimits { most_of_one: 20, most: 20, ..ground() }).await;
    site.nodes(2);
    site.name("first");
    let mut tasks = JoinSet::new();
    let ear = peer(&mut tasks, beside(own, 2), answer(200, "{\"hostname\":\"n2\"}")).await;
    let mut asking = JoinSet::new();
    for nth in 0..16 {
        let path = if nth % 2 == 0 { "/cluster-app".to_owned() } else { format!("/cluster-app/{APP}") };
        asking.spawn(async move { get(own, &path).await });
    }
    let all = soon(asking.join_all()).await;
    let good = all.iter().filter(|it| it.0 == 200 && it.1.contains("\"n2\"")).count();
    // A request without a turn gets 503.
    assert_eq!(good + all.iter().filter(|it| it.0 == 503).count(), 16, "{all:?}");
    assert!(good > 0);
    let asked = ear.heard.lock().unwrap().len();
    assert!((1..8).contains(&asked), "{asked} rounds");
    assert_eq!(ear.most.load(Ordering::SeqCst), 1);
    // With any number of requests, the API gets one in ten seconds.
    assert_eq!(site.sim.faults().count("GET", "/api/v1/nodes"), 1);
}

#[tokio::test]
async fn only_who_waits_for_other_nodes_has_more_time() {
    let limits =
        ServerLimits { request: Duration::from_millis(300), peer: Duration::from_millis(900), ..ground() };
    let (site, own) = Site::open(limits.clone()).await;
    site.nodes(2);
    site.name("first");
    let mut tasks = JoinSet::new();
    peer(&mut tasks, beside(own, 2), Habit::Silent).await;
    let (code, body) = soon(get(own, "/cluster-app")).await;
    assert_eq!(code, 200);
    assert!(body.contains("no answer within 0.9 s"), "{body}");
    // The longer time has its end as well.
    let (site, own) = Site::open(ServerLimits { cluster: Duration::from_millis(400), ..limits }).await;
    site.nodes(2);
    peer(&mut tasks, beside(own, 2), Habit::Silent).await;
    let all = soon(say(own, "GET /cluster-app HTTP/1.1\r\nHost: n1\r\n\r\n")).await;
    assert_eq!(all, "");
}

#[tokio::test]
async fn a_post_with_a_body_is_answered_and_its_body_is_not_read() {
    let (site, own) = Site::open(ground()).await;
    site.name("first");
    assert_eq!(soon(ask(own, "POST", "/app")).await.0, 200);
    let head = "POST /app HTTP/1.1\r\nHost: n1\r\nContent-Length: 1000000000\r\n\r\n";
    let answer = soon(say(own, head)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn x2_each_node_is_asked_for_its_drain_and_what_it_sends_is_a_headline_or_nothing() {
    let (site, own) = Site::open(ground()).await;
    site.nodes(7);
    site.name("n1");
    let mut tasks = JoinSet::new();
    let said = |text: &str| answer(200, &json!({ "State": "blocked", "Text": text }).to_string());
    let second = peer(&mut tasks, beside(own, 2), said(&format!("BLOCKED: <b>{}", "x".repeat(900)))).await;
    peer(&mut tasks, beside(own, 3), Habit::Silent).await;
    peer(&mut tasks, beside(own, 4), Habit::Endless).await;
    peer(&mut tasks, beside(own, 5), answer(200, "{\"State\":\"of a later version\",\"Text\":\"x\"}")).await;
    peer(&mut tasks, beside(own, 6), answer(404, "404 - Not Found")).await;
    let page = soon(async {
        loop {
            let page = get(own, "/").await.1;
            if page.contains("BLOCKED: &lt;b&gt;xxx") {
                return page;
            }
        }
    });
    let page = page.await;
    let link = format!("<a href=\"http://127.0.0.2:{}/\">n2</a>", own.port());
    assert!(page.contains(&link), "{page}");
    assert!(!page.contains(&"x".repeat(200)), "{page}");
    assert_eq!((page.matches("<a href").count(), page.matches("no answer").count()), (6, 5), "{page}");
    let facts: Value = serde_json::from_str(&get(own, "/status.json").await.1).unwrap();
    assert_eq!(facts["Nodes"][1]["Headline"]["State"], "blocked");
    // One request in ten seconds, as for the API server.
    let heard = second.heard.lock().unwrap().clone();
    assert!(heard.len() == 1 && heard[0].starts_with("GET /drain HTTP/1.1\r\n"), "{heard:?}");
    assert_eq!(site.sim.faults().count("GET", "/api/v1/nodes"), 1);
}
