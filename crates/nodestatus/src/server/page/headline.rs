//! The headline of the page: whether it is safe to work on this node, in one sentence, out of what is published.
//!
//! It never claims more than is so (K7): safe is only a node that is proved empty under a cordon, for a person's request
//! that exists at this moment, with nothing else asked for. Pure: no clock, no I/O, no task.

use std::time::Duration;

use requester::{Orderer, PausableOperation, RequestAnswer, paused};
use topics::{
    CordonOwner, DeviceOpPending, DrainPhase, DrainStatus, GoTime, Headline, NodeDrainProgress,
    NodeDrainRequest, NodeState, OperationPause, PauseScope, PendingState, RequestId, Requester,
};

use super::super::view::NodeView;
use super::text::span;

/// A zedkube that had no turn for so long does not work: its watchdog's limit.
const SILENT: Duration = Duration::from_secs(180);

type Judgement = (NodeState, String);

/// The state and its sentence.
pub(in crate::server) fn headline(view: &NodeView, now: GoTime) -> Headline {
    let (state, rest) = judge(view, now);
    Headline { state, text: format!("{}: {rest}", state.words()) }
}

fn judge(view: &NodeView, now: GoTime) -> Judgement {
    let unknown = |why: &str| (NodeState::Unknown, why.to_owned());
    let Some(progress) = &view.progress else { return unknown("zedkube has published nothing yet") };
    if view.earlier_boot {
        return unknown("what zedkube has published is of an earlier boot");
    }
    if let Some(silent) = view.silent.filter(|it| *it > SILENT) {
        let silent = span(silent.as_secs());
        return unknown(&format!("zedkube was last heard of {silent} ago; below is what it wrote then"));
    }
    let what = purpose(progress);
    match progress.phase {
        DrainPhase::Idle => idle(view, progress),
        DrainPhase::Undecided => {
            unknown("whether this node is in a cluster is not known yet: zedagent has read no device config")
        }
        DrainPhase::OutsideWindow if progress.deadline > now => {
            let opens = span(progress.deadline.apart(now).as_secs());
            (NodeState::WaitingForWindow, format!("{what} waits, the next one opens in {opens}"))
        }
        DrainPhase::OutsideWindow => (NodeState::WaitingForWindow, format!("{what} waits")),
        DrainPhase::Paused => (NodeState::Paused, format!("{what} waits, {}", by(&progress.pause))),
        DrainPhase::WaitingForTurn => (NodeState::WaitingForTurn, turn(progress)),
        DrainPhase::Checking
        | DrainPhase::RunningHooks
        | DrainPhase::Cordoning
        | DrainPhase::MovingMachines
        | DrainPhase::Draining
        | DrainPhase::Detaching
        | DrainPhase::WaitingForStorage
        | DrainPhase::Proving
        | DrainPhase::Retrying => at_work(progress, &what),
        DrainPhase::Complete | DrainPhase::Skipped => complete(view, progress, &what),
        DrainPhase::Forced => (NodeState::Unproved, "a person has forced the status".to_owned()),
        DrainPhase::FailedCordon => (NodeState::Failed, format!("{what} waits, the node cannot be cordoned")),
        DrainPhase::FailedDrain => (NodeState::Failed, format!("{what} waits, the drain failed")),
        DrainPhase::Withdrawing => (NodeState::Withdrawn, "our cordon is being removed".to_owned()),
        DrainPhase::AfterBoot if progress.gate.open => {
            (NodeState::AfterBoot, "healthy, our cordon is being removed".to_owned())
        }
        DrainPhase::AfterBoot => {
            let layer = if progress.gate.layer.is_empty() { "the first look" } else { &progress.gate.layer };
            (NodeState::AfterBoot, format!("stays cordoned until it is healthy, now at {layer}"))
        }
        DrainPhase::Leaving => (NodeState::Leaving, "drains wait until it has left".to_owned()),
        DrainPhase::WholeSite => {
            (NodeState::WholeSite, "it holds this node, drains wait for its end".to_owned())
        }
    }
}

/// What waits for the drain.
fn purpose(progress: &NodeDrainProgress) -> String {
    match progress.requested_by {
        Requester::Operator => "work on the node".to_owned(),
        Requester::Update => "OS update".to_owned(),
        Requester::K3sUpdate => "k3s update".to_owned(),
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
            if progress.context.is_empty() { "the operation".to_owned() } else { progress.context.clone() }
        }
    }
}

