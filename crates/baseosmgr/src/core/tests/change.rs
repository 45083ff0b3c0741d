//! The controller changes its mind: configs withdrawn, other images, two at once.
//!
//! Counters: each request of the controller is carried out once.
//!
//! A person's pause: only an image already under way is switched, and a refusal withdraws that one's drain.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use requester::ProceedReason;
use topics::{DrainStatus, NodeDrainStatus, OperationPause, PauseScope, Requester};

use super::way::waiting;
use super::world::{NEW, NEWER, OLD, World, X, Z, drained};
use crate::core::{Counter, Counters, Effect, Event, FallbackFrom};

#[test]
fn a_config_withdrawn_in_the_middle_of_a_drain_takes_its_request_with_it() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.unwant(X);
    assert_eq!(world.request, None);
    assert!(world.statuses.is_empty());
    world.zedkube(DrainStatus::NotRequested, Requester::None);
    assert_eq!(world.switches(), []);
}

#[test]
fn a_config_that_is_no_longer_to_be_activated_takes_its_request_back() {
    let mut world = waiting();
    world.config(X, NEW, |config| config.activate = false);
    assert_eq!(world.request, None);
    world.zedkube(DrainStatus::Complete, Requester::Update);
    assert_eq!(world.spare_state(), PartitionState::Unused);
}

#[test]
fn another_image_in_the_middle_of_a_drain_gets_a_request_of_its_own() {
    let mut world = waiting();
    let first = world.request.clone().unwrap();
    world.answer(DrainStatus::Cordoned);
    world.loaded(Z);
    world.slow_writes = true;
    world.want(Z, NEWER);
    world.unwant(X);
    assert_eq!(
        world.request.as_ref(),
        Some(&first),
        "what is drained stays so while the new image is written"
    );
    world.answer_to(&first, DrainStatus::Complete);
    assert_eq!(world.spare_state(), PartitionState::Unused, "that was not said to the new image");
    world.written();
    let second = world.request.clone().unwrap();
    assert_eq!(second.context, Z);
    assert_ne!(second.id(), first.id());
    assert_eq!(world.switches(), []);
    world.answer(DrainStatus::Complete);
    assert_eq!(world.switches(), [(Z.to_owned(), drained())]);
    assert_eq!(world.partitions.spare().short_version, NEWER);
}

#[test]
fn a_request_never_names_another_image_than_the_one_that_waits() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.loaded(Z);
    world.want(Z, NEWER);
    world.say(Event::Drain(None));
    world.say(Event::Progress(None));
    world.unwant(X);
    assert_eq!(world.request, None, "nobody is there to be asked for the new one");
    world.wait(Duration::from_secs(300));
    assert_eq!(world.switches(), [(Z.to_owned(), ProceedReason::Silent { waited_secs: 300 })]);
}

#[test]
fn an_image_that_is_wanted_anew_does_not_wait_out_an_old_pause() {
    let mut world = waiting();
    world.answer(DrainStatus::FailedDrain);
    world.unwant(X);
    world.want(X, NEW);
    assert_eq!(world.asks(), 2);
    assert_eq!(world.statuses[X].error, "");
}

#[test]
fn a_rival_for_a_moment_does_not_stop_a_write() {
    let mut world = World::new();
    world.slow_writes = true;
    world.loaded(X);
    world.want(X, NEW);
    world.want(Z, NEWER);
    world.unwant(Z);
    world.written();
    assert_eq!((world.writes(), world.asks()), (1, 1));
}

#[test]
fn another_image_that_is_not_here_yet_does_not_keep_the_node_drained() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.unwant(X);
    world.want(Z, NEWER);
    assert_eq!(world.request, None);
}

#[test]
fn two_images_at_once_stop_everything_and_say_so() {
    let mut world = waiting();
    world.loaded(Z);
    world.want(Z, NEWER);
    world.answer(DrainStatus::Complete);
    assert_eq!(world.switches(), []);
    assert!(world.request.is_some());
    assert!(world.statuses.values().all(|status| status.error.contains("several images")));
    world.unwant(Z);
    assert_eq!(world.switches(), [(X.to_owned(), drained())]);
}

