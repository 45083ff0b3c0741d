//! A person's pause: only an image already under way is switched, and a refusal withdraws that one's drain.

use agent::partitions::PartitionState;
use topics::{DrainStatus, NodeDrainStatus, OperationPause, PauseScope, Requester};

use super::way::waiting;
use super::world::{NEW, World, X};
use crate::core::Event;

fn pause(scope: PauseScope) -> Event {
    let (by, reason) = ("field".into(), "new disk".into());
    Event::Pause(Some(OperationPause { scope, by, reason, ..OperationPause::default() }))
}

#[test]
fn x3_an_image_that_is_ready_waits_for_the_end_of_a_pause_and_says_so() {
    for (scope, ends) in [(PauseScope::Node, "zedbox resume"), (PauseScope::Controller, "zedbox resume")] {
        let mut world = World::new();
        world.say(pause(scope));
        world.want(X, NEW);
        world.loaded(X);
        assert_eq!((world.asks(), world.switches().len()), (0, 0));
        let shown = &world.statuses[X];
        assert!(shown.error.contains("by field: new disk"), "{}", shown.error);
        assert!(shown.error_retry_condition.contains(ends), "{}", shown.error_retry_condition);
        world.say(Event::Pause(None));
        assert_eq!(world.asks(), 1);
        assert!(world.statuses[X].error.is_empty(), "{}", world.statuses[X].error);
        world.answer(DrainStatus::Complete);
        assert_eq!(world.spare_state(), PartitionState::Updating);
    }
}

#[test]
fn x3_a_drain_that_was_asked_for_ends_under_a_pause_and_is_taken_back_by_a_refusal() {
    for (scope, goes) in [(PauseScope::Node, true), (PauseScope::Controller, false)] {
        let mut world = waiting();
        world.answer(DrainStatus::Cordoned);
        world.say(pause(scope));
        assert_eq!(world.request.is_some(), goes);
        if goes {
            world.answer(DrainStatus::Complete);
        } else {
            assert_eq!(world.switches(), []);
            world.say(Event::Pause(None));
            assert_eq!(world.asks(), 2, "it is asked for again");
        }
    }
    // A forced one does not wait.
    let mut world = waiting();
    world.say(pause(PauseScope::Controller));
    let forced = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::Update };
    world.say(Event::Forced(Some(forced)));
    assert_eq!(world.switches().len(), 1);
}
