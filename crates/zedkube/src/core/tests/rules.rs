//! Rules of the drain, each tried in a sentence; faults of the reference by their names.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Progress;
use topics::{DrainStatus, Requester};

use super::bench::{Bench, request};
use super::stories::tell;
use super::{Effect, Event, Force, NodeLook};

#[test]
fn d_k3_a_second_requester_joins_the_one_drain_and_each_gets_its_answer() {
    let mut bench = Bench::idle();
    let (reboot, update) = (request(Requester::DeviceOp, 1), request(Requester::Update, 2));
    bench.ask(&reboot);
    let run = bench.until_draining();
    bench.ask(&update);
    assert!(!bench.has(|it| matches!(it, Effect::Probe(_) | Effect::Cordon(..) | Effect::Drain(..))));
    bench.done(run);
    let answered = |effects: &[Effect]| {
        effects.iter().any(|it| {
            matches!(it, Effect::Progress(progress) if [&reboot, &update].iter().all(|request| {
                progress.answer(request.id()).is_some_and(|answer| answer.status == DrainStatus::Complete)
            }))
        })
    };
    assert!(answered(&bench.last));
    assert_eq!(bench.status(), (9, 2));
    // A Go reader of the second requester sees its own number a little later.
    assert_eq!(bench.wait(), Duration::from_secs(2));
    assert_eq!(bench.status(), (9, 3));
}

#[test]
fn d_k5_a_config_change_that_keeps_membership_leaves_the_drain_alone() {
    tell("asked DeviceOp, drains, member Member, does nothing, status 5 2");
}

#[test]
fn d_k29_a_node_that_cannot_be_looked_at_is_looked_at_again() {
    tell("new, join, look fails, wait, look fails, wait, look fails, wait, does uncordon");
}

#[test]
fn d_k9_a_drain_that_starts_ends_the_look_that_would_give_its_cordon_back() {
    tell("new, join, does uncordon, ask DeviceOp, does cancel, drains, not uncordon");
}

#[test]
fn j6_the_drain_of_a_node_maintenance_alone_is_never_skipped_and_a_reboot_beside_it_is() {
    tell("asked NodeMaintenance, away 3600, status 4, ask DeviceOp 2, away 600, status 9");
}

#[test]
fn a_request_before_the_cluster_config_waits_for_it() {
    tell("new, ask DeviceOp, status 1 1, join, showed 3 2");
}

#[test]
fn leaving_the_cluster_ends_a_drain() {
    tell("asked DeviceOp, drains, member Outside, does cancel, status 1 1");
}

#[test]
fn any_other_forced_status_is_shown_while_the_file_stays() {
    for number in 2..=8 {
        let status = DrainStatus::from(number);
        tell(&format!("idle, force {status:?} DeviceOp, status {number} 2, force gone, status 2 1"));
    }
}

#[test]
fn k6_the_fault_injection_file_holds_for_an_hour_at_most() {
    tell(
        "idle, hold, ask DeviceOp, drains, done
        reason has delays COMPLETE until Deadline at most; `rm` it to continue, deadline some
        next is `rm /tmp/DrainStatus_FaultInjection_Wait`, wait 3600, status 9 2",
    );
}

#[test]
fn our_own_uncordon_after_a_failure_does_not_take_a_forced_complete_back() {
    // The answer to the look comes after the order, or the next look does.
    for late in [true, false] {
        let (mut bench, run) = Bench::draining(Requester::DeviceOp);
        bench.fail_all(run);
        assert_eq!(bench.status(), (8, 2));
        let asked = bench.last.clone();
        if !late {
            bench.look(NodeLook::Open);
        }
        bench.force(DrainStatus::Complete, Requester::DeviceOp);
        assert_eq!(bench.status(), (9, 2));
        if late {
            bench.last = asked;
        } else {
            bench.wait();
        }
        bench.look(NodeLook::Open);
        assert_eq!(bench.said("COMPLETE is void"), 0, "{late}: {:?}", bench.last);
        bench.hear(Event::Force(Force::Absent));
        assert_eq!(bench.status(), (9, 2), "{late}");
    }
}

#[test]
fn between_two_tries_of_an_operation_a_reader_learns_that_the_last_drain_failed() {
    // The next request ends that.
    tell(
        "idle, ask DeviceOp, drains, fails all, withdraw DeviceOp, look Open, phase Idle, for nobody
        | reason starts no drain requested now; the last drain (for reboot, requested 2026-03-14
        reason ends failed: budget shop/web, next has requests it again by itself
        ask DeviceOp 2, drains, withdraw DeviceOp, look Open, reason is no drain requested",
    );
}

#[test]
fn the_progress_names_a_request_that_exists() {
    tell("asked DeviceOp, drains, ask Update 7, withdraw DeviceOp, for Update 7");
}

#[test]
fn two_drains_start_some_seconds_apart() {
    let mut bench = Bench::idle();
    bench.core.node.limits.drain_gap_ms = 4_000;
    bench.ask(&request(Requester::DeviceOp, 1));
    let run = bench.until_draining();
    bench.now = bench.now + Duration::from_secs(1);
    bench.done(run);
    bench.ask(&request(Requester::DeviceOp, 2));
    assert_eq!(bench.status(), (3, 2));
    assert_eq!(bench.wait(), Duration::from_secs(3));
    assert_eq!(bench.status(), (4, 2));
}

#[test]
fn o4_the_replies_of_the_last_attempt_stay_after_it_has_ended() {
    let replies = step::LiteMap::from_iter([("accepted", 3), ("budget", 2)]);
    let shown = || Box::new(Progress { replies: replies.clone(), ..Progress::default() });
    let known = [("accepted".to_owned(), 3), ("budget".to_owned(), 2)].into();
    for failed in [false, true] {
        let (mut bench, run) = Bench::draining(Requester::DeviceOp);
        bench.hear(Event::Draining(run, shown()));
        if failed {
            bench.fail(run);
        } else {
            bench.done(run);
        }
        assert_eq!(bench.core.progress().replies, known, "failed: {failed}");
    }
}
