//! Commands, and the way of an operation to the device.
//!
//! Hooks before a reboot: they come before the disks and the last look, and hold the machine up for so long and no
//! longer.
//!
//! WaitDrainInProgress, for every status and requester.

use MachineOperation::{Poweroff, Reboot, Shutdown};

use super::*;

#[test]
fn a_reboot_is_announced_reasoned_settled_and_only_then_asked_for() {
    let mut bench = Bench::new();
    let said = bench.command(Reboot);
    assert!(
        matches!(&said[..], [Effect::Say(_), Effect::Journal(_), Effect::Publish(status)] if status.device_reboot)
    );
    bench.wait(29);
    assert_eq!(bench.kinds(), [(0, "journal"), (0, "publish")]);
    bench.wait(600);
    let kinds = bench.kinds();
    assert_eq!(
        kinds,
        [
            (0, "journal"),
            (0, "publish"),
            (30, "reason"),
            (30, "publish"),
            (30, "sync"),
            (60, "last sync"),
            (60, "operate"),
            (180, "exit")
        ]
    );
    let status = bench.status();
    assert!(
        status.device_reboot
            && status.all_domains_halted
            && !status.device_shutdown
            && !status.device_poweroff
    );
    assert_eq!(bench.operations(), [(60, Reboot, BootReason::RebootCmd)]);
}

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
fn beside_a_zedagent_of_ours_facts_end_the_waits_and_beside_another_one_the_waits_stay() {
    for (ours, asked) in [(true, 2), (false, 60)] {
        let mut bench = Bench::new();
        bench.hear(Event::Wish(DeviceCommand { ours, ..wish(&[Reboot]) }));
        bench.wait(60);
        assert_eq!(bench.operations(), [(asked, Reboot, BootReason::RebootCmd)], "ours: {ours}");
        let kinds: Vec<_> = bench.kinds().into_iter().map(|(_, kind)| kind).collect();
        let all = ["journal", "publish", "reason", "publish", "sync", "last sync", "operate"];
        assert_eq!(kinds, all, "nothing is left out, ours: {ours}");
    }
}

#[test]
fn beside_a_zedagent_of_ours_applications_have_their_time_all_the_same() {
    let mut bench = Bench::new();
    bench.hear(application("a", true));
    bench.hear(Event::Wish(DeviceCommand { ours: true, ..wish(&[Reboot]) }));
    bench.wait(100);
    assert!(bench.operations().is_empty() && !bench.status().all_domains_halted);
    bench.hear(application("a", false));
    bench.wait(2);
    assert_eq!(bench.operations(), [(102, Reboot, BootReason::RebootCmd)]);
}

#[test]
fn a_zedagent_of_ours_that_is_heard_in_the_middle_ends_the_wait_and_another_one_begins_none() {
    let mut bench = Bench::new();
    bench.command(Reboot);
    bench.wait(10);
    bench.hear(Event::Wish(DeviceCommand { ours: true, ..wish(&[Reboot]) }));
    bench.wait(2);
    assert_eq!(bench.operations(), [(12, Reboot, BootReason::RebootCmd)]);
}

