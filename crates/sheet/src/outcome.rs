//! How a command ends that was asked how far the drain is. Pure: no clock, no I/O, no task.

use requester::RequestAnswer;
use topics::Answer;

/// How a command ends that was asked how far the drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    Unknown,
    /// No drain requested, or there is nothing to drain.
    Idle,
    /// Requested, at work, or an operation is pending that will request a drain.
    UnderWay,
    /// Something does not leave, or somebody has to act before anything continues.
    Blocked,
    /// Proved empty under a cordon.
    Complete,
    /// COMPLETE without a drain, for a reason.
    Skipped,
    /// A person forced the status.
    Forced,
    /// COMPLETE, and nothing says whether the node was drained: a zedkube of the reference.
    Unproved,
    Failed,
}

/// How a request ended that has this answer.
pub(crate) fn answered(answer: &Answer) -> Option<DrainOutcome> {
    match RequestAnswer::of(answer) {
        RequestAnswer::Complete { forced: true, .. } => Some(DrainOutcome::Forced),
        RequestAnswer::Complete { skip, .. } if !skip.is_empty() => Some(DrainOutcome::Skipped),
        RequestAnswer::Complete { .. } => Some(DrainOutcome::Complete),
        RequestAnswer::Failed => Some(DrainOutcome::Failed),
        RequestAnswer::NotYet => None,
    }
}
