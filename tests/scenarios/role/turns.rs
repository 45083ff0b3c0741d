//! Requests of a person who manages turns.

use agent::Clock;
use kubeapi::NodeName;
use outage::operator;
use outage::site::record::OperatorStatement;
use outage::turn::rule::with_limit;
use scenarios::World;

use super::{granted_and_used, is_in_place};

#[tokio::test(start_paused = true)]
async fn s1_an_operator_of_turns_asks_for_what_the_own_roles_grant_and_nothing_else() {
    let world = World::new().await;
    let (handle, wall) = (world.cluster.handle(), Clock::new().wall().to_timestamp());
    // It makes the Lease, then changes it.
    for limit in [2, 1] {
        operator::change(&handle, wall, |record| with_limit(record, limit)).await.unwrap();
    }
    let node = NodeName::parse("edge-node-2").unwrap();
    let away = OperatorStatement { who: "operator".into(), why: "in repair".into(), ..Default::default() };
    for mark in [Some(&away), None] {
        operator::mark(&handle, &node, mark).await.unwrap();
    }
    assert_eq!(operator::view(&handle).await.unwrap().nodes.len(), 3);
    let asked = world.cluster.asked_by_agents();
    granted_and_used(&["pillar-rs-lock", "pillar-rs-lock-nodes"], &asked);
    assert!(asked.iter().filter(|it| it.1.contains("/leases")).all(|it| is_in_place("pillar-rs-lock", it)));
}