/// Nothing is being drained.
fn idle(view: &NodeView, progress: &NodeDrainProgress) -> Judgement {
    if let Some(trouble) = &view.trouble {
        let what = trouble.holds.first().map_or("an operation", String::as_str);
        return (NodeState::Blocked, format!("{what} waits until a file can be written or read"));
    }
    if progress.pause.is_set() {
        let rest = match (view.pending.first(), progress.pause.scope) {
            (Some(it), _) => waits(it),
            (None, PauseScope::Node) => "no operation starts".to_owned(),
            (None, PauseScope::Controller) => "what the controller orders waits".to_owned(),
        };
        return (NodeState::Paused, format!("{rest}, {}", by(&progress.pause)));
    }
    if let Some(pending) = view.pending.first() {
        let (op, counter) = (pending.op.word(), pending.counter);
        return (NodeState::Requested, format!("{op} {counter} is pending, its drain has not begun"));
    }
    if !view.requests.is_empty() {
        return (NodeState::Requested, "not yet accepted by zedkube".to_owned());
    }
    match progress.status {
        DrainStatus::NotSupported => (NodeState::NoCluster, "there is nothing to drain".to_owned()),
        DrainStatus::NotRequested if progress.cordon == CordonOwner::Foreign => {
            (NodeState::Cordoned, "by somebody else, its pods may still run here".to_owned())
        }
        DrainStatus::NotRequested => (NodeState::InService, "no drain is requested".to_owned()),
        DrainStatus::Unknown
        | DrainStatus::Requested
        | DrainStatus::Starting
        | DrainStatus::Cordoned
        | DrainStatus::FailedCordon
        | DrainStatus::DrainRetrying
        | DrainStatus::FailedDrain
        | DrainStatus::Complete
        | DrainStatus::Stranger(_) => {
            (NodeState::Unknown, "whether this node is in a cluster is not known yet".to_owned())
        }
    }
}

fn waits(pending: &DeviceOpPending) -> String {
    format!("{} {} waits", pending.op.word(), pending.counter)
}

/// Whose pause it is, and why.
fn by(pause: &OperationPause) -> String {
    format!("by {}: {}", pause.by, pause.reason)
}

/// Whom or what it waits for, by the rule that holds it.
fn turn(progress: &NodeDrainProgress) -> String {
    let turn = &progress.turn;
    let nodes = turn.nodes.join(", ");
    let (are, have) = if turn.nodes.len() == 1 { ("is", "has") } else { ("are", "have") };
    match (turn.rule.as_str(), nodes.is_empty()) {
        ("margin", _) => "etcd needs this node for its quorum".to_owned(),
        ("retry", _) => "the next attempt comes by itself".to_owned(),
        ("mode", _) => "an operation on the whole cluster is in progress".to_owned(),
        ("preflight", _) => "its drain cannot start".to_owned(),
        ("record", _) => "the record of turns cannot be used".to_owned(),
        ("reading" | "api", _) => "the record of turns is not known yet".to_owned(),
        ("not-listed", _) => "the cluster does not list this node".to_owned(),
        ("down" | "server", false) => format!("{nodes} {are} down"),
        ("holder", false) => format!("{nodes} {are} down or about to be"),
        ("order", false) => format!("{nodes} {have} an earlier place"),
        (_, false) => format!("behind {nodes}"),
        (_, true) => "it has asked for it".to_owned(),
    }
}

fn at_work(progress: &NodeDrainProgress, what: &str) -> Judgement {
    let counts = progress.counts;
    if let Some(first) = progress.blockers.first() {
        let rest = match counts.blocked {
            // Nothing of the pods keeps them.
            _ if first.code == "kubelet-silent" => "the kubelet of this node is silent".to_owned(),
            0 => format!("{} cannot leave", first.subject()),
            1 => format!("1 of {} {} cannot leave", counts.total, noun(counts.total)),
            many => format!("{many} of {} pods cannot leave", counts.total),
        };
        return (NodeState::Blocked, format!("{what} waits, {rest}"));
    }
    if counts.blocked > 0 {
        return (
            NodeState::Blocked,
            format!("{what} waits, {} of {} pods cannot leave", counts.blocked, counts.total),
        );
    }
    let silent = !progress.api_silent_since.is_zero();
    let rest = match progress.phase {
        _ if silent => "the Kubernetes API does not answer".to_owned(),
        DrainPhase::RunningHooks => "hooks before the drain run".to_owned(),
        DrainPhase::Cordoning => "the node is being cordoned".to_owned(),
        DrainPhase::MovingMachines => "virtual machines leave first".to_owned(),
        DrainPhase::Draining => {
            format!("{} of {} {} gone", counts.gone, counts.total, noun(counts.total))
        }
        DrainPhase::Detaching => "pods are gone, their volumes are being detached".to_owned(),
        DrainPhase::WaitingForStorage => "pods are gone, a volume needs another healthy copy".to_owned(),
        DrainPhase::Proving => "pods are gone, which is being verified".to_owned(),
        DrainPhase::Retrying => "an attempt failed, the next one follows".to_owned(),
        DrainPhase::Idle
        | DrainPhase::Undecided
        | DrainPhase::Checking
        | DrainPhase::OutsideWindow
        | DrainPhase::Paused
        | DrainPhase::WaitingForTurn
        | DrainPhase::Complete
        | DrainPhase::Skipped
        | DrainPhase::Forced
        | DrainPhase::FailedCordon
        | DrainPhase::FailedDrain
        | DrainPhase::Withdrawing
        | DrainPhase::AfterBoot
        | DrainPhase::Leaving
        | DrainPhase::WholeSite => "the node is being checked first".to_owned(),
    };
    let begun = !matches!(progress.phase, DrainPhase::Checking | DrainPhase::RunningHooks);
    let state = if begun { NodeState::UnderWay } else { NodeState::Requested };
    (state, format!("{what} waits, {rest}"))
}

