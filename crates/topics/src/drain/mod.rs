//! The drain protocol: NodeDrainRequest, NodeDrainStatus, and the order files that force a status; beside
//! them our own topics: `progress`, `journal`, `k3s`, `history`, `leave`, `outage`, `parts`, `site`,
//! `trouble`; and a person's orders: `orders`, with what speaks against a drain, and `pause`, to start nothing.
//!
//! Not here: the drain itself.
//!
//! Source: lf-edge/eve pkg/pillar/kubeapi (nodedrain). Pure: no clock, no I/O, no task.

mod history;
mod journal;
mod k3s;
mod leave;
mod orders;
mod outage;
mod parts;
mod pause;
mod progress;
mod site;
mod trouble;

pub use history::*;
pub use journal::*;
pub use k3s::*;
pub use leave::*;
pub use orders::*;
pub use outage::*;
pub use parts::*;
pub use pause::*;
pub use progress::*;
pub use site::*;
pub use trouble::*;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{GoTime, go_json, topic};

/// What a requester asks of zedkube: drain this node for me.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeDrainRequest {
    /// When it was asked, by the wall clock of the device.
    pub requested_at: GoTime,
    /// Who asks.
    pub requested_by: Requester,
    /// `reboot` or `shutdown` from zedagent, the content tree UUID of an image from baseosmgr, `k3s` and its version from
    /// zedkube, a person's words, `NodeMaintenance`, its name and its reason.
    pub context: String,
}

impl NodeDrainRequest {
    /// The request's identity.
    pub const fn id(&self) -> RequestId {
        RequestId { by: self.requested_by, at: self.requested_at }
    }
}

topic!(NodeDrainRequest: Volatile, cut context);

/// Identity of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId {
    /// Who asks.
    pub by: Requester,
    /// When it was asked.
    pub at: GoTime,
}

impl RequestId {
    /// For a program, as `DeviceOp 2026-03-14T09:30:00Z`.
    pub fn text(self) -> String {
        format!("{:?} {}", self.by, self.at.rfc3339())
    }
}

/// How far the drain of this node is, e.g. `{"Status":5,"RequestedBy":2}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeDrainStatus {
    /// How far it is.
    pub status: DrainStatus,
    /// Whose request it is about.
    pub requested_by: Requester,
}

topic!(NodeDrainStatus: Volatile);

impl fmt::Display for NodeDrainStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{{} {}}}", self.status.text(), self.requested_by.number())
    }
}

numbers! {
    /// Who asks for a drain.
    Requester: u8 {
        /// Nobody was named.
        Unset = 0,
        /// Nobody asks.
        None = 1,
        /// zedagent, for a reboot or a shutdown.
        DeviceOp = 2,
        /// baseosmgr, for an image.
        Update = 3,
        /// A person with a shell, for work on the node (ours; the reference knows no such number and leaves it).
        Operator = 4,
        /// zedkube itself, for an update of k3s (ours as well).
        K3sUpdate = 5,
        /// An object NodeMaintenance of this node (ours as well).
        NodeMaintenance = 6,
    }
}

impl Requester {
    /// Whether nothing but a person's work follows its drain.
    pub const fn only_drains(self) -> bool {
        matches!(self, Self::Operator | Self::NodeMaintenance)
    }
}

numbers! {
    /// How far a drain is.
    DrainStatus: u8 {
        /// Cannot be told, or nothing was published yet.
        Unknown = 0,
        /// This node is in no cluster: there is nothing to drain.
        NotSupported = 1,
        /// In a cluster, idle.
        NotRequested = 2,
        /// zedkube has taken the request.
        Requested = 3,
        /// At work, node not yet cordoned.
        Starting = 4,
        /// Node unschedulable, pods being evicted.
        Cordoned = 5,
        /// Gave up cordoning.
        FailedCordon = 6,
        /// Waits before the next attempt.
        DrainRetrying = 7,
        /// Gave up draining.
        FailedDrain = 8,
        /// Drained, or skipped.
        Complete = 9,
    }
}

/// What a requester does with its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Defer {
    /// Go ahead.
    Proceed,
    /// Hold the operation back and ask for a drain.
    Ask,
    /// Hold the operation back: a drain is on its way.
    Wait,
}

