//! The agent dies, or the power fails, after each single piece of work; the result is right all the same.

use agent::partitions::Label;
use topics::DrainStatus;

use super::stories::{after, then};
use super::world::{NEW, World, X, Z};
use crate::core::Event;

/// Limit of a path's pieces of work.
const MOST: usize = 200;

/// Lets the agent die after each piece of work of `act`, in the world after `arrange`; `check` gets the result after a restart.
/// Returns the number of crashes.
fn at_every_step(
    arrange: &str,
    act: impl Fn(&mut World) -> Option<()>,
    check: impl Fn(&mut World, &str),
) -> usize {
    for fuse in 0..MOST {
        let mut world = after(arrange);
        world.fuse = Some(fuse);
        if act(&mut world).is_some() {
            return fuse;
        }
        world.restart();
        check(&mut world, &format!("{arrange}, crash {fuse}"));
    }
    panic!("the path has more than {MOST} pieces of work");
}

/// zedkube answers the open request, if the agent lives to get it.
fn try_answer(world: &mut World, status: DrainStatus) -> Option<()> {
    let topics::NodeDrainRequest { requested_by, requested_at, .. } = world.request.clone()?;
    let answer = topics::Answer { requested_by, requested_at, status, ..topics::Answer::default() };
    let progress = topics::NodeDrainProgress { answers: vec![answer], ..Default::default() };
    world.try_say(Event::Progress(Some(Box::new(progress)))).ok()
}

fn unwant(world: &mut World) -> Option<()> {
    world.try_say(Event::Config { key: X.to_owned(), value: None }).ok()
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
    let crashes = at_every_step("idle, report, load X", config, |world, what| {
        then(world, "spare unused", what);
        let before = world.request.clone();
        config(world).unwrap();
        if before.is_some() {
            assert_eq!(world.request, before, "{what}: the request keeps its identity");
        }
        then(world, "zedkube drains, spare updating, spare holds 14.5.0-k-amd64, request X", what);
        then(world, "boot, runs IMGB", what);
        assert!(world.statuses[X].activated, "{what}");
    });
    assert!(crashes > 6, "{crashes}");
}

#[test]
fn a_switch_ends_right_whenever_the_agent_dies_after_complete() {
    let arrange = "idle, report, want X, load X, answer Cordoned";
    let complete = |world: &mut World| try_answer(world, DrainStatus::Complete);
    let crashes = at_every_step(arrange, complete, |world, what| {
        // COMPLETE still stands for it, and nothing is drained or written twice.
        then(
            world,
            "spare updating, asked 1, wrote 1, shows X updating, shown IMGB updating, request X",
            what,
        );
    });
    assert!(crashes > 3, "{crashes}");
}

#[test]
fn a_failed_drain_ends_right_whenever_the_agent_dies() {
    let fail = |world: &mut World| try_answer(world, DrainStatus::FailedDrain);
    let crashes = at_every_step("idle, report, want X, load X", fail, |world, what| {
        then(world, "spare unused, zedkube drains, spare updating", what);
    });
    assert!(crashes > 1, "{crashes}");
}

#[test]
fn a_withdrawal_ends_right_whenever_the_agent_dies() {
    for answer in ["Cordoned", "Complete"] {
        let arrange = format!("idle, report, want X, load X, answer {answer}");
        let crashes = at_every_step(&arrange, unwant, |world, what| {
            then(world, "spare unused, no request, images 0", what);
        });
        assert!(crashes > 2, "{crashes}");
    }
}

#[test]
fn another_image_in_mid_drain_ends_right_whenever_the_agent_dies() {
    let arrange = "idle, report, want X, load X, load Z, answer Cordoned, want Z";
    let crashes = at_every_step(arrange, unwant, |world, what| {
        then(world, "zedkube drains, spare holds 14.6.0-k-amd64, spare updating, request Z", what);
        assert!(world.switches().iter().all(|(context, _)| context == Z), "{what}");
    });
    assert!(crashes > 5, "{crashes}");
}

#[test]
fn a_test_that_was_passed_ends_right_whenever_the_agent_dies() {
    let pass =
        |world: &mut World| world.try_say(Event::TestComplete { label: Label::B, complete: true }).ok();
    let arrange = "idle, want X, load X, answer Complete, boot, want X";
    let crashes = at_every_step(arrange, pass, |world, what| {
        // nodeagent waits for the end of the test to be told.
        then(world, "shown IMGB active, shown IMGA unused, tested IMGB, test IMGB open, untested IMGB", what);
    });
    assert!(crashes > 2, "{crashes}");
}

#[test]
fn a_fallback_and_a_retry_end_right_whenever_the_agent_dies() {
    let arrange = "idle, report, disk IMGB 14.5.0-k-amd64 unused, fallback 1, fallback 2";
    let complete = |world: &mut World| try_answer(world, DrainStatus::Complete);
    let crashes = at_every_step(arrange, complete, |world, what| {
        then(world, "spare updating, counted fallback 2, boot, test IMGB passed, runs IMGB, asked 1", what);
        assert_eq!(world.counters.fallback_from, None, "{what}");
    });
    assert!(crashes > 4, "{crashes}");
}