fn noun(count: u32) -> &'static str {
    if count == 1 { "pod" } else { "pods" }
}

/// COMPLETE, of whatever kind.
fn complete(view: &NodeView, progress: &NodeDrainProgress, what: &str) -> Judgement {
    let unproved = |why: &str| (NodeState::Unproved, why.to_owned());
    let answered = |id: RequestId| progress.answer(id).map(RequestAnswer::of);
    let asked = RequestId { by: progress.requested_by, at: progress.requested_at };
    match answered(asked) {
        Some(RequestAnswer::Complete { forced: true, .. }) => {
            return unproved(&format!("{what} goes ahead, a person has forced it"));
        }
        Some(RequestAnswer::Complete { skip, .. })
            if skip.is_empty() && progress.skip.is_empty() && progress.phase == DrainPhase::Complete => {}
        Some(RequestAnswer::Complete { .. }) => {
            return unproved(&format!("{what} goes ahead, its drain was skipped"));
        }
        Some(RequestAnswer::Failed | RequestAnswer::NotYet) | None => {
            return (NodeState::Unknown, "COMPLETE, but its request was not answered".to_owned());
        }
    }
    let of_request = |it: &&NodeDrainRequest| it.id() == asked;
    let Some(request) = view.requests.iter().find(of_request) else {
        return (NodeState::Withdrawn, "nobody asks for this drain any more".to_owned());
    };
    if request.is_turn_alone() {
        return unproved("k3s restarts, the pods stay");
    }
    if progress.cordon == CordonOwner::None {
        return (NodeState::Unknown, "drained, but the node is not cordoned".to_owned());
    }
    if view.status.map(|it| it.status) != Some(DrainStatus::Complete) {
        return (NodeState::UnderWay, format!("{what} waits; the node is proved empty, COMPLETE follows"));
    }
    if view.last_look.is_some() {
        return (NodeState::Blocked, format!("{what} waits for the last check before it goes down"));
    }
    let is_persons = |it: &NodeDrainRequest| {
        it.requested_by == Requester::Operator
            && matches!(answered(it.id()), Some(RequestAnswer::Complete { skip, forced: false }) if skip.is_empty())
    };
    let others = view.requests.iter().find(|it| !is_persons(it));
    let pause = Some(&progress.pause).filter(|it| it.is_set());
    let is_held = |it: &DeviceOpPending| {
        let started = !it.drain_requested_at.is_zero();
        let (by, from) = (Requester::DeviceOp, Orderer::Controller);
        let ordered = PausableOperation { by, from, started, forced: None };
        it.site.is_empty() && it.state == PendingState::Pending && paused(pause, ordered).is_some()
    };
    if let Some(first) = view.pending.first()
        && others.is_none()
        && !view.blind
        && view.pending.iter().all(is_held)
    {
        let rest = format!("{}, {}; the node is drained", waits(first), by(&progress.pause));
        return (NodeState::Paused, rest);
    }
    if others.is_some() || !view.pending.is_empty() {
        let op = view.pending.first().map(|it| it.op.word().to_owned());
        let op = op.unwrap_or_else(|| {
            if asked.by == Requester::Operator { "an operation".to_owned() } else { what.to_owned() }
        });
        return (NodeState::Drained, format!("{op} goes ahead, do not work on it"));
    }
    if view.blind {
        return (NodeState::Unknown, "drained, but other requests cannot be read".to_owned());
    }
    let cordon = if progress.cordon == CordonOwner::Foreign { "somebody else's cordon" } else { "a cordon" };
    let but = progress.exceptions().map(|it| format!(", with {it}")).unwrap_or_default();
    (NodeState::Safe, format!("proved empty under {cordon}{but}"))
}

#[cfg(test)]
mod tests;
