//! What the sheet shows in states that the drain alone does not know, made by running agents.

use std::time::Duration;

use kubesim::ScriptedFault;
use scenarios::{Agent, World, bring_image, reboot_config, with_image};
use serde_json::{Value, json};
use sheet::DrainOutcome;

/// The request of `zedbox drain`.
const PERSONS: &str = "run/zedbox/NodeDrainRequest/global.json";
const TREE: &str = "run/volumemgr/ContentTreeStatus/5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01.json";

/// No call reaches the API any more.
fn cut(world: &World) {
    for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
        world.cluster.sim().faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
    }
}

async fn at_rest(limits: &Value) -> World {
    let mut world = World::new().await;
    world.patience = Duration::from_mins(30);
    for (name, value) in limits.as_object().unwrap() {
        world.limits["zedkube"][name] = value.clone();
    }
    world.start_all();
    world.until_said("IN SERVICE: no drain is requested").await;
    world
}

#[tokio::test(start_paused = true)]
async fn u3_a_cordon_by_hand_on_a_node_at_rest_is_said_for_as_long_as_it_is_there() {
    let world = at_rest(&json!({})).await;
    let sim = world.cluster.sim().clone();
    for cordoned in [true, false, true] {
        let edited = sim.edit("nodes", "", world.cluster.device_name(), |node| {
            node["spec"]["unschedulable"] = cordoned.into();
        });
        assert!(edited);
        let cordon = world.until_said("CORDONED, NOT DRAINED: by somebody else");
        let said = if cordoned { cordon.await } else { world.until_said("IN SERVICE").await };
        assert_eq!(said.outcome, DrainOutcome::Idle);
    }
}

#[tokio::test(start_paused = true)]
async fn u4_between_two_failed_drains_it_is_not_drained_with_their_number_the_cause_and_the_next_try() {
    let mut world = at_rest(&json!({ "drain_limit_ms": 6_000 })).await;
    world.limits["zedagent"]["ask_again_first_ms"] = 60_000.into();
    world.kill(Agent::Zedagent).await;
    world.start(Agent::Zedagent);
    world.cluster.block().await;
    world.ask_reboot(7);
    for failed in ["the drain failed: ", "2 drains failed: "] {
        let said = world.until_said(&format!("NOT DRAINED: reboot waits, {failed}")).await;
        let text = world.until_said("; it waits for the next try at ").await.headline.text;
        assert_eq!(said.outcome, DrainOutcome::Failed);
        assert!(text.contains("PodDisruptionBudget shop/web"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn u6_peers_that_somebody_has_cordoned_are_not_called_down() {
    let world = at_rest(&json!({})).await;
    for node in ["edge-node-2", "edge-node-3"] {
        let cordon = |node: &mut Value| node["spec"]["unschedulable"] = true.into();
        assert!(world.cluster.sim().edit("nodes", "", node, cordon));
    }
    world.ask_reboot(7);
    let said = world.until_said("WAITING FOR ITS TURN: edge-node-2, edge-node-3 are cordoned").await;
    assert_eq!(said.outcome, DrainOutcome::UnderWay);
}

#[tokio::test(start_paused = true)]
async fn u7_an_image_that_failed_is_said_with_its_version_and_why() {
    let world = at_rest(&json!({})).await;
    world.config(&with_image(reboot_config(6)));
    bring_image(&world);
    let mut tree: Value = serde_json::from_str(&world.text(TREE).unwrap()).unwrap();
    (tree["State"], tree["Error"]) = (103.into(), "download failed: 404".into());
    tree["ErrorTime"] = "2026-03-14T09:30:00Z".into();
    world.put(TREE, &tree.to_string());
    let said = world.until_said("REQUESTED: OS update ").await;
    assert!(said.headline.text.ends_with(" waits: download failed: 404"), "{}", said.headline.text);
    assert_eq!(said.outcome, DrainOutcome::UnderWay);
}

#[tokio::test(start_paused = true)]
async fn u9_an_api_that_is_away_before_the_cordon_is_said_with_since_when_and_what_happens_then() {
    let world = at_rest(&json!({})).await;
    cut(&world);
    world.until_said("NOT KNOWN: the Kubernetes API has not answered since ").await;
    world.ask_reboot(7);
    let said = world.until_said("WAITING FOR THE KUBERNETES API: reboot waits, no answer since ").await;
    assert_eq!(said.outcome, DrainOutcome::UnderWay);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_device_config_is_not_known_and_its_operations_wait() {
    let mut world = World::new().await;
    std::fs::remove_file(world.topic_root.path("persist/config/edge-dev-config.json")).unwrap();
    world.start_all();
    let said = world.until_said("NOT KNOWN: zedagent has read no device config").await;
    assert!(said.headline.text.ends_with("operations wait"), "{}", said.headline.text);
    assert_eq!(said.outcome, DrainOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn k7_a_node_drained_for_a_person_is_safe_and_withdrawn_for_as_long_as_its_cordon_stays() {
    let world = at_rest(&json!({})).await;
    let request =
        json!({ "RequestedAt": "2026-03-14T09:26:53Z", "RequestedBy": 4, "Context": "field: disk" });
    world.put(PERSONS, &request.to_string());
    let said = world.until_said("SAFE TO WORK ON: proved empty under a cordon").await;
    assert_eq!((said.outcome, world.cluster.pods_to_leave().await), (DrainOutcome::Complete, vec![]));
    cut(&world);
    std::fs::remove_file(world.topic_root.path(PERSONS)).unwrap();
    world.until_said("WITHDRAWN: ").await;
    world.cluster.sim().faults().clear();
    world.until_said("IN SERVICE: ").await;
    let mut config = reboot_config(6);
    config.as_object_mut().unwrap().remove("cluster");
    world.config(&config);
    cut(&world);
    world.until_said("LEAVING ITS CLUSTER: drains wait until it has left").await;
    world.cluster.sim().faults().clear();
    world.until_said("IN NO CLUSTER: there is nothing to drain").await;
}
