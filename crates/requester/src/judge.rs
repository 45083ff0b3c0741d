//! The judgement: may the operation be carried out now?
//!
//! Every way to a reboot, a shutdown or a switch of images leads through here, whatever event led to the question
//! (D-B1, D-N3). Source: an answer counts only for the very request that it names (D-B3). Pure: no clock, no I/O, no
//! task. Not here: a pause (`pause`), the end of the wait for a silent zedkube (requesters).

use std::time::Duration;

use step::{Fault, planted};
use topics::{
    Answer, Defer, DrainStatus, FORCE_FILE, NodeDrainProgress, NodeDrainStatus, RequestId, Requester,
};

use crate::answers::{LatestAnswers, OwnRequest, RequestAnswer};

/// How long an operation on a clustered node waits for any word of zedkube before it goes ahead without a drain, which is then
/// said and recorded as a skip.
pub const UNKNOWN_WAIT: Duration = Duration::from_mins(5);

/// Whether there is a cluster to leave in order, by the device config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceClustering {
    #[default]
    Undecided,
    /// The node is in no cluster.
    Single,
    /// The node belongs to a cluster.
    Clustered,
}

/// Why an operation may be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProceedReason {
    /// The drain for our own request is complete; `skip` is zedkube's reason when it was not done in full.
    Complete {
        /// Empty after a full drain.
        skip: String,
    },
    /// The node is in no cluster.
    NotSupported,
    /// The node is in no cluster and zedkube said nothing yet.
    Early,
    /// The force file says so.
    Forced(NodeDrainStatus),
    /// zedkube said nothing for the whole wait.
    Silent {
        /// How long it was waited for.
        waited_secs: u64,
    },
}

impl ProceedReason {
    /// What was skipped of the drain, for a record; empty for nothing.
    pub fn skip(self) -> String {
        match self {
            Self::Complete { skip } => skip,
            Self::NotSupported | Self::Early => String::new(),
            Self::Forced(forced) => format!("forced {forced} by {FORCE_FILE}"),
            Self::Silent { waited_secs } => format!("nothing was said about its drain for {waited_secs} s"),
        }
    }
}

/// All that the judgement depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgeInput<'a> {
    pub by: Requester,
    /// The request for this very operation, if there is one.
    pub own: Option<&'a OwnRequest>,
    /// What zedkube has said.
    pub heard: &'a LatestAnswers,
    /// Whether there is a cluster to leave in order.
    pub cluster: DeviceClustering,
    /// Whether zedkube's record says that the node has yet to leave its cluster, or is not known yet.
    pub has_to_leave: bool,
    pub forced: Option<NodeDrainStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainJudgement {
    Open(ProceedReason),
    /// Publish a request of our own.
    Ask,
    /// Something is going on; a later fact opens the gate or fails the drain.
    Wait,
    /// The drain for our request failed, in words.
    Failed(String),
    /// Nothing is known of zedkube: wait for a word, but not for ever.
    Silent,
    /// Our request is open and zedkube is at work on nothing: wait, but not for ever.
    Unanswered(DrainStatus),
    /// A status that this version does not know: wait, and say so.
    Stranger(u8),
    /// The force file holds it back: wait, and say so.
    Held(NodeDrainStatus),
}

/// The last look: what keeps the operation that the node was drained for in the name of `by` from being carried out
/// now, as the drain is under way again or has failed since. The status names one requester; whoever is answered by
/// name is judged by that. COMPLETE in the force file is a person's word to continue whatever zedkube says, or does not.
pub fn undone(
    by: Requester,
    status: Option<NodeDrainStatus>,
    answers: &[Answer],
    forced: Option<NodeDrainStatus>,
) -> Option<NodeDrainStatus> {
    if forced.is_some_and(|it| completes(it, by)) {
        return None;
    }
    let answer = answers.iter().find(|it| it.requested_by == by);
    let told = answer.map(|it| NodeDrainStatus { status: it.status, requested_by: by });
    told.or(status.filter(|it| it.requested_by == by))
        .filter(|it| it.status.is_under_way() || it.status.is_failure())
}

/// Whether a forced status lets the operation in the name of `by` continue without a drain.
pub fn completes(forced: NodeDrainStatus, by: Requester) -> bool {
    forced.status == DrainStatus::Complete && serves(forced, by)
}

