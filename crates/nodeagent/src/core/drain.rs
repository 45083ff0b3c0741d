//! What NodeDrainStatus makes of WaitDrainInProgress.
//!
//! | NodeDrainStatus | by a device operation (2) | by anyone else |
//! |---|---|---|
//! | 0 unknown, numbers nobody knows | no word on it | no word on it |
//! | 1 not supported, 2 not requested | false | false |
//! | 3, 4, 5, 7 under way | true | no word on it |
//! | 6, 8 failed | true | no word on it |
//! | 9 complete | false | no word on it |
//!
//! The member says that a drain for a device operation is not complete. The cluster may be left, or the request
//! be withdrawn, at any time: then nothing is left to wait for, whoever was asking (D-N1; the reference stays
//! true for ever). A failure stays true: the operation is still wanted and held back, and zedagent asks again
//! after a pause. When it withdraws its request for that pause, zedkube says "not requested" and the member
//! is false until the next request; nothing here or in zedagent takes that for a completed drain, as an
//! operation is released by the answer to its own request only (D-A3).
//!
//! Pure: no clock, no I/O, no task.

use step::{Fault, LogMessage, planted};
use topics::{DrainStatus, NodeDrainStatus, Requester};

/// The new WaitDrainInProgress and the line about it, or `None` where `status` is no word on it.
pub(super) fn waits(status: NodeDrainStatus) -> Option<(bool, LogMessage)> {
    let device_op = status.requested_by == Requester::DeviceOp;
    let handled = |step: &str| {
        LogMessage::info(format!("handleNodeDrainStatus nodedrain-step:{step} NodeDrainStatus {status}"))
    };
    match status.status {
        DrainStatus::NotSupported | DrainStatus::NotRequested if planted(Fault::N1) => None,
        DrainStatus::NotSupported | DrainStatus::NotRequested => {
            let text = format!("no drain to wait for any more: NodeDrainStatus {status}");
            Some((false, LogMessage::info(text)))
        }
        DrainStatus::Requested
        | DrainStatus::Starting
        | DrainStatus::Cordoned
        | DrainStatus::FailedCordon
        | DrainStatus::DrainRetrying
        | DrainStatus::FailedDrain
            if device_op =>
        {
            Some((true, handled("drain-inprogress-handler")))
        }
        DrainStatus::Complete if device_op => Some((false, handled("drain-complete-handler"))),
        DrainStatus::Unknown
        | DrainStatus::Requested
        | DrainStatus::Starting
        | DrainStatus::Cordoned
        | DrainStatus::FailedCordon
        | DrainStatus::DrainRetrying
        | DrainStatus::FailedDrain
        | DrainStatus::Complete
        | DrainStatus::Stranger(_) => None,
    }
}
