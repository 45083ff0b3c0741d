//! Volumes and replicas as Longhorn treats them; rows are those of the tables on virtual machines and storage.

use std::time::Duration;

use kubesim::Sim;
use serde_json::{Value, json};

use crate::controllers::share;
use crate::machines::{BUDGETS, soon};

const NAMESPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const ENGINES: &str = "longhorn/engines";
const REPLICAS: &str = "longhorn/replicas";
const MANAGERS: &str = "longhorn/instancemanagers";
const TICKETS: &str = "longhorn/volumeattachments";

/// Three nodes with Longhorn, and a volume pvc-1 with replicas on some of them.
async fn cluster(policy: &str, nodes: &[&str]) -> Sim {
    let sim = Sim::of_nodes(3);
    sim.add_longhorn(policy);
    soon(&sim, BUDGETS, |all| all.len() == 3).await;
    sim.add_longhorn_volume("shop", "data", "pvc-1", nodes);
    sim
}

/// The same, and a pod on n1 that uses the volume.
async fn attached(policy: &str, nodes: &[&str]) -> Sim {
    let sim = cluster(policy, nodes).await;
    sim.add_mounting_pod("shop", "db", "n1", "data");
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    sim
}

/// Long enough for everything but the wait for a failed replica.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

fn cordon(sim: &Sim, node: &str, on: bool) {
    sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = on.into());
}

fn volume(sim: &Sim) -> Value {
    sim.get(VOLUMES, NAMESPACE, "pvc-1").unwrap()
}

fn engine(sim: &Sim) -> Value {
    sim.get(ENGINES, NAMESPACE, "pvc-1-e-0").unwrap()
}

fn has_budget(sim: &Sim, node: &str) -> bool {
    sim.get(BUDGETS, NAMESPACE, &format!("instance-manager-{node}")).is_some()
}

/// Nodes of the healthy replicas, sorted.
fn healthy(replicas: &[Value]) -> Vec<String> {
    let good = |it: &&Value| it["spec"]["healthyAt"] != "" && it["spec"]["failedAt"] == "";
    let mut nodes: Vec<String> =
        replicas.iter().filter(good).map(|it| it["spec"]["nodeID"].as_str().unwrap().to_owned()).collect();
    nodes.sort();
    nodes
}

fn on<'a>(replicas: &'a [Value], node: &str) -> Option<&'a Value> {
    replicas.iter().find(|it| it["spec"]["nodeID"] == node)
}

#[tokio::test(start_paused = true)]
async fn e1_a_volume_is_attached_while_an_attachment_asks_for_it() {
    let sim = attached("block-if-contains-last-replica", &["n1", "n2"]).await;
    let (held, running) = (volume(&sim), engine(&sim));
    let status = &held["status"];
    assert_eq!((&status["state"], &status["currentNodeID"]), (&json!("attached"), &json!("n1")));
    assert_eq!(status["kubernetesStatus"]["workloadsStatus"][0]["podName"], "db");
    assert_eq!(running["status"]["currentState"], "running");
    let modes = running["status"]["replicaModeMap"].as_object().unwrap();
    assert!(modes.len() == 2 && modes.values().all(|it| it == "RW"), "{modes:?}");
    soon(&sim, MANAGERS, |all| all[0]["status"]["instanceEngines"]["pvc-1-e-0"].is_object()).await;
    let ticket = &sim.get(TICKETS, NAMESPACE, "pvc-1").unwrap()["spec"]["attachmentTickets"]["csi-pvc-1-n1"];
    assert_eq!((&ticket["type"], &ticket["nodeID"]), (&json!("csi-attacher"), &json!("n1")));

    sim.remove("pods", "shop", "db");
    soon(&sim, "storage/volumeattachments", <[Value]>::is_empty).await;
    soon(&sim, VOLUMES, |all| all[0]["status"]["state"] == "detached").await;
    let (held, stopped) = (volume(&sim), engine(&sim));
    assert_eq!(
        (&held["status"]["robustness"], &held["status"]["currentNodeID"]),
        (&json!("unknown"), &json!(""))
    );
    assert_eq!(stopped["status"]["currentState"], "stopped");
    assert!(stopped["status"]["replicaModeMap"].is_null() && stopped["status"]["rebuildStatus"].is_null());
    assert!(sim.list(REPLICAS).iter().all(|it| it["status"]["currentState"] == "stopped"));
    let empty = |it: &Value| {
        it["status"]["instanceEngines"] == json!({}) && it["status"]["instanceReplicas"] == json!({})
    };
    soon(&sim, MANAGERS, |all| all.iter().all(empty)).await;
}

