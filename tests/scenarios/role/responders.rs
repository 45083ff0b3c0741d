//! The role of EvictionRequests.

use std::time::Duration;

use agent::Clock;
use kubenodeop::{AttemptRules, Limit, LimitAction, Progress, drain};
use serde_json::json;
use tokio::sync::watch;

use scenarios::{World, reboot_config};

use super::{granted_and_used, order};

#[tokio::test(start_paused = true)]
async fn s1_eviction_requests_ask_for_what_their_own_role_grants_and_nothing_else() {
    let world = World::new().await;
    let (sim, cluster) = (world.cluster.sim(), world.cluster.handle());
    sim.add_eviction_requests(None, "");
    sim.add_bare_pod("shop", "slow", "edge-node-1");
    sim.edit("pods", "shop", "slow", |it| {
        it["spec"]["evictionResponders"] = json!([{ "name": "example.com/copier", "priority": 2000 }]);
    });
    let order = order(AttemptRules {
        eviction_requests: true,
        pod: Limit { after: Some(Duration::from_secs(60)), then: LimitAction::Wait },
        ..AttemptRules::default()
    });
    let (clock, told) = (Clock::new(), watch::Sender::new(Progress::default()));
    drain(&cluster, &order, || clock.now(), &told).await.unwrap();
    let mut asked = world.cluster.asked_by_agents();
    asked.retain(|(_, uri)| uri.starts_with("/apis/lifecycle.k8s.io/"));
    granted_and_used(&["pillar-rs-eviction-requests"], &asked);
}

#[tokio::test(start_paused = true)]
async fn j2_a_config_property_has_agents_ask_responders_and_without_it_they_do_not() {
    for (value, asks) in [("true", true), ("false", false)] {
        let mut world = World::new().await;
        let sim = world.cluster.sim();
        sim.add_eviction_requests(Some(Duration::from_secs(5)), "");
        sim.add_bare_pod("shop", "slow", "edge-node-1");
        sim.edit("pods", "shop", "slow", |it| {
            it["spec"]["evictionResponders"] = json!([{ "name": "example.com/copier", "priority": 2000 }]);
        });
        let mut config = reboot_config(7);
        config["configItems"] = json!([{ "key": "kubernetes.drain.eviction.requests", "value": value }]);
        world.config(&config);
        world.start_all();
        world.recorded_count(1).await;
        let asked = world.cluster.asked_by_agents();
        let made = |(method, uri): &(_, String)| *method == "POST" && uri.contains("/evictionrequests?");
        assert_eq!(asked.iter().any(made), asks, "{value}: {asked:?}");
    }
}
