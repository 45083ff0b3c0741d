//! The whole way of an image, and what may come in between.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use topics::{DrainStatus, NodeDrainRequest, Requester, SwState};

use super::world::{NEW, OLD, World, X, drained};
use crate::core::{Counter, Counters, Effect, Event, FallbackFrom};
use requester::ProceedReason;

/// [`X`] is written and waits for its drain.
pub(super) fn waiting() -> World {
    let mut world = World::new();
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!((world.asks(), world.spare_state()), (1, PartitionState::Unused));
    world
}

#[test]
fn after_the_reboot_the_image_is_tested_and_marked_and_the_other_one_kept_as_unused() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    let status = &world.statuses[X];
    assert_eq!(
        (status.state, status.activated, status.partition_label.as_str()),
        (SwState::Installed, true, "IMGB")
    );
    assert_eq!(world.zboot[&Label::B].partition_state, "inprogress");
    assert!(world.zboot[&Label::B].current_partition && !world.zboot[&Label::B].test_complete);
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!(world.zboot[&Label::B].partition_state, "active");
    assert!(world.zboot[&Label::B].test_complete);
    assert_eq!(world.zboot[&Label::A].partition_state, "unused");
    assert_eq!(world.statuses[X].partition_state, "active");
    world.say(Event::TestComplete { label: Label::B, complete: false });
    assert!(!world.zboot[&Label::B].test_complete);
    assert_eq!(
        (world.asks(), world.writes()),
        (1, 1),
        "nothing is drained or written for an image that runs"
    );
}

#[test]
fn a_skip_of_zedkube_is_a_complete_that_keeps_its_name() {
    let mut world = waiting();
    let request = world.request.clone().unwrap();
    let answer = topics::Answer {
        requested_by: request.requested_by,
        requested_at: request.requested_at,
        status: DrainStatus::Complete,
        skip: "kubernetes API not reachable for 300 s".to_owned(),
        ..topics::Answer::default()
    };
    let progress =
        topics::NodeDrainProgress { answers: vec![answer], ..topics::NodeDrainProgress::default() };
    world.say(Event::Progress(Some(Box::new(progress))));
    let why = ProceedReason::Complete { skip: "kubernetes API not reachable for 300 s".to_owned() };
    assert_eq!(world.switches(), [(X.to_owned(), why)]);
}

#[test]
fn an_error_of_the_content_stops_the_drain_and_is_copied() {
    let mut world = waiting();
    world.tree(X, |tree| tree.error = "bad signature".to_owned());
    assert_eq!(world.request, None);
    let status = &world.statuses[X];
    assert_eq!(status.error, "bad signature");
    assert_eq!(status.error_entities.as_ref().unwrap()[0].entity_id, X);
    world.loaded(X);
    assert_eq!((world.asks(), world.writes()), (2, 1));
}

#[test]
fn an_image_that_names_another_version_is_told_and_not_switched() {
    let mut world = World::new();
    world.slow_writes = true;
    world.want(X, NEW);
    world.loaded(X);
    let mut write = world.write.take().unwrap();
    write.version = NEW.to_owned();
    world.partition(Label::B).content.clone_from(&write.content);
    world.partition(Label::B).short_version = OLD.replace("14", "13");
    world.say(Event::Written { of: write, outcome: Ok(OLD.replace("14", "13")) });
    assert!(world.statuses[X].error.contains("13.4.0-k-amd64"), "{}", world.statuses[X].error);
    world.wait(Duration::from_hours(1));
    assert_eq!((world.asks(), world.writes()), (0, 1));
}

#[test]
fn results_of_a_write_that_was_given_up_do_not_speak_for_the_next_one() {
    let mut world = World::new();
    world.slow_writes = true;
    world.want(X, NEW);
    world.loaded(X);
    let first = world.write.clone().unwrap();
    world.unwant(X);
    world.want(X, NEW);
    assert_ne!(world.write.clone().unwrap(), first);
    world.say(Event::Written { of: first, outcome: Ok(NEW.to_owned()) });
    assert_eq!(world.asks(), 0);
    world.written();
    assert_eq!(world.asks(), 1);
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

pub(super) fn spare_holds(world: &mut World, version: &str, state: PartitionState) {
    world.partition(Label::B).short_version = version.to_owned();
    world.partition(Label::B).state = state;
    world.restart();
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
fn counters_do_not_move_while_the_running_image_is_in_test() {
    let mut world = World::new();
    world.partition(Label::A).state = PartitionState::Inprogress;
    spare_holds(&mut world, "", PartitionState::Active);
    world.config(X, OLD, |config| config.retry_update_counter = 9);
    assert_eq!(world.counters, Counters::default());
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
    world.wait(Duration::from_secs(30));
    assert_eq!(world.zboot[&Label::B].partition_state, "active");
    assert_eq!(world.statuses[X].error, "");
}
