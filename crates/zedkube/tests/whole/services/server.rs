//! The status server of a whole zedkube, on real sockets and a clock that runs, and its page in a browser.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agent::{AgentContext, Clock, Stopper};
use kube::Client;
use kubesim::{Sim, SimConfig};
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinSet, spawn_blocking};
use tracing::subscriber::DefaultGuard;
use zedkube::Limits;

use crate::device::{DEVICE, STATUS};
use crate::diary::Diary;

const LISTENS: &str = "status server listens";
/// What does not come within this time does not come.
const PATIENCE: Duration = Duration::from_secs(40);
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

struct Site {
    _root: TempDir,
    topic_root: TopicRoot,
    diary: Arc<Diary>,
    _ear: DefaultGuard,
    _stopper: Stopper,
    _agent: JoinSet<()>,
    sim: Sim,
}

impl Site {
    /// zedkube on a node whose only application is held by its budget, with its cluster address up.
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (topic_root, clock) = (TopicRoot::open(root.path()).unwrap(), Clock::new());
        let (diary, ear) = Diary::open(clock, topic_root.path(STATUS));
        let quick = Duration::from_millis(1);
        let sim = Sim::new(SimConfig { start_time: quick, ..SimConfig::default() });
        sim.add_node("n1", DEVICE);
        sim.add_deployment("shop", "web", 1);
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 1 }));
        let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
        sim.until("pods", |pods| pods.len() == 1 && pods.iter().all(ready)).await;
        sim.add_node("n2", "22222222-2222-4222-8222-222222222222");
        let (stopper, context) = AgentContext::alone(&topic_root, clock, "b1");
        let limits = Limits { server_port: 0, leave_notice_ms: 0, ..crate::device::limits() };
        let cluster = kubeapi::ApiClient::from_client(Client::new(sim.service(), "default"));
        let mut agent = JoinSet::new();
        agent.spawn(async move { zedkube::run(context, limits, cluster).await.unwrap() });
        let site = Self { _root: root, topic_root, diary, _ear: ear, _stopper: stopper, _agent: agent, sim };
        site.write("run/zedagent/EdgeNodeInfo", &json!({ "DeviceName": "n1", "DeviceID": DEVICE }));
        site.config(true);
        let port = json!({ "IfName": "lo", "Logicallabel": "lan", "ClusterIPAddr": "127.0.0.1" });
        site.write("run/nim/DeviceNetworkStatus", &json!({ "Ports": [port] }));
        site
    }

    fn config(&self, valid: bool) {
        let prefix = json!({ "IP": "127.0.0.1", "Mask": "/wAAAA==" });
        let config = json!({
            "Initialized": true, "Valid": valid, "ClusterInterface": "lan", "ClusterIPPrefix": prefix,
        });
        let decided = if valid { "member" } else { "no-cluster" };
        self.write("run/zedagent/ClusterDecision", &json!({ "Membership": decided }));
        self.write("run/zedagent/EdgeNodeClusterConfig", &config);
    }

    fn write(&self, topic: &str, value: &Value) {
        let file = self.topic_root.path(topic).join("global.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        store::replace(&file, value.to_string().as_bytes()).unwrap();
    }

    async fn until_line(&self, text: &str, count: usize) {
        let came = tokio::time::timeout(PATIENCE, self.diary.until(text, count)).await;
        assert!(came.is_ok(), "waited for {text}\n{:#?}", self.diary.lines());
    }

    async fn address(&self) -> SocketAddr {
        self.until_line(LISTENS, 1).await;
        let lines = self.diary.lines();
        let line = &lines.iter().find(|it| it.text.contains(LISTENS)).unwrap().text;
        let address = line.split("127.0.0.1:").nth(1).unwrap();
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    /// The page, once it holds `text`.
    async fn page_with(&self, address: SocketAddr, text: &'static str) -> String {
        let asked = async {
            loop {
                let page = spawn_blocking(move || get(address)).await.unwrap();
                if page.contains(text) {
                    return page;
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap()
    }

    async fn held_drain(&self) {
        let request = json!({ "RequestedAt": "2026-03-14T09:30:00Z", "RequestedBy": 2, "Context": "reboot" });
        self.write("run/zedagent/NodeDrainRequest", &request);
        self.until_line("nodedrain-step:drain-attempt", 1).await;
    }
}

fn get(address: SocketAddr) -> String {
    get_at(address, "/")
}

fn get_at(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: n1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn what_a_node_says_to_its_peers_is_its_name_its_etcd_and_the_turn_that_it_holds() {
    let site = Site::new().await;
    let address = site.address().await;
    site.held_drain().await;
    let answer = spawn_blocking(move || get_at(address, "/outage")).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/json"), "{head}");
    assert_eq!(body, r#"{"Node":"n1","Etcd":null,"Turn":{"Idle":false,"Fence":1},"Hears":{}}"#);
}

#[tokio::test]
async fn the_page_of_a_whole_agent_names_what_holds_its_drain_and_ends_with_its_membership() {
    let site = Site::new().await;
    let address = site.address().await;
    site.page_with(address, "<h1>IN SERVICE</h1>").await;
    site.held_drain().await;
    let page = site.page_with(address, "shop/web-").await;
    assert!(page.contains("budget") && page.contains("reboot"), "{page}");
    let metrics = spawn_blocking(move || get_at(address, "/metrics")).await.unwrap();
    assert!(metrics.contains("pillar_drain_blocked_pods{code=\"budget"), "{metrics}");
    site.config(false);
    site.until_line("status server has stopped listening", 1).await;
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn k7_the_page_says_safe_once_a_persons_drain_is_proved_and_no_longer_once_it_is_withdrawn() {
    const SAFE: &str = "<h1>SAFE TO WORK ON</h1>";
    let site = Site::new().await;
    let address = site.address().await;
    let context = "operator field: new disk";
    let request = json!({ "RequestedAt": "2026-03-14T09:30:00Z", "RequestedBy": 4, "Context": context });
    site.write("run/zedbox/NodeDrainRequest", &request);
    let page = site.page_with(address, "<p>work on the node waits, 1 of 1 pod cannot leave</p>").await;
    assert!(!page.contains(SAFE) && page.contains("<b>Do: </b>"), "{page}");
    let open = |budget: &mut Value| budget["spec"]["minAvailable"] = 0.into();
    assert!(site.sim.edit("policy/poddisruptionbudgets", "shop", "web", open));
    site.page_with(address, SAFE).await;
    let (facts, drain) =
        spawn_blocking(move || (get_at(address, "/status.json"), get_at(address, "/drain"))).await.unwrap();
    assert!(facts.contains("\"safe\"") && drain.contains("\"safe\""), "{facts} {drain}");
    std::fs::remove_file(site.topic_root.path("run/zedbox/NodeDrainRequest/global.json")).unwrap();
    site.page_with(address, "<h1>IN SERVICE</h1>").await;
}

#[tokio::test]
async fn a_browser_on_a_phone_shows_what_holds_the_drain() {
    let Some(browser) = browser() else {
        // Past the test's own output, which nobody sees when it passes.
        writeln!(std::io::stderr(), "skipped in a browser: none of {BROWSERS:?} is installed").unwrap();
        return;
    };
    let site = Site::new().await;
    let address = site.address().await;
    site.held_drain().await;
    site.page_with(address, "shop/web-").await;
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page.png");
    drop(store::remove(&out));
    let profile = tempfile::tempdir().unwrap();
    let run = move |page: String, last: Vec<String>| {
        let mut command = Command::new(&browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,1200"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(last).arg(page);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (page, shot) = (format!("http://{address}/"), format!("--screenshot={}", out.display()));
    let dom = spawn_blocking(move || {
        run(page.clone(), vec![shot]);
        run(page, vec!["--dump-dom".to_owned()])
    });
    let dom = dom.await.unwrap();
    let headline = "<h1>BLOCKED</h1><p>reboot waits, 1 of 1 pod cannot leave</p>";
    assert!(dom.contains(headline) && dom.contains("BLOCKED \u{b7} n1 \u{b7} reboot waits"), "{dom}");
    let blockers = dom.split("<dl id=\"rows\"").nth(1).unwrap();
    assert!(blockers.contains("shop/web-") && blockers.contains("budget"), "{dom}");
    let nodes = dom.split("<table id=\"nodes\"").nth(1).unwrap();
    assert!(
        nodes.contains("n1 (this node)") && nodes.contains("cordoned") && nodes.contains("<td>n2</td>"),
        "{dom}"
    );
    assert!(nodes.contains("2 nodes as of "), "{dom}");
    let picture = store::read(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page.png"), 8 << 20);
    assert!(picture.unwrap().is_some_and(|it| it.starts_with(b"\x89PNG") && it.len() > 4096));
}

fn browser() -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/snap/bin"].map(Path::new);
    BROWSERS.iter().flat_map(|name| folders.map(|folder| folder.join(name))).find(|it| it.exists())
}
