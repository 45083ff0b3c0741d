//! What a COMPLETE is worth: drained for whom, skipped, forced, or not proved at all.
//!
//! Pure: no clock, no I/O, no task.

use requester::{Orderer, paused};
use topics::{
    CordonOwner, DeviceOpPending, DrainPhase, NodeDrainProgress, NodeDrainRequest, NodeState, PendingState,
    RequestId, Requester,
};

use super::words::{JudgedState, by, unknown, waits};
use crate::outcome::{DrainOutcome, answered};
use crate::view::DrainView;

/// What kind of COMPLETE it is: as the request at hand was answered, or else as the answer that claims least.
fn kind(progress: &NodeDrainProgress) -> Option<DrainOutcome> {
    let asked = RequestId { by: progress.requested_by, at: progress.requested_at };
    let at_hand = progress.answer(asked).and_then(answered);
    let is = |kind: DrainOutcome| match at_hand {
        Some(answer) => answer == kind,
        None => progress.answers.iter().filter_map(answered).any(|it| it == kind),
    };
    if is(DrainOutcome::Forced) {
        Some(DrainOutcome::Forced)
    } else if !progress.skip.is_empty() || progress.phase == DrainPhase::Skipped || is(DrainOutcome::Skipped)
    {
        Some(DrainOutcome::Skipped)
    } else {
        at_hand
    }
}

/// COMPLETE, of whatever kind.
pub(super) fn complete(view: &DrainView, progress: &NodeDrainProgress, what: &str) -> JudgedState {
    let asked = RequestId { by: progress.requested_by, at: progress.requested_at };
    let unproved = |outcome, why: &str| (NodeState::Unproved, outcome, why.to_owned());
    let kind = kind(progress);
    if kind == Some(DrainOutcome::Forced) {
        return unproved(DrainOutcome::Forced, &format!("{what} goes ahead, a person has forced it"));
    }
    if kind == Some(DrainOutcome::Skipped) {
        return unproved(DrainOutcome::Skipped, &format!("{what} goes ahead, its drain was skipped"));
    }
    if kind != Some(DrainOutcome::Complete) {
        return unknown("COMPLETE, but its request was not answered");
    }
    let Some(request) = view.requests.values().find(|it| it.id() == asked) else {
        if view.blind {
            return unknown("drained, but its request cannot be read");
        }
        return (
            NodeState::Withdrawn,
            DrainOutcome::UnderWay,
            "nobody asks for this drain any more".to_owned(),
        );
    };
    if request.is_turn_alone() {
        return unproved(DrainOutcome::Skipped, "k3s restarts, the pods stay");
    }
    if progress.cordon == CordonOwner::None {
        return unknown("drained, but the node is not cordoned");
    }
    if view.status.is_none() {
        let rest = format!("{what} waits; the node is proved empty, COMPLETE follows");
        return (NodeState::UnderWay, DrainOutcome::UnderWay, rest);
    }
    let drained = |state, rest: String| (state, DrainOutcome::Complete, rest);
    let is_persons = |it: &NodeDrainRequest| {
        it.requested_by.only_drains()
            && progress.answer(it.id()).and_then(answered) == Some(DrainOutcome::Complete)
    };
    let others = view.requests.values().find(|it| !is_persons(it));
    let pause = view.pause();
    let is_held = |it: &DeviceOpPending| {
        let started = !it.drain_requested_at.is_zero();
        let pauses = paused(pause, (Requester::DeviceOp, Orderer::Controller), started, None).is_some();
        it.site.is_empty() && it.state == PendingState::Pending && pauses
    };
    let mut pending = view.pending.values();
    if let Some(first) = pending.next()
        && let Some(pause) = pause
        && others.is_none()
        && !view.blind
        && view.pending.values().all(is_held)
    {
        let rest = format!("{}; {}; the node is drained", waits(first), by(pause));
        return drained(NodeState::Paused, rest);
    }
    if others.is_some() || !view.pending.is_empty() {
        let op = view.pending.values().next().map(|it| it.op.word().to_owned());
        let op = op.unwrap_or_else(|| {
            if asked.by.only_drains() { "an operation".to_owned() } else { what.to_owned() }
        });
        return drained(NodeState::Drained, format!("{op} goes ahead, do not work on it"));
    }
    if view.blind {
        return unknown("drained, but other requests cannot be read");
    }
    let cordon = if progress.cordon == CordonOwner::Foreign { "somebody else's cordon" } else { "a cordon" };
    let left = progress.exceptions().map(|it| format!(", with {it}")).unwrap_or_default();
    drained(NodeState::Safe, format!("proved empty under {cordon}{left}"))
}
