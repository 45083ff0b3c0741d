//! What a node says of itself to its peers: whether its etcd is healthy, and whether it needs its turn to be down.
//!
//! A shape of our own, served as `GET /outage` of the status server and never written to a file. Pure: no clock, no
//! I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::topic;

/// The answer to `GET /outage`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeOutage {
    /// Name of its Node object.
    pub node: String,
    /// Its own member of etcd; null on a node without one.
    pub etcd: Option<EtcdMember>,
    /// Its turn to be down.
    pub turn: TurnWord,
}

/// A member of etcd, as its own node reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EtcdMember {
    /// Its id in hexadecimal digits, or empty while it cannot be read.
    pub member: String,
    /// It is started and ready, knows a leader, votes, and has no alarm.
    pub healthy: bool,
    /// Why not, or empty.
    pub why: String,
    /// It leads.
    pub leads: bool,
}

/// Whether a node needs its turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct TurnWord {
    /// It neither has nor wants a turn; false while that is not known.
    pub idle: bool,
    /// Number of the turn that it has, or 0.
    pub fence: u32,
}

topic!(NodeOutage: Volatile);
