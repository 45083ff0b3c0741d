//! Real agents on a disk that fails with EIO at each call in turn, through a whole reboot.
//!
//! strace plants the failures. Random calls fail, of [`KINDS`] kinds of each agent in a run;
//! `cargo test -p zedbox --test whole calls -- --ignored` lets each one fail alone.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use scenarios::{AT_ONCE, Calls, Dice, Failing, Story, World, at_once, within};

use crate::is_here;

const ZEDBOX: &str = env!("CARGO_BIN_EXE_zedbox");
/// Kinds of failing calls in a run. With many more an agent takes minutes to start, since each failure restarts it.
const KINDS: usize = 4;

async fn world(whole: bool) -> World {
    let path = Path::new(ZEDBOX);
    if whole { World::of_one_process(path).await } else { World::of_processes(path).await }
}

async fn undisturbed(whole: bool) -> Calls {
    let mut world = world(whole).await;
    world.note_calls();
    Story::Reboot.play(&mut world).await;
    world.kill_all().await;
    world.calls()
}

/// Runs the reboot with that failure. Returns the number of failed calls: none when the call did not come this time.
async fn failed(whole: bool, calls: &Calls, failing: &Failing) -> usize {
    let mut world = world(whole).await;
    calls.plant(&mut world, failing);
    // Calls are counted by thread: the next one to ask the device would fail again.
    world.limits["nodeagent"]["refused_retry_ms"] = 200.into();
    Story::Reboot.play(&mut world).await;
    world.no_agent_ended();
    world.kill_all().await;
    world.planted().len()
}

#[test]
fn seed_2_32_a_reboot_on_a_persist_area_that_takes_its_time_for_each_write_ends_right() {
    if !is_here("strace") {
        return;
    }
    within(async {
        let calls = undisturbed(false).await;
        let mut world = world(false).await;
        calls.slow(&mut world, Duration::from_millis(200));
        // Drained when the device is asked, asked in one boot, and counted once.
        Story::Reboot.play(&mut world).await;
        world.no_agent_ended();
        world.kill_all().await;
        let slow = world.planted();
        for path in ["status/zedagent/DeviceOpPending/", "status/zedkube/DrainJournal/", "reboot-reason"] {
            assert!(slow.iter().any(|it| it.contains(&format!("/persist/{path}"))), "{path}: {slow:#?}");
        }
    });
}

#[test]
fn seed_0_08_whatever_a_reboot_does_the_agents_change_nothing_but_their_run_and_persist_areas() {
    if !is_here("strace") {
        return;
    }
    within(async {
        let mut world = world(false).await;
        world.note_calls();
        Story::Reboot.play(&mut world).await;
        world.kill_all().await;
        let (elsewhere, within) = world.written_elsewhere();
        assert!(within > 100, "{within} changes were seen");
        assert_eq!(elsewhere, [""; 0]);
    });
}

/// In `some` runs random calls, or each of them in a run of its own.
fn fails_anywhere(whole: bool, some: Option<usize>) {
    if !is_here("strace") {
        return;
    }
    let calls = within(undisturbed(whole));
    let all = calls.each().len();
    assert!(all > 1_000, "{all} calls only: {:?}", calls.counts);
    let mut dice = Dice::new(RandomState::new().hash_one(0));
    let chosen =
        some.map_or_else(|| calls.each(), |runs| (0..runs).map(|_| calls.some(KINDS, &mut dice)).collect());
    let runs = chosen.len();
    let jobs = chosen.into_iter().map(|failing| {
        let (label, calls) = (failing.to_string(), &calls);
        (label, move || within(failed(whole, calls, &failing)))
    });
    let outcome = at_once(AT_ONCE, jobs.collect::<Vec<_>>());
    writeln!(std::io::stderr(), "{} calls failed in {runs} runs, of {all}", outcome.kills).unwrap();
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    // The last calls of a kind may not come again.
    let least = if some.is_some() { 3 * runs } else { runs / 2 };
    assert!(outcome.kills > least, "{} calls failed in {runs} runs", outcome.kills);
}

#[test]
fn k2_a_reboot_with_eio_at_some_calls_of_any_agent_ends_right() {
    fails_anywhere(false, Some(12));
}

#[test]
fn k2_a_reboot_with_eio_at_some_calls_of_one_process_with_all_agents_ends_right() {
    fails_anywhere(true, Some(6));
}

#[test]
#[ignore = "some three thousand reboots take half an hour"]
fn k2_a_reboot_with_eio_at_each_call_of_any_agent_ends_right() {
    fails_anywhere(false, None);
}

#[test]
#[ignore = "some three thousand reboots take half an hour"]
fn k2_a_reboot_with_eio_at_each_call_of_one_process_with_all_agents_ends_right() {
    fails_anywhere(true, None);
}
