//! Watches as clients of long standing use them: bookmarks, initial events, ends.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use kubesim::{Sim, SimBody, SimConfig};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

async fn nodes(sim: &Sim, query: &str) -> (u16, Watching) {
    let uri = format!("/api/v1/nodes?watch=true&{query}");
    let request = Request::builder().uri(uri).body(Full::from("")).unwrap();
    let response = sim.service().oneshot(request).await.unwrap();
    (response.status().as_u16(), Watching { body: response.into_body(), ready: Vec::new() })
}

struct Watching {
    body: SimBody,
    ready: Vec<Value>,
}

impl Watching {
    /// The next event, or `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        if self.ready.is_empty() {
            let bytes = self.body.frame().await?.unwrap().into_data().unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.ready = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        Some(self.ready.remove(0))
    }

    async fn kinds(&mut self, count: usize) -> Vec<Value> {
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(self.next().await.unwrap()["type"].clone());
        }
        kinds
    }
}

/// Two nodes, both Ready, so that nothing more happens to them.
async fn cluster() -> Sim {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "uuid-1");
    sim.add_node("n2", "uuid-2");
    let ready = |node: &Value| node["status"]["conditions"][0]["status"] == "True";
    sim.until("nodes", |nodes| nodes.iter().all(ready)).await;
    sim
}

#[expect(clippy::disallowed_methods, reason = "a test is its own door to the clock")]
fn now() -> Instant {
    Instant::now()
}

fn version(event: &Value) -> u64 {
    event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_comes_every_minute_and_tells_how_far_the_cluster_is() {
    let sim = cluster().await;
    let (_, mut watch) = nodes(&sim, "allowWatchBookmarks=true&timeoutSeconds=150").await;
    assert_eq!(watch.kinds(2).await, ["ADDED", "ADDED"]);
    let start = now();
    let first = watch.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("BOOKMARK"), &json!("Node")));
    assert_eq!(now() - start, Duration::from_secs(60));
    assert!(first["object"]["metadata"]["annotations"].is_null());
    // Something else changes: the watch says nothing of it, its bookmark does.
    sim.apply("configmaps", json!({ "metadata": { "name": "c", "namespace": "a" } }));
    let second = watch.next().await.unwrap();
    assert_eq!(second["type"], "BOOKMARK");
    assert!(version(&second) > version(&first), "{first} {second}");
    assert_eq!(now() - start, Duration::from_secs(120));
    // The last one comes with the end.
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert!(watch.next().await.is_none());
    assert_eq!(now() - start, Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn who_wants_no_bookmarks_gets_none_and_the_watch_ends_in_time() {
    let sim = cluster().await;
    let (_, mut watch) = nodes(&sim, "timeoutSeconds=200").await;
    watch.kinds(2).await;
    let start = now();
    assert!(watch.next().await.is_none());
    assert_eq!(now() - start, Duration::from_secs(200));
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let sim = cluster().await;
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (_, mut watch) = nodes(&sim, asked).await;
    assert_eq!(watch.kinds(2).await, ["ADDED", "ADDED"]);
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    sim.power("n1", false);
    let change = watch.next().await.unwrap();
    assert_eq!(change["type"], "MODIFIED");
    assert!(version(&change) > version(&end));
    // Also when it continues from a version that is known, what is there comes first.
    let (_, mut watch) = nodes(&sim, &format!("{asked}&resourceVersion={}", version(&end))).await;
    assert_eq!(watch.kinds(3).await, ["ADDED", "ADDED", "BOOKMARK"]);
    sim.until("nodes", |nodes| nodes[0]["status"]["conditions"][0]["status"] != "True").await;
    let asked = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=5";
    let (_, mut watch) = nodes(&sim, asked).await;
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn options_that_do_not_fit_are_refused() {
    let sim = cluster().await;
    for query in [
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
    ] {
        assert_eq!(nodes(&sim, query).await.0, 422, "{query}");
    }
    assert_eq!(nodes(&sim, "timeoutSeconds=soon").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_forgotten_is_told_as_an_event() {
    let sim = Sim::new(SimConfig { history: 3, ..SimConfig::default() });
    for number in 1..=5 {
        sim.apply("configmaps", json!({ "metadata": { "name": format!("c{number}") } }));
    }
    let (code, mut watch) = nodes(&sim, "resourceVersion=2").await;
    let event = watch.next().await.unwrap();
    assert_eq!((code, &event["type"]), (200, &json!("ERROR")));
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn who_likes_tables_best_gets_each_change_as_a_row() {
    let sim = cluster().await;
    let request = Request::builder()
        .uri("/api/v1/nodes?watch=true&fieldSelector=metadata.name=n2")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .body(Full::from(""));
    let response = sim.service().oneshot(request.unwrap()).await.unwrap();
    let mut watch = Watching { body: response.into_body(), ready: Vec::new() };
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    let rows = event["object"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["cells"][0], &rows[0]["cells"][1]), (1, &json!("n2"), &json!("Ready")));
    assert_eq!(rows[0]["object"]["metadata"]["name"], "n2");
}