#[tokio::test(start_paused = true)]
async fn b4_a_ticket_of_another_type_keeps_a_volume_attached() {
    let sim = attached("always-allow", &["n1", "n2"]).await;
    sim.edit(TICKETS, NAMESPACE, "pvc-1", |it| {
        it["spec"]["attachmentTickets"]["longhorn-ui"] =
            json!({ "id": "longhorn-ui", "type": "longhorn-api", "nodeID": "n1" });
    });
    cordon(&sim, "n1", true);
    sim.remove("pods", "shop", "db");
    a_while().await;
    assert_eq!(volume(&sim)["status"]["state"], "attached");
    assert!(has_budget(&sim, "n1"));
    sim.edit(TICKETS, NAMESPACE, "pvc-1", |it| it["spec"]["attachmentTickets"] = json!({}));
    soon(&sim, BUDGETS, |_| !has_budget(&sim, "n1")).await;
}

#[tokio::test(start_paused = true)]
async fn b3_when_a_cordon_takes_the_managers_budget_away() {
    // Policy; whether it goes while attached elsewhere: with a copy elsewhere, with the only copy here, with it here
    // and detached.
    for (policy, copied, only, only_detached) in [
        ("block-if-contains-last-replica", true, false, false),
        ("allow-if-replica-is-stopped", true, false, true),
        ("always-allow", true, true, true),
        // These two make a copy first.
        ("block-for-eviction-if-contains-last-replica", true, true, true),
        ("block-for-eviction", true, true, true),
    ] {
        for (nodes, is_attached, expected) in
            [(["n1", "n2"].as_slice(), true, copied), (&["n1"], true, only), (&["n1"], false, only_detached)]
        {
            let sim = cluster(policy, nodes).await;
            if is_attached {
                sim.add_mounting_pod("shop", "db", "n3", "data");
                soon(&sim, VOLUMES, |all| all[0]["status"]["state"] == "attached").await;
            }
            assert!(has_budget(&sim, "n1"));
            cordon(&sim, "n1", true);
            a_while().await;
            let at = format!("{policy} {nodes:?} attached: {is_attached}");
            assert_eq!(has_budget(&sim, "n1"), !expected, "{at}");
            let evicts =
                policy == "block-for-eviction" || policy.starts_with("block-for") && nodes.len() == 1;
            assert_eq!(on(&sim.list(REPLICAS), "n1").is_none(), evicts, "{at}");
            cordon(&sim, "n1", false);
            soon(&sim, BUDGETS, |_| has_budget(&sim, "n1")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b3_nothing_goes_while_a_volume_is_attached_here_or_all_nodes_are_cordoned() {
    let sim = attached("always-allow", &["n1", "n2"]).await;
    cordon(&sim, "n1", true);
    a_while().await;
    assert!(has_budget(&sim, "n1"), "an engine runs here");
    sim.remove("pods", "shop", "db");
    soon(&sim, BUDGETS, |_| !has_budget(&sim, "n1")).await;

    let sim = cluster("block-if-contains-last-replica", &["n1", "n2"]).await;
    for node in ["n2", "n3", "n1"] {
        cordon(&sim, node, true);
    }
    a_while().await;
    // n3 has no replica; the other two wait for each other.
    assert_eq!(["n1", "n2", "n3"].map(|node| has_budget(&sim, node)), [true, true, false]);
    cordon(&sim, "n2", false);
    soon(&sim, BUDGETS, |_| !has_budget(&sim, "n1")).await;
}

#[tokio::test(start_paused = true)]
async fn b3_block_for_eviction_waits_for_every_replica_although_it_is_safe_elsewhere() {
    let sim = attached("block-for-eviction", &["n2", "n1"]).await;
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/unschedulable"] = "insufficient storage".into();
    });
    cordon(&sim, "n2", true);
    a_while().await;
    assert!(has_budget(&sim, "n2"));
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| it["metadata"]["annotations"] = json!({}));
    soon(&sim, BUDGETS, |_| !has_budget(&sim, "n2")).await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1", "n3"]);
}

#[tokio::test(start_paused = true)]
async fn b4_the_replica_of_a_strict_local_volume_never_leaves() {
    let sim = attached("block-for-eviction", &["n2"]).await;
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| it["spec"]["dataLocality"] = "strict-local".into());
    cordon(&sim, "n2", true);
    a_while().await;
    assert!(has_budget(&sim, "n2"));
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n2"]);
}

