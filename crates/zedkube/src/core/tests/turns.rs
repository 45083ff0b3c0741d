//! The turn to be down: waited for, looked at once more, lost, kept, given back.
//! A turn that an update of k3s needs alone, over a restart in the same boot.
//! A cordon that fails, the turn it is tried in, and one that nobody can be asked for.
//! A cordon that an earlier boot has left, and a turn that is wanted from the start on.

use std::time::Duration;

use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::NodeAtRest;
use kubenodeop::node::gate::Layer;
use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::{TurnState, TurnWait, Unconfirmed};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::TurnRule;
use step::Core as _;
use topics::{
    CordonOwner, DrainJournal, DrainPhase, DrainStatus, K3S_RESTART, NodeDrainRequest, OutageAnswer,
    OutageKind, OutageQuestion, OutageRole, OutageVerdict, Requester, SkipKind,
};

use super::bench::{Bench, T0, gate, request};
use super::{CordonTurn, Effect, Event, NodeLook};
use crate::limits::Limits;

mod away;
mod hooks;
mod pause;
mod preflight;
mod window;

fn limits() -> Limits {
    Limits { progress_gap_ms: 0, marks_gap_ms: 0, drain_gap_ms: 0, ..Limits::default() }
}

fn idle() -> Bench {
    Bench::idle_with(limits())
}

/// The same, and a reboot asks for its drain.
fn requested() -> Bench {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench
}

fn held(fence: u32) -> Event {
    Event::Turn(Box::new(TurnState::Held { fence, lease_uid: "lease".into(), phase: Phase::Granted }))
}

fn waits(rule: TurnRule) -> Event {
    Event::Turn(Box::new(TurnState::Waiting(Box::new(TurnWait {
        nodes: vec!["n2".into()],
        rule,
        why: "node n2 holds a turn".into(),
        since: T0,
        place: Some(2),
        next: "zedbox lock status".into(),
    }))))
}

fn lost() -> Event {
    Event::Turn(Box::new(TurnState::Lost { why: "an operator released it".into() }))
}

fn asked(bench: &Bench, ask: &Ask) -> bool {
    bench.has(|it| matches!(it, Effect::Turn(asked) if asked == ask))
}

fn clean(bench: &mut Bench) {
    let run = bench.core.drain.run_id;
    bench.hear(Event::Preflighted(run, Ok(Vec::new())));
}

/// In its turn, and cordoning.
fn cordoning() -> (Bench, super::RunId) {
    let mut bench = requested();
    bench.hear(held(7));
    let run = bench.run();
    (bench, run)
}

/// Cordoned in the turn with this fence, and draining.
fn draining() -> (Bench, super::RunId) {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Drain(..))));
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
    let mut bench = requested();
    let reboot = TurnRequest { op: Op::Reboot, counter: 1_773_480_414_000, emergency: false, fit: false };
    assert!(asked(&bench, &Ask::Want(Some(reboot))));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..) | Effect::Probe(_))));
    let progress = bench.core.progress();
    assert_eq!((progress.phase, progress.status), (DrainPhase::WaitingForTurn, DrainStatus::Requested));
    assert!(progress.reason.contains("node n2 holds a turn"), "{}", progress.reason);
    assert_eq!(progress.next_step, "wait; `zedbox lock status` shows who is before it");
    assert_eq!((progress.turn.rule.as_str(), progress.turn.place), ("holder", 2));
    assert_eq!((progress.turn.nodes.as_slice(), progress.turn.fence), (&["n2".to_owned()][..], 0));
    assert_eq!(bench.core.next_wake(), None, "nothing is asked while nothing changes");

    bench.hear(held(7));
    let grant = CordonTurn { fence: 7, lease_uid: "lease".into() };
    assert!(bench.has(|it| matches!(it, Effect::Cordon(_, _, held) if *held == grant)));
    assert_eq!(bench.core.progress().turn.fence, 7);
}

#[test]
fn u1_after_the_cordon_and_before_the_first_eviction_the_turn_is_looked_at_once_more() {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    assert!(asked(&bench, &Ask::Confirm));
    assert!(!bench.has(|it| matches!(it, Effect::Drain(..))));
    // Not known is not enough, and is asked again.
    bench.hear(Event::TurnConfirmed(Err(Unconfirmed::Unknown("no answer".into()))));
    assert!(!bench.has(|it| matches!(it, Effect::Drain(..))));
    bench.wait();
    assert!(asked(&bench, &Ask::Confirm));
    // An answer that never comes is asked for again, too.
    bench.wait();
    assert!(asked(&bench, &Ask::Confirm));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Drain(..))));
}

