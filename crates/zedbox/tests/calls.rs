//! Real agents on a disk that fails with EIO at each single call in turn, through a whole reboot (goals K2).
//!
//! strace plants the failures from outside. Here some calls by chance fail, a few of each kind;
//! `cargo test -p zedbox --test whole calls -- --ignored` lets each one fail.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use scenarios::{AT_ONCE, Calls, Dice, Failing, Story, World, at_once, within};

const ZEDBOX: &str = env!("CARGO_BIN_EXE_zedbox");

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

/// Plays the reboot with that failure. False when the call did not come this time.
async fn failed(whole: bool, calls: &Calls, failing: &Failing) -> bool {
    let mut world = world(whole).await;
    calls.plant(&mut world, failing);
    // Calls are counted by thread: the next one to ask the device would meet the failure again.
    world.limits["nodeagent"]["refused_retry_ms"] = 200.into();
    Story::Reboot.play(&mut world).await;
    world.no_agent_ended();
    world.kill_all().await;
    !world.planted().is_empty()
}

/// So many, each of another kind or agent: one call, or that and the next ones.
fn by_chance(calls: &Calls, some: usize, dice: &mut Dice) -> Vec<Failing> {
    let mut kinds: Vec<_> = calls.counts.iter().collect();
    let mut chosen = Vec::new();
    while chosen.len() < some {
        let kind = usize::try_from(dice.below(u64::try_from(kinds.len()).unwrap())).unwrap();
        let ((agent, call), most) = kinds.swap_remove(kind);
        let nth = usize::try_from(1 + dice.below(u64::try_from(*most).unwrap())).unwrap();
        let count = *dice.one_of(&[1, 4]);
        chosen.push(Failing { agent: *agent, call: call.clone(), nth, count });
    }
    chosen
}

#[expect(clippy::explicit_write, reason = "a test that is left out says so")]
fn has_strace() -> bool {
    let has = Command::new("strace").arg("--version").output().is_ok();
    if !has {
        writeln!(std::io::stderr(), "skipped: a bad disk is planted by strace, which is not installed")
            .unwrap();
    }
    has
}

#[test]
fn seed_2_32_a_reboot_on_a_persist_area_that_takes_its_time_for_each_write_ends_right() {
    if !has_strace() {
        return;
    }
    within(async {
        let calls = undisturbed(false).await;
        let mut world = world(false).await;
        calls.slow(&mut world, Duration::from_millis(200));
        // It is drained when the device is asked, asked in one boot, and counted once.
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
    if !has_strace() {
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

/// `some` calls by chance, or each of them.
#[expect(clippy::explicit_write, reason = "a test that is left out says so")]
fn fails_anywhere(whole: bool, some: Option<usize>) {
    if !has_strace() {
        return;
    }
    let calls = within(undisturbed(whole));
    let all = calls.each().len();
    assert!(all > 1_000, "{all} calls only: {:?}", calls.counts);
    let mut dice = Dice::new(RandomState::new().hash_one(0));
    let chosen = some.map_or_else(|| calls.each(), |some| by_chance(&calls, some, &mut dice));
    let runs = chosen.len();
    writeln!(
        std::io::stderr(),
        "{runs} of {all} calls fail; each one with `cargo test -p zedbox --test whole calls -- --ignored`"
    )
    .unwrap();
    let jobs = chosen.into_iter().map(|failing| {
        let (label, calls) = (failing.to_string(), &calls);
        (label, move || usize::from(within(failed(whole, calls, &failing))))
    });
    let outcome = at_once(AT_ONCE, jobs.collect::<Vec<_>>());
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    // The last calls of a kind need not come again.
    assert!(outcome.kills > runs / 2, "{} of {runs} calls came", outcome.kills);
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
