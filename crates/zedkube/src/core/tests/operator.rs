//! A person with a shell as a requester: served like the others, named after them, and released by hand.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Core as _;
use topics::{DrainStatus, Requester, SkipKind};

use super::bench::{Bench, T0, at_once, request};
use super::{Effect, Event, Membership, NodeLook};

const ALL: [Requester; 3] = [Requester::DeviceOp, Requester::Update, Requester::Operator];

fn answers(bench: &Bench) -> Vec<(Requester, DrainStatus)> {
    bench.core.journal().answers.iter().map(|it| (it.requested_by, it.status)).collect()
}

#[test]
fn a_person_asks_and_the_node_stays_drained_until_the_request_is_taken_back() {
    let (mut bench, run) = Bench::draining(Requester::Operator);
    bench.done(run);
    assert_eq!(bench.statuses, [(1, 1), (2, 1), (3, 4), (4, 4), (5, 4), (9, 4)]);
    for _ in 0..100 {
        bench.look(NodeLook::Ours);
        assert_eq!(bench.wait(), Duration::from_secs(30));
        assert!(!bench.gives_back());
    }
    assert_eq!(bench.status(), (9, 4));
    bench.hear(Event::Request(Requester::Operator, None));
    assert!(bench.gives_back());
    assert_eq!(bench.status(), (2, 1));
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
    let (mut bench, run) = Bench::draining(Requester::Operator);
    bench.done(run);
    bench.ask(&request(Requester::DeviceOp, 2));
    // COMPLETE was the person's: the reboot has to wait for its own.
    assert_eq!(bench.status(), (4, 2));
    let run = bench.until_draining();
    bench.done(run);
    assert_eq!(bench.status(), (9, 2));
    bench.hear(Event::Request(Requester::DeviceOp, None));
    assert_eq!(bench.status(), (9, 4));
    assert!(!bench.gives_back());
}

#[test]
fn a_reboot_whose_drain_fails_does_not_take_a_persons_drained_node_away() {
    let (mut bench, run) = Bench::draining(Requester::Operator);
    bench.done(run);
    bench.ask(&request(Requester::DeviceOp, 2));
    let run = bench.until_draining();
    bench.fail_all(run);
    let shown =
        [(Requester::DeviceOp, DrainStatus::FailedDrain), (Requester::Operator, DrainStatus::Complete)];
    // An agent of the reference reads nothing but the status: it must see its failure.
    assert_eq!((bench.status(), answers(&bench)), ((8, 2), shown.to_vec()));
    assert!(!bench.gives_back());
    bench.look(NodeLook::Ours);
    // Nor does a restart give the person's node back, or hide the failure.
    let asked = [request(Requester::Operator, 1), request(Requester::DeviceOp, 2)];
    let mut again = Bench::again(T0, at_once(), bench.core.journal(), &asked);
    assert_eq!((again.status(), answers(&again)), ((8, 2), shown.to_vec()));
    assert!(!again.gives_back());
    // The operation that withdraws leaves the person's answer to be read.
    again.hear(Event::Request(Requester::DeviceOp, None));
    assert_eq!(again.status(), (9, 4));
    // With the person's request the last reason for the cordon goes.
    bench.hear(Event::Request(Requester::Operator, None));
    assert!(bench.gives_back());
    assert_eq!(bench.status(), (8, 2));
}

#[test]
fn until_the_persons_request_is_read_nothing_begins() {
    let mut bench = Bench::with(None);
    bench.hear(Event::NodeKnown { name: "n1".into() });
    bench.hear(Event::Member(Membership::Member));
    for other in super::world::ALL.into_iter().filter(|it| *it != Requester::Operator) {
        bench.hear(Event::RequestsRead(other));
    }
    bench.ask(&request(Requester::DeviceOp, 1));
    assert_eq!(bench.status(), (2, 1));
    bench.hear(Event::RequestsRead(Requester::Operator));
    assert_eq!(bench.status(), (4, 2));
    assert_eq!(bench.core.next_wake().map(|at| at.since(bench.now)), None::<Duration>);
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