#[test]
fn u1_a_turn_that_is_lost_in_the_middle_ends_the_drain_and_the_cordon_and_starts_over() {
    let (mut bench, _) = draining();
    bench.hear(lost());
    assert!(bench.has(|it| matches!(it, Effect::Cancel)) && bench.gives_back());
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
    assert!(!asked(&bench, &Ask::Retry("an operator released it".into())), "the cordon is still there");
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Retry("an operator released it".into())));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Retry));
    assert_eq!(bench.core.progress().phase, DrainPhase::WaitingForTurn);
    bench.hear(held(9));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 9)));
}

#[test]
fn u1_a_turn_that_is_lost_takes_complete_with_it() {
    let mut bench = complete();
    bench.hear(lost());
    assert!(bench.core.journal().answers.iter().all(|it| it.status != DrainStatus::Complete));
    assert_ne!(bench.status().0, 9);
    assert!(bench.gives_back());
}

#[test]
fn u10_the_turn_is_kept_with_complete_and_given_back_once_the_cordon_is_gone() {
    let mut bench = complete();
    assert!(asked(&bench, &Ask::Phase(Phase::Drained)));
    assert!(!asked(&bench, &Ask::Want(None)));
    bench.hear(Event::Request(Requester::DeviceOp, None));
    assert!(bench.gives_back() && !asked(&bench, &Ask::Want(None)));
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Want(None)));
}

#[test]
fn u10_after_the_boot_the_gate_counts_as_open_only_without_our_cordon() {
    let mut bench = Bench::at(T0, limits(), None);
    bench.join();
    bench.look(NodeLook::NotReady);
    assert!(asked(&bench, &Ask::Gate(false)) && asked(&bench, &Ask::Want(None)));
    bench.hear(Event::Gate(Box::new(gate(Some(Layer::Steady), T0))));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.gives_back() && !asked(&bench, &Ask::Gate(true)));
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Gate(true)));
}

#[test]
fn r7_a_restart_keeps_the_cordon_until_the_turn_is_known_to_be_somebody_elses() {
    for refused in [false, true] {
        let (bench, _) = draining();
        let asked = [request(Requester::DeviceOp, 1)];
        let mut bench = Bench::again(bench.now, limits(), bench.core.journal(), &asked);
        assert!(!bench.gives_back(), "{:?}", bench.last);
        bench.hear(waits(TurnRule::Reading));
        assert!(!bench.gives_back());
        if refused {
            bench.hear(waits(TurnRule::Holder));
            assert!(bench.gives_back());
        } else {
            bench.hear(held(7));
            assert!(bench.has(|it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 7)));
            assert!(!bench.gives_back());
        }
    }
}

#[test]
fn u1_a_drain_does_not_continue_while_the_turn_is_waited_for_however_it_was_lost() {
    // The object of our node is another one: its keeper begins again.
    let (mut bench, _) = draining();
    bench.hear(waits(TurnRule::Reading));
    assert!(!bench.has(|it| matches!(it, Effect::Cancel)), "nothing is known yet");
    bench.hear(waits(TurnRule::Holder));
    assert!(bench.has(|it| matches!(it, Effect::Cancel)) && bench.gives_back());
    let mut bench = complete();
    bench.hear(waits(TurnRule::Holder));
    assert_ne!(bench.status().0, 9);
}

/// The answer as it was published last, if it was in the last step.
fn answer(bench: &Bench) -> Option<OutageAnswer> {
    let of =
        |it: &Effect| if let Effect::OutageAnswer(answer) = it { Some((**answer).clone()) } else { None };
    bench.last.iter().filter_map(of).next_back()
}

fn verdict(bench: &Bench) -> OutageVerdict {
    answer(bench).map_or(OutageVerdict::Unknown, |it| it.verdict)
}

fn ask(bench: &mut Bench, number: u64, kind: OutageKind) {
    let requested_by = if kind == OutageKind::LastLook { Requester::DeviceOp } else { Requester::Unset };
    let question =
        OutageQuestion { number, kind, op: "reboot".into(), requested_by, ..OutageQuestion::default() };
    bench.hear(Event::Question(question));
}

