//! What zedkube is asked before the machine goes down.

use MachineOperation::{Reboot, Shutdown};
use topics::{OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict, SkipKind};

use super::stories::tell;
use super::*;

/// Beside a zedkube that answers questions, on a node of this role.
pub(super) fn beside(role: OutageRole) -> Bench {
    let mut bench = Bench::new();
    bench.ours = true;
    bench.hear(Event::Answer(OutageAnswer { role, ..OutageAnswer::default() }));
    bench.done.clear();
    bench
}

/// The same, and it is about to carry out an operation for which the node was drained.
pub(super) fn drained(role: OutageRole, operation: MachineOperation) -> Bench {
    let mut bench = beside(role);
    bench.drain(DrainStatus::Complete, Requester::DeviceOp);
    bench.command(operation);
    bench.wait(60);
    bench
}

fn questions(bench: &Bench) -> Vec<OutageQuestion> {
    let of = |(_, effect): &(u64, Effect)| match effect {
        Effect::Question(question) => Some((**question).clone()),
        _ => None,
    };
    bench.done.iter().filter_map(of).collect()
}

pub(super) fn question(bench: &Bench) -> OutageQuestion {
    questions(bench).pop().expect("nothing was asked")
}

pub(super) fn answer(bench: &mut Bench, verdict: OutageVerdict, change: impl FnOnce(&mut OutageAnswer)) {
    let mut answer = OutageAnswer {
        number: question(bench).number,
        verdict,
        role: bench.core.talk.role(),
        why: "etcd needs this node for its quorum".into(),
        next_step: "repair it".into(),
        ..OutageAnswer::default()
    };
    change(&mut answer);
    bench.hear(Event::Answer(answer));
}

fn go(bench: &mut Bench) {
    answer(bench, OutageVerdict::Go, |_| {});
}

fn marks(bench: &Bench) -> Vec<String> {
    let of = |(_, effect): &(u64, Effect)| match effect {
        Effect::Mark { why, .. } => Some(why.clone()),
        _ => None,
    };
    bench.done.iter().filter_map(of).collect()
}

#[test]
fn u1_the_device_is_not_asked_before_zedkube_has_answered_this_very_question() {
    for operation in [Reboot, Shutdown] {
        let mut bench = drained(OutageRole::Worker, operation);
        assert_eq!(bench.operations(), [], "{operation:?}");
        let asked = question(&bench);
        assert_eq!((asked.kind, asked.requested_by), (OutageKind::LastLook, Requester::DeviceOp));
        assert_eq!(asked.op, operation.word());
        answer(&mut bench, OutageVerdict::Go, |it| it.number -= 1);
        answer(&mut bench, OutageVerdict::Unknown, |_| {});
        assert_eq!(bench.operations(), [], "an answer to another question");
        bench.done.retain(|(_, effect)| matches!(effect, Effect::Question(_)));
        go(&mut bench);
        assert_eq!(bench.operations().len(), 1, "{operation:?}");
        // Nothing comes between the answer and the device.
        assert_eq!(kind(&bench.done[1].1), "operate");
        assert_eq!(marks(&bench), [""; 0]);
    }
}

#[test]
fn u3_a_machine_that_is_held_says_why_and_what_to_type_and_asks_again_with_a_new_number() {
    let mut bench = drained(OutageRole::Server, Reboot);
    let first = question(&bench).number;
    answer(&mut bench, OutageVerdict::Hold, |_| {});
    let held = question(&bench);
    assert_eq!(
        (held.held.as_str(), held.next_step.as_str()),
        ("etcd needs this node for its quorum", "repair it")
    );
    assert_eq!(held.number, first);
    assert_eq!(bench.said("held back before the machine goes down"), 1);
    bench.wait(30);
    let again = question(&bench);
    assert!(again.number > first && again.held == held.held, "{again:?}");
    // `go` to the question before is of no use; the disks are in sync before each new look.
    bench.hear(Event::Answer(OutageAnswer {
        number: first,
        verdict: OutageVerdict::Go,
        ..OutageAnswer::default()
    }));
    assert_eq!(bench.operations(), []);
    assert_eq!(bench.kinds().iter().filter(|it| it.1 == "last sync").count(), 2);
    go(&mut bench);
    assert_eq!(bench.operations().len(), 1);
    assert_eq!(question(&bench).held, "");
}

#[test]
fn beside_a_zedkube_that_does_not_answer_a_worker_goes_marked_and_a_server_waits_for_a_person() {
    for role in [OutageRole::Worker, OutageRole::Server, OutageRole::Unknown] {
        let mut bench = drained(role, Reboot);
        bench.wait(299);
        assert_eq!(bench.operations(), [], "{role:?}");
        let held = question(&bench);
        assert!(held.held.contains("zedkube does not answer"), "{held:?}");
        bench.wait(3_600);
        if role == OutageRole::Worker {
            assert_eq!(bench.operations().len(), 1);
            assert!(held.next_step.contains("goes down all the same"), "{held:?}");
            assert!(
                matches!(&marks(&bench)[..], [one] if one.contains("the Lease of turns could not be read"))
            );
        } else {
            assert_eq!(bench.operations(), [], "{role:?}");
            assert!(held.next_step.contains("zedbox go --past drain"), "{held:?}");
            // A person's word.
            let forced = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::DeviceOp };
            while !bench.core.step(bench.now, Event::Tick).contains(&Effect::LastSync) {
                bench.now = bench.core.next_wake().unwrap().max(bench.now);
            }
            bench.core.step(bench.now, Event::Synced);
            bench.hear(Event::Checked {
                status: None,
                answers: Vec::new(),
                forced: Some(forced),
                ours: true,
            });
            assert_eq!(bench.operations().len(), 1, "{role:?}");
        }
    }
}

