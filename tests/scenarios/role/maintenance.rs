//! A NodeMaintenance of the node as a request for its drain, and the role for that.

use std::time::Duration;

use kubesim::ScriptedFault;
use scenarios::{Agent, World, reboot_config};
use serde_json::{Value, json};
use topics::{AgentTrouble, DrainStatus, NodeDrainProgress, Requester};

use super::granted_and_used;

const ALL: &str = "nodemaintenance/nodemaintenances";
/// What is asked for.
const ASKED: &str = "run/nodemaintenance/NodeDrainRequest/global.json";
const VERSION: &str = "nodemaintenance.medik8s.io/v1beta1";

/// A device config with the property, where it has a value.
fn config(world: &World, value: Option<&str>) {
    let mut config = reboot_config(6);
    let item = |value| json!({ "key": "kubernetes.drain.node.maintenance", "value": value });
    config["configItems"] = value.into_iter().map(item).collect();
    world.config(&config);
}

fn maintain(world: &World, node: &str) {
    world.cluster.sim().apply(
        ALL,
        json!({
            "apiVersion": VERSION, "kind": "NodeMaintenance", "metadata": { "name": "fan" },
            "spec": { "nodeName": node, "reason": "new\nfan" },
        }),
    );
}

async fn until_phase(world: &World, phase: &str) -> Value {
    world.cluster.sim().until(ALL, |all| all.iter().any(|it| it["status"]["phase"] == phase)).await;
    world.cluster.sim().get(ALL, "", "fan").unwrap()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn j6_a_node_maintenance_drains_its_node_says_how_far_that_is_and_its_deletion_uncordons_the_node() {
    let mut world = World::new().await;
    config(&world, Some("true"));
    world.cluster.block().await;
    maintain(&world, "edge-node-1");
    world.start_all();
    let blocked = |it: &[Value]| {
        it.iter().any(|it| it["status"]["lastError"].as_str().unwrap_or_default().starts_with("BLOCKED"))
    };
    world.cluster.sim().until(ALL, blocked).await;
    let status = until_phase(&world, "Running").await;
    assert!(status["pendingPods"][0].as_str().unwrap().starts_with("shop/"), "{status}");
    assert!(status["lastError"].as_str().unwrap().contains("kubectl -n shop"), "the next step: {status}");
    world.cluster.unblock().await;
    let status = until_phase(&world, "Succeeded").await;
    assert_eq!((&status["lastError"], &status["drainProgress"]), (&json!(""), &json!(100)));
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
    let progress: NodeDrainProgress = world.read("run/zedkube/NodeDrainProgress/global.json").unwrap();
    assert_eq!(
        (progress.requested_by, progress.context.as_str()),
        (Requester::NodeMaintenance, "NodeMaintenance fan (new fan)")
    );
    // A zedkube that starts while the API is away does not forget it.
    let sim = world.cluster.sim().clone();
    world.kill(Agent::Zedkube).await;
    for method in ["GET", "POST", "PATCH", "PUT"] {
        sim.faults().script(method, "/", 10_000, ScriptedFault::Cut);
    }
    world.start(Agent::Zedkube);
    tokio::time::sleep(Duration::from_secs(60)).await;
    sim.faults().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.status(DrainStatus::Complete).await;
    assert_eq!(world.cluster.uncordoned(), 0);
    // In the next boot the node is drained again.
    world.reboot().await;
    world.start_all();
    world.status(DrainStatus::Complete).await;
    assert!(sim.remove(ALL, "", "fan"));
    world.cluster.until_schedulable().await;
    world.status(DrainStatus::NotRequested).await;
    assert_eq!((world.text(ASKED), world.recorded().len()), (None, 0));
    let mut asked = world.cluster.asked_by_agents();
    asked.retain(|(_, uri)| uri.contains("nodemaintenance") || uri.contains("node-maintenance"));
    granted_and_used(&["pillar-rs-node-maintenance"], &asked);
}

#[tokio::test(start_paused = true)]
async fn j6_a_node_maintenance_of_another_node_or_without_the_property_or_beside_its_own_operator_drains_nothing()
 {
    for (property, node, operator) in [
        (None, "edge-node-1", None),
        (Some("false"), "edge-node-1", None),
        (Some("true"), "edge-node-2", None),
        (Some("true"), "edge-node-1", Some(1)),
    ] {
        let about = format!("{property:?} {node} {operator:?}");
        let mut world = World::new().await;
        config(&world, property);
        maintain(&world, node);
        let name = "node-maintenance-operator-controller-manager";
        let deployment = |replicas: i32| json!({ "metadata": { "name": name, "namespace": "nmo" }, "spec": { "replicas": replicas } });
        if let Some(replicas) = operator {
            world.cluster.sim().apply("apps/deployments", deployment(replicas));
        }
        crate::starts(&mut world).await;
        if operator.is_some() {
            let is_named =
                |it: &topics::Trouble| it.error.contains("Deployment nmo/node-maintenance-operator");
            world.has::<AgentTrouble>("zedkube", "a trouble", |it| it.troubles.iter().any(is_named)).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.text(ASKED), None, "{about}");
        assert!(!world.cluster.cordoned().await, "{about}");
        let listed = world.cluster.asked_by_agents().iter().any(|(_, uri)| uri.contains("nodemaintenances"));
        assert_eq!(listed, property == Some("true"), "{about}");
        if operator.is_some() {
            // Scaled to nothing, it runs no more.
            world.cluster.sim().apply("apps/deployments", deployment(0));
            until_phase(&world, "Succeeded").await;
            config(&world, Some("false"));
            world.cluster.until_schedulable().await;
            let said = until_phase(&world, "Failed").await;
            assert!(said["lastError"].as_str().unwrap().contains("no longer true"), "{said}");
            assert_eq!(world.text(ASKED), None, "{about}");
        }
    }
}