fn unreachable(margin: Result<(), String>) -> Result<(), Unconfirmed> {
    Err(Unconfirmed::Unreachable { why: "no route to host".into(), margin })
}

#[test]
fn u1_only_a_look_after_the_question_says_go_and_only_while_the_drain_is_complete() {
    let mut bench = complete();
    bench.look(NodeLook::Ours);
    ask(&mut bench, 5, OutageKind::LastLook);
    assert!(asked(&bench, &Ask::LastLook(5)));
    assert_eq!(verdict(&bench), OutageVerdict::Unknown);
    // The answer to another question, then to this one.
    bench.hear(Event::LookedLast(4, Ok(())));
    assert_eq!(answer(&bench), None);
    bench.hear(Event::LookedLast(5, Ok(())));
    let said = answer(&bench).unwrap();
    assert_eq!((said.number, said.verdict, said.unread), (5, OutageVerdict::Go, false));
    // A pod comes before nodeagent has read it.
    bench.hear(Event::NodeActivity("a pod".into()));
    bench.look(NodeLook::HasPods(CordonOwner::Ours, vec![super::voided::pod("late-0")]));
    let said = answer(&bench).unwrap();
    assert_eq!((said.number, said.verdict), (5, OutageVerdict::Hold), "{}", said.why);
}

#[test]
fn u1_what_was_answered_once_is_no_answer_to_the_next_question_and_a_lost_turn_says_hold() {
    let mut bench = complete();
    ask(&mut bench, 5, OutageKind::LastLook);
    bench.hear(Event::LookedLast(5, Ok(())));
    assert_eq!(verdict(&bench), OutageVerdict::Go);
    ask(&mut bench, 6, OutageKind::LastLook);
    assert!(asked(&bench, &Ask::LastLook(6)) && answer(&bench).is_none());
    // A look that ends after the turn was lost says nothing any more.
    bench.hear(lost());
    assert_eq!(verdict(&bench), OutageVerdict::Hold);
    bench.hear(Event::LookedLast(6, Ok(())));
    assert_ne!(verdict(&bench), OutageVerdict::Go);
}

#[test]
fn u3_a_server_without_margin_is_held_with_the_reason_and_the_command_and_asked_again_it_is_looked_at_again()
{
    let mut bench = complete();
    bench.hear(Event::Server(true));
    assert_eq!(answer(&bench).unwrap().role, OutageRole::Server);
    ask(&mut bench, 5, OutageKind::LastLook);
    bench.hear(Event::LookedLast(5, Err(Unconfirmed::NoMargin("2 of 3 etcd voters are healthy".into()))));
    let held = answer(&bench).unwrap();
    assert_eq!((held.number, held.verdict), (5, OutageVerdict::Hold));
    assert!(held.why.contains("2 of 3 etcd voters are healthy"), "{}", held.why);
    assert!(held.next_step.contains("zedbox go --past drain"), "{}", held.next_step);
    ask(&mut bench, 6, OutageKind::LastLook);
    assert!(asked(&bench, &Ask::LastLook(6)));
    bench.hear(Event::LookedLast(6, Ok(())));
    assert_eq!(verdict(&bench), OutageVerdict::Go);
}

#[test]
fn u8_without_the_api_a_worker_goes_after_the_documented_time_and_a_server_only_while_etcd_can_spare_it() {
    let cases = [
        (false, Ok(()), true),
        (true, Ok(()), true),
        (true, Err("no word from node n2".to_owned()), false),
        // A keeper that could not read its node yet knows no role: an earlier run does.
        (false, Err("not known".to_owned()), true),
    ];
    for (server, margin, goes) in cases {
        let mut bench = complete();
        bench.hear(Event::Server(server));
        let mut number = 5;
        for _ in 0..10 {
            ask(&mut bench, number, OutageKind::LastLook);
            bench.hear(Event::LookedLast(number, unreachable(margin.clone())));
            let held = answer(&bench).unwrap();
            assert_eq!((held.number, held.verdict), (number, OutageVerdict::Hold), "{server} {margin:?}");
            (bench.now, number) = (bench.now + Duration::from_secs(30), number + 1);
        }
        ask(&mut bench, number, OutageKind::LastLook);
        bench.hear(Event::LookedLast(number, unreachable(margin.clone())));
        let last = answer(&bench).unwrap();
        assert_eq!((last.verdict == OutageVerdict::Go, last.unread), (goes, goes), "{server} {margin:?}");
        if !goes {
            assert!(last.why.contains("no word from node n2"), "{}", last.why);
            continue;
        }
        assert!(last.why.contains("the Lease could not be read"), "{}", last.why);
    }
    // Throttled, it answers: that never leads to a skip.
    let mut bench = complete();
    bench.hear(Event::Server(false));
    for number in 5..30 {
        ask(&mut bench, number, OutageKind::LastLook);
        bench.hear(Event::LookedLast(number, Err(Unconfirmed::Unknown("429".into()))));
        assert_eq!(verdict(&bench), OutageVerdict::Hold);
        bench.now = bench.now + Duration::from_secs(30);
    }
}

