//! A node fails: what each controller does with its pods and volumes. On a paused clock.

use std::time::Duration;

use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};

use crate::controllers::{ATTACHMENTS, cluster, cluster_with, is_ready, pod, send, share, soon, within};

const MINUTE: Duration = Duration::from_secs(60);

fn taint(sim: &Sim, effect: &str) {
    let taint = json!({ "key": "node.kubernetes.io/out-of-service", "value": "any", "effect": effect });
    sim.edit("nodes", "", "n1", |it| {
        let mut all = it["spec"]["taints"].as_array().cloned().unwrap_or_default();
        all.retain(|it| it["key"] != taint["key"]);
        all.extend((!effect.is_empty()).then_some(taint));
        it["spec"]["taints"] = all.into();
    });
}

fn is_tainted(sim: &Sim) -> bool {
    sim.get("nodes", "", "n1").unwrap()["spec"]["taints"].to_string().contains("out-of-service")
}

/// On n1, with these tolerations.
fn add_pod(sim: &Sim, name: &str, tolerations: &Value) {
    sim.apply("pods", pod(name, &json!({ "nodeName": "n1", "tolerations": tolerations })));
}

fn tolerates(key: &str, seconds: Option<u64>) -> Value {
    let mut all = json!([{ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists" }]);
    if let Some(seconds) = seconds {
        all[0]["tolerationSeconds"] = seconds.into();
        all[0]["effect"] = "NoExecute".into();
    }
    all
}

async fn delete(sim: &Sim, pod: &str, options: &Value) {
    let uri = format!("/api/v1/namespaces/shop/pods/{pod}");
    assert_eq!(send(sim, "DELETE", &uri, "application/json", options).await.0, 200);
}

async fn force_delete(sim: &Sim, pod: &str) {
    delete(sim, pod, &json!({ "gracePeriodSeconds": 0 })).await;
}

/// Names of the pods, those that terminate with a `-` before them.
fn pods(sim: &Sim) -> Vec<String> {
    let name = |it: &Value| {
        let ends = if it["metadata"]["deletionTimestamp"].is_null() { "" } else { "-" };
        format!("{ends}{}", it["metadata"]["name"].as_str().unwrap())
    };
    sim.list("pods").iter().map(name).collect()
}

async fn pass(minutes: u32) {
    tokio::time::sleep(MINUTE * minutes).await;
}

async fn all_ready(sim: &Sim) {
    soon(sim, "pods", |all| all.iter().all(is_ready)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_dead_node_go_with_the_taint_only_and_a_finalizer_holds_their_object() {
    let sim = cluster().await;
    sim.add_daemon_set("shop", "agent");
    add_pod(&sim, "asked", &json!([]));
    add_pod(&sim, "held", &json!([]));
    add_pod(&sim, "later", &tolerates("out-of-service", Some(90)));
    add_pod(&sim, "never", &tolerates("out-of-service", None));
    sim.edit("pods", "shop", "held", |it| it["metadata"]["finalizers"] = json!(["a/b"]));
    all_ready(&sim).await;
    sim.power("n1", false);
    delete(&sim, "asked", &json!({})).await;
    pass(60).await;
    assert_eq!(pods(&sim), ["agent-n1", "agent-n2", "-asked", "held", "later", "never"]);
    // Pod GC looks at the key only.
    taint(&sim, "NoSchedule");
    soon(&sim, "pods", |all| all.len() == 5).await;
    pass(60).await;
    assert_eq!(pods(&sim), ["agent-n1", "agent-n2", "held", "later", "never"]);
    taint(&sim, "NoExecute");
    within(&sim, Duration::from_secs(2), "pods", |all| all.len() == 4).await;
    tokio::time::sleep(Duration::from_secs(80)).await;
    assert_eq!(pods(&sim), ["agent-n2", "-held", "later", "never"]);
    let held = sim.get("pods", "shop", "held").unwrap();
    assert_eq!(
        (&held["status"]["phase"], &held["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("Failed"), &json!(0))
    );
    let conditions = held["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["reason"] == "DeletionByTaintManager"), "{held}");
    sim.edit("pods", "shop", "held", |it| it["metadata"]["finalizers"] = json!([]));
    soon(&sim, "pods", |all| all.len() == 2).await;
    assert_eq!(pods(&sim), ["agent-n2", "never"]);
    // Nobody removes the taint, and the node gets no pod before.
    sim.power("n1", true);
    soon(&sim, "nodes", |all| all.iter().all(is_ready)).await;
    pass(60).await;
    assert_eq!((pods(&sim), is_tainted(&sim)), (vec!["agent-n2".to_owned(), "never".to_owned()], true));
    taint(&sim, "");
    soon(&sim, "pods", |all| all.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_tainted_node_that_is_ready_end_by_its_kubelet() {
    let sim = cluster().await;
    add_pod(&sim, "a", &json!([]));
    sim.edit("pods", "shop", "a", |it| it["metadata"]["finalizers"] = json!(["a/b"]));
    all_ready(&sim).await;
    taint(&sim, "NoExecute");
    soon(&sim, "pods", |all| all[0]["metadata"]["deletionGracePeriodSeconds"] == 0).await;
    pass(60).await;
    assert_eq!(sim.get("pods", "shop", "a").unwrap()["status"]["phase"], "Running", "pod GC leaves it");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_loses_its_pods_after_their_time_where_that_is_configured() {
    let all = ["agent-n1", "agent-n2", "brief", "plain", "stays"];
    for (seconds, after) in [(0, all), (300, ["agent-n1", "agent-n2", "-brief", "-plain", "stays"])] {
        let unreachable_toleration = Duration::from_secs(seconds);
        let sim = cluster_with(SimConfig { unreachable_toleration, ..SimConfig::default() }).await;
        sim.add_daemon_set("shop", "agent");
        add_pod(&sim, "plain", &json!([]));
        add_pod(&sim, "brief", &tolerates("unreachable", Some(15)));
        add_pod(&sim, "stays", &tolerates("unreachable", None));
        all_ready(&sim).await;
        // The taint comes after 40 s; a node that is back stops the clock.
        sim.power("n1", false);
        tokio::time::sleep(Duration::from_secs(50)).await;
        sim.power("n1", true);
        tokio::time::sleep(Duration::from_secs(20)).await;
        sim.power("n1", false);
        tokio::time::sleep(Duration::from_secs(335)).await;
        let early = ["agent-n1", "agent-n2", if seconds == 0 { "brief" } else { "-brief" }, "plain", "stays"];
        assert_eq!(pods(&sim), early);
        pass(1).await;
        assert_eq!(pods(&sim), after);
    }
}

/// A pod `a` on n1 that uses a volume, and one on n2 that waits for it.
async fn multi_attach() -> Sim {
    let sim = cluster().await;
    sim.add_claim("shop", "data", "pv-1");
    sim.add_mounting_pod("shop", "a", "n1", "data");
    all_ready(&sim).await;
    sim.add_mounting_pod("shop", "b", "n2", "data");
    sim
}

fn is_held_back(sim: &Sim) -> bool {
    let attached: Vec<Value> =
        sim.list(ATTACHMENTS).iter().map(|it| it["spec"]["nodeName"].clone()).collect();
    attached == ["n1"] && sim.get("pods", "shop", "b").unwrap()["status"]["phase"] == "Pending"
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_while_its_volume_is_attached_to_another_node_unless_both_may_use_it() {
    let sim = multi_attach().await;
    pass(60).await;
    assert!(is_held_back(&sim));
    delete(&sim, "a", &json!({})).await;
    all_ready(&sim).await;
    assert_eq!(sim.list(ATTACHMENTS).len(), 1);

    let sim = cluster().await;
    sim.add_claim("shop", "data", "pv-1");
    share(&sim, "pv-1");
    sim.add_mounting_pod("shop", "a", "n1", "data");
    sim.add_mounting_pod("shop", "b", "n2", "data");
    all_ready(&sim).await;
    assert_eq!((sim.list("pods").len(), sim.list(ATTACHMENTS).len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn volumes_of_a_dead_node_stay_six_minutes_longer_than_their_pods_but_for_the_taint_or_its_return() {
    let sim = multi_attach().await;
    sim.power("n1", false);
    delete(&sim, "a", &json!({})).await;
    pass(60).await;
    assert!(is_held_back(&sim));
    force_delete(&sim, "a").await;
    pass(3).await;
    // One more use: the time begins again.
    sim.add_mounting_pod("shop", "c", "n1", "data");
    pass(1).await;
    force_delete(&sim, "c").await;
    tokio::time::sleep(Duration::from_secs(355)).await;
    assert!(is_held_back(&sim));
    within(&sim, Duration::from_secs(10), "pods", |all| all.iter().all(is_ready)).await;

    for act in [|sim: &Sim| taint(sim, "NoExecute"), |sim: &Sim| sim.power("n1", true)] {
        let sim = multi_attach().await;
        sim.power("n1", false);
        force_delete(&sim, "a").await;
        pass(3).await;
        assert!(is_held_back(&sim));
        act(&sim);
        within(&sim, Duration::from_secs(10), "pods", |all| all.iter().all(is_ready)).await;
    }
    // With the pod still there: the taint alone does all of it.
    let sim = multi_attach().await;
    sim.power("n1", false);
    pass(10).await;
    assert!(is_held_back(&sim));
    taint(&sim, "NoExecute");
    within(&sim, Duration::from_secs(10), "pods", |all| all.len() == 1 && is_ready(&all[0])).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_runs_on_what_the_api_has_removed_until_it_is_back_or_without_power() {
    for has_power in [true, false] {
        let sim = cluster().await;
        let without_pods = sim.snapshot();
        for name in ["a", "b", "c", "d"] {
            add_pod(&sim, name, &json!([]));
        }
        all_ready(&sim).await;
        delete(&sim, "d", &json!({})).await;
        soon(&sim, "pods", |all| all.len() == 3).await;
        let all = sim.live_pods("n1");
        sim.cut_off("n1", true);
        delete(&sim, "a", &json!({})).await;
        pass(60).await;
        assert_eq!((pods(&sim).as_slice(), all.len()), (["-a", "b", "c"].map(str::to_owned).as_slice(), 3));
        force_delete(&sim, "b").await;
        taint(&sim, "NoExecute");
        soon(&sim, "pods", <[Value]>::is_empty).await;
        sim.restore(&without_pods);
        assert_eq!(sim.live_pods("n1"), all, "its kubelet knows of nothing");
        if has_power {
            sim.cut_off("n1", false);
        } else {
            sim.power("n1", false);
            pass(1).await;
            sim.power("n1", true);
        }
        pass(1).await;
        assert!(sim.live_pods("n1").is_empty());
    }
}
