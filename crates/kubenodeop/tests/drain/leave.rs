//! Taking a node out of its cluster, against the embedded cluster.

use std::time::Duration;

use crate::stage::{self, are_ready, clock, cluster, on_n1};
use kubeapi::ApiClient;
use kubenodeop::AttemptRules;
use kubenodeop::leave::{Leave, LeaveState, leave};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};
use tokio::sync::watch;
use topics::LeavePhase;

const REACH: Duration = Duration::from_secs(60);
const NODE: &str = "/api/v1/nodes/n1";

fn order() -> Leave {
    Leave {
        drain: stage::order(AttemptRules::default()),
        attempt: watch::channel(Duration::from_secs(600)).1,
        tries: 3,
        pause: Duration::from_secs(5),
        reach: REACH,
    }
}

/// The cluster of the stage with an application on n1.
async fn with_app() -> (Sim, ApiClient) {
    let (sim, cluster) = cluster(2).await;
    sim.add_bare_pod("eve-kube-app", "app", "n1");
    sim.until("pods", |pods| are_ready(pods, 12)).await;
    (sim, cluster)
}

fn replica(sim: &Sim, name: &str, node: &str) {
    sim.apply(
        "longhorn/replicas",
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
            "metadata": { "namespace": "longhorn-system", "name": name }, "spec": { "nodeID": node },
        }),
    );
}

/// How the leave ended, and what it passed over.
async fn left(cluster: &ApiClient) -> (LeavePhase, String, Vec<String>) {
    let told = watch::Sender::new(LeaveState::default());
    let (phase, why) = leave(cluster, &order(), clock(), &told).await;
    let passed_over = told.borrow().passed_over.clone();
    (phase, why, passed_over)
}

/// What is expected of one that passes nothing over.
fn ends(phase: LeavePhase, why: &str) -> (LeavePhase, String, Vec<String>) {
    (phase, why.to_owned(), vec![])
}

const DELETED: &str = "its Node object is deleted";

fn is_there(sim: &Sim) -> bool {
    sim.get("nodes", "", "n1").is_some()
}