#[test]
fn what_needs_no_turn_is_answered_at_once() {
    // A person's order after the drain, too: whoever is held is let go by it.
    let mut forced = complete();
    ask(&mut forced, 5, OutageKind::LastLook);
    forced.hear(Event::LookedLast(5, Err(Unconfirmed::NoMargin("two voters".into()))));
    forced.force(DrainStatus::Complete, Requester::DeviceOp);
    assert_eq!(verdict(&forced), OutageVerdict::Go);
    assert_eq!(
        forced.core.progress().answers[0].skip_kind,
        SkipKind::Forced,
        "nodeagent and zedagent go by it"
    );

    let mut skipped = idle();
    skipped.ask(&request(Requester::DeviceOp, 1));
    skipped.hear(waits(TurnRule::Api));
    while skipped.status().0 != 9 {
        if skipped.has(|it| matches!(it, Effect::Probe(_))) {
            let run = skipped.run();
            skipped.hear(Event::Probed(run, Err("no route to host".into())));
        } else if skipped.has(|it| matches!(it, Effect::Margin { .. })) {
            let run = skipped.run();
            skipped.hear(Event::Spared(run, Ok("no etcd here".into())));
        } else {
            skipped.wait();
        }
    }
    ask(&mut skipped, 5, OutageKind::LastLook);
    assert_eq!(verdict(&skipped), OutageVerdict::Go);

    let mut without = Bench::idle_with(super::bench::alone());
    ask(&mut without, 5, OutageKind::Turn);
    let said = answer(&without).unwrap();
    assert_eq!((said.verdict, said.role), (OutageVerdict::Go, OutageRole::None));
}

#[test]
fn what_is_not_complete_is_held_and_what_is_not_known_yet_waits() {
    let (mut bench, run) = draining();
    ask(&mut bench, 5, OutageKind::LastLook);
    assert_eq!(verdict(&bench), OutageVerdict::Hold);
    bench.done(run);
    assert!(asked(&bench, &Ask::LastLook(5)), "the question stays until it is answered");
    // After a restart nothing is said before the turn is known again.
    let journal = bench.core.journal();
    let mut again = Bench::at(bench.now, limits(), Some(journal));
    ask(&mut again, 5, OutageKind::LastLook);
    again.ask(&request(Requester::DeviceOp, 1));
    again.join();
    again.look(NodeLook::Ours);
    again.hear(waits(TurnRule::Reading));
    assert!(answer(&again).is_none_or(|it| it.verdict == OutageVerdict::Unknown));
    again.hear(held(7));
    assert!(asked(&again, &Ask::LastLook(5)));
}

fn restart(number: u64, emergency: bool) -> Ask {
    Ask::Want(Some(TurnRequest { op: Op::Restart, counter: number, emergency, fit: true }))
}

#[test]
fn u11_a_restart_of_nodeagents_own_waits_for_its_turn_and_says_for_whom_and_at_which_place() {
    let mut bench = idle();
    ask(&mut bench, 5, OutageKind::Turn);
    assert!(asked(&bench, &restart(5, false)));
    bench.hear(waits(TurnRule::Holder));
    let held_back = answer(&bench).unwrap();
    assert_eq!((held_back.verdict, held_back.place), (OutageVerdict::Hold, 2));
    assert!(held_back.why.contains("node n2 holds a turn"), "{}", held_back.why);
    assert_eq!(held_back.next_step, "wait; `zedbox lock status` shows who is before it");
    bench.hear(held(8));
    assert!(asked(&bench, &Ask::LastLook(5)) && verdict(&bench) != OutageVerdict::Go);
    bench.hear(Event::LookedLast(5, Err(Unconfirmed::NoMargin("one is sick".into()))));
    assert_eq!(verdict(&bench), OutageVerdict::Hold);
    // The question stays, so it is looked at again by itself.
    bench.wait();
    assert!(asked(&bench, &Ask::LastLook(5)));
    bench.hear(Event::LookedLast(5, Ok(())));
    assert_eq!(verdict(&bench), OutageVerdict::Go);
    // Not called for any more: the turn is released.
    ask(&mut bench, 5, OutageKind::None);
    assert!(asked(&bench, &Ask::Want(None)));
}

