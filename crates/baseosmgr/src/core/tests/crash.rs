//! The agent dies, or the power fails, after each single piece of work; the result is right all the same.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use topics::DrainStatus;

use super::world::{NEW, NEWER, World, X, Z};
use crate::core::Event;

/// Limit of a path's pieces of work.
const MOST: usize = 200;

/// Does `act` with a crash after each number of pieces of work in turn; `check` gets the result after a
/// restart. Returns the number of crashes.
fn at_every_step(
    arrange: impl Fn() -> World,
    act: impl Fn(&mut World) -> Option<()>,
    check: impl Fn(World, usize),
) -> usize {
    for fuse in 0..MOST {
        let mut world = arrange();
        world.fuse = Some(fuse);
        if act(&mut world).is_some() {
            return fuse;
        }
        world.restart();
        check(world, fuse);
    }
    panic!("the path has more than {MOST} pieces of work");
}

/// zedkube completes every request.
fn drain(world: &mut World) {
    for _ in 0..4 {
        world.wait(Duration::from_secs(60));
        if world.spare_state() != PartitionState::Updating && world.request.is_some() {
            world.answer(DrainStatus::Complete);
        }
    }
}

/// zedkube is idle, and the image waits for its drain.
fn reported() -> World {
    let mut world = World::new();
    world.report();
    world.want(X, NEW);
    world.loaded(X);
    world
}

/// zedkube answers the open request, if the agent lives to get it.
fn try_answer(world: &mut World, status: DrainStatus) -> Option<()> {
    let topics::NodeDrainRequest { requested_by, requested_at, .. } = world.request.clone()?;
    let answer = topics::Answer { requested_by, requested_at, status, ..topics::Answer::default() };
    let progress = topics::NodeDrainProgress { answers: vec![answer], ..Default::default() };
    world.try_say(Event::Progress(Some(Box::new(progress)))).ok()
}

#[test]
fn an_update_ends_right_whenever_the_agent_dies() {
    let config = |world: &mut World| {
        let config = topics::BaseOsConfig {
            base_os_version: NEW.to_owned(),
            content_tree_uuid: X.to_owned(),
            activate: true,
            ..topics::BaseOsConfig::default()
        };
        world.try_say(Event::Config { key: X.to_owned(), value: Some(config) }).ok()
    };
    let arrange = || {
        let mut world = World::new();
        world.report();
        world.loaded(X);
        world
    };
    let crashes = at_every_step(arrange, config, |mut world, fuse| {
        assert_eq!(world.spare_state(), PartitionState::Unused, "crash {fuse}: nothing was drained");
        let before = world.request.clone();
        config(&mut world).unwrap();
        if before.is_some() {
            assert_eq!(world.request, before, "crash {fuse}: the request keeps its identity");
        }
        drain(&mut world);
        assert_eq!(world.spare_state(), PartitionState::Updating, "crash {fuse}");
        assert_eq!(world.partitions.spare().short_version, NEW);
        assert!(world.request.is_some(), "crash {fuse}: the node stays drained");
        world.boot();
        assert_eq!((world.partitions.current, world.statuses[X].activated), (Label::B, true), "crash {fuse}");
    });
    assert!(crashes > 6, "{crashes}");
}

#[test]
fn a_switch_ends_right_whenever_the_agent_dies_after_complete() {
    let arrange = || {
        let mut world = reported();
        world.answer(DrainStatus::Cordoned);
        world
    };
    let complete = |world: &mut World| try_answer(world, DrainStatus::Complete);
    let crashes = at_every_step(arrange, complete, |world, fuse| {
        assert_eq!(
            world.spare_state(),
            PartitionState::Updating,
            "crash {fuse}: COMPLETE still stands for it"
        );
        assert_eq!(
            (world.asks(), world.writes()),
            (1, 1),
            "crash {fuse}: nothing is drained or written twice"
        );
        assert_eq!(world.statuses[X].partition_state, "updating", "crash {fuse}");
        assert_eq!(world.zboot[&Label::B].partition_state, "updating", "crash {fuse}");
        assert!(world.request.is_some());
    });
    assert!(crashes > 3, "{crashes}");
}

