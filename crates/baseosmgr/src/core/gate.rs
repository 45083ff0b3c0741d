//! The drain gate: may the wanted image be switched now?
//!
//! The only way to `updating` leads through here, whatever event led to the question (D-B1, D-N3).
//! Source: spec agents.md 3.3; an answer counts only for the very request that it names (D-B3).
//! Pure: no clock, no I/O, no task.

use step::{Fault, planted};
use topics::{
    Defer, DrainStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, RequestId, Requester,
};

use super::event::{Membership, Why};

/// Our request for the image in question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Own {
    /// Counts the requests of this run; zero is one of an earlier run.
    pub(super) nth: u32,
    /// `None` until the shell has told the time that it wrote down.
    pub(super) id: Option<RequestId>,
    /// What is to be switched.
    pub(super) context: String,
    /// A final status that stood already when we asked. Without an id in it, it answers an older request as long
    /// as it stands.
    pub(super) before: Option<NodeDrainStatus>,
    /// Its failure was counted; it stands until the next one is made.
    pub(super) failed: bool,
}

impl Own {
    /// What this agent asks for now, while `status` stands.
    pub(super) fn new(nth: u32, context: String, status: Option<NodeDrainStatus>) -> Self {
        Self { nth, id: None, context, before: status.filter(|said| said.status.is_final()), failed: false }
    }

    /// A request of an earlier run.
    pub(super) fn survived(request: &NodeDrainRequest) -> Self {
        Self { nth: 0, id: Some(request.id()), context: request.context.clone(), before: None, failed: false }
    }
}

/// All that the answer depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// Our request, if one stands for this very image.
    pub(super) own: Option<&'a Own>,
    /// What zedkube publishes.
    pub(super) status: Option<NodeDrainStatus>,
    /// What our zedkube publishes beside it.
    pub(super) progress: Option<&'a NodeDrainProgress>,
    /// Whether it ever did, so that its words carry identities.
    pub(super) progress_seen: bool,
    /// Whether there is a cluster to leave in order.
    pub(super) cluster: Membership,
    /// Whether zedkube's record says that the node has yet to leave its cluster.
    pub(super) has_to_leave: bool,
    /// The force file.
    pub(super) forced: Option<NodeDrainStatus>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Switch now.
    Open(Why),
    /// Publish a request of our own.
    Ask,
    /// Something is going on; a later fact opens the gate or fails the drain.
    Wait,
    /// The drain for our request failed.
    Failed(String),
    /// Nothing is known of zedkube: wait for a word, but not for ever.
    Silent,
    /// Our request stands and zedkube is at work on nothing: wait, but not for ever.
    Unanswered(DrainStatus),
    /// A status that this version does not know: wait, and say so.
    Stranger(u8),
    /// The force file holds it back: wait, and say so.
    Held(NodeDrainStatus),
}

/// Reads the gate.
pub(super) fn gate(view: View<'_>) -> Verdict {
    if let Some(forced) = view.forced.filter(|forced| serves_us(*forced)) {
        return forced_gate(view, forced);
    }
    if let Some(verdict) = answered(view) {
        return verdict;
    }
    let status = view.status.unwrap_or_default();
    match status.status.defer() {
        Defer::Wait => match stranger(status.status) {
            Some(number) => Verdict::Stranger(number),
            // Someone else's drain as well: we join it by a request of our own.
            None if view.own.is_none() && !planted(Fault::B3) => Verdict::Ask,
            None => Verdict::Wait,
        },
        Defer::Ask => asked(view, status.status),
        // Complete, but not for us: that was settled above.
        Defer::Proceed if status.status == DrainStatus::Complete && planted(Fault::B3) => Verdict::Wait,
        Defer::Proceed if status.status == DrainStatus::Complete => asked(view, status.status),
        Defer::Proceed => unsaid(view, status.status),
    }
}

/// COMPLETE names whom it serves; any other forced status holds for everyone.
pub(super) fn serves_us(forced: NodeDrainStatus) -> bool {
    forced.status != DrainStatus::Complete || forced.requested_by == Requester::Update
}

fn forced_gate(view: View<'_>, forced: NodeDrainStatus) -> Verdict {
    match forced.status.defer() {
        Defer::Proceed => Verdict::Open(Why::Forced(forced)),
        Defer::Ask if forced.status.is_failure() && view.own.is_some() => {
            Verdict::Failed(format!("the force file says {forced}; remove or change it"))
        }
        Defer::Ask if forced.status == DrainStatus::NotRequested && view.own.is_none() => Verdict::Ask,
        Defer::Ask | Defer::Wait => Verdict::Held(forced),
    }
}

/// What zedkube said to our very request, if that settles it.
fn answered(view: View<'_>) -> Option<Verdict> {
    let own = view.own?;
    // Its identity is on the way back from the shell: nothing can have been said to it yet.
    let Some(id) = own.id else { return Some(Verdict::Wait) };
    if view.progress_seen {
        let answer = view.progress?.answer(id)?;
        return if answer.status == DrainStatus::Complete {
            Some(Verdict::Open(Why::Complete { skip: answer.skip.clone() }))
        } else if answer.status.is_failure() {
            Some(Verdict::Failed(reason(view.progress, id, answer.status)))
        } else {
            (answer.status.defer() == Defer::Wait && stranger(answer.status).is_none())
                .then_some(Verdict::Wait)
        };
    }
    // A zedkube of the reference: its words carry no identity, so requester and order decide.
    let said = view.status.filter(|said| said.requested_by == Requester::Update && said.status.is_final())?;
    if own.nth == 0 {
        // Said to this request or to one before it: nobody can tell, so a new one is made.
        return Some(Verdict::Ask);
    }
    if own.before.is_some() {
        return None;
    }
    Some(if said.status == DrainStatus::Complete {
        Verdict::Open(Why::Complete { skip: String::new() })
    } else {
        Verdict::Failed(reason(None, id, said.status))
    })
}

/// zedkube works on nothing of ours.
fn asked(view: View<'_>, status: DrainStatus) -> Verdict {
    if view.own.is_some() { Verdict::Unanswered(status) } else { Verdict::Ask }
}

/// UNKNOWN and NOTSUPPORTED: no drain, or no word about one yet.
fn unsaid(view: View<'_>, status: DrainStatus) -> Verdict {
    match view.cluster {
        // Its config says so, but it is not out yet.
        Membership::Single if view.has_to_leave && !planted(Fault::Leaving) => Verdict::Silent,
        Membership::Single if status == DrainStatus::NotSupported => Verdict::Open(Why::NotSupported),
        Membership::Single => Verdict::Open(Why::Early),
        // zedkube says NOTSUPPORTED for a moment at each start, before it has read the cluster's config.
        Membership::Clustered | Membership::Undecided => Verdict::Silent,
    }
}

fn stranger(status: DrainStatus) -> Option<u8> {
    if let DrainStatus::Stranger(number) = status { Some(number) } else { None }
}

/// zedkube's words about the failure of `id`, as far as it has any.
fn reason(progress: Option<&NodeDrainProgress>, id: RequestId, status: DrainStatus) -> String {
    let said = NodeDrainStatus { status, requested_by: id.by };
    let about = |it: &&NodeDrainProgress| RequestId { by: it.requested_by, at: it.requested_at } == id;
    let told = progress.filter(about).map(|it| [it.reason.as_str(), it.next_step.as_str()].join(" "));
    match told.as_deref().map(str::trim) {
        None | Some("") => said.to_string(),
        Some(told) => format!("{said}: {told}"),
    }
}
