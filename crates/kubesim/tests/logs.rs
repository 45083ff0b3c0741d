//! Logs of containers as the API gives them.

use kube::Client;
use kubesim::{Sim, SimConfig};
use serde_json::json;

async fn ask(sim: &Sim, query: &str) -> Result<String, u16> {
    let client = Client::new(sim.service(), "default");
    let uri = format!("/api/v1/namespaces/a/pods/p/log{query}");
    match client.request_text(http::Request::get(uri).body(vec![]).unwrap()).await {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{other}"),
    }
}

fn pod(sim: &Sim, containers: &[&str]) {
    let containers: Vec<_> = containers.iter().map(|it| json!({ "name": it, "image": "i" })).collect();
    sim.apply(
        "pods",
        json!({ "metadata": { "name": "p", "namespace": "a" }, "spec": { "containers": containers }, "status": {} }),
    );
}

#[tokio::test]
async fn a_log_is_given_as_it_is_asked_for() {
    let sim = Sim::new(SimConfig::default());
    assert_eq!(ask(&sim, "").await, Err(404), "no such pod");
    pod(&sim, &["c"]);
    assert_eq!(ask(&sim, "").await, Ok(String::new()));
    sim.log("a", "p", "c", "2026-03-14T09:30:00.999999999Z", "one");
    sim.log("a", "p", "c", "2026-03-14T09:30:01.5Z", "two");
    sim.log_part("a", "p", "c", "2026-03-14T09:30:02Z", "beg");
    assert_eq!(ask(&sim, "?container=c").await.unwrap(), "one\ntwo\nbeg");
    assert_eq!(ask(&sim, "?limitBytes=6").await.unwrap(), "one\ntw");
    let stamped = "2026-03-14T09:30:01.500000000Z two\n2026-03-14T09:30:02.000000000Z beg";
    // Fractions of a second do not come through to the node.
    let since = ask(&sim, "?timestamps=true&sinceTime=2026-03-14T09:30:01.9Z").await;
    assert_eq!(since.as_deref(), Ok(stamped));
    assert_eq!(ask(&sim, "?container=d").await, Err(400));
    assert_eq!(ask(&sim, "?sinceTime=now").await, Err(400));
    pod(&sim, &["c", "d"]);
    assert_eq!(ask(&sim, "").await, Err(400), "which container?");
}

#[tokio::test]
async fn the_run_before_can_be_read_and_no_earlier_one() {
    let sim = Sim::new(SimConfig::default());
    pod(&sim, &["c"]);
    sim.log("a", "p", "c", "2026-03-14T09:30:00Z", "one");
    assert_eq!(ask(&sim, "?previous=true").await, Err(400));
    sim.renew_log("a", "p", "c");
    sim.log("a", "p", "c", "2026-03-14T09:30:01Z", "two");
    assert_eq!(ask(&sim, "?previous=true").await.unwrap(), "one\n");
    assert_eq!(ask(&sim, "").await.unwrap(), "two\n");
    sim.renew_log("a", "p", "c");
    sim.run_container("a", "p", "c", 2, &json!({ "running": {} }));
    assert_eq!(ask(&sim, "?previous=true").await.unwrap(), "two\n");
    sim.log("a", "p", "c", "2026-03-14T09:30:02Z", "three");
    sim.rotate_log("a", "p", "c");
    assert_eq!(ask(&sim, "").await.unwrap(), "");
    let status = &sim.get("pods", "a", "p").unwrap()["status"]["containerStatuses"][0];
    assert_eq!((&status["restartCount"], &status["state"]), (&json!(2), &json!({ "running": {} })));
}
