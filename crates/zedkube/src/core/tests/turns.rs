//! The turn to be down: waited for, looked at once more, lost, kept, given back.
//! A turn that an update of k3s needs alone, over a restart in the same boot.
//! A cordon that fails, the turn it is tried in, and one that nobody can be asked for.
//! A cordon that an earlier boot has left, and a turn that is wanted from the start on.

use std::time::Duration;

use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::{TurnState, TurnWait, Unconfirmed};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::TurnRule;
use topics::{
    CordonOwner, DrainJournal, K3S_RESTART, NodeDrainRequest, OutageAnswer, OutageKind, OutageQuestion,
    OutageVerdict, Requester,
};

use super::bench::{Bench, T0, request};
use super::stories::{go, tell};
use super::{Effect, Event, NodeLook};
use crate::limits::Limits;

mod away;
pub(super) mod hooks;
pub(super) mod pause;
pub(super) mod preflight;
pub(super) mod window;

pub(super) fn limits() -> Limits {
    Limits { progress_gap_ms: 0, marks_gap_ms: 0, drain_gap_ms: 0, ..Limits::default() }
}

pub(super) fn idle() -> Bench {
    Bench::idle_with(limits())
}

/// The same, and a reboot asks for its drain.
pub(super) fn requested() -> Bench {
    let mut bench = idle();
    bench.ask(&request(Requester::DeviceOp, 1));
    bench
}

pub(super) fn held(fence: u32) -> Event {
    Event::Turn(Box::new(TurnState::Held { fence, lease_uid: "lease".into(), phase: Phase::Granted }))
}

pub(super) fn waits(rule: TurnRule) -> Event {
    Event::Turn(Box::new(TurnState::Waiting(Box::new(TurnWait {
        nodes: vec!["n2".into()],
        rule,
        why: "node n2 holds a turn".into(),
        since: T0,
        place: Some(2),
        next: "zedbox lock status".into(),
    }))))
}

pub(super) fn lost() -> Event {
    Event::Turn(Box::new(TurnState::Lost { why: "an operator released it".into() }))
}

pub(super) fn asked(bench: &Bench, ask: &Ask) -> bool {
    bench.has(|it| matches!(it, Effect::Turn(asked) if asked == ask))
}

fn clean(bench: &mut Bench) {
    let run = bench.core.drain.run_id;
    bench.hear(Event::Preflighted(run, Ok(Vec::new())));
}

/// In its turn, and cordoning.
pub(super) fn cordoning() -> (Bench, super::RunId) {
    let mut bench = requested();
    bench.hear(held(7));
    let run = bench.run();
    (bench, run)
}

/// Cordoned in the turn with this fence, and draining.
pub(super) fn draining() -> (Bench, super::RunId) {
    let (mut bench, run) = cordoning();
    bench.hear(Event::Cordoned(run, Ok(CordonOwner::Ours)));
    bench.hear(Event::TurnConfirmed(Ok(())));
    assert!(bench.has(|it| matches!(it, Effect::Drain(..))));
    (bench, run)
}

pub(super) fn complete() -> Bench {
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
    go(
        &mut bench,
        "preflight clean, waits Holder, not cordon probe, phase WaitingForTurn, shown Requested
        reason has node n2 holds a turn, next is wait; `zedbox lock status` shows who is before it, due never",
    );
    let shown = bench.core.progress().turn;
    assert_eq!((shown.rule.as_str(), shown.place, shown.fence), ("holder", 2, 0));
    assert_eq!(shown.nodes, ["n2"]);
    go(&mut bench, "held 7, cordons in 7");
    assert_eq!(bench.core.progress().turn.fence, 7);
}

#[test]
fn u1_after_the_cordon_and_before_the_first_eviction_the_turn_is_looked_at_once_more() {
    tell(
        "cordoning in turns, cordoned, does confirm, not drain, unconfirmed, not drain, wait, does confirm, wait
        does confirm, confirmed, does drain",
    );
}

#[test]
fn u1_a_turn_that_is_lost_in_the_middle_ends_the_drain_and_the_cordon_and_starts_over() {
    tell(
        "draining in turns, lost, does cancel uncordon, not cordon retry, look Open, retries an operator released it
        preflight clean, waits Retry, phase WaitingForTurn, held 9, cordons in 9",
    );
}

#[test]
fn u1_a_turn_that_is_lost_takes_complete_with_it() {
    tell("complete in turns, lost, none complete, status not 9, does uncordon");
}

#[test]
fn u10_the_turn_is_kept_with_complete_and_given_back_once_the_cordon_is_gone() {
    tell(
        "complete in turns, does phase-Drained, not want-none, withdraw DeviceOp, does uncordon, not want-none
        look Open, does want-none",
    );
}

#[test]
fn u10_after_the_boot_the_gate_counts_as_open_only_without_our_cordon() {
    tell(
        "new in turns, join, look NotReady, does turn-shut want-none, gate Steady, gate open, does uncordon
        not turn-open, look Open, does turn-open",
    );
}

#[test]
fn r7_a_restart_keeps_the_cordon_until_the_turn_is_known_to_be_somebody_elses() {
    for end in ["waits Holder, does uncordon", "held 7, cordons in 7, not uncordon"] {
        tell(&format!(
            "draining in turns, restart DeviceOp 1, not uncordon, waits Reading, not uncordon, {end}"
        ));
    }
}

#[test]
fn u1_a_drain_does_not_continue_while_the_turn_is_waited_for_however_it_was_lost() {
    // The object of our node is another one: its keeper begins again.
    tell("draining in turns, waits Reading, not cancel, waits Holder, does cancel uncordon");
    tell("complete in turns, waits Holder, status not 9");
}

