//! A second copy of a Deployment before its only Ready pod leaves, with whole agents: through a reboot, over
//! a crash of zedkube, withdrawn, and after power was lost in between.

use std::sync::{Arc, Mutex};

use kubesim::Sim;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use topics::{DrainStatus, NodeDrainProgress};

use scenarios::{Agent, World};

const DEPLOYMENTS: &str = "apps/deployments";
const OURS: &str = "edge-node-1";
const OTHERS: [&str; 2] = ["edge-node-2", "edge-node-3"];

fn open(sim: &Sim, open: bool) {
    for node in OTHERS {
        let taints = if open { Value::Null } else { full() };
        sim.edit("nodes", "", node, |it| it["spec"]["taints"] = taints);
    }
}

/// No cordon: a cordoned node counts as down, and ours would wait for its turn.
fn full() -> Value {
    json!([{ "key": "site/full", "effect": "NoSchedule" }])
}

/// Closes our node to new pods too: once it is schedulable again the waiting copy would start there, before
/// it is given up.
fn close_ours(sim: &Sim) {
    sim.edit("nodes", "", OURS, |it| it["spec"]["taints"] = full());
}

fn of_solo(pods: &[Value]) -> Vec<&Value> {
    pods.iter().filter(|it| it["metadata"]["labels"]["app"] == "solo").collect()
}

/// Nodes of its Ready, staying pods.
fn ready(pods: &[Value]) -> Vec<&str> {
    let is_ready = |it: &&Value| {
        let conditions = it["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        ready && it["metadata"]["deletionTimestamp"].is_null()
    };
    let all = of_solo(pods).into_iter().filter(is_ready);
    all.map(|it| it["spec"]["nodeName"].as_str().unwrap_or_default()).collect()
}

/// A Deployment of one behind a budget of one, with its pod on our node; no other node takes a pod.
async fn world() -> (World, Sim) {
    let mut world = World::new().await;
    world.limits["zedkube"]["surge"] = json!("all");
    let sim = world.cluster.sim().clone();
    open(&sim, false);
    sim.add_deployment("shop", "solo", 1);
    sim.add_budget("shop", "solo", "solo", &json!({ "minAvailable": 1 }));
    sim.until("pods", |pods| ready(pods) == [OURS]).await;
    (world, sim)
}

async fn awaited(world: &World) {
    world.progress("a second copy", |it| it.blockers.iter().any(|it| it.code == "surge")).await;
}

fn rollouts(sim: &Sim) -> usize {
    let sets = sim.list("apps/replicasets");
    sets.iter().filter(|it| it["metadata"]["ownerReferences"][0]["name"] == "solo").count()
}

/// Nothing marks a second copy under way.
fn is_settled(deployment: &Value) -> bool {
    deployment["metadata"]["annotations"]["pillar-rs/drain-surge-record"].is_null()
}

/// One pod is left, of the original template.
async fn undone(sim: &Sim) {
    let from = "/spec/template/metadata/annotations/pillar-rs~1drain-surge-from";
    let as_before = |it: &Value| is_settled(it) && it.pointer(from).is_none_or(Value::is_null);
    let solo = |it: &&Value| it["metadata"]["name"] == "solo";
    sim.until(DEPLOYMENTS, |all| all.iter().find(solo).is_some_and(as_before)).await;
    sim.until("pods", |pods| of_solo(pods).len() == 1 && ready(pods) == [OURS]).await;
}

#[tokio::test(start_paused = true)]
async fn d20_through_a_reboot_and_a_crash_there_is_always_a_ready_copy_and_never_one_too_many_afterwards() {
    let (mut world, sim) = world().await;
    let fewest = Arc::new(Mutex::new(usize::MAX));
    let mut watch = JoinSet::new();
    watch.spawn({
        let (sim, fewest) = (sim.clone(), Arc::clone(&fewest));
        async move {
            sim.until("pods", |pods| {
                let mut fewest = fewest.lock().unwrap();
                *fewest = (*fewest).min(ready(pods).len());
                false
            })
            .await;
        }
    });
    world.begin().await;
    awaited(&world).await;
    assert_eq!(world.recorded(), []);
    world.kill(Agent::Zedkube).await;
    world.start(Agent::Zedkube);
    awaited(&world).await;
    open(&sim, true);
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    sim.until("pods", |pods| of_solo(pods).len() == 1 && ready(pods).len() == 1).await;
    assert_eq!((rollouts(&sim), *fewest.lock().unwrap()), (2, 1), "it was asked once");
    drop(watch);
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    assert_eq!(progress.left, [""; 0]);
    crate::comes_back(&mut world, 7).await;
    sim.until("pods", |pods| of_solo(pods).len() == 1 && ready(pods).len() == 1).await;
    let solo = |it: &Value| it["metadata"]["name"] == "solo" && is_settled(it);
    sim.until(DEPLOYMENTS, |all| all.iter().any(solo)).await;
    assert_eq!(rollouts(&sim), 2, "what came to its end is not rolled out again");
}

#[tokio::test(start_paused = true)]
async fn d20_without_room_the_pod_leaves_after_the_limit_and_that_is_named() {
    let (mut world, sim) = world().await;
    world.limits["zedkube"]["surge_limit_ms"] = json!(500);
    sim.remove("policy/poddisruptionbudgets", "shop", "solo");
    // The others can go.
    world.begin().await;
    world.recorded_count(1).await;
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    let named = |it: &String| {
        it.contains("left without a second copy elsewhere: Deployment shop/solo had no Ready pod")
    };
    assert!(progress.left.iter().any(named), "{:?}", progress.left);
    sim.until("pods", |pods| of_solo(pods).len() == 1).await;
    open(&sim, true);
    sim.until("pods", |pods| of_solo(pods).len() == 1 && ready(pods).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn d20_a_second_copy_of_a_drain_that_is_withdrawn_is_given_up() {
    let (mut world, sim) = world().await;
    world.begin().await;
    awaited(&world).await;
    close_ours(&sim);
    world.ask_reboot(6);
    world.status(DrainStatus::NotRequested).await;
    undone(&sim).await;
    world.cluster.until_schedulable().await;
}

#[tokio::test(start_paused = true)]
async fn d20_a_second_copy_that_a_power_cut_left_is_given_up_in_the_next_boot() {
    let (mut world, sim) = world().await;
    world.begin().await;
    awaited(&world).await;
    close_ours(&sim);
    world.reboot().await;
    // The drain is withdrawn.
    world.ask_reboot(6);
    crate::starts(&mut world).await;
    undone(&sim).await;
    world.cluster.until_schedulable().await;
}