#[test]
fn u11_an_emergency_is_written_and_answered_within_two_seconds_whatever_becomes_of_the_write() {
    for written in [true, false] {
        let mut bench = idle();
        ask(&mut bench, 5, OutageKind::Turn);
        bench.hear(waits(TurnRule::Holder));
        ask(&mut bench, 6, OutageKind::Emergency);
        assert!(asked(&bench, &restart(6, true)));
        if written {
            bench.hear(held(9));
        } else {
            assert_eq!(bench.wait(), Duration::from_secs(2));
        }
        let said = answer(&bench).unwrap();
        assert_eq!((said.number, said.verdict, said.unread), (6, OutageVerdict::Go, !written));
    }
}

#[test]
fn u11_a_restart_that_cannot_read_the_lease_goes_after_the_documented_time() {
    let mut bench = idle();
    ask(&mut bench, 5, OutageKind::Turn);
    bench.hear(waits(TurnRule::Api));
    assert_eq!(verdict(&bench), OutageVerdict::Hold);
    assert_eq!(bench.wait(), Duration::from_secs(300));
    let said = answer(&bench).unwrap();
    assert_eq!((said.verdict, said.unread), (OutageVerdict::Go, true));
}

/// What was asked of the keeper last, if that was asked now.
fn wanted(bench: &Bench) -> Option<&Option<TurnRequest>> {
    bench.last.iter().rev().find_map(|it| if let Effect::Turn(Ask::Want(it)) = it { Some(it) } else { None })
}

#[test]
fn u7_a_turn_alone_is_wanted_for_the_same_request_after_a_restart() {
    let update = NodeDrainRequest { context: K3S_RESTART.to_owned(), ..request(Requester::K3sUpdate, 1) };
    let mut bench = idle();
    bench.ask(&update);
    let wish = wanted(&bench).cloned().flatten();
    assert!(wish.is_some(), "{:?}", bench.last);
    bench.hear(held(7));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert_eq!(bench.status(), (9, 5), "it was let go ahead");
    assert_eq!(wanted_after_restart(&bench, &[&update]), std::slice::from_ref(&wish));
    let reboot = request(Requester::DeviceOp, 2);
    bench.ask(&reboot);
    assert_eq!(wanted(&bench), None, "the turn that it has will do");
    assert_eq!(wanted_after_restart(&bench, &[&update, &reboot]), [wish]);
}

/// All that is asked of the keeper after a restart in which these requests are found again.
fn wanted_after_restart(bench: &Bench, requests: &[&NodeDrainRequest]) -> Vec<Option<TurnRequest>> {
    let mut again = Bench::at(bench.now, limits(), Some(bench.core.journal()));
    let mut all = Vec::new();
    for request in requests {
        again.ask(request);
        all.push(wanted(&again).cloned());
    }
    again.join();
    all.push(wanted(&again).cloned());
    if again.has(|it| matches!(it, Effect::Look { .. })) {
        again.look(NodeLook::Open);
        all.push(wanted(&again).cloned());
    }
    all.into_iter().flatten().collect()
}

#[test]
fn u1_before_a_cordon_is_tried_again_the_turn_is_looked_at_once_more() {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Err("no answer".into())));
    for _ in 0..2 {
        bench.wait();
        assert!(asked(&bench, &Ask::Confirm));
        assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
        bench.hear(Event::TurnConfirmed(Err(Unconfirmed::Unknown("no answer".into()))));
        assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
    }
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(..))));
    bench.hear(Event::Cordoned(run, Err("no answer".into())));
    bench.hear(lost());
    assert!(bench.gives_back(), "the cordon may have come through");
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
}