/// The answer as it was published last, if it was in the last step.
pub(super) fn answer(bench: &Bench) -> Option<OutageAnswer> {
    let of =
        |it: &Effect| if let Effect::OutageAnswer(answer) = it { Some((**answer).clone()) } else { None };
    bench.last.iter().filter_map(of).next_back()
}

pub(super) fn verdict(bench: &Bench) -> OutageVerdict {
    answer(bench).map_or(OutageVerdict::Unknown, |it| it.verdict)
}

pub(super) fn ask(bench: &mut Bench, number: u64, kind: OutageKind) {
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
    // A pod comes before nodeagent has read the answer.
    tell(
        "complete in turns, look Ours, question 5 LastLook, does last-look-5, verdict Unknown, looked 4 well
        answer none, looked 5 well, answer 5 Go, activity, look pods Ours late-0, answer 5 Hold",
    );
}

#[test]
fn u1_what_was_answered_once_is_no_answer_to_the_next_question_and_a_lost_turn_says_hold() {
    // A look that ends after the turn was lost says nothing any more.
    tell(
        "complete in turns, question 5 LastLook, looked 5 well, verdict Go, question 6 LastLook, does last-look-6
        answer none, lost, verdict Hold, looked 6 well, verdict not Go",
    );
}

#[test]
fn u3_a_server_without_margin_is_held_with_the_reason_and_the_command_and_asked_again_it_is_looked_at_again()
{
    tell(
        "complete in turns, server, role Server, question 5 LastLook, looked 5 2 of 3 etcd voters are healthy
        answer 5 Hold, why has 2 of 3 etcd voters are healthy, then has zedbox go --past drain
        question 6 LastLook, does last-look-6, looked 6 well, verdict Go",
    );
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
    // A person's order after the drain, too: whoever is held is let go by it. nodeagent and zedagent go by its kind.
    tell(
        "complete in turns, question 5 LastLook, looked 5 two voters, force Complete DeviceOp, verdict Go
        skipped Forced",
    );
    let mut skipped = tell("idle in turns, ask DeviceOp, waits Api");
    assert!(away::away(&mut skipped, Duration::from_hours(3), Ok("no etcd here")).0);
    go(&mut skipped, "question 5 LastLook, verdict Go");
    tell("idle, question 5 Turn, answer 5 Go, role None");
}

#[test]
fn what_is_not_complete_is_held_and_what_is_not_known_yet_waits() {
    // The question stays until it is answered; after a restart nothing is said before the turn is known again.
    tell(
        "draining in turns, question 5 LastLook, verdict Hold, done, does last-look-5, crash, question 5 LastLook
        ask DeviceOp, join, look Ours, waits Reading, verdict Unknown, held 7, does last-look-5",
    );
}

#[test]
fn u11_a_restart_of_nodeagents_own_waits_for_its_turn_and_says_for_whom_and_at_which_place() {
    tell(
        "idle in turns, question 5 Turn, does want-restart-5, waits Holder, answer 5 Hold, place 2
        why has node n2 holds a turn, then is wait; `zedbox lock status` shows who is before it
        held 8, does last-look-5, verdict not Go, looked 5 one is sick, verdict Hold, wait, does last-look-5
        looked 5 well, verdict Go, question 5 None, does want-none",
    );
}

#[test]
fn u11_an_emergency_is_written_and_answered_within_two_seconds_whatever_becomes_of_the_write() {
    for end in ["held 9, answer 6 Go", "wait 2, answer 6 Go unread"] {
        let asked = "question 5 Turn, waits Holder, question 6 Emergency, does want-emergency-6";
        tell(&format!("idle in turns, {asked}, {end}"));
    }
}

#[test]
fn u11_a_restart_that_cannot_read_the_lease_goes_after_the_documented_time() {
    tell("idle in turns, question 5 Turn, waits Api, verdict Hold, wait 300, answer 5 Go unread");
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
    let again = "wait, does confirm, not cordon, unconfirmed, not cordon";
    // In the end the cordon may have come through.
    tell(&format!(
        "cordoning in turns, cordon fails, {again}, {again}, confirmed, does cordon
        cordon fails, lost, does uncordon, not cordon"
    ));
}

#[test]
fn a_cordon_that_failed_is_not_tried_again_without_the_turn_and_is_with_it() {
    tell("cordoning in turns, cordon fails, waits Reading, wait, not cordon, held 8, cordons in 8");
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
    // Etcd was restored when ours is seen. In its turn the drain looks after its node.
    tell(
        "idle in turns, gate open, ask DeviceOp, preflight clean, waits Holder
        seen Foreign, does uncordon, look Foreign, owner Foreign, phase WaitingForTurn
        seen None, does uncordon, look Open, owner None, phase WaitingForTurn
        seen Ours, does uncordon, look Open, owner None, phase WaitingForTurn
        tainted, does watch-gate, gate open, does watch-taints, held 7, does leave-taints",
    );
}

/// Its request is there before the node was looked at once, as after a power cut.
pub(super) fn back() -> Bench {
    Bench::again(T0, limits(), DrainJournal::default(), &[request(Requester::DeviceOp, 1)])
}

#[test]
fn u12_a_cordon_of_an_earlier_boot_is_looked_for_and_removed_before_a_turn_is_waited_for() {
    // Others would wait for the cordon, and it for them.
    tell(
        "back in turns, does uncordon, not turn, look NotReady, does turn-shut, waits Order, gate open, does uncordon
        look Open, does turn-open, preflight clean, turn of before
        reason starts its turn of before the boot ends once the node is well",
    );
}

#[test]
fn u1_a_look_that_removes_a_cordon_is_over_before_the_next_cordon() {
    tell("back in turns, look NotReady, gate open, does uncordon, held 7, cancels first, not any-look");
}
