//! State of an update of k3s on this node: a topic of our own, which survives a reboot. Until it is applied,
//! the kube container reads the former value.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, NodeDrainRequest, Requester, topic};

/// Context of a request that needs a turn and no drain: k3s restarts, and the node's pods stay.
pub const K3S_RESTART: &str = "k3s restart";

impl NodeDrainRequest {
    /// Whether it waits for the node's turn and leaves its pods in place.
    #[must_use]
    pub fn is_turn_alone(&self) -> bool {
        self.requested_by == Requester::K3sUpdate && self.context == K3S_RESTART
    }
}

/// The newest update of k3s on this node, under way or done; there is no file before the first one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct K3sUpdate {
    /// How far it is.
    pub stage: K3sStage,
    /// The version that `KubeConfig` named before it; empty for the one of the image.
    pub from: String,
    /// The version that it leads to.
    pub to: String,
    /// `/persist/vault/k3s-user-override.yaml` changes with it.
    #[serde(rename = "Override")]
    pub changes_override: bool,
    /// When it was first wanted.
    pub since: GoTime,
    /// When it was published; zero before.
    pub applied_at: GoTime,
    /// The same by the monotonic clock of the boot `BootID`, in milliseconds.
    pub applied_ms: u64,
    /// The boot in which it was written.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When the monotonic clock started, by the wall clock that these times were made with.
    pub booted_at: GoTime,
    /// How often its turn and drain were asked for.
    pub attempts: u32,
    /// Why it was applied without its drain, or empty.
    pub skip: String,
    /// After a failure somebody took its turn away: it holds nothing any more.
    pub released: bool,
    /// What it waits for, in words, or empty.
    pub waiting_for: String,
    /// What a person can do.
    pub next_step: String,
}

impl K3sUpdate {
    /// Whether it was published, and the node is not known to be healthy with it.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        match self.stage {
            K3sStage::Waiting | K3sStage::Done => false,
            K3sStage::Applied => true,
            K3sStage::Failed => !self.released,
        }
    }
}

topic!(K3sUpdate: Persistent, cut from to boot_id skip waiting_for next_step);

/// How far an update of k3s is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum K3sStage {
    /// Held back until the turn and the drain of this node.
    #[default]
    Waiting,
    /// Published: the kube container carries it out.
    Applied,
    /// It was not seen to be carried out in time. The turn of this node stays.
    Failed,
    /// The kubelet reports it, and the node is healthy.
    Done,
}
