//! Hooks before a reboot: they come before the disks and the last look, and hold the machine up for so long and no longer.

use super::*;
use MachineOperation::Reboot;

/// A reboot that is about to bring everything to the disks, 60 s after it was ordered.
fn syncing() -> Bench {
    let mut bench = Bench::new();
    bench.drain(DrainStatus::Complete, Requester::DeviceOp);
    bench.command(Reboot);
    bench.wait(59);
    bench.now = Mono::from_start(Duration::from_secs(60));
    assert!(bench.core.step(bench.now, Event::Tick).contains(&Effect::LastSync));
    bench
}

fn step(bench: &mut Bench, event: Event) -> Vec<Effect> {
    bench.core.step(bench.now, event)
}

#[test]
fn u9_the_disks_and_the_last_look_come_after_the_hooks_however_long_they_take() {
    let mut bench = syncing();
    assert_eq!(step(&mut bench, Event::Hooking(String::new())), []);
    bench.now = bench.now + Duration::from_mins(29);
    assert_eq!(step(&mut bench, Event::Hooking("hook 10-a: no backup".into())), []);
    assert_eq!(step(&mut bench, Event::Tick), [], "the limit of the disks is not theirs");
    assert_eq!(step(&mut bench, Event::Hooked), [Effect::LastSync]);
    assert!(step(&mut bench, Event::Synced).contains(&Effect::Check));
    // A late word changes nothing.
    assert_eq!(step(&mut bench, Event::Hooking(String::new())), []);
    assert_eq!(step(&mut bench, Event::Hooked), []);
}

#[test]
fn u9_hooks_that_never_end_hold_a_machine_up_for_half_an_hour_and_the_log_of_the_boot_says_so() {
    let mut bench = syncing();
    step(&mut bench, Event::Hooking(String::new()));
    step(&mut bench, Event::Hooking("hook 10-a: no backup".into()));
    bench.now = bench.now + Duration::from_secs(1799);
    assert_eq!(step(&mut bench, Event::Tick), []);
    bench.now = bench.now + Duration::from_secs(1);
    let effects = step(&mut bench, Event::Tick);
    let marked = |it: &Effect| matches!(it, Effect::Mark { why, .. } if why.ends_with("after 1800 s: hook 10-a: no backup"));
    assert!(effects.iter().any(marked), "{effects:?}");
    assert!(effects.contains(&Effect::LastSync));
    // The last look comes all the same: promise 1 and 2 do not hang on hooks.
    assert!(step(&mut bench, Event::Synced).contains(&Effect::Check));
}
