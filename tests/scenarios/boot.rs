//! After a boot: the gate, our cordon of an earlier boot, stale taints.

use kubesim::Sim;
use scenarios::{Agent, World};
use serde_json::{Value, json};
use topics::{CordonOwner, DrainPhase, DrainStatus, NodeDrainProgress};

const NODE: &str = "edge-node-1";

/// State after a power cut during a drain: our cordon of that boot, taints of the outage, and a foreign one.
fn left_behind(sim: &Sim) {
    sim.power(NODE, false);
    sim.edit("nodes", "", NODE, |node| {
        node["spec"]["unschedulable"] = true.into();
        node["metadata"]["annotations"]["pillar-rs/cordon-owner"] =
            r#"{"bootId":"earlier","requestedBy":2,"requestedAt":"2026-03-14T09:30:00Z"}"#.into();
        let taint = |(key, effect)| json!({ "key": key, "effect": effect });
        let taints = [
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
            ("node.kubernetes.io/not-ready", "NoSchedule"),
            ("node.kubernetes.io/not-ready", "NoExecute"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ("disk", "NoExecute"),
        ];
        node["spec"]["taints"] = taints.map(taint).into_iter().collect();
    });
}

fn keys(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    taints.iter().map(|it| it["key"].as_str().unwrap()).collect()
}

async fn shut_at(world: &World, layer: &str) -> NodeDrainProgress {
    let at = |it: &NodeDrainProgress| it.gate.layer == layer && it.phase == DrainPhase::AfterBoot;
    world.progress(&format!("a gate that is shut at {layer}"), at).await
}

#[tokio::test(start_paused = true)]
async fn r4_r5_r6_a_node_after_a_power_cut_becomes_schedulable_by_itself_layer_by_layer() {
    let mut world = World::new().await;
    left_behind(world.cluster.sim());
    std::fs::remove_file(world.topic_root.path("dev/kmsg")).unwrap();
    world.limits["zedkube"]["gate_devices_limit_ms"] = 100.into();
    world.start(Agent::Zedagent);
    world.start(Agent::Baseosmgr);
    world.start(Agent::Nodeagent);
    world.start(Agent::Zedkube);
    world.status(DrainStatus::NotRequested).await;
    world.progress("a layer that has failed", |it| it.gate.failed).await;
    let seen = shut_at(&world, "device-nodes").await;
    assert!(seen.reason.contains("/dev/kmsg") && seen.next_step.contains("mknod"), "{seen:?}");
    world.put("dev/kmsg", "");
    let seen = shut_at(&world, "node-ready").await;
    world.until_said("AFTER A BOOT: stays cordoned until it is healthy: ").await;
    assert_eq!(seen.cordon, CordonOwner::Ours);
    assert!(world.cluster.cordoned().await);

    world.cluster.power(true).await;
    world.cluster.until_schedulable().await;
    world.cluster.sim().until("nodes", |nodes| keys(&nodes[0]) == ["disk"]).await;
    let told = |it: &NodeDrainProgress| it.repairs.len() == 3 && it.phase == DrainPhase::Idle;
    // The cluster itself removes those of an unreachable node.
    let told = world.progress("three repairs", told).await;
    assert!(told.repairs.values().all(|count| *count == 1), "{told:?}");
    assert!(told.gate.open && told.gate.stale_taints.is_empty(), "{told:?}");
}
