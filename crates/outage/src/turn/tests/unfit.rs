//! A node whose preflight is not clean does not take the turn of the cluster.

use super::super::event::{Event, TurnClaim, TurnState};
use super::super::record::{Class, TurnRecord};
use super::super::rule::TurnRule;
use super::rules::{holder, waiter};
use super::stage::{Stage, want};

#[test]
fn a_node_whose_drain_cannot_start_neither_waits_in_the_queue_nor_enters_and_costs_nothing() {
    let unfit = |fit| Event::Want(Some(TurnClaim { fit, ..want() }));
    let mut stage = Stage::new(Some(TurnRecord { fence: 7, ..TurnRecord::default() }));
    stage.hear(unfit(false));
    stage.serve();
    assert_eq!((stage.calls.as_str(), stage.waiting().rule), ("R", TurnRule::Preflight));
    stage.edit(|record| record.holders.push(holder("b", 8)));
    stage.serve();
    assert_eq!(stage.pass(3_600), "", "nothing is asked until its drain can start");
    stage.edit(|record| record.holders.clear());
    stage.hear(unfit(true));
    stage.serve();
    assert_eq!(stage.fence(), Some(8));

    let queue = vec![waiter("c", Class::Worker)];
    let busy = TurnRecord { holders: vec![holder("b", 7)], queue, fence: 7, ..TurnRecord::default() };
    // One that waits already makes way; one that holds keeps what it has.
    let mut stage = Stage::new(Some(busy));
    stage.wants();
    assert!(stage.record().waits("a"));
    stage.hear(unfit(false));
    stage.serve();
    assert!(!stage.record().waits("a") && stage.record().waits("c"));
    let mut stage = Stage::new(None);
    stage.wants();
    stage.hear(unfit(false));
    stage.serve();
    assert_eq!(stage.fence(), Some(1));
    let held = stage.turn.state();
    assert!(matches!(held, TurnState::Held { fence: 1, .. }), "{held:?}");
}