#[test]
fn a_cordon_that_failed_is_not_tried_again_without_the_turn_and_is_with_it() {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Err("409".into())));
    bench.hear(waits(TurnRule::Reading));
    bench.wait();
    assert!(!bench.has(|it| matches!(it, Effect::Cordon(..))));
    bench.hear(held(8));
    assert!(bench.has(|it| matches!(it, Effect::Cordon(_, _, grant) if grant.fence == 8)));
}

#[test]
fn an_api_that_answers_and_never_about_the_turn_is_waited_for_and_fails_nothing() {
    for rule in [TurnRule::NotListed, TurnRule::Api] {
        let mut bench = requested();
        clean(&mut bench);
        bench.hear(waits(rule));
        let begun = bench.now;
        while bench.now.since(begun) < Duration::from_hours(1) {
            assert_eq!(bench.status(), (4, 2), "as while it does not answer at all");
            assert_eq!(bench.said("drain-cordon-failure"), 0, "nothing was to be cordoned yet");
            if bench.has(|it| matches!(it, Effect::Probe(_))) {
                let run = bench.run();
                bench.hear(Event::Probed(run, Ok(())));
                let reason = bench.core.progress().reason;
                assert!(
                    reason.starts_with("waits for its turn to be down: node n2 holds a turn"),
                    "{reason}"
                );
            } else {
                bench.wait();
            }
        }
        let run = bench.run();
        bench.hear(Event::Probed(run, Ok(())));
        bench.hear(held(7));
        assert!(bench.has(|it| matches!(it, Effect::Cordon(..))), "at once");
    }
}

#[test]
fn t5_a_node_that_waits_for_its_turn_follows_the_cordon_and_the_taints_of_its_own_node() {
    let mut bench = idle();
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    bench.ask(&request(Requester::DeviceOp, 1));
    clean(&mut bench);
    bench.hear(waits(TurnRule::Holder));
    for (seen, look, shown) in [
        (CordonSeen::Foreign, NodeLook::Foreign, CordonOwner::Foreign),
        (CordonSeen::None, NodeLook::Open, CordonOwner::None),
        // Etcd was restored.
        (CordonSeen::Ours, NodeLook::Open, CordonOwner::None),
    ] {
        bench.hear(Event::AtRest(NodeAtRest { cordon: Some(seen), ..NodeAtRest::default() }));
        assert!(bench.gives_back(), "{seen:?}");
        bench.look(look);
        let progress = bench.core.progress();
        assert_eq!((progress.cordon, progress.phase), (shown, DrainPhase::WaitingForTurn), "{seen:?}");
    }
    let taints = vec!["node.kubernetes.io/unreachable:NoExecute".to_owned()];
    bench.hear(Event::Tainted(taints));
    assert!(bench.has(|it| *it == Effect::Gate(true)));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.has(|it| *it == Effect::Taints(true)));
    // In its turn the drain looks after its node.
    bench.hear(held(7));
    assert!(bench.has(|it| *it == Effect::Taints(false)));
}

/// Its request is there before the node was looked at once, as after a power cut.
fn back() -> Bench {
    Bench::again(T0, limits(), DrainJournal::default(), &[request(Requester::DeviceOp, 1)])
}

#[test]
fn u12_a_cordon_of_an_earlier_boot_is_looked_for_and_removed_before_a_turn_is_waited_for() {
    let mut bench = back();
    assert!(bench.gives_back() && !bench.has(|it| matches!(it, Effect::Turn(_))), "{:?}", bench.last);
    bench.look(NodeLook::NotReady);
    assert!(asked(&bench, &Ask::Gate(false)));
    bench.hear(waits(TurnRule::Order));
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.gives_back(), "others would wait for it, and it for them");
    bench.look(NodeLook::Open);
    assert!(asked(&bench, &Ask::Gate(true)));
    clean(&mut bench);
    bench.hear(Event::Turn(Box::new(TurnState::Booted { fence: 7, listed: true })));
    let reason = bench.core.progress().reason;
    assert!(reason.starts_with("its turn of before the boot ends once the node is well"), "{reason}");
}

#[test]
fn u1_a_look_that_removes_a_cordon_is_over_before_the_next_cordon() {
    let mut bench = back();
    bench.look(NodeLook::NotReady);
    bench.hear(Event::Gate(Box::new(gate(None, T0))));
    assert!(bench.gives_back());
    bench.hear(held(7));
    assert!(bench.cancels_first());
    assert!(!bench.has(|it| matches!(it, Effect::Look { .. })));
}
