//! A person with a shell as a requester: served like the others, named after them, and released by hand.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use topics::{DrainStatus, Requester, SkipKind};

use super::Effect;
use super::bench::{Bench, request};
use super::stories::{go, tell};

const ALL: [Requester; 3] = [Requester::DeviceOp, Requester::Update, Requester::Operator];

fn answers(bench: &Bench) -> Vec<(Requester, DrainStatus)> {
    bench.core.journal().answers.iter().map(|it| (it.requested_by, it.status)).collect()
}

#[test]
fn a_person_asks_and_the_node_stays_drained_until_the_request_is_taken_back() {
    let mut bench = tell("draining Operator, done");
    assert_eq!(bench.statuses, [(1, 1), (2, 1), (3, 4), (4, 4), (5, 4), (9, 4)]);
    go(&mut bench, &"look Ours, wait 30, not uncordon, ".repeat(100));
    go(&mut bench, "status 9 4, withdraw Operator, does uncordon, status 2 1");
}

#[test]
fn p5_any_mix_of_requesters_is_one_drain_named_in_order_with_an_answer_for_each() {
    for mix in 1..8_usize {
        let asking: Vec<Requester> = (0..3).filter(|bit| mix & (1 << bit) != 0).map(|bit| ALL[bit]).collect();
        // Whoever comes first: the order of names stays.
        for reversed in [false, true] {
            let mut bench = Bench::idle();
            let mut comers = asking.clone();
            if reversed {
                comers.reverse();
            }
            bench.ask(&request(comers[0], 1));
            let run = bench.until_draining();
            for (who, secs) in comers[1..].iter().zip(2..) {
                bench.ask(&request(*who, secs));
                let begun =
                    |it: &Effect| matches!(it, Effect::Probe(_) | Effect::Cordon(..) | Effect::Drain(..));
                assert!(!bench.has(begun), "{comers:?}");
            }
            assert_eq!(bench.status(), (5, asking[0].number()), "{comers:?}");
            bench.done(run);
            assert_eq!(bench.status(), (9, asking[0].number()), "{comers:?}");
            let complete: Vec<_> = asking.iter().map(|who| (*who, DrainStatus::Complete)).collect();
            assert_eq!(answers(&bench), complete, "{comers:?}");
        }
    }
}

#[test]
fn a_reboot_after_a_persons_drain_is_drained_for_itself_and_the_person_keeps_the_node() {
    // COMPLETE was the person's: the reboot has to wait for its own.
    tell(
        "draining Operator, done, ask DeviceOp 2, status 4 2, drains, done, status 9 2, withdraw DeviceOp, status 9 4
        not uncordon",
    );
}

#[test]
fn a_reboot_whose_drain_fails_does_not_take_a_persons_drained_node_away() {
    // An agent of the reference reads nothing but the status: it must see its failure.
    let shown = "status 8 2, answers DeviceOp FailedDrain; Operator Complete, not uncordon";
    let failed = format!("draining Operator, done, ask DeviceOp 2, drains, fails all, {shown}, look Ours");
    // Nor does a restart give the person's node back, or hide the failure. The operation that withdraws leaves the
    // person's answer to be read.
    tell(&format!("{failed}, restart Operator 1 DeviceOp 2, {shown}, withdraw DeviceOp, status 9 4"));
    // With the person's request the last reason for the cordon goes.
    tell(&format!("{failed}, withdraw Operator, does uncordon, status 8 2"));
}

#[test]
fn until_the_persons_request_is_read_nothing_begins() {
    let others = super::world::ALL.into_iter().filter(|it| *it != Requester::Operator);
    let read = others.map(|it| format!("read {it:?}")).collect::<Vec<_>>().join(", ");
    tell(&format!(
        "new, named, member Member, {read}, ask DeviceOp, status 2 1, read Operator, status 4 2, due never"
    ));
}

#[test]
fn k7_a_person_whose_drain_was_skipped_is_not_told_to_work_on_the_node() {
    let mut bench = Bench::asked(Requester::Operator);
    bench.away(Duration::from_hours(1));
    assert_eq!(bench.status(), (9, 4));
    let step = bench.core.progress().next_step;
    assert!(step.starts_with("NOT drained"), "{step}");
    // Neither after a restart, when only the answer is known.
    let journal = bench.core.journal();
    assert!(!journal.answers[0].skip.is_empty() && journal.answers[0].skip_kind != SkipKind::Forced);
    bench.core.drain.end(Some(super::drain::DrainEnd::Resumed(DrainStatus::Complete)), &mut Vec::new());
    assert!(bench.core.progress().next_step.starts_with("NOT drained"));
}
