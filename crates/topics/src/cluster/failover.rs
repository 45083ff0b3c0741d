//! What hangs on a node that is dead, and where it runs by now. Pure: no clock, no I/O, no task.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A virtual machine, or a pod that Kubernetes does not make again before its object is gone or with a volume that is held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldWork {
    /// `machine` or `pod`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Names of the claims that it mounts: a pod of another name with the same ones is the same work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    /// The node where it runs again, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// So many seconds after the node was taken out of service, as the one saw it who looked.
    pub after_secs: u64,
    /// Why it does not run elsewhere, or will not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
}

impl HeldWork {
    /// The kind of a virtual machine, and of a pod.
    pub const MACHINE: &'static str = "machine";
    pub const POD: &'static str = "pod";
}

/// For a person: `machine shop/till`.
impl fmt::Display for HeldWork {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
