//! A node that has the last healthy copy of a volume (goal D14): asked to reboot, it goes down only once another copy is
//! healthy, or a policy names the volume.

use kubesim::Sim;
use scenarios::World;
use serde_json::{Value, json};
use topics::{DrainPhase, DrainStatus, NodeDrainProgress};

pub(crate) const NODE: &str = "edge-node-1";
const OTHER: &str = "edge-node-2";
const SPACE: &str = "longhorn-system";

fn put(sim: &Sim, plural: &str, kind: &str, name: &str, rest: Value) {
    let mut object = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": { "namespace": SPACE, "name": name },
    });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    sim.apply(&format!("longhorn/{plural}"), object);
}

/// Longhorn on three nodes with this policy, and volume pvc-1 of claim shop/data with one copy, here, served there.
pub(crate) fn install(sim: &Sim, policy: &str) {
    for node in [NODE, OTHER, "edge-node-3"] {
        let ready = json!({
            "spec": { "allowScheduling": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        put(sim, "nodes", "Node", node, ready);
        let runs = json!({ "spec": { "nodeID": node }, "status": { "currentState": "running" } });
        put(sim, "instancemanagers", "InstanceManager", &format!("im-{node}"), runs);
    }
    put(sim, "settings", "Setting", "node-drain-policy", json!({ "value": policy }));
    let volume = json!({
        "spec": { "numberOfReplicas": 1 },
        "status": {
            "state": "attached", "currentNodeID": OTHER,
            "kubernetesStatus": { "namespace": "shop", "pvcName": "data" },
        },
    });
    put(sim, "volumes", "Volume", "pvc-1", volume);
    copy(sim, NODE);
    serve(sim, &json!({ "r-edge-node-1": "RW" }));
}

fn copy(sim: &Sim, node: &str) {
    let spec = json!({ "volumeName": "pvc-1", "nodeID": node, "healthyAt": "2026-03-14T09:00:00Z" });
    put(sim, "replicas", "Replica", &format!("r-{node}"), json!({ "spec": spec }));
}

/// The engine knows these copies; the one on the other node is rebuilt as far as 42 %.
fn serve(sim: &Sim, modes: &Value) {
    let engine = json!({
        "spec": { "volumeName": "pvc-1", "active": true },
        "status": {
            "currentState": "running", "replicaModeMap": modes,
            "currentReplicaAddressMap": { "r-edge-node-2": "10.0.0.2:1" },
            "rebuildStatus": { "tcp://10.0.0.2:1": { "isRebuilding": true, "progress": 42 } },
        },
    });
    put(sim, "engines", "Engine", "pvc-1-e-0", engine);
}

/// A copy on the other node that is being written, or is whole.
pub(crate) fn rebuild(sim: &Sim, mode: &str) {
    copy(sim, OTHER);
    serve(sim, &json!({ "r-edge-node-1": "RW", "r-edge-node-2": mode }));
}

/// How many copies are wanted, and the mark on the volume.
pub(crate) fn wanted(sim: &Sim) -> (u64, Option<String>) {
    let volume = sim.get("longhorn/volumes", SPACE, "pvc-1").unwrap();
    let mark = volume["metadata"]["annotations"]["pillar-rs/last-copy"].as_str().map(str::to_owned);
    (volume["spec"]["numberOfReplicas"].as_u64().unwrap(), mark)
}

/// A reboot of a node that is ready for it and waits for its storage.
pub(crate) async fn waiting(world: &mut World) -> NodeDrainProgress {
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    let waits =
        |it: Option<&NodeDrainProgress>| it.is_some_and(|it| it.phase == DrainPhase::WaitingForStorage);
    world.until("zedkube", "a drain that waits for storage", waits).await.unwrap()
}

#[tokio::test]
async fn d14_under_each_policy_the_node_goes_only_once_another_copy_is_healthy() {
    for (policy, asks) in [
        ("block-if-contains-last-replica", true),
        ("block-for-eviction-if-contains-last-replica", false),
        ("block-for-eviction", false),
        ("allow-if-replica-is-stopped", true),
        ("always-allow", true),
    ] {
        let mut world = World::new().await;
        install(world.cluster.sim(), policy);
        let shown = waiting(&mut world).await;
        assert_eq!(shown.storage[0].volume, "shop/data (pvc-1)", "{policy}");
        let sim = world.cluster.sim();
        if asks {
            let mark = r#"{"node":"edge-node-1","was":1}"#.to_owned();
            sim.until("longhorn/volumes", |_| wanted(sim) == (2, Some(mark.clone()))).await;
        }
        rebuild(sim, "WO");
        let percent = |it: Option<&NodeDrainProgress>| {
            it.is_some_and(|it| it.storage.iter().any(|it| it.percent == 42))
        };
        world.until("zedkube", "the percent of the rebuild", percent).await;
        assert_eq!(world.recorded(), [], "{policy}");
        rebuild(sim, "RW");
        world.recorded_count(1).await;
        assert_eq!(wanted(sim).0, if asks { 2 } else { 1 }, "{policy}");
        world.reboot().await;
        world.start_all();
        world.executed(7).await;
        world.cluster.until_schedulable().await;
        assert_eq!(wanted(world.cluster.sim()), (1, None), "{policy}");
        world.kill_all().await;
    }
}

#[tokio::test]
async fn d19_a_request_that_is_withdrawn_takes_back_the_copy_that_was_asked_for() {
    let mut world = World::new().await;
    install(world.cluster.sim(), "always-allow");
    waiting(&mut world).await;
    let sim = world.cluster.sim();
    sim.until("longhorn/volumes", |_| wanted(sim).0 == 2).await;
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    assert_eq!(wanted(sim), (1, None));
}

#[tokio::test]
async fn d14_a_deadlock_of_all_nodes_cordoned_is_told_as_such_and_ends_with_an_uncordon() {
    let mut world = World::new().await;
    install(world.cluster.sim(), "block-if-contains-last-replica");
    rebuild(world.cluster.sim(), "RW");
    let cordon = |sim: &Sim, flag: bool| {
        for node in [OTHER, "edge-node-3"] {
            sim.edit("nodes", "", node, |it| it["spec"]["unschedulable"] = flag.into());
        }
    };
    world.limits["zedkube"]["take_turns"] = false.into();
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    // The pods of our node find their new places first.
    world.cluster.sim().faults().clear();
    cordon(world.cluster.sim(), true);
    world.ask_reboot(7);
    let deadlock = |it: Option<&NodeDrainProgress>| {
        it.is_some_and(|it| it.storage.iter().any(|it| it.reason.contains("a deadlock")))
    };
    let shown = world.until("zedkube", "a deadlock", deadlock).await.unwrap();
    assert!(shown.storage[0].next_step.contains("kubectl uncordon"), "{shown:?}");
    assert_eq!(world.recorded(), []);
    cordon(world.cluster.sim(), false);
    world.recorded_count(1).await;
}

#[tokio::test]
async fn d14_a_volume_that_the_limits_name_goes_down_with_the_node_and_is_named() {
    let mut world = World::new().await;
    install(world.cluster.sim(), "block-if-contains-last-replica");
    world.limits["zedkube"]["last_copy_pass"] = json!(["shop/data"]);
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(7);
    world.recorded_count(1).await;
    let named = |it: Option<&NodeDrainProgress>| {
        it.is_some_and(|it| it.left.iter().any(|it| it.starts_with("volume shop/data (pvc-1): ")))
    };
    world.until("zedkube", "the volume among what was left", named).await;
    assert_eq!(wanted(world.cluster.sim()), (1, None));
}

#[tokio::test]
async fn the_guard_costs_the_same_whatever_the_number_of_volumes() {
    let mut counts = Vec::new();
    for more in [0, 40] {
        let mut world = World::new().await;
        let sim = world.cluster.sim();
        install(sim, "block-if-contains-last-replica");
        rebuild(sim, "RW");
        for nth in 0..more {
            for node in [NODE, OTHER] {
                let spec = json!({
                    "volumeName": format!("more-{nth}"), "nodeID": node, "healthyAt": "2026-03-14T09:00:00Z",
                });
                put(sim, "replicas", "Replica", &format!("more-{nth}-{node}"), json!({ "spec": spec }));
            }
        }
        world.start_all();
        world.status(DrainStatus::NotRequested).await;
        world.ask_reboot(7);
        world.recorded_count(1).await;
        // Lists; the instance managers are read by nobody else.
        let asked = world.cluster.asked_by_agents();
        let lists =
            asked.iter().filter(|(_, uri)| uri.contains("/instancemanagers") && !uri.contains("watch="));
        counts.push(lists.count());
        assert!(!asked.iter().any(|(_, uri)| uri.contains("/volumes/") || uri.contains("/replicas/")));
        world.kill_all().await;
    }
    assert_eq!(counts[0], counts[1]);
}