/// Found by the model: nodeagent would have restarted a node that had been uncordoned.
#[test]
fn an_image_that_is_withdrawn_while_it_is_being_switched_keeps_its_request_until_it_is_switched_back() {
    let mut world = waiting();
    world.slow_results = true;
    world.is_let_go();
    world.unwant(X);
    assert!(world.request.is_some(), "the switch may have come about");
    assert!(world.statuses.contains_key(X), "it tells a restarted agent what to take back");
    world.slow_results = false;
    world.wait(Duration::ZERO);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!((world.request.clone(), world.statuses.len()), (None, 0));
    let told = |it: &Effect| matches!(it, Effect::Zboot(status) if status.partition_state == "updating");
    assert!(!world.done.iter().any(told), "nodeagent restarts at that word");
}

#[test]
fn a_switched_image_that_is_withdrawn_is_not_booted() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.unwant(X);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!(world.request, None);
    assert!(world.statuses.is_empty());
}

/// Found by the model: nodeagent restarts for an image that it has seen once, and the node may be open by then.
#[test]
fn a_switch_that_nodeagent_has_seen_is_taken_back_and_the_node_stays_drained_until_the_restart() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.going_down = true;
    world.done.clear();
    world.unwant(X);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert!(world.request.is_some());
    let place = |is: fn(&Effect) -> bool| world.done.iter().position(is).unwrap();
    let told = place(|it| matches!(it, Effect::Zboot(status) if status.partition_state == "unused"));
    let asked = place(|it| *it == Effect::AskNodeagent);
    assert!(told < asked, "what it could act on is taken back first");
    world.restart();
    world.wait(Duration::from_secs(60));
    assert!(world.request.is_some(), "also after a restart of this agent");
}

#[test]
fn a_drain_that_is_void_and_fails_after_the_switch_is_asked_for_again_and_its_request_stands_until_then() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    let first = world.request.clone().unwrap();
    world.answer(DrainStatus::Cordoned);
    world.answer(DrainStatus::FailedDrain);
    assert_eq!(world.request.as_ref(), Some(&first));
    world.wait(Duration::from_secs(29));
    assert_eq!(world.request.as_ref(), Some(&first));
    world.wait(Duration::from_secs(1));
    let second = world.request.clone().unwrap();
    assert!(second.requested_at > first.requested_at);
    world.answer(DrainStatus::Complete);
    assert_eq!(world.request, Some(second));
    assert_eq!(world.spare_state(), PartitionState::Updating);
}

#[test]
fn against_a_force_file_nothing_is_asked_after_the_switch_and_its_failure_counts_once() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    let first = world.request.clone();
    let (status, requested_by) = (DrainStatus::FailedDrain, Requester::None);
    world.say(Event::Forced(Some(NodeDrainStatus { status, requested_by })));
    world.wait(Duration::from_secs(1000));
    let counted = |it: &&Effect| matches!(it, Effect::Say(it) if it.text.contains("drain-failed-handler"));
    assert_eq!((world.asks(), world.done.iter().filter(counted).count()), (1, 1));
    world.say(Event::Forced(None));
    world.wait(Duration::from_secs(1000));
    assert_eq!((world.asks(), &world.request), (1, &first), "what was answered before holds again");
    assert_eq!(world.spare_state(), PartitionState::Updating);
}

#[test]
fn a_failed_image_that_is_withdrawn_may_be_tried_again_later() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    world.boot();
    world.unwant(X);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    world.want(X, NEW);
    world.is_let_go();
}

#[test]
fn rivals_do_not_keep_the_node_drained_for_ever() {
    let mut world = waiting();
    world.loaded(Z);
    world.want(Z, NEWER);
    world.wait(Duration::from_secs(299));
    assert!(world.request.is_some());
    world.wait(Duration::from_secs(1));
    assert_eq!(world.request, None);
    world.unwant(Z);
    assert_eq!(world.asks(), 2);
}

#[test]
fn an_image_that_cannot_be_written_does_not_keep_the_node_drained() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.loaded(Z);
    world.want(Z, NEWER);
    world.refuse_next("disk full");
    world.unwant(X);
    assert_eq!((world.request.as_ref(), world.statuses[Z].error.as_str()), (None, "disk full"));
}

