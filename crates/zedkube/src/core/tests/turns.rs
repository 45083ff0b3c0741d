//! The turn to be down: waited for, looked at once more, lost, kept, given back (goals U1, U10, U12).
//!
//! Pure: no clock, no I/O, no task.

mod away;

use kubenodeop::node::gate::Layer;
use outage::keeper::{Ask, Wish};
use outage::turn::event::{Standing, Unconfirmed, Waiting};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::Rule;
use step::Core as _;
use topics::{CordonOwner, DrainPhase, DrainStatus, Requester};

use super::bench::{Bench, T0, gate, request};
use super::{Effect, Event, Grant, Seen};
use crate::limits::Limits;

fn limits() -> Limits {
    Limits { progress_gap_ms: 0, marks_gap_ms: 0, drain_gap_ms: 0, ..Limits::default() }
}

fn idle() -> Bench {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.look(Seen::Open);
    bench
}

fn held(fence: u32) -> Event {
    Event::Turn(Box::new(Standing::Held { fence, lease_uid: "lease".into(), phase: Phase::Granted }))
}

fn waits(rule: Rule) -> Event {
    Event::Turn(Box::new(Standing::Waiting(Box::new(Waiting {
        nodes: vec!["n2".into()],
        rule,
        why: "node n2 holds a turn".into(),
        since: T0,
        place: Some(2),
        next: "zedbox lock release n2 --fence 7 --reason '...'".into(),
    }))))
}

fn lost() -> Event {
    Event::Turn(Box::new(Standing::Lost { why: "an operator released it".into() }))
}

fn has(bench: &Bench, is: impl Fn(&Effect) -> bool) -> bool {
    bench.last.iter().any(is)
}

fn asked(bench: &Bench, ask: &Ask) -> bool {
    has(bench, |it| matches!(it, Effect::Turn(asked) if asked == ask))
}

fn gives_back(bench: &Bench) -> bool {
    has(bench, |it| matches!(it, Effect::Look { give_back: true, .. }))
}

/// Cordoned in the turn with this fence, and draining.
fn draining() -> (Bench, super::RunId) {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(held(7));
    let run = bench.run();
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(has(&bench, |it| matches!(it, Effect::Drain(..))));
    (bench, run)
}

fn complete() -> Bench {
    let (mut bench, run) = draining();
    bench.done(run);
    assert_eq!(bench.status(), (9, 2));
    bench
}

#[test]
fn u12_a_node_that_waits_is_not_cordoned_and_says_for_whom_since_when_and_what_to_type() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    assert!(asked(&bench, &Ask::Want(Some(Wish { op: Op::Reboot, counter: 0 }))));
    bench.hear(waits(Rule::Holder));
    assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..) | Effect::Probe(_))));
    let progress = bench.core.progress();
    assert_eq!((progress.phase, progress.status), (DrainPhase::WaitingForTurn, DrainStatus::Requested));
    assert!(progress.reason.contains("node n2 holds a turn"), "{}", progress.reason);
    assert!(progress.next_step.contains("zedbox lock status"), "{}", progress.next_step);
    assert!(progress.next_step.contains("zedbox lock release n2 --fence 7"), "{}", progress.next_step);
    assert_eq!((progress.turn.rule.as_str(), progress.turn.place), ("holder", 2));
    assert_eq!((progress.turn.nodes.as_slice(), progress.turn.fence), (&["n2".to_owned()][..], 0));
    assert_eq!(bench.core.next_wake(), None, "nothing is asked while nothing changes");

    bench.hear(held(7));
    let grant = Grant { fence: 7, lease_uid: "lease".into() };
    assert!(has(&bench, |it| matches!(it, Effect::Cordon(_, _, held) if *held == grant)));
    assert_eq!(bench.core.progress().turn.fence, 7);
}

#[test]
fn u1_after_the_cordon_and_before_the_first_eviction_the_turn_is_looked_at_once_more() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(held(7));
    let run = bench.run();
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    assert!(asked(&bench, &Ask::Confirm));
    assert!(!has(&bench, |it| matches!(it, Effect::Drain(..))));
    // Not known is not enough, and is asked again.
    bench.hear(Event::TurnConfirmed(Err(Unconfirmed::Unknown("no answer".into()))));
    assert!(!has(&bench, |it| matches!(it, Effect::Drain(..))));
    bench.wait();
    assert!(asked(&bench, &Ask::Confirm));
    // An answer that never comes is asked for again, too.
    bench.wait();
    assert!(asked(&bench, &Ask::Confirm));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(has(&bench, |it| matches!(it, Effect::Drain(..))));
}