#[test]
fn u1_a_node_whose_drain_is_undone_while_zedkube_does_not_answer_stays_up() {
    let mut bench = drained(OutageRole::Worker, Reboot);
    bench.wait(299);
    assert_eq!((bench.operations().len(), marks(&bench).len()), (0, 0));
    // Its word about the node counts, whatever it does not answer.
    bench.drain(DrainStatus::Requested, Requester::DeviceOp);
    bench.wait(600);
    assert_eq!((bench.operations().len(), marks(&bench).len()), (0, 0));
}

#[test]
fn u1_once_nobody_is_waited_for_any_more_the_drain_is_read_once_more_before_the_device_is_asked() {
    let mut bench = drained(OutageRole::Worker, Reboot);
    let checked = |status| Event::Checked { status, answers: Vec::new(), forced: None, ours: true };
    let last = loop {
        bench.now = bench.core.next_wake().unwrap().max(bench.now);
        let effects = bench.core.step(bench.now, Event::Tick);
        assert!(!effects.iter().any(|it| matches!(it, Effect::Operate(_))), "{effects:?}");
        if effects.contains(&Effect::Check) {
            break NodeDrainStatus { status: DrainStatus::Requested, requested_by: Requester::DeviceOp };
        }
        if effects.contains(&Effect::LastSync) {
            bench.core.step(bench.now, Event::Synced);
            bench.core.step(bench.now, checked(None));
        }
    };
    let effects = bench.core.step(bench.now, checked(Some(last)));
    assert!(effects.iter().any(|it| is_said(it, "held back: the node is not drained")), "{effects:?}");
    assert!(!effects.iter().any(|it| matches!(it, Effect::Operate(_) | Effect::Mark { .. })), "{effects:?}");
}

#[test]
fn nobody_is_asked_beside_a_zedkube_of_the_reference_without_turns_or_by_force() {
    let mut reference = Bench::new();
    reference.drain(DrainStatus::Complete, Requester::DeviceOp);
    reference.command(Reboot);
    reference.wait(60);
    let mut without = drained(OutageRole::None, Reboot);
    without.wait(0);
    for bench in [&reference, &without] {
        assert_eq!((bench.operations().len(), questions(bench)), (1, Vec::new()));
    }
    // zedkube has answered by a person's order, and the order was taken away since.
    let mut forced = beside(OutageRole::Server);
    forced.command(Reboot);
    forced.now = Mono::from_start(Duration::from_secs(30));
    forced.core.step(forced.now, Event::Tick);
    forced.now = Mono::from_start(Duration::from_secs(60));
    forced.core.step(forced.now, Event::Tick);
    forced.core.step(forced.now, Event::Synced);
    let by = Requester::DeviceOp;
    let answers = vec![Answer {
        requested_by: by,
        status: DrainStatus::Complete,
        skip_kind: SkipKind::Forced,
        ..Answer::default()
    }];
    forced.hear(Event::Checked { status: None, answers, forced: None, ours: true });
    assert_eq!(forced.operations().len(), 1);
}

/// In test, and without a controller for as long as that may last.
pub(super) fn falls_back(role: OutageRole) -> Bench {
    let mut bench = beside(role);
    bench.drain(DrainStatus::NotRequested, Requester::None);
    bench.partition("IMGA", "inprogress", true);
    bench.contact(ConfigGetStatus::Fail);
    bench.wait(300);
    bench
}

#[test]
fn an_answer_that_comes_too_late_counts_no_more() {
    // It shows that something has changed: the node is looked at again.
    tell("drained Worker, late, zedkube goes, device -, wait 30, zedkube goes, device 150 reboot RebootCmd");
}

#[test]
fn u11_a_restart_on_its_own_account_begins_in_its_turn_and_looks_once_more_before_the_device() {
    tell(
        "falls back Server, asks Turn, zedkube holds at 1, wait 600, shows testing, next after 30 min
        zedkube goes, shows testing reboot, wait 60, asks Turn, device -, zedkube goes, device 960 reboot Fallback",
    );
}

#[test]
fn u11_a_turn_that_does_not_come_is_waited_for_as_long_as_others_go_and_then_written_down_as_an_emergency() {
    // The one before it goes: it is the first then, and has its whole time again. The others are to hear of the emergency
    // first, and it asks nobody any more.
    tell(
        "falls back Server, zedkube holds at 2, wait 3599, zedkube holds at 1, wait 1799, asks Turn, wait 1
        asks Emergency, wait 2, shows testing, wait 1, shows testing reboot, journal without its turn
        wait 60, device 5762 reboot Fallback",
    );
}

#[test]
fn u11_an_emergency_that_is_written_goes_at_once_and_zedkube_that_is_silent_holds_none_up_for_long() {
    tell(
        "falls back Server, wait 299, asks Turn, wait 1, asks Emergency, zedkube goes, shows testing reboot",
    );
}

#[test]
fn u11_a_controller_that_comes_back_while_the_turn_is_waited_for_calls_the_restart_off() {
    tell(
        "falls back Worker, zedkube holds at 1, controller Success, asks None, not held, wait 3600, device -
        shows testing",
    );
}

#[test]
fn u11_seven_days_without_a_controller_wait_a_day_for_each_node_and_a_node_in_no_cluster_waits_for_nobody() {
    tell(
        "beside Worker, drain NotRequested None, controller Fail, wait 604800, zedkube holds at 1, wait 86399, asks Turn
        wait 1, asks Emergency",
    );
    tell("beside None, controller Fail, wait 604860, asks nothing, device 604860 reboot Disconnect");
}
