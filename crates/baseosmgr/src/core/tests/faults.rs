//! Faults of the reference in the scope of this agent, each with its name.

use agent::partitions::{Label, PartitionState};
use topics::{DrainStatus, NodeDrainRequest, Requester};

use super::way::waiting;
use super::world::{NEW, NEWER, OLD, World, X, Z, drained};
use crate::core::Event;

/// An image with a failed try, with saved counters and its config still there.
fn failed() -> World {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    world.boot();
    assert_eq!(world.spare_state(), PartitionState::Inprogress);
    world
}

#[test]
fn d_b1_a_config_change_while_the_image_waits_does_not_pass_the_drain() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.config(X, NEW, |config| config.retry_update_counter = 5);
    world.config(X, NEW, |config| config.activate = false);
    world.want(X, NEW);
    assert_eq!(world.spare_state(), PartitionState::Unused);
}

#[test]
fn d_b1_activating_an_image_that_is_already_here_does_not_pass_the_drain() {
    let mut world = World::new();
    world.config(X, NEW, |config| config.activate = false);
    world.loaded(X);
    world.want(X, NEW);
    assert_eq!((world.spare_state(), world.asks()), (PartitionState::Unused, 1));
}

#[test]
fn d_n3_a_forced_fallback_is_drained_for_first() {
    let mut world = World::new();
    world.partition(Label::B).short_version = NEW.to_owned();
    world.restart();
    world.say(Event::FallbackCounter(1));
    world.say(Event::FallbackCounter(2));
    assert_eq!((world.spare_state(), world.asks()), (PartitionState::Unused, 1));
    assert_eq!(world.counters.fallback, Some(1), "it counts once it is done");
    assert_eq!(world.request.as_ref().unwrap().context, format!("fallback {NEW}"));
    world.is_let_go();
    assert_eq!(world.counters.fallback, Some(2));
}

#[test]
fn d_n3_a_retried_update_is_drained_for_first() {
    let mut world = failed();
    let asked = world.asks();
    world.config(X, NEW, |config| config.retry_update_counter = 1);
    assert_eq!((world.spare_state(), world.asks()), (PartitionState::Inprogress, asked + 1));
    assert_eq!(world.counters.config_retry, 0, "it counts once it is done");
    world.is_let_go();
    assert_eq!((world.counters.config_retry, world.counters.current_retry), (1, 0));
}

#[test]
fn d_b2_a_later_complete_replays_nothing() {
    let mut world = waiting();
    let request = world.request.clone().unwrap();
    world.unwant(X);
    world.answer_to(&request, DrainStatus::Complete);
    world.zedkube(DrainStatus::NotRequested, Requester::None);
    world.answer_to(&request, DrainStatus::Complete);
    assert_eq!(world.switches(), []);
    // Wanted again: a new request, which the old answer does not serve.
    world.want(X, NEW);
    assert_eq!((world.spare_state(), world.asks()), (PartitionState::Unused, 2));
    world.answer(DrainStatus::Complete);
    world.answer(DrainStatus::Complete);
    assert_eq!(world.switches(), [(X.to_owned(), drained())]);
}

#[test]
fn d_b2_a_complete_of_a_reference_zedkube_that_stood_before_does_not_release_the_next_image() {
    let mut world = waiting();
    world.zedkube(DrainStatus::Requested, Requester::Update);
    world.unwant(X);
    world.zedkube(DrainStatus::Complete, Requester::Update);
    world.loaded(Z);
    world.want(Z, NEWER);
    assert_eq!((world.spare_state(), world.asks()), (PartitionState::Unused, 2));
    world.zedkube(DrainStatus::Requested, Requester::Update);
    world.zedkube(DrainStatus::Complete, Requester::Update);
    assert_eq!(world.switches(), [(Z.to_owned(), drained())]);
}

#[test]
fn an_echo_of_an_older_request_gives_no_identity_to_the_newer_one() {
    let mut world = waiting();
    let first = world.request.clone().unwrap();
    world.unwant(X);
    world.want(X, NEW);
    world.say(Event::Asked { nth: 1, request: first });
    world.is_let_go();
}

#[test]
fn d_b3_a_drain_of_zedagent_is_joined_by_a_request_of_our_own() {
    let device_op = NodeDrainRequest {
        requested_at: "2026-03-14T08:00:00Z".parse().unwrap(),
        requested_by: Requester::DeviceOp,
        context: "reboot".to_owned(),
    };
    let mut world = World::new();
    world.answer_to(&device_op, DrainStatus::Cordoned);
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!(world.asks(), 1);
    world.answer_to(&device_op, DrainStatus::Complete);
    assert_eq!(world.spare_state(), PartitionState::Unused, "that was said to zedagent");
    world.answer(DrainStatus::Complete);
    assert_eq!(world.switches(), [(X.to_owned(), drained())]);
}

#[test]
fn d_b4_a_mark_that_failed_reaches_the_status_of_the_running_image() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    world.refuse_next("cannot write the partition table");
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!(world.statuses[X].error, "cannot write the partition table");
    assert_eq!(world.zboot[&Label::B].partition_state, "inprogress");
    assert!(!world.zboot[&Label::B].test_complete);
    world.wait(std::time::Duration::from_secs(30));
    assert_eq!(world.zboot[&Label::B].partition_state, "active");
    assert_eq!(world.statuses[X].error, "");
}

#[test]
fn d_x1_a_complete_labelled_for_zedagent_ends_as_a_failure_that_is_asked_again() {
    let mut world = waiting();
    world.zedkube(DrainStatus::Complete, Requester::DeviceOp);
    assert_eq!(world.switches(), []);
    world.wait(std::time::Duration::from_secs(300));
    assert!(world.statuses[X].error.contains("Complete"), "{}", world.statuses[X].error);
    world.wait(std::time::Duration::from_secs(30));
    assert_eq!(world.asks(), 2);
}

#[test]
fn a_fallback_is_not_taken_back_with_a_config_of_the_same_version() {
    let mut world = World::new();
    world.partition(Label::B).short_version = NEW.to_owned();
    world.restart();
    world.config(X, NEW, |config| config.activate = false);
    world.say(Event::FallbackCounter(1));
    world.say(Event::FallbackCounter(2));
    world.answer(DrainStatus::Complete);
    world.unwant(X);
    assert_eq!((world.spare_state(), world.statuses.len()), (PartitionState::Updating, 0));
}

#[test]
fn a_fallback_to_the_old_image_is_not_overwritten_by_the_image_that_was_wanted() {
    let mut world = waiting();
    world.say(Event::FallbackCounter(1));
    world.answer(DrainStatus::Complete);
    world.boot();
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!(world.partitions.spare().short_version, OLD);
    world.loaded(Z);
    world.slow_writes = true;
    world.say(Event::FallbackCounter(2));
    world.want(Z, NEWER);
    world.unwant(X);
    assert_eq!(world.write, None);
    world.answer(DrainStatus::Complete);
    assert_eq!(
        (world.spare_state(), world.partitions.spare().short_version.as_str()),
        (PartitionState::Updating, OLD)
    );
    assert!(world.statuses[Z].too_early);
}
