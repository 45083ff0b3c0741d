//! Commands, and the way of an operation to the device.
//!
//! Hooks before a reboot: they come before the disks and the last look, and hold the machine up for so long and no
//! longer.
//!
//! WaitDrainInProgress, for every status and requester.

use MachineOperation::{Poweroff, Reboot, Shutdown};

use super::*;

#[test]
fn also_without_any_delay_it_is_announced_before_anything_is_done() {
    let limits = Limits { min_reboot_delay_ms: 0, ..Limits::default() };
    let core = NodeAgent::new(limits, Waits::default(), SavedNodeState::default(), Mono::START);
    let mut bench = Bench { core, now: Mono::START, done: Vec::new(), ours: false };
    bench.facts();
    bench.done.clear();
    bench.command(Reboot);
    let kinds: Vec<_> = bench.kinds().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, ["journal", "publish", "reason", "publish", "sync", "last sync", "operate"]);
}

#[test]
fn a_repeated_command_changes_nothing() {
    let mut once = Bench::new();
    let mut often = once.clone();
    once.command(Reboot);
    for _ in 0..70 {
        once.wait(1);
        often.command(Reboot);
        often.wait(1);
    }
    assert_eq!(once.done, often.done);
}

#[test]
fn the_first_operation_wins_and_only_a_shutdown_gives_way() {
    let rows = [
        (Reboot, Reboot, false),
        (Reboot, Shutdown, false),
        (Reboot, Poweroff, false),
        (Poweroff, Reboot, false),
        (Poweroff, Shutdown, false),
        (Poweroff, Poweroff, false),
        (Shutdown, Shutdown, false),
        (Shutdown, Reboot, true),
        (Shutdown, Poweroff, true),
    ];
    for (first, second, follows) in rows {
        // In each phase of the first one.
        for after in [0, 15, 30, 45, 60, 90] {
            let mut bench = Bench::new();
            bench.command(first);
            bench.wait(after);
            bench.hear(command(&[first, second]));
            bench.wait(90);
            let last = bench.operations().last().unwrap().1;
            assert_eq!(last, if follows { second } else { first }, "{first:?}, {second:?} after {after} s");
            let calls: Vec<_> = bench.operations().iter().map(|(_, operation, _)| *operation).collect();
            let calls: std::collections::BTreeSet<_> = calls.iter().map(|it| it.word()).collect();
            assert!(calls.len() == 1 || first == Shutdown, "{calls:?}");
        }
    }
}

#[test]
fn a_restart_of_the_agent_ends_in_the_same_operation_whatever_was_latched_first() {
    // zedagent has both flags set by now; the journal knows which one came first.
    for first in [Reboot, Poweroff] {
        for after in [0, 29, 30, 45, 60] {
            let mut bench = Bench::new();
            bench.command(first);
            bench.wait(after);
            let Some((_, Effect::Journal(resumed))) =
                bench.done.iter().rfind(|(_, it)| kind(it) == "journal")
            else {
                panic!("not journaled")
            };
            let found = SavedNodeState {
                resumed: Some(resumed.clone()),
                said: Some(bench.status()),
                ..SavedNodeState::default()
            };
            let mut again = Bench::with(found);
            again.hear(command(&[Reboot, Shutdown, Poweroff]));
            again.facts();
            again.wait(60);
            assert_eq!(again.operations(), [(60, first, BootReason::RebootCmd)]);
            let status = again.status();
            assert_eq!((status.device_reboot, status.device_poweroff), (first == Reboot, first == Poweroff));
        }
    }
}

#[test]
fn a_restart_says_what_was_said_until_it_has_heard() {
    let said = NodeAgentStatus {
        cur_part: "IMGB".into(),
        update_inprogress: true,
        wait_drain_in_progress: true,
        ..NodeAgentStatus::default()
    };
    let mut bench = Bench::with(SavedNodeState { said: Some(said), ..SavedNodeState::default() });
    bench.wait(30);
    let status = bench.status();
    assert!(status.update_inprogress && status.wait_drain_in_progress);
    assert_eq!(status.cur_part, "IMGB");
    bench.facts();
    bench.drain(DrainStatus::Complete, Requester::DeviceOp);
    let status = bench.status();
    assert!(!status.update_inprogress && !status.wait_drain_in_progress);
}