pub(crate) fn judge(view: JudgeInput<'_>) -> DrainJudgement {
    if let Some(forced) = view.forced.filter(|forced| serves(*forced, view.by)) {
        return judge_forced(view, forced);
    }
    if let Some(verdict) = answered(view) {
        return verdict;
    }
    let status = view.heard.status.unwrap_or_default();
    match status.status.defer() {
        Defer::Wait => match stranger(status.status) {
            Some(number) => DrainJudgement::Stranger(number),
            // Someone else's drain as well: we join it by a request of our own.
            None if view.own.is_none() && !planted(Fault::B3) => DrainJudgement::Ask,
            None => DrainJudgement::Wait,
        },
        Defer::Ask => asked(view, status.status),
        // Complete, but not for us: that was settled above.
        Defer::Proceed if status.status == DrainStatus::Complete && planted(Fault::B3) => {
            DrainJudgement::Wait
        }
        Defer::Proceed if status.status == DrainStatus::Complete => asked(view, status.status),
        Defer::Proceed => unsaid(view, status.status),
    }
}

/// Whether a forced status is for `by`: COMPLETE names whom it serves, any other one holds for everyone.
pub fn serves(forced: NodeDrainStatus, by: Requester) -> bool {
    forced.status != DrainStatus::Complete || forced.requested_by == by
}

fn judge_forced(view: JudgeInput<'_>, forced: NodeDrainStatus) -> DrainJudgement {
    match forced.status.defer() {
        Defer::Proceed => DrainJudgement::Open(ProceedReason::Forced(forced)),
        Defer::Ask if forced.status.is_failure() && view.own.is_some_and(|own| !own.failed) => {
            DrainJudgement::Failed(format!("the force file says {forced}; remove or change it"))
        }
        Defer::Ask if forced.status == DrainStatus::NotRequested && view.own.is_none() => DrainJudgement::Ask,
        Defer::Ask | Defer::Wait => DrainJudgement::Held(forced),
    }
}

/// What zedkube said to our very request, if that settles it.
fn answered(view: JudgeInput<'_>) -> Option<DrainJudgement> {
    let own = view.own?;
    // Its identity is not known yet: nothing can have been said to it.
    let Some(id) = own.id else { return Some(DrainJudgement::Wait) };
    if view.heard.has_answers() {
        let progress = view.heard.progress.as_deref()?;
        let answer = progress.answer(id)?;
        return match RequestAnswer::of(answer) {
            RequestAnswer::Complete { skip, .. } => {
                Some(DrainJudgement::Open(ProceedReason::Complete { skip }))
            }
            RequestAnswer::Failed => Some(DrainJudgement::Failed(reason(Some(progress), id, answer.status))),
            RequestAnswer::NotYet => (answer.status.defer() == Defer::Wait
                && stranger(answer.status).is_none())
            .then_some(DrainJudgement::Wait),
        };
    }
    // A zedkube of the reference: its words carry no identity, so requester and order decide.
    let said = view.heard.status.filter(|said| said.status.is_final() && view.heard.is_without_answers())?;
    if own.survived {
        // Said to this request or to one before it: nobody can tell, so a new one is made.
        return Some(DrainJudgement::Ask);
    }
    if own.before.is_some() || said.requested_by != view.by {
        return None;
    }
    Some(if said.status == DrainStatus::Complete {
        DrainJudgement::Open(ProceedReason::Complete { skip: String::new() })
    } else {
        DrainJudgement::Failed(reason(None, id, said.status))
    })
}

/// zedkube works on nothing of ours.
fn asked(view: JudgeInput<'_>, status: DrainStatus) -> DrainJudgement {
    if view.own.is_some() { DrainJudgement::Unanswered(status) } else { DrainJudgement::Ask }
}

/// UNKNOWN and NOTSUPPORTED: no drain, or no word about one yet.
fn unsaid(view: JudgeInput<'_>, status: DrainStatus) -> DrainJudgement {
    match view.cluster {
        // Its config says so, but it is not out yet.
        DeviceClustering::Single if view.has_to_leave && !planted(Fault::Leaving) => DrainJudgement::Silent,
        DeviceClustering::Single if status == DrainStatus::NotSupported => {
            DrainJudgement::Open(ProceedReason::NotSupported)
        }
        DeviceClustering::Single => DrainJudgement::Open(ProceedReason::Early),
        // zedkube says NOTSUPPORTED for a moment at each start, before it has read the cluster's config.
        DeviceClustering::Clustered | DeviceClustering::Undecided => DrainJudgement::Silent,
    }
}

fn stranger(status: DrainStatus) -> Option<u8> {
    if let DrainStatus::Stranger(number) = status { Some(number) } else { None }
}

/// zedkube's words about the failure of `id`, as far as it has any.
fn reason(progress: Option<&NodeDrainProgress>, id: RequestId, status: DrainStatus) -> String {
    let said = NodeDrainStatus { status, requested_by: id.by };
    let about = |it: &&NodeDrainProgress| RequestId { by: it.requested_by, at: it.requested_at } == id;
    let words = progress.filter(about).map(|it| [it.reason.as_str(), it.next_step.as_str()].join(" "));
    match words.as_deref().map(str::trim) {
        None | Some("") => said.to_string(),
        Some(words) => format!("{said}: {words}"),
    }
}
