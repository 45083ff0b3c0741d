//! How soon a deferred operation begins after its drain is complete.

use std::time::Duration;

use serde_json::json;
use topics::{DrainStatus, NodeAgentStatus};

use scenarios::{Agent, World, bring_image, reboot_config, with_image};

const LIMIT: Duration = Duration::from_secs(10);
const REQUESTERS: [Agent; 3] = [Agent::Zedagent, Agent::Baseosmgr, Agent::Nodeagent];

/// Of zedkube's values, the others get only the last one, at their next start.
async fn begins_after_complete(world: &mut World, ask: impl Fn(&World)) {
    let clock = agent::Clock::new();
    world.cluster.block().await;
    crate::starts(world).await;
    ask(world);
    world.status(DrainStatus::Cordoned).await;
    for agent in REQUESTERS {
        world.kill(agent).await;
    }
    world.cluster.unblock().await;
    world.status(DrainStatus::Complete).await;
    let began = clock.now();
    for agent in REQUESTERS {
        world.start(agent);
    }
    world
        .has::<NodeAgentStatus>("nodeagent", "the machine to go down", |it| {
            it.device_reboot || it.device_shutdown
        })
        .await;
    let took = clock.now().since(began);
    assert!(took < LIMIT, "{took:?} from COMPLETE to the operation");
    world.recorded_count(1).await;
    assert_eq!(world.cluster.pods_to_leave().await, [""; 0]);
}

pub(crate) async fn p4_a_reboot_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds(
    world: &mut World,
) {
    begins_after_complete(world, |world| world.ask_reboot(7)).await;
}

pub(crate) async fn p4_a_shutdown_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds(
    world: &mut World,
) {
    world.put("persist/status/shutdownConfig", r#"{"Counter":1,"DesiredState":true,"OpsTime":""}"#);
    let shutdown = |world: &World, counter: u32| {
        let mut config = reboot_config(6);
        config["shutdown"] = json!({ "counter": counter, "desiredState": true });
        world.config(&config);
    };
    shutdown(world, 1);
    begins_after_complete(world, |world| shutdown(world, 2)).await;
}

pub(crate) async fn p4_an_update_whose_requester_hears_nothing_but_complete_begins_within_ten_seconds(
    world: &mut World,
) {
    let ask = |world: &World| {
        bring_image(world);
        world.config(&with_image(reboot_config(6)));
    };
    begins_after_complete(world, ask).await;
}