#[test]
fn d_v31_a_second_operation_soon_after_the_first_neither_runs_nor_takes_its_reason() {
    let mut bench = Bench::new();
    bench.command(Reboot);
    bench.wait(10);
    bench.hear(Event::Wish(DeviceCommand { reason: "second".into(), ..wish(&[Reboot, Poweroff]) }));
    bench.hear(partition("IMGB", "updating", false, false));
    bench.wait(600);
    assert_eq!(bench.operations(), [(60, Reboot, BootReason::RebootCmd)]);
    let reasons: Vec<_> = bench.done.iter().filter(|(_, it)| kind(it) == "reason").collect();
    let first = Effect::Reason { order: order(Reboot), image: "IMGA".into() };
    assert_eq!(reasons, [&(30, first)]);
}

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

const REQUESTERS: [Requester; 7] = [
    Requester::Unset,
    Requester::None,
    Requester::DeviceOp,
    Requester::Update,
    Requester::Operator,
    Requester::K3sUpdate,
    Requester::Stranger(9),
];

fn statuses() -> Vec<DrainStatus> {
    let mut all = DrainStatus::NAMED.to_vec();
    all.push(DrainStatus::Stranger(17));
    all
}

/// The rule, apart from the code: what WaitDrainInProgress is after this status, `None` where it stays.
fn expected(status: DrainStatus, by: Requester) -> Option<bool> {
    match (status.number(), by.number()) {
        (1 | 2, _) | (9, 2) => Some(false),
        (3..=8, 2) => Some(true),
        _ => None,
    }
}

#[test]
fn every_status_of_every_requester_gives_the_documented_value() {
    for by in REQUESTERS {
        for status in statuses() {
            for before in [false, true] {
                let mut bench = Bench::new();
                if before {
                    bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
                }
                bench.drain(status, by);
                // A fact that changes the status on its way, so that it is published again in any case.
                bench.hear(Event::Space(Some(0)));
                let waits = bench.status().wait_drain_in_progress;
                assert_eq!(
                    waits,
                    expected(status, by).unwrap_or(before),
                    "{status:?} by {by:?} after {before}"
                );
            }
        }
    }
}

#[test]
fn d_n1_a_cluster_left_in_mid_drain_is_no_drain_to_wait_for() {
    for by in REQUESTERS {
        let mut bench = Bench::new();
        bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
        assert!(bench.status().wait_drain_in_progress);
        bench.drain(DrainStatus::NotSupported, by);
        assert!(!bench.status().wait_drain_in_progress, "by {by:?}");
    }
}

#[test]
fn d_n1_a_request_that_was_taken_back_is_no_drain_to_wait_for() {
    for by in REQUESTERS {
        let mut bench = Bench::new();
        bench.drain(DrainStatus::Requested, Requester::DeviceOp);
        bench.drain(DrainStatus::NotRequested, by);
        assert!(!bench.status().wait_drain_in_progress, "by {by:?}");
    }
}

#[test]
fn a_drain_is_told_at_each_of_its_steps_and_its_end() {
    let mut bench = Bench::new();
    for status in
        [DrainStatus::NotRequested, DrainStatus::Requested, DrainStatus::Requested, DrainStatus::Cordoned]
    {
        bench.drain(status, Requester::DeviceOp);
    }
    bench.drain(DrainStatus::Complete, Requester::DeviceOp);
    let said: Vec<_> = bench
        .done
        .iter()
        .filter_map(|(_, it)| if let Effect::Say(message) = it { Some(message.text.as_str()) } else { None })
        .collect();
    assert_eq!(
        said,
        [
            "handleNodeDrainStatus nodedrain-step:drain-inprogress-handler NodeDrainStatus {Requested 2}",
            "handleNodeDrainStatus nodedrain-step:drain-inprogress-handler NodeDrainStatus {Cordoned 2}",
            "handleNodeDrainStatus nodedrain-step:drain-complete-handler NodeDrainStatus {Complete 2}",
        ]
    );
}

#[test]
fn no_drain_status_moves_the_device() {
    let mut bench = Bench::new();
    for by in REQUESTERS {
        for status in statuses() {
            bench.drain(status, by);
            bench.wait(600);
        }
    }
    assert_eq!(bench.operations(), []);
}
