//! The last question before the machine goes down, and its answer. Topics of our own, as in `progress`:
//! nodeagent asks, zedkube checks the turn of this node and answers. Not used beside a zedkube of the
//! reference.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Requester, topic};

/// What nodeagent asks zedkube before the machine goes down, and why it is not down yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OutageQuestion {
    /// Number of the question, rising within a boot: the monotonic clock in microseconds. 0 before the first.
    pub number: u64,
    /// What is asked.
    pub kind: OutageKind,
    /// What the device is about to be asked for: `reboot`, `shutdown` or `poweroff`.
    pub op: String,
    /// In whose name the node was drained; 0 where nobody asked for a drain.
    pub requested_by: Requester,
    /// Why the operation is held back, in one sentence; empty while it is not.
    pub held: String,
    /// What a person can do then.
    pub next_step: String,
}

topic!(OutageQuestion: Volatile, cut op held next_step);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutageKind {
    /// Nothing, or nothing any more.
    #[default]
    None,
    /// The node was drained: whether it may go down now.
    LastLook,
    /// A restart on nodeagent's own account: a turn for it, and whether it may go down now.
    Turn,
    /// A restart that does not wait any longer: it is to be written down for the others.
    Emergency,
}

/// What zedkube answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OutageAnswer {
    /// Number of the question that this answers; 0 before the first.
    pub number: u64,
    /// The answer.
    pub verdict: OutageVerdict,
    /// Why, in one sentence.
    pub why: String,
    /// What a person can do about `hold`.
    pub next_step: String,
    /// `go` although the Lease of turns could not be read: nodeagent notes `Why` in the reason of the reboot.
    pub unread: bool,
    /// The place of this node in the queue, from 1; 0 while it is in none.
    pub place: u32,
    /// What this node is to its cluster, which counts while zedkube does not answer.
    pub role: OutageRole,
}

topic!(OutageAnswer: Volatile, cut why next_step);

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutageVerdict {
    /// None yet.
    #[default]
    Unknown,
    /// Go down now.
    Go,
    /// Not now; ask again.
    Hold,
}

/// What a node is to its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutageRole {
    /// Not known: it counts as a server.
    #[default]
    Unknown,
    /// In no cluster, or its nodes take no turns: nothing has to be asked.
    None,
    /// It has no part in the control plane.
    Worker,
    /// A control-plane node or a member of etcd.
    Server,
}
