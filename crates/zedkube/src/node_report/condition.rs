//! The condition and the annotation of the Node, out of the headline of its page and NodeDrainProgress.
//!
//! Pure: no clock, no I/O, no task.

use kubeapi::nodes::{DrainCondition, LifecycleReason};
use sheet::DrainView;
use topics::{CordonOwner, DrainPhase, GoTime, Headline, NodeState, PendingState, cut_text};

/// No longer message is written.
const MESSAGE_BYTES: usize = 512;

/// What the Node shows at `now` of what is published, by the judgement of the page and of the command line.
pub fn condition(view: &DrainView, now: GoTime, stalled: bool) -> DrainCondition {
    let judged = view.judge(now);
    let proved = view.agreed().is_some_and(|it| it.phase == DrainPhase::Complete);
    let mut shown = shown(&judged.headline, &view.next_step(&judged, now), proved, stalled);
    let course = NodeCourse {
        drained: shown.status == "True",
        cordoned: view.agreed().is_some_and(|it| it.cordon == CordonOwner::Ours),
        wanted: view.is_wanted(),
        goes_down: view.pending.values().any(|it| it.state == PendingState::Commanded),
    };
    shown.lifecycle = lifecycle(judged.headline.state, course);
    shown
}

/// What of the node counts for the conditions of Kubernetes beside its state.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub(super) struct NodeCourse {
    /// It is proved empty.
    pub(super) drained: bool,
    /// By us.
    pub(super) cordoned: bool,
    /// Something waits for its drain.
    pub(super) wanted: bool,
    /// The machine was told to go down.
    pub(super) goes_down: bool,
}

/// The status of each of [`kubeapi::nodes::LIFECYCLE`], and why. Maintenance is in progress only where no pod that has to leave
/// may still run: others start its work again for it. Source: KEP-5683, KEP-6249 for the way down.
pub(super) fn lifecycle(state: NodeState, course: NodeCourse) -> ([&'static str; 4], LifecycleReason) {
    let NodeCourse { drained, cordoned, wanted, goes_down } = course;
    let (drains, planned, maintained, why) = match state {
        NodeState::Unknown => return (["Unknown"; 4], LifecycleReason::Unknown),
        _ if goes_down => (true, false, drained, LifecycleReason::Shutdown),
        _ if drained => (false, true, true, LifecycleReason::Completed),
        NodeState::AfterBoot => (false, false, true, LifecycleReason::AfterBoot),
        NodeState::WaitingForWindow => (false, true, false, LifecycleReason::Window),
        NodeState::WaitingForTurn => (false, true, false, LifecycleReason::Turn),
        NodeState::Unproved => (false, true, false, LifecycleReason::NotProved),
        NodeState::Blocked => (cordoned, true, false, LifecycleReason::Blocked),
        NodeState::WholeSite | NodeState::Leaving | NodeState::UnderWay => {
            (cordoned, true, false, LifecycleReason::Requested)
        }
        _ if wanted => (cordoned, true, false, LifecycleReason::Requested),
        NodeState::NoCluster
        | NodeState::InService
        | NodeState::Cordoned
        | NodeState::Requested
        | NodeState::WaitingForApi
        | NodeState::Paused
        | NodeState::Failed
        | NodeState::Drained
        | NodeState::Safe
        | NodeState::Withdrawn => (false, false, false, LifecycleReason::NotRequested),
    };
    let text = |is| if is { "True" } else { "False" };
    ([text(drains), text(drained), text(planned), text(maintained)], why)
}

/// `True` is said of a node that is proved empty alone, however it is released.
pub(super) fn shown(headline: &Headline, next_step: &str, proved: bool, stalled: bool) -> DrainCondition {
    let is_true = matches!(headline.state, NodeState::Safe | NodeState::Drained)
        || matches!(headline.state, NodeState::Blocked | NodeState::UnderWay) && proved;
    let status = match (is_true, headline.state == NodeState::Unknown) {
        (true, _) => "True",
        (false, true) => "Unknown",
        (false, false) => "False",
    };
    let step = matches!(headline.state, NodeState::Blocked | NodeState::Failed | NodeState::AfterBoot)
        .then(|| format!("; {}", if next_step.is_empty() { "`zedbox status`" } else { next_step }));
    let stall = if stalled { "; no progress for long" } else { "" };
    let message = format!("{}{}{stall}", headline.text, step.unwrap_or_default());
    DrainCondition {
        status,
        reason: if stalled { "Stalled" } else { reason(headline.state) },
        message: cut_text(&message, MESSAGE_BYTES),
        state: cut_text(&headline.text, MESSAGE_BYTES),
        lifecycle: (["Unknown"; 4], LifecycleReason::Unknown),
    }
}

const fn reason(state: NodeState) -> &'static str {
    match state {
        NodeState::Unknown => "Unknown",
        NodeState::NoCluster => "NoCluster",
        NodeState::InService => "InService",
        NodeState::Cordoned => "CordonedByOthers",
        NodeState::Requested => "Requested",
        NodeState::UnderWay => "Draining",
        NodeState::WaitingForTurn => "WaitingForTurn",
        NodeState::WaitingForWindow => "WaitingForWindow",
        NodeState::WaitingForApi => "WaitingForApi",
        NodeState::Paused => "Paused",
        NodeState::Blocked => "Blocked",
        NodeState::Failed => "Failed",
        NodeState::Unproved => "NotProved",
        NodeState::Drained => "Drained",
        NodeState::Safe => "SafeToWorkOn",
        NodeState::Withdrawn => "Withdrawn",
        NodeState::AfterBoot => "AfterBoot",
        NodeState::WholeSite => "WholeSiteOperation",
        NodeState::Leaving => "Leaving",
    }
}
