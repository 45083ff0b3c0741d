//! A node that has the last healthy copy of a volume: ordered to reboot, it goes down only once another copy
//! is healthy, or a policy names the volume.

mod real;

use kubesim::{ScriptedFault, Sim};
use scenarios::{Agent, Cluster, World, side_by_side};
use serde_json::{Value, json};
use topics::{DrainHistory, DrainPhase, DrainStatus, NodeDrainProgress};

pub(crate) const NODE: &str = "edge-node-1";
const OTHER: &str = "edge-node-2";
const SPACE: &str = "longhorn-system";

fn put(sim: &Sim, plural: &str, kind: &str, name: &str, mut rest: Value) {
    let mut object = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": { "namespace": SPACE, "name": name },
    });
    object.as_object_mut().unwrap().append(rest.as_object_mut().unwrap());
    sim.apply(&format!("longhorn/{plural}"), object);
}

/// Besides, a detached volume with a shard on each of the three nodes, one of them to spare.
pub(crate) fn shards(sim: &Sim) {
    sim.add_sharded_volume("shop", "parts", "pvc-2", &[NODE, OTHER, "edge-node-3"], 1);
}

/// Longhorn on three nodes with this policy, and volume pvc-1 of claim shop/data with its only copy here.
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

/// The engine reports these copies; the one on the other node is rebuilt to 42 %.
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

/// A copy on the other node, being written or healthy.
pub(crate) fn rebuild(sim: &Sim, mode: &str) {
    copy(sim, OTHER);
    serve(sim, &json!({ "r-edge-node-1": "RW", "r-edge-node-2": mode }));
}

/// Wanted copies, and the volume's mark.
pub(crate) fn wanted(sim: &Sim) -> (u64, Option<String>) {
    let volume = sim.get("longhorn/volumes", SPACE, "pvc-1").unwrap();
    let mark = volume["metadata"]["annotations"]["pillar-rs/last-copy"].as_str().map(str::to_owned);
    (volume["spec"]["numberOfReplicas"].as_u64().unwrap(), mark)
}

/// A reboot that waits only for storage.
pub(crate) async fn waiting(world: &mut World) -> NodeDrainProgress {
    world.begin().await;
    let waits = |it: &NodeDrainProgress| it.phase == DrainPhase::WaitingForStorage;
    world.progress("a drain that waits for storage", waits).await
}

#[tokio::test(start_paused = true)]
async fn d19_a_request_that_is_withdrawn_takes_back_the_copy_that_was_asked_for() {
    let mut world = World::new().await;
    install(world.cluster.sim(), "always-allow");
    waiting(&mut world).await;
    let sim = world.cluster.sim();
    sim.until("longhorn/volumes", |_| wanted(sim).0 == 2).await;
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    world.cluster.until_schedulable().await;
    sim.until("longhorn/volumes", |_| wanted(sim) == (1, None)).await;
}