impl DrainStatus {
    /// For logs and the console.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown | Self::Stranger(_) => "Unknown",
            Self::NotSupported => "Not Supported",
            Self::NotRequested => "Not Requested",
            Self::Requested => "Requested",
            Self::Starting => "Starting",
            Self::Cordoned => "Cordoned",
            Self::FailedCordon => "Failed Cordon",
            Self::DrainRetrying => "Drain Retrying",
            Self::FailedDrain => "Failed Drain",
            Self::Complete => "Complete",
        }
    }

    /// Whether it ends its request.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Complete) || self.is_failure()
    }

    pub const fn is_failure(self) -> bool {
        matches!(self, Self::FailedCordon | Self::FailedDrain)
    }

    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Requested | Self::Starting | Self::Cordoned | Self::DrainRetrying)
    }

    /// What a requester does with its operation at this status. The requester itself checks whether a
    /// COMPLETE answers its own request.
    ///
    /// The reference goes ahead on CORDONED (D-A1) and on unknown numbers; here both wait.
    pub const fn defer(self) -> Defer {
        match self {
            Self::Unknown | Self::NotSupported | Self::Complete => Defer::Proceed,
            Self::NotRequested | Self::FailedCordon | Self::FailedDrain => Defer::Ask,
            Self::Requested | Self::Starting | Self::Cordoned | Self::DrainRetrying | Self::Stranger(_) => {
                Defer::Wait
            }
        }
    }
}

/// Why the content of a force file is not followed.
#[derive(Debug, thiserror::Error)]
pub enum ForceError {
    /// It is no NodeDrainStatus.
    #[error("not a NodeDrainStatus ({0}); write for example {{\"Status\":9,\"RequestedBy\":2}}")]
    Form(#[from] go_json::Error),
    /// It forces nothing that makes sense.
    #[error("{0}")]
    Meaning(String),
}

/// Where a person forces a NodeDrainStatus, under the root.
pub const FORCE_FILE: &str = "persist/kube-status/force-NodeDrainStatus-global.json";

/// A force file as `zedbox drain force` writes it: an order, and beside it who gives it why. The reference, and whoever
/// asks only for the order, leaves the latter two out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ForceFile {
    /// The status that is ordered.
    pub status: DrainStatus,
    /// For whose request.
    pub requested_by: Requester,
    /// Why, in a person's words, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Who gives the order, by name, or empty: whoever called `sudo`, not the file's owner.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl ForceFile {
    /// Other members of a force file; empty where they are invalid.
    pub fn read(bytes: &[u8]) -> Self {
        go_json::from_slice(bytes).unwrap_or_default()
    }
}

/// Parses a force file and checks that it is a clear order.
///
/// Errors: it is no NodeDrainStatus, names no status or an unknown one, or completes without a requester. The
/// text says what to write instead.
pub fn read_force(bytes: &[u8]) -> Result<NodeDrainStatus, ForceError> {
    let forced: NodeDrainStatus = go_json::from_slice(bytes)?;
    let refuse = |text: String| Err(ForceError::Meaning(text));
    match (forced.status, forced.requested_by) {
        (DrainStatus::Unknown, _) => {
            refuse("no status to force; write a Status from 1 to 9".to_owned())
        }
        (DrainStatus::Stranger(number), _) => {
            refuse(format!("status {number} does not exist; write a Status from 1 to 9"))
        }
        (_, Requester::Operator) => refuse(
            "requester 4 is a person who can withdraw the request (zedbox undrain); write RequestedBy 2 \
             (reboot, shutdown) or 3 (update)"
                .to_owned(),
        ),
        (_, Requester::K3sUpdate) => refuse(
            "requester 5 is an update of k3s, which the device config withdraws (k3s.version, k3s.config.override); \
             write RequestedBy 2 (reboot, shutdown) or 3 (update)"
                .to_owned(),
        ),
        (_, Requester::NodeMaintenance) => refuse(
            "requester 6 is a NodeMaintenance, which is withdrawn by deleting that; write RequestedBy 2 (reboot, shutdown) \
             or 3 (update)"
                .to_owned(),
        ),
        (_, Requester::Stranger(number)) => {
            refuse(format!("requester {number} does not exist; write RequestedBy 2 (reboot, shutdown) or 3 (update)"))
        }
        (DrainStatus::Complete, Requester::Unset | Requester::None) => refuse(
            "COMPLETE needs a target: order it with `zedbox go --past drain`; in the file, \
             RequestedBy 2 (reboot, shutdown) or 3 (update)"
                .to_owned(),
        ),
        (_, Requester::Unset | Requester::None | Requester::DeviceOp | Requester::Update) => Ok(forced),
    }
}