#[test]
fn u1_a_turn_that_is_lost_in_the_middle_ends_the_drain_and_the_cordon_and_starts_over() {
    let (mut bench, _) = draining();
    bench.hear(lost());
    assert!(has(&bench, |it| matches!(it, Effect::Cancel)) && gives_back(&bench));
    assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
    assert!(!asked(&bench, &Ask::Retry("an operator released it".into())), "the cordon is still there");
    bench.look(Seen::Open);
    assert!(asked(&bench, &Ask::Retry("an operator released it".into())));
    bench.hear(waits(Rule::Pause));
    assert_eq!(bench.core.progress().phase, DrainPhase::WaitingForTurn);
    bench.hear(held(9));
    assert!(has(&bench, |it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 9)));
}

#[test]
fn u1_a_turn_that_is_lost_takes_complete_with_it() {
    let mut bench = complete();
    bench.hear(lost());
    assert!(bench.core.journal().answers.iter().all(|it| it.status != DrainStatus::Complete));
    assert_ne!(bench.status().0, 9);
    assert!(gives_back(&bench));
}

#[test]
fn u10_the_turn_is_kept_with_complete_and_given_back_once_the_cordon_is_gone() {
    let mut bench = complete();
    assert!(asked(&bench, &Ask::Phase(Phase::Drained)));
    assert!(!asked(&bench, &Ask::Want(None)));
    bench.hear(Event::Request(Requester::DeviceOp, None));
    assert!(gives_back(&bench) && !asked(&bench, &Ask::Want(None)));
    bench.look(Seen::Open);
    assert!(asked(&bench, &Ask::Want(None)));
}

#[test]
fn u10_after_the_boot_the_gate_counts_as_open_only_without_our_cordon() {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.look(Seen::NotReady);
    assert!(asked(&bench, &Ask::Gate(false)) && asked(&bench, &Ask::Want(None)));
    bench.hear(Event::Gate(Box::new(gate(Some(Layer::Steady), T0))));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(gives_back(&bench) && !asked(&bench, &Ask::Gate(true)));
    bench.look(Seen::Open);
    assert!(asked(&bench, &Ask::Gate(true)));
}

#[test]
fn r7_a_restart_keeps_the_cordon_until_the_turn_is_known_to_be_somebody_elses() {
    for refused in [false, true] {
        let (bench, _) = draining();
        let journal = bench.core.journal();
        let mut bench = Bench::at(bench.now, limits(), Some(journal));
        bench.ask(&request(Requester::DeviceOp, 1));
        bench.join();
        assert!(!gives_back(&bench), "{:?}", bench.last);
        bench.hear(waits(Rule::Reading));
        assert!(!gives_back(&bench));
        if refused {
            bench.hear(waits(Rule::Holder));
            assert!(gives_back(&bench));
        } else {
            bench.hear(held(7));
            assert!(has(&bench, |it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 7)));
            assert!(!gives_back(&bench));
        }
    }
}

#[test]
fn an_api_that_answers_and_never_about_the_turn_ends_like_a_cordon_that_fails() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(waits(Rule::NotListed));
    for _ in 0..200 {
        if bench.status().0 == 6 {
            break;
        }
        if has(&bench, |it| matches!(it, Effect::Probe(_))) {
            let run = bench.run();
            bench.hear(Event::Probed(run, Ok(())));
        } else {
            bench.wait();
        }
    }
    assert_eq!(bench.status(), (6, 2));
    assert!(bench.core.progress().reason.contains("node n2 holds a turn"));
}

#[test]
fn u1_a_drain_does_not_continue_while_the_turn_is_waited_for_however_it_was_lost() {
    // The object of our node is another one: its keeper begins again.
    let (mut bench, _) = draining();
    bench.hear(waits(Rule::Reading));
    assert!(!has(&bench, |it| matches!(it, Effect::Cancel)), "nothing is known yet");
    bench.hear(waits(Rule::Holder));
    assert!(has(&bench, |it| matches!(it, Effect::Cancel)) && gives_back(&bench));
    let mut bench = complete();
    bench.hear(waits(Rule::Holder));
    assert_ne!(bench.status().0, 9);
}

#[test]
fn a_cordon_that_failed_is_not_tried_again_without_the_turn_and_is_with_it() {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench.hear(held(7));
    let run = bench.run();
    bench.hear(Event::Cordoned(run, Err("409".into())));
    bench.hear(waits(Rule::Reading));
    bench.wait();
    assert!(!has(&bench, |it| matches!(it, Effect::Cordon(..))));
    bench.hear(held(8));
    assert!(has(&bench, |it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 8)));
}