#[tokio::test(start_paused = true)]
async fn d14_a_volume_that_the_limits_name_goes_down_with_the_node_and_is_named() {
    let mut world = World::new().await;
    install(world.cluster.sim(), "block-if-contains-last-replica");
    world.limits["zedkube"]["last_copy_pass"] = json!(["shop/data"]);
    world.begin().await;
    world.recorded_count(1).await;
    world
        .progress("the volume among what was left", |it| {
            it.left.iter().any(|it| it.starts_with("volume shop/data (pvc-1): "))
        })
        .await;
    assert_eq!(wanted(world.cluster.sim()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn d14_a_person_lets_a_volume_go_down_with_the_node_for_one_drain_and_the_history_says_why() {
    let mut world = World::new().await;
    let sim = world.cluster.sim().clone();
    install(&sim, "block-for-eviction-if-contains-last-replica");
    waiting(&mut world).await;
    let annotation = |text: &str| {
        sim.edit("longhorn/volumes", SPACE, "pvc-1", |it| {
            it["metadata"]["annotations"]["pillar-rs/last-copy-pass"] = text.into();
        });
    };
    annotation("edge-node-2 restored elsewhere");
    annotation("edge-node-1 restored elsewhere");
    world.recorded_count(1).await;
    let done = |it: &DrainHistory| {
        let left = it.drains.iter().flat_map(|it| &it.left);
        left.into_iter().any(|it| it.starts_with("volume shop/data") && it.ends_with("restored elsewhere"))
    };
    world.has("zedkube", "the volume in the history", done).await;
    world.reboot().await;
    world.start_all();
    world.executed(7).await;
    sim.until("longhorn/volumes", |all| {
        all[0]["metadata"]["annotations"]["pillar-rs/last-copy-pass"].is_null()
    })
    .await;
    world.kill_all().await;
}

#[tokio::test(start_paused = true)]
async fn d14_a_zedkube_that_is_killed_before_it_takes_the_copy_back_leads_to_the_same_end_and_one_ask() {
    let mut world = World::new().await;
    let sim = world.cluster.sim().clone();
    install(&sim, "always-allow");
    waiting(&mut world).await;
    sim.until("longhorn/volumes", |_| wanted(&sim).0 == 2).await;
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    rebuild(&sim, "WO");
    let percent = |it: &NodeDrainProgress| it.storage.iter().any(|it| it.percent == 42);
    world.progress("the percent of the rebuild", percent).await;
    rebuild(&sim, "RW");
    world.recorded_count(1).await;
    world.reboot().await;
    // Closed, the gate keeps the cordon and the extra copy.
    std::fs::remove_file(world.topic_root.path("dev/kmsg")).unwrap();
    world.start_all();
    world.progress("a gate that is shut", |it| it.gate.layer == "device-nodes").await;
    world.kill(Agent::Zedkube).await;
    assert_eq!(wanted(&sim).0, 2);
    world.put("dev/kmsg", "");
    world.start(Agent::Zedkube);
    world.executed(7).await;
    world.cluster.until_schedulable().await;
    sim.until("longhorn/volumes", |_| wanted(&sim) == (1, None)).await;
    assert_eq!(sim.faults().count("PATCH", "/volumes/pvc-1"), 2, "asked once, taken back once");
    world.kill_all().await;
}

#[tokio::test(start_paused = true)]
async fn d14_a_copy_that_cannot_be_taken_back_is_named_and_tried_again_also_after_a_restart() {
    let mut world = World::new().await;
    let sim = world.cluster.sim().clone();
    install(&sim, "always-allow");
    waiting(&mut world).await;
    sim.until("longhorn/volumes", |_| wanted(&sim).0 == 2).await;
    rebuild(&sim, "RW");
    world.recorded_count(1).await;
    world.reboot().await;
    sim.faults().script("PATCH", "/volumes/pvc-1", 1, ScriptedFault::status(409, "Conflict"));
    sim.faults().script("PATCH", "/volumes/pvc-1", 1_000, ScriptedFault::status(403, "Forbidden"));
    world.start_all();
    world.executed(7).await;
    world.cluster.until_schedulable().await;
    let named = |it: &NodeDrainProgress| {
        it.reason.contains("numberOfReplicas of volumes is not reset yet") && it.reason.contains("403")
    };
    let shown = world.progress("the copy that stays wanted", named).await;
    assert_eq!((shown.phase, shown.next_step.contains("role")), (DrainPhase::Idle, true), "{shown:?}");
    world.kill(Agent::Zedkube).await;
    assert_eq!(wanted(&sim).0, 2);
    world.start(Agent::Zedkube);
    world.progress("the copy that stays wanted", named).await;
    sim.faults().clear();
    sim.until("longhorn/volumes", |_| wanted(&sim) == (1, None)).await;
    world.progress("no more trouble", |it| it.reason == "no drain requested").await;
    world.kill_all().await;
}

/// Volume pvc-1 has this `robustness`; pvc-old was faulted before.
fn robust(sim: &Sim, robustness: &str) {
    sim.edit("longhorn/volumes", SPACE, "pvc-1", |it| it["status"]["robustness"] = robustness.into());
    put(sim, "volumes", "Volume", "pvc-old", json!({ "status": { "robustness": "faulted" } }));
}

fn gate(words: &str) -> impl Fn(Option<&NodeDrainProgress>) -> bool {
    move |it| it.is_some_and(|it| format!("{it:?}").contains(words))
}

#[tokio::test(start_paused = true)]
async fn r4_u10_after_the_boot_a_faulted_volume_keeps_the_cordon_and_a_degraded_one_the_turn_up_to_its_time()
{
    side_by_side([3_600_000, 1_000].map(|hold_ms| {
        Box::pin(async move {
            let clusters = Cluster::embedded_of_three().await;
            let sim = clusters[0].sim().clone();
            install(&sim, "block-if-contains-last-replica");
            rebuild(&sim, "RW");
            robust(&sim, "healthy");
            let mut worlds: Vec<World> = clusters.into_iter().take(2).map(World::on).collect();
            for world in &mut worlds {
                world.limits["zedkube"]["gate_degraded_hold_ms"] = hold_ms.into();
                crate::starts(world).await;
            }
            let [first, second] = worlds.as_mut_slice() else { panic!("two") };
            first.ask_reboot(7);
            first.recorded_count(1).await;
            first.reboot().await;
            robust(&sim, "faulted");
            first.start_all();
            let shut = |it: &NodeDrainProgress| it.gate.layer == "storage-volumes";
            let seen = first.progress("a gate that is shut by a volume", shut).await;
            assert!(seen.reason.contains("volumes are faulted: shop/data (pvc-1)"), "{seen:?}");
            assert!(!seen.reason.contains("pvc-old"), "{seen:?}");
            assert!(first.cluster.cordoned().await);
            second.ask_reboot(7);
            let waits =
                |it: &NodeDrainProgress| it.phase == DrainPhase::WaitingForTurn && it.reason.contains(NODE);
            second.progress("to wait for its turn", waits).await;

            robust(&sim, "degraded");
            first.cluster.until_schedulable().await;
            if hold_ms > 60_000 {
                first.until("zedkube", "to hold its turn", gate("its turn is held for 3600 s")).await;
                second.progress("to wait for its turn", waits).await;
                assert!(!second.cluster.cordoned().await);
                // After a restart it still knows that pvc-old was faulted before.
                first.kill(Agent::Zedkube).await;
                first.start(Agent::Zedkube);
                robust(&sim, "healthy");
            }
            second.recorded_count(1).await;
            for world in &mut worlds {
                world.kill_all().await;
            }
        })
    }))
    .await;
}

#[tokio::test(start_paused = true)]
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
        world.begin().await;
        world.recorded_count(1).await;
        // Lists; only this reads instance managers.
        let asked = world.cluster.asked_by_agents();
        let lists =
            asked.iter().filter(|(_, uri)| uri.contains("/instancemanagers") && !uri.contains("watch="));
        counts.push(lists.count());
        assert!(!asked.iter().any(|(_, uri)| uri.contains("/volumes/") || uri.contains("/replicas/")));
        world.kill_all().await;
    }
    assert_eq!(counts[0], counts[1]);
}