#[tokio::test(start_paused = true)]
async fn b7_an_evicted_replica_is_copied_first_and_told_in_percent() {
    let sim = attached("block-for-eviction-if-contains-last-replica", &["n1"]).await;
    cordon(&sim, "n1", true);
    soon(&sim, REPLICAS, |all| on(all, "n1").is_some_and(|it| it["spec"]["evictionRequested"] == true)).await;
    let mut seen = Vec::new();
    for wanted in [0, 25, 50, 75] {
        let at = |it: &Value| {
            it["status"]["rebuildStatus"]
                .as_object()
                .and_then(|all| all.values().next()?["progress"].as_u64())
        };
        soon(&sim, ENGINES, |all| at(&all[0]) == Some(wanted)).await;
        let modes = engine(&sim)["status"]["replicaModeMap"].as_object().cloned().unwrap_or_default();
        seen.push(modes.values().filter(|it| *it == "WO").count());
    }
    assert_eq!(seen[1..], [1, 1, 1]);
    let running = engine(&sim);
    let (at, _) = running["status"]["rebuildStatus"].as_object().unwrap().iter().next().unwrap();
    let addresses = running["status"]["currentReplicaAddressMap"].as_object().unwrap();
    assert!(
        addresses.values().any(|it| format!("tcp://{}", it.as_str().unwrap()) == *at),
        "joined by the address"
    );
    assert_eq!(sim.get("longhorn/nodes", NAMESPACE, "n1").unwrap()["status"]["autoEvicting"], true);
    soon(&sim, REPLICAS, |all| all.len() == 1 && healthy(all) != ["n1"]).await;
    assert!(sim.list("events").iter().any(|it| it["reason"] == "Rebuilt"));
}

#[tokio::test(start_paused = true)]
async fn b7_an_uncordon_calls_the_eviction_off() {
    let sim = attached("block-for-eviction", &["n1"]).await;
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/rebuild"] = "hangs".into();
    });
    cordon(&sim, "n1", true);
    let half = |it: &Value| it["status"]["rebuildStatus"].to_string().contains("\"progress\":50");
    soon(&sim, ENGINES, |all| half(&all[0])).await;
    a_while().await;
    assert!(half(&engine(&sim)), "it hangs");
    cordon(&sim, "n1", false);
    soon(&sim, REPLICAS, |all| all.iter().all(|it| it["spec"]["evictionRequested"] == false)).await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1"]);
    assert!(has_budget(&sim, "n1"));
    assert_eq!(sim.get("longhorn/nodes", NAMESPACE, "n1").unwrap()["status"]["autoEvicting"], false);
}

#[tokio::test(start_paused = true)]
async fn b7_way_b_empties_a_node_whose_scheduling_is_off() {
    let sim = attached("always-allow", &["n1"]).await;
    sim.edit("longhorn/nodes", NAMESPACE, "n1", |it| {
        it["spec"]["allowScheduling"] = false.into();
        it["spec"]["evictionRequested"] = true.into();
    });
    soon(&sim, REPLICAS, |all| all.len() == 1 && on(all, "n1").is_none()).await;
    // C: asked by hand for one replica, it does not stick.
    let replica = sim.list(REPLICAS).remove(0);
    sim.edit(REPLICAS, NAMESPACE, replica["metadata"]["name"].as_str().unwrap(), |it| {
        it["spec"]["evictionRequested"] = true.into();
    });
    soon(&sim, REPLICAS, |all| all[0]["spec"]["evictionRequested"] == false).await;
}

#[tokio::test(start_paused = true)]
async fn b7_way_d_one_more_replica_is_built_when_the_number_is_raised() {
    let sim = attached("block-if-contains-last-replica", &["n1"]).await;
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| it["spec"]["numberOfReplicas"] = 2.into());
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "degraded").await;
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1", "n2"]);
    // Lowered again: nothing goes by itself.
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| it["spec"]["numberOfReplicas"] = 1.into());
    a_while().await;
    assert_eq!(sim.list(REPLICAS).len(), 2);
    // But one that is asked to leave goes without a copy.
    sim.longhorn_setting("node-drain-policy", "block-for-eviction");
    cordon(&sim, "n2", true);
    soon(&sim, REPLICAS, |all| all.len() == 1 && healthy(all) == ["n1"]).await;
}

#[tokio::test(start_paused = true)]
async fn b4_a_replica_that_cannot_be_placed_says_why() {
    for scripted in [true, false] {
        let sim = attached("block-for-eviction", &["n1"]).await;
        if scripted {
            sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| {
                it["metadata"]["annotations"]["kubesim/unschedulable"] = "insufficient storage".into();
            });
        } else {
            cordon(&sim, "n2", true);
            cordon(&sim, "n3", true);
        }
        cordon(&sim, "n1", true);
        let why = if scripted { "insufficient storage" } else { "nodes are unavailable" };
        let said = |it: &Value| {
            let all = it["status"]["conditions"].as_array().unwrap();
            all.iter().any(|it| {
                it["type"] == "Scheduled"
                    && it["reason"] == "ReplicaSchedulingFailure"
                    && it["message"] == why
            })
        };
        soon(&sim, VOLUMES, |all| said(&all[0])).await;
        a_while().await;
        assert!(has_budget(&sim, "n1"));
        assert_eq!(healthy(&sim.list(REPLICAS)), ["n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn b1_a_rebuild_that_fails_says_so_and_begins_again() {
    let sim = attached("block-if-contains-last-replica", &["n1"]).await;
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/rebuild"] = "fails".into();
        it["spec"]["numberOfReplicas"] = 2.into();
    });
    let failed =
        |it: &Value| it["status"]["conditions"][0]["type"] == "RebuildFailed" && it["spec"]["failedAt"] != "";
    soon(&sim, REPLICAS, |all| all.iter().any(failed)).await;
    assert!(engine(&sim)["status"]["rebuildStatus"].to_string().contains("\"state\":\"error\""));
    a_while().await;
    assert_eq!(volume(&sim)["status"]["robustness"], "degraded");
    sim.edit(VOLUMES, NAMESPACE, "pvc-1", |it| {
        it["metadata"]["annotations"]["kubesim/rebuild"] = "succeeds".into();
    });
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
}

