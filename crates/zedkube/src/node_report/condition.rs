//! The condition and the annotation of the Node, out of the headline of its page and NodeDrainProgress.
//!
//! Pure: no clock, no I/O, no task.

use kubeapi::nodes::DrainCondition;
use sheet::DrainView;
use topics::{DrainPhase, GoTime, Headline, NodeState, cut_text};

/// No longer message is written.
const MESSAGE_BYTES: usize = 512;

/// What the Node shows at `now` of what is published, by the judgement of the page and of the command line.
pub fn condition(view: &DrainView, now: GoTime, stalled: bool) -> DrainCondition {
    let judged = view.judge(now);
    let proved = view.agreed().is_some_and(|it| it.phase == DrainPhase::Complete);
    shown(&judged.headline, &view.next_step(&judged, now), proved, stalled)
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