#[test]
fn a_shutdown_ends_with_applications_down_and_stores_no_reason() {
    let mut bench = Bench::new();
    bench.command(Shutdown);
    bench.wait(30);
    assert_eq!(
        bench.kinds(),
        [(0, "journal"), (0, "publish"), (30, "publish"), (30, "last sync"), (30, "operate")]
    );
    bench.hear(Event::Operated { operation: Shutdown, outcome: Ok(Took::Machine) });
    bench.wait(3600);
    assert_eq!(bench.kinds().last(), Some(&(30, "journal done")));
    assert!(bench.status().device_shutdown && bench.status().all_domains_halted);
    bench.hear(Event::Space(Some(0)));
    assert!(bench.status().local_maintenance_mode, "the agent goes on after a shutdown");
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
fn of_several_commands_at_once_the_one_that_takes_the_machine_down_is_done() {
    for (wanted, done) in [
        (&[Reboot, Shutdown, Poweroff][..], Reboot),
        (&[Shutdown, Poweroff][..], Poweroff),
        (&[Shutdown][..], Shutdown),
    ] {
        let mut bench = Bench::new();
        bench.hear(command(wanted));
        bench.wait(60);
        assert_eq!(bench.operations().last().unwrap().1, done);
    }
}

#[test]
fn a_command_that_is_taken_back_is_carried_out_all_the_same() {
    let mut bench = Bench::new();
    bench.command(Reboot);
    bench.contact(ConfigGetStatus::Success);
    bench.wait(60);
    assert_eq!(bench.operations(), [(60, Reboot, BootReason::RebootCmd)]);
}

#[test]
fn an_application_that_never_halts_is_given_up_after_three_hundred_seconds() {
    let mut bench = Bench::new();
    bench.hear(application("stuck", true));
    bench.command(Reboot);
    bench.wait(329);
    assert!(!bench.status().all_domains_halted);
    bench.wait(1000);
    assert_eq!(bench.operations(), [(30 + 300 + 30, Reboot, BootReason::RebootCmd)]);
    assert!(bench.status().all_domains_halted);
    let late = |it: &&(u64, Effect)| is_said(&it.1, r#"the operation continues: {"stuck"}"#);
    assert_eq!(bench.done.iter().find(late).map(|it| it.0), Some(330));
    assert_eq!(bench.said("waits for applications to halt"), 60, "it is told every five seconds");
}

#[test]
fn applications_nobody_has_told_of_yet_may_still_run() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.command(Reboot);
    bench.wait(60);
    assert_eq!(bench.operations(), []);
    bench.hear(Event::Heard(RequiredReading::Applications));
    bench.wait(30);
    assert_eq!(bench.operations(), [(90, Reboot, BootReason::RebootCmd)]);
}

#[test]
fn a_device_that_refuses_is_asked_again() {
    let mut bench = Bench::new();
    bench.command(Reboot);
    bench.wait(60);
    bench.hear(Event::Operated { operation: Reboot, outcome: Err("no systemd".into()) });
    bench.wait(29);
    assert_eq!(bench.operations().len(), 1);
    bench.wait(1);
    assert_eq!(bench.operations().len(), 2);
    bench.hear(Event::Operated { operation: Reboot, outcome: Ok(Took::Machine) });
    bench.wait(120);
    assert_eq!(bench.kinds().last(), Some(&(210, "exit")));
}

#[test]
fn a_stand_in_leaves_the_agent_where_it_is_with_nothing_new_to_publish() {
    let mut bench = Bench::new();
    bench.command(Reboot);
    bench.wait(60);
    bench.hear(Event::Operated { operation: Reboot, outcome: Ok(Took::StandIn) });
    let kinds = bench.kinds();
    assert_eq!(kinds.last(), Some(&(60, "journal done")));
    bench.drain(DrainStatus::Cordoned, Requester::DeviceOp);
    bench.partition("IMGA", "inprogress", true);
    bench.contact(ConfigGetStatus::Fail);
    bench.hear(Event::Vault(Vault::Shut(vec![])));
    bench.wait(1_000_000);
    assert_eq!(bench.kinds(), kinds);
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut bench = Bench::new();
    bench.command(Shutdown);
    bench.wait(30);
    bench.hear(command(&[Shutdown, Reboot]));
    bench.hear(Event::Operated { operation: Shutdown, outcome: Ok(Took::Machine) });
    bench.wait(60);
    assert_eq!(bench.operations().last(), Some(&(90, Reboot, BootReason::RebootCmd)));
    bench.hear(Event::Operated { operation: Shutdown, outcome: Err("late".into()) });
    bench.wait(120);
    assert_eq!(bench.kinds().last(), Some(&(210, "exit")));
}

#[test]
fn a_partition_to_be_tried_means_nothing_before_it_is_known_which_one_runs() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.partition("IMGB", "updating", false);
    bench.wait(600);
    assert_eq!(bench.operations(), []);
    bench.partition("IMGB", "inprogress", true);
    bench.wait(60);
    assert_eq!(bench.operations(), []);
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
fn the_first_status_waits_for_the_facts_it_speaks_of() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.contact(ConfigGetStatus::Success);
    bench.partition("IMGA", "inprogress", true);
    assert_eq!(bench.published(), []);
    bench.hear(Event::Heard(RequiredReading::Drain));
    assert!(bench.status().update_inprogress);
    assert_eq!(bench.published().len(), 1);
}

#[test]
fn b5_a_device_without_partitions_waits_for_none_of_them() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.contact(ConfigGetStatus::Success);
    bench.hear(Event::Heard(RequiredReading::Drain));
    bench.hear(Event::Heard(RequiredReading::Applications));
    assert_eq!(bench.published(), []);
    // baseosmgr has published all partitions that there are.
    bench.hear(Event::Heard(RequiredReading::Partitions));
    let status = bench.status();
    assert_eq!((status.cur_part.as_str(), status.update_inprogress), ("", false));
    bench.wait(60);
    assert_eq!(bench.said("without word from"), 0, "{:?}", bench.done);
    bench.command(Reboot);
    bench.wait(60);
    assert_eq!(bench.operations(), [(120, Reboot, BootReason::RebootCmd)]);
}

#[test]
fn the_first_status_does_not_wait_for_ever() {
    let mut bench = Bench::with(SavedNodeState::default());
    bench.contact(ConfigGetStatus::Success);
    bench.wait(29);
    assert_eq!(bench.published(), []);
    bench.wait(1);
    assert_eq!(bench.status().name, "nodeagent");
    assert!(bench.done.iter().any(|(at, it)| *at == 30 && is_said(it, "without word from")));
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
fn a_failed_drain_is_still_waited_for() {
    for failed in [DrainStatus::FailedCordon, DrainStatus::FailedDrain] {
        let mut bench = Bench::new();
        bench.drain(failed, Requester::DeviceOp);
        assert!(bench.status().wait_drain_in_progress, "{failed:?}");
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