pub(super) fn spare_holds(world: &mut World, version: &str, state: PartitionState) {
    world.partition(Label::B).short_version = version.to_owned();
    world.partition(Label::B).state = state;
    world.restart();
}

#[test]
fn the_first_fallback_counter_ever_heard_asks_for_nothing() {
    let mut world = World::new();
    spare_holds(&mut world, NEW, PartitionState::Unused);
    world.say(Event::FallbackCounter(7));
    assert_eq!((world.counters.fallback, world.asks()), (Some(7), 0));
}

#[test]
fn a_fallback_needs_a_good_running_image_and_a_whole_one_to_fall_back_to() {
    for (version, state) in [("", PartitionState::Unused), (NEW, PartitionState::Inprogress)] {
        let mut world = World::new();
        spare_holds(&mut world, version, state);
        world.say(Event::FallbackCounter(1));
        world.say(Event::FallbackCounter(2));
        assert_eq!((world.counters.fallback, world.asks()), (Some(1), 0), "{version} {state}");
    }
}

#[test]
fn a_fallback_is_done_once_even_if_power_is_cut_before_it_is_counted() {
    let mut world = World::new();
    spare_holds(&mut world, NEW, PartitionState::Unused);
    world.say(Event::FallbackCounter(1));
    world.say(Event::FallbackCounter(2));
    world.answer(DrainStatus::Complete);
    let journal = Some(FallbackFrom { counter: 2, from: Label::A });
    assert_eq!(world.counters.fallback_from, journal);
    // As if the counter had not reached the disk.
    world.counters.fallback = Some(1);
    world.boot();
    assert_eq!(world.partitions.current, Label::B);
    assert_eq!((world.counters.fallback, world.counters.fallback_from), (Some(2), None));
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!(world.asks(), 1, "it does not fall back from the fallback");
}

#[test]
fn the_journal_of_a_fallback_stands_before_the_switch() {
    let mut world = World::new();
    spare_holds(&mut world, NEW, PartitionState::Unused);
    world.say(Event::FallbackCounter(1));
    world.say(Event::FallbackCounter(2));
    world.answer(DrainStatus::Complete);
    let place = |wanted: fn(&Effect) -> bool| world.done.iter().position(wanted).unwrap();
    let journal = place(|effect| matches!(effect, Effect::Journal(Some(_))));
    let switch = place(|effect| matches!(effect, Effect::Store(_)));
    let count =
        world.done.iter().rposition(|effect| matches!(effect, Effect::Save(Counter::Fallback, 2))).unwrap();
    assert!(journal < switch && switch < count);
}

#[test]
fn a_retry_counter_is_reported_once_its_update_has_come_to_an_end() {
    let mut world = World::new();
    world.config(X, NEW, |config| config.retry_update_counter = 3);
    assert_eq!(world.manager, Some(3), "nothing failed: there is nothing to wait for");
    world.loaded(X);
    world.answer(DrainStatus::Complete);
    world.boot();
    world.boot();
    world.config(X, NEW, |config| config.retry_update_counter = 4);
    assert_eq!(world.manager, Some(3));
    world.answer(DrainStatus::Complete);
    assert_eq!((world.counters.config_retry, world.counters.current_retry), (4, 3));
    world.boot();
    assert_eq!(world.manager, Some(3));
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!((world.manager, world.counters.current_retry), (Some(4), 4));
}

#[test]
fn a_retried_image_that_fails_again_waits_for_the_next_counter() {
    let mut world = World::new();
    spare_holds(&mut world, NEW, PartitionState::Inprogress);
    world.config(X, NEW, |config| config.retry_update_counter = 1);
    world.loaded(X);
    world.answer(DrainStatus::Complete);
    world.boot();
    world.boot();
    assert_eq!((world.partitions.current, world.asks()), (Label::A, 1));
    assert!(!world.statuses[X].error.is_empty());
}

#[test]
fn counters_do_not_move_while_the_running_image_is_in_test() {
    let mut world = World::new();
    world.partition(Label::A).state = PartitionState::Inprogress;
    spare_holds(&mut world, "", PartitionState::Active);
    world.config(X, OLD, |config| config.retry_update_counter = 9);
    assert_eq!(world.counters, Counters::default());
}

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
        world.is_let_go();
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
