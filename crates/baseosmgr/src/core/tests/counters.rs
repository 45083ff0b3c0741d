//! Counters: each request of the controller is carried out once.

use agent::partitions::{Label, PartitionState};
use topics::DrainStatus;

use super::world::{NEW, OLD, World, X};
use crate::core::{Counter, Counters, Effect, Event, FallbackFrom};

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