#[tokio::test(start_paused = true)]
async fn e4_a_node_without_power_loses_its_replicas_and_gets_them_back() {
    let sim = attached("block-if-contains-last-replica", &["n1", "n2"]).await;
    sim.power("n2", false);
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "degraded").await;
    assert_ne!(on(&sim.list(REPLICAS), "n2").unwrap()["spec"]["failedAt"], "");
    a_while().await;
    assert_eq!(sim.list(REPLICAS).len(), 2, "its data may come back (replica-replenishment-wait-interval)");
    sim.power("n2", true);
    let building = |all: &[Value]| {
        let it = on(all, "n2").unwrap();
        it["spec"]["failedAt"] == "" && it["spec"]["healthyAt"] == ""
    };
    soon(&sim, REPLICAS, building).await;
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1", "n2"]);
    // Away for longer, another one is made.
    sim.power("n2", false);
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "degraded").await;
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1", "n3"]);
}

#[tokio::test(start_paused = true)]
async fn e4_a_detached_volume_loses_nothing_by_a_boot() {
    let sim = cluster("block-if-contains-last-replica", &["n1", "n2"]).await;
    sim.power("n2", false);
    let unknown = |all: &[Value]| all.iter().any(|it| it["status"]["currentState"] == "unknown");
    soon(&sim, MANAGERS, unknown).await;
    sim.power("n2", true);
    soon(&sim, MANAGERS, |all| all.iter().all(|it| it["status"]["currentState"] == "running")).await;
    assert_eq!(healthy(&sim.list(REPLICAS)), ["n1", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn e_a_manager_that_goes_while_an_engine_runs_faults_the_volume() {
    let sim = attached("block-if-contains-last-replica", &["n1", "n2"]).await;
    sim.remove("pods", NAMESPACE, "instance-manager-n1");
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "faulted").await;
    a_while().await;
    assert_eq!(volume(&sim)["status"]["state"], "detached");
    assert!(healthy(&sim.list(REPLICAS)).is_empty());
    assert!(sim.list("events").iter().any(|it| it["reason"] == "DetachedUnexpectedly"));
    // One without an engine costs its replicas only.
    let sim = attached("block-if-contains-last-replica", &["n1", "n2"]).await;
    sim.remove("pods", NAMESPACE, "instance-manager-n2");
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "degraded").await;
    soon(&sim, VOLUMES, |all| all[0]["status"]["robustness"] == "healthy").await;
}

#[tokio::test(start_paused = true)]
async fn b3_the_csi_parts_are_guarded_while_any_volume_is_not_detached() {
    let sim = attached("always-allow", &["n1"]).await;
    sim.add_deployment(NAMESPACE, "csi-attacher", 1);
    let is_there = |all: &[Value]| all.iter().any(|it| it["metadata"]["name"] == "csi-attacher");
    soon(&sim, BUDGETS, is_there).await;
    sim.remove("pods", "shop", "db");
    soon(&sim, BUDGETS, |all| !is_there(all)).await;
}

#[tokio::test(start_paused = true)]
async fn b4_the_engine_follows_when_the_first_of_two_attachments_goes() {
    let sim = attached("block-if-contains-last-replica", &["n1", "n2"]).await;
    share(&sim, "pvc-1");
    sim.add_mounting_pod("shop", "moved", "n2", "data");
    soon(&sim, TICKETS, |all| {
        all[0]["spec"]["attachmentTickets"].as_object().is_some_and(|it| it.len() == 2)
    })
    .await;
    assert_eq!(volume(&sim)["status"]["currentNodeID"], "n1");
    sim.remove("pods", "shop", "db");
    soon(&sim, VOLUMES, |all| all[0]["status"]["currentNodeID"] != "n1").await;
    let status = volume(&sim)["status"].clone();
    assert_eq!((&status["state"], &status["currentNodeID"]), (&json!("attached"), &json!("n2")));
    soon(&sim, ENGINES, |all| all[0]["spec"]["nodeID"] == "n2").await;
}