#[test]
fn a_failed_drain_ends_right_whenever_the_agent_dies() {
    let fail = |world: &mut World| try_answer(world, DrainStatus::FailedDrain);
    let crashes = at_every_step(reported, fail, |mut world, fuse| {
        assert_eq!(world.spare_state(), PartitionState::Unused, "crash {fuse}");
        drain(&mut world);
        assert_eq!(world.spare_state(), PartitionState::Updating, "crash {fuse}");
    });
    assert!(crashes > 1, "{crashes}");
}

#[test]
fn a_withdrawal_ends_right_whenever_the_agent_dies() {
    for switched in [false, true] {
        let arrange = || {
            let mut world = reported();
            world.answer(if switched { DrainStatus::Complete } else { DrainStatus::Cordoned });
            world
        };
        let unwant = |world: &mut World| world.try_say(Event::Config { key: X.to_owned(), value: None }).ok();
        let crashes = at_every_step(arrange, unwant, |world, fuse| {
            assert_eq!(world.spare_state(), PartitionState::Unused, "crash {fuse}");
            assert_eq!((world.request, world.statuses.len()), (None, 0), "crash {fuse}");
        });
        assert!(crashes > 2, "{crashes}");
    }
}

#[test]
fn another_image_in_mid_drain_ends_right_whenever_the_agent_dies() {
    let arrange = || {
        let mut world = reported();
        world.loaded(Z);
        world.answer(DrainStatus::Cordoned);
        world.want(Z, NEWER);
        world
    };
    let change = |world: &mut World| world.try_say(Event::Config { key: X.to_owned(), value: None }).ok();
    let crashes = at_every_step(arrange, change, |mut world, fuse| {
        drain(&mut world);
        assert_eq!(world.partitions.spare().short_version, NEWER, "crash {fuse}");
        assert_eq!(world.spare_state(), PartitionState::Updating, "crash {fuse}");
        assert_eq!(world.request.as_ref().map(|it| it.context.as_str()), Some(Z), "crash {fuse}");
        assert!(world.switches().iter().all(|(context, _)| context == Z), "crash {fuse}");
    });
    assert!(crashes > 5, "{crashes}");
}

#[test]
fn a_test_that_was_passed_ends_right_whenever_the_agent_dies() {
    let arrange = || {
        let mut world = World::new();
        world.want(X, NEW);
        world.loaded(X);
        world.answer(DrainStatus::Complete);
        world.boot();
        world.want(X, NEW);
        world
    };
    let pass =
        |world: &mut World| world.try_say(Event::TestComplete { label: Label::B, complete: true }).ok();
    let crashes = at_every_step(arrange, pass, |mut world, fuse| {
        assert_eq!(world.zboot[&Label::B].partition_state, "active", "crash {fuse}");
        assert_eq!(world.zboot[&Label::A].partition_state, "unused", "crash {fuse}");
        assert!(world.zboot[&Label::B].test_complete, "crash {fuse}: nodeagent waits for this");
        world.say(Event::TestComplete { label: Label::B, complete: false });
        assert!(!world.zboot[&Label::B].test_complete);
    });
    assert!(crashes > 2, "{crashes}");
}

#[test]
fn a_mark_that_a_crash_left_half_done_is_finished() {
    let mut world = World::new();
    world.partition(Label::B).state = PartitionState::Active;
    world.restart();
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!(world.partitions.running().state, PartitionState::Active);
}

#[test]
fn a_fallback_and_a_retry_end_right_whenever_the_agent_dies() {
    let arrange = || {
        let mut world = World::new();
        world.report();
        world.partition(Label::B).short_version = NEW.to_owned();
        world.restart();
        world.say(Event::FallbackCounter(1));
        world.say(Event::FallbackCounter(2));
        world
    };
    let complete = |world: &mut World| try_answer(world, DrainStatus::Complete);
    let crashes = at_every_step(arrange, complete, |mut world, fuse| {
        assert_eq!(world.spare_state(), PartitionState::Updating, "crash {fuse}");
        assert_eq!(world.counters.fallback, Some(2), "crash {fuse}");
        world.boot();
        world.say(Event::TestComplete { label: Label::B, complete: true });
        assert_eq!((world.partitions.current, world.asks()), (Label::B, 1), "crash {fuse}: once");
        assert_eq!(world.counters.fallback_from, None);
    });
    assert!(crashes > 4, "{crashes}");
}
