//! One operation with its reason, and which operation may follow another.
//!
//! Pure: no clock, no I/O, no task.
//!
//! What NodeDrainStatus makes of WaitDrainInProgress:
//!
//! | NodeDrainStatus | by a device operation (2) | by anyone else |
//! |---|---|---|
//! | 0 unknown, numbers nobody knows | no word on it | no word on it |
//! | 1 not supported, 2 not requested | false | false |
//! | 3, 4, 5, 7 under way | true | no word on it |
//! | 6, 8 failed | true | no word on it |
//! | 9 complete | false | no word on it |
//!
//! The member says that a drain for a device operation is not complete. The cluster may be left, or the request be
//! withdrawn, at any time: then nothing is left to wait for, whoever was asking (the reference stays true for ever). A
//! failure stays true: the operation is still wanted and held back, and zedagent asks again after a pause. When it
//! withdraws its request for that pause, zedkube says "not requested" and the member is false until the next request;
//! nothing here or in zedagent takes that for a completed drain: the answer to its own request alone releases one.

use std::time::Duration;

use agent::device::MachineOperation;
use serde::{Deserialize, Serialize};
use step::{Fault, LogMessage, planted};
use topics::{BootReason, DrainStatus, NodeDrainStatus, Requester};

/// An operation that the device is taken through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MachineOrder {
    pub operation: MachineOperation,
    /// Why, for the log of the next boot.
    pub reason: String,
    /// Why, as a number.
    pub boot_reason: BootReason,
}

impl MachineOrder {
    /// The machine itself is about to go down, irrevocably.
    pub(crate) fn goes_down(&self) -> bool {
        self.operation != MachineOperation::Shutdown
    }

    /// The requester of the drain for it; `None` where no drain was asked for.
    pub const fn drained_for(&self) -> Option<Requester> {
        if matches!(
            self.boot_reason,
            BootReason::Fallback | BootReason::VaultFailure | BootReason::Disconnect
        ) {
            None
        } else if matches!(self.boot_reason, BootReason::Update) {
            Some(Requester::Update)
        } else {
            Some(Requester::DeviceOp)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderCause {
    /// zedagent wants it; it has seen to the drain.
    Command,
    /// baseosmgr has switched to another image; it has seen to the drain.
    Update,
    /// The new image has no controller.
    Fallback,
    /// The vault did not open under the new image.
    Vault,
    /// No controller for too long.
    Disconnect,
}

impl OrderCause {
    /// Whether no drain was asked for. Such an order comes from a limit whose meaning is that the device
    /// cannot be helped otherwise; a drain needs the very controller, vault or image that is in trouble.
    pub const fn skips_drain(self) -> bool {
        match self {
            Self::Fallback | Self::Vault | Self::Disconnect => true,
            Self::Command | Self::Update => false,
        }
    }
}

/// Whether `next` may take the place of `latched`.
///
/// The first one wins, and a repeat is ignored. A shutdown alone gives way: it leaves the power on, so that a
/// reboot or power-off after it is the second half of one wish, not a change of mind.
pub(super) const fn may_follow(latched: Option<MachineOperation>, next: MachineOperation) -> bool {
    match (latched, next) {
        (None, MachineOperation::Reboot | MachineOperation::Shutdown | MachineOperation::Poweroff)
        | (Some(MachineOperation::Shutdown), MachineOperation::Reboot | MachineOperation::Poweroff) => true,
        (Some(MachineOperation::Reboot | MachineOperation::Poweroff), _)
        | (Some(MachineOperation::Shutdown), MachineOperation::Shutdown) => false,
    }
}

/// A command of zedagent; without a reason of its own it gets one.
pub(super) fn commanded(operation: MachineOperation, reason: &str, boot_reason: BootReason) -> MachineOrder {
    let reason = match (reason.trim(), operation) {
        ("", MachineOperation::Reboot) => "NORMAL: reboot without a stated reason",
        ("", MachineOperation::Shutdown) => "NORMAL: shutdown without a stated reason",
        ("", MachineOperation::Poweroff) => "NORMAL: power-off without a stated reason",
        (stated, _) => stated,
    };
    MachineOrder { operation, reason: reason.to_owned(), boot_reason }
}

/// The restart into the image of partition `label`.
pub(super) fn update(label: &str, version: &str) -> MachineOrder {
    reboot(format!("NORMAL: baseos-update({label}) to EVE version {version} reboot"), BootReason::Update)
}

/// No controller for `limit` and `over` while the image is in test.
pub(super) fn fallback(limit: Duration, over: Duration, undrained: &str) -> MachineOrder {
    let outage = outage("Exceeded fallback outage for controller connectivity", limit, over);
    reboot(format!("{outage}; rebooting{undrained}"), BootReason::Fallback)
}

/// A vault that stayed shut for `limit` and `over` while the image is in test; `pcrs` may be why.
pub(super) fn vault(limit: Duration, over: Duration, pcrs: &[i64], undrained: &str) -> MachineOrder {
    let outage = outage("Exceeded time for vault to be ready", limit, over);
    let indexes: Vec<String> = pcrs.iter().map(ToString::to_string).collect();
    let why = match indexes.as_slice() {
        [] => String::new(),
        indexes => format!("; possibly mismatching PCR indexes [{}]", indexes.join(" ")),
    };
    reboot(format!("{outage}{why}, rebooting{undrained}"), BootReason::VaultFailure)
}

/// No controller for `limit` and `over`.
pub(super) fn disconnect(limit: Duration, over: Duration, undrained: &str) -> MachineOrder {
    let outage = outage("Exceeded outage for controller connectivity", limit, over);
    reboot(format!("{outage}; rebooting{undrained}"), BootReason::Disconnect)
}

/// The reference's words for a limit that is reached, without the newline behind some of them.
fn outage(what: &str, limit: Duration, over: Duration) -> String {
    format!("{what} {} by {} seconds", limit.as_secs(), over.as_secs())
}

const fn reboot(reason: String, boot_reason: BootReason) -> MachineOrder {
    MachineOrder { operation: MachineOperation::Reboot, reason, boot_reason }
}

/// The new WaitDrainInProgress and the line about it, or `None` where `status` is no word on it.
pub(super) fn waits(status: NodeDrainStatus) -> Option<(bool, LogMessage)> {
    let device_op = status.requested_by == Requester::DeviceOp;
    let handled = |step: &str| {
        LogMessage::info(format!("handleNodeDrainStatus nodedrain-step:{step} NodeDrainStatus {status}"))
    };
    if matches!(status.status, DrainStatus::NotSupported | DrainStatus::NotRequested) {
        let text = format!("no drain to wait for any more: NodeDrainStatus {status}");
        return (!planted(Fault::N1)).then(|| (false, LogMessage::info(text)));
    }
    if device_op && (status.status.is_under_way() || status.status.is_failure()) {
        return Some((true, handled("drain-inprogress-handler")));
    }
    (device_op && status.status == DrainStatus::Complete).then(|| (false, handled("drain-complete-handler")))
}
