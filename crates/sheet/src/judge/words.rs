//! Sentences that the judgement is made of. Pure: no clock, no I/O, no task.

use topics::{DeviceOpPending, NodeDrainProgress, NodeState, OperationPause, Requester};

use crate::outcome::DrainOutcome;

/// A state, how a command ends, and the sentence behind the words of the state.
pub(super) type JudgedState = (NodeState, DrainOutcome, String);

pub(super) fn unknown(why: impl Into<String>) -> JudgedState {
    (NodeState::Unknown, DrainOutcome::Unknown, why.into())
}

pub(super) fn blocked(what: String) -> JudgedState {
    (NodeState::Blocked, DrainOutcome::Blocked, what)
}

/// What waits for the drain.
pub fn purpose(by: Requester, context: &str) -> String {
    match by {
        Requester::Operator | Requester::NodeMaintenance => "work on the node".to_owned(),
        Requester::Update => "OS update".to_owned(),
        Requester::K3sUpdate => "k3s update".to_owned(),
        Requester::DeviceOp | Requester::Unset | Requester::None | Requester::Stranger(_) => {
            if context.is_empty() { "the operation".to_owned() } else { context.to_owned() }
        }
    }
}

pub(super) fn waits(pending: &DeviceOpPending) -> String {
    format!("{} waits", pending.words())
}

/// Whose pause it is, and why.
pub(super) fn by(pause: &OperationPause) -> String {
    format!("paused by {}: {}", pause.by, pause.reason)
}

/// Whom or what it waits for, by the rule that holds it.
pub(super) fn turn(progress: &NodeDrainProgress) -> String {
    let turn = &progress.turn;
    let nodes = turn.nodes.join(", ");
    let (are, have) = if turn.nodes.len() == 1 { ("is", "has") } else { ("are", "have") };
    match (turn.rule.as_str(), nodes.is_empty()) {
        ("margin", _) => "etcd needs this node for its quorum".to_owned(),
        ("retry", _) => "the next attempt comes by itself".to_owned(),
        ("mode", _) => "an operation on the whole cluster is in progress".to_owned(),
        ("preflight", _) => "its drain cannot start".to_owned(),
        ("record", _) => "the record of turns cannot be used".to_owned(),
        ("reading" | "api", _) => "the record of turns is being read".to_owned(),
        ("not-listed", _) => "the cluster does not list this node".to_owned(),
        ("down" | "server", false) => format!("{nodes} {are} down"),
        ("cordoned", false) => format!("{nodes} {are} cordoned"),
        ("holder", false) => format!("it is the turn of {nodes}"),
        ("order", false) => format!("{nodes} {have} an earlier place"),
        (_, false) => format!("behind {nodes}"),
        (_, true) => "it has asked for it".to_owned(),
    }
}