/// Writes to the API in their order, as `DELETE /api/v1/nodes/n1`.
fn writes(sim: &Sim) -> Vec<String> {
    let seen = sim.faults().requests();
    let writes = seen.iter().filter(|it| it.method != "GET");
    writes.map(|it| format!("{} {}", it.method, it.uri.split('?').next().unwrap_or_default())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_without_replicas_is_cordoned_loses_its_applications_and_its_object_and_nothing_else() {
    let (sim, cluster) = with_app().await;
    replica(&sim, "r2", "n2");
    let others: Vec<String> = on_n1(&sim.list("pods")).into_iter().filter(|it| it != "app").collect();
    assert_eq!(left(&cluster).await, ends(LeavePhase::Left, DELETED));
    assert_eq!(
        writes(&sim),
        [
            "PATCH /api/v1/nodes/n1",
            "PATCH /api/v1/namespaces/eve-kube-app/pods/app/status",
            "DELETE /api/v1/namespaces/eve-kube-app/pods/app",
            "DELETE /api/v1/nodes/n1"
        ]
    );
    assert!(!is_there(&sim));
    assert!(others.iter().all(|it| on_n1(&sim.list("pods")).contains(it)), "no replicas here, no drain");
    // Begun again, as after a crash at the very end.
    assert_eq!(left(&cluster).await, ends(LeavePhase::Left, "its Node object had been deleted already"));
}

#[tokio::test(start_paused = true)]
async fn a_node_with_replicas_or_shards_is_drained_before_its_object_goes() {
    for sharded in [false, true] {
        let (sim, cluster) = with_app().await;
        if sharded {
            sim.add_sharded_volume("shop", "data", "pvc-1", &["n1", "n2", "n3"], 1);
        } else {
            replica(&sim, "r1", "n1");
        }
        assert_eq!(left(&cluster).await, ends(LeavePhase::Left, DELETED));
        let writes = writes(&sim);
        let last = writes.iter().rposition(|it| it.ends_with("/eviction")).unwrap();
        assert_eq!(writes[last + 1..], ["DELETE /api/v1/nodes/n1"]);
        assert!(!is_there(&sim));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_longhorn_has_no_replicas() {
    let (sim, cluster) = with_app().await;
    sim.faults().script("GET", "/replicas", 1, ScriptedFault::status(404, "NotFound"));
    assert_eq!(left(&cluster).await, ends(LeavePhase::Left, DELETED));
    assert!(!writes(&sim).iter().any(|it| it.ends_with("/eviction")));
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_fails_is_told_and_the_node_goes_all_the_same() {
    let (sim, cluster) = with_app().await;
    replica(&sim, "r1", "n1");
    sim.edit("policy/poddisruptionbudgets", "shop", "web", |it| it["spec"]["minAvailable"] = json!(3));
    let now = clock();
    let (end, _, passed_over) = left(&cluster).await;
    assert_eq!(end, LeavePhase::Left);
    assert!(passed_over.len() == 1 && passed_over[0].contains("could not be drained"), "{passed_over:?}");
    assert!(now().since_start() >= Duration::from_secs(600), "not before the attempt's own limit");
    assert!(!is_there(&sim));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_is_tried_passed_over_and_named() {
    for (method, path, words, evicts) in [
        ("PATCH", NODE, "the node could not be cordoned", false),
        ("GET", "/namespaces/eve-kube-app/pods", "pods of applications could not be deleted", false),
        ("DELETE", "/pods/app", "pods of applications could not be deleted: 1 of them", false),
        // Where nobody knows, there may be replicas.
        ("GET", "/replicas", "replicas could not be looked for", true),
    ] {
        let (sim, cluster) = with_app().await;
        sim.faults().script(method, path, 3, ScriptedFault::status(500, "InternalError"));
        let (end, _, passed_over) = left(&cluster).await;
        assert_eq!(end, LeavePhase::Left, "{method} {path}");
        assert!(
            passed_over.len() == 1 && passed_over[0].starts_with(words),
            "{method} {path}: {passed_over:?}"
        );
        assert_eq!(writes(&sim).iter().any(|it| it.ends_with("/eviction")), evicts, "{method} {path}");
        // One failure less is none.
        let (sim, cluster) = with_app().await;
        sim.faults().script(method, path, 2, ScriptedFault::status(500, "InternalError"));
        assert_eq!(left(&cluster).await, ends(LeavePhase::Left, DELETED), "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_only_node_of_a_cluster_has_nothing_to_leave() {
    let (sim, cluster) = with_app().await;
    assert!(sim.remove("nodes", "", "n2") && sim.remove("nodes", "", "n3"));
    let why = "it is the only node that its cluster's API knows: there is nothing to leave";
    assert_eq!(left(&cluster).await, ends(LeavePhase::Alone, why));
    assert_eq!(writes(&sim), Vec::<String>::new());
    assert!(is_there(&sim));
}

#[tokio::test(start_paused = true)]
async fn the_object_of_another_device_is_not_touched() {
    let (sim, cluster) = with_app().await;
    sim.edit("nodes", "", "n1", |it| it["metadata"]["labels"]["node-uuid"] = json!("another"));
    let end = left(&cluster).await;
    assert!(
        end.0 == LeavePhase::Failed
            && end.1.starts_with("its Node object is not touched")
            && end.1.contains("another"),
        "{end:?}"
    );
    assert_eq!(writes(&sim), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_out_of_reach_and_an_object_that_stays_end_within_their_time() {
    let (sim, cluster) = with_app().await;
    sim.faults().script("GET", "/api/v1/nodes", u32::MAX, ScriptedFault::Cut);
    let now = clock();
    let end = left(&cluster).await;
    assert!(end.0 == LeavePhase::NotReached, "{end:?}");
    assert!(now().since_start() >= REACH && now().since_start() < REACH * 2, "{:?}", now());
    assert_eq!(writes(&sim), Vec::<String>::new());

    sim.faults().clear();
    sim.faults().script("DELETE", NODE, u32::MAX, ScriptedFault::status(403, "Forbidden"));
    let now = clock();
    let end = left(&cluster).await;
    assert!(
        end.0 == LeavePhase::Failed && end.1.contains("could not be deleted: ") && end.1.contains("403"),
        "{end:?}"
    );
    assert!(now().since_start() >= REACH && now().since_start() < REACH * 2, "{:?}", now());
    assert!(is_there(&sim));
}

#[tokio::test(start_paused = true)]
async fn cut_off_in_any_step_and_begun_anew_the_node_leaves() {
    for stage in [
        LeavePhase::Reaching,
        LeavePhase::Cordoning,
        LeavePhase::RemovingApps,
        LeavePhase::CheckingReplicas,
        LeavePhase::Draining,
        LeavePhase::Deleting,
    ] {
        let (sim, cluster) = with_app().await;
        replica(&sim, "r1", "n1");
        let told = watch::Sender::new(LeaveState::default());
        let mut seen = told.subscribe();
        let order = order();
        tokio::select! {
            biased;
            reached = seen.wait_for(|it| it.stage == stage) => drop(reached.unwrap()),
            ended = leave(&cluster, &order, clock(), &told) => panic!("{stage:?} was not reached: {ended:?}"),
        }
        assert!(is_there(&sim), "{stage:?}");
        assert_eq!(left(&cluster).await, ends(LeavePhase::Left, DELETED), "{stage:?}");
        assert!(!is_there(&sim), "{stage:?}");
        let rest: Vec<Value> = sim.list("pods");
        assert!(!on_n1(&rest).iter().any(|it| it == "app" || it.starts_with("web")), "{stage:?}");
    }
}
