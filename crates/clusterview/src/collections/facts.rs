//! As much of each object as the statistics need, so that thousands of them are small in memory.
//!
//! Words are as the API says them: what they mean is decided where they are folded. What an object does not say is
//! empty, zero or `None`. Source: spec/agents.md 4.11.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubeapi::nodes::Node;

/// Objects by namespace and name; the namespace is empty where there is none.
pub type ObjectTable<T> = BTreeMap<(String, String), T>;

/// All that is known of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterFacts {
    pub nodes: ObjectTable<Node>,
    /// Pods of all namespaces.
    pub pods: ObjectTable<PodFact>,
    /// Virtual machine instances of applications.
    pub vms: ObjectTable<Vm>,
    pub claims: ObjectTable<ClaimFact>,
    pub daemon_sets: ObjectTable<DaemonSet>,
    pub volumes: ObjectTable<Volume>,
    /// Replicas of Longhorn's volumes.
    pub replicas: ObjectTable<Replica>,
    /// Engines of Longhorn's volumes.
    pub engines: ObjectTable<EngineFact>,
    /// Snapshots of Longhorn's volumes.
    pub snapshots: ObjectTable<Snapshot>,
    /// Longhorn's view of the nodes.
    pub storage_nodes: ObjectTable<StorageNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodFact {
    pub phase: String,
    /// What more is known of it.
    pub detail: Detail,
}

/// What more is known of a pod, by its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Detail {
    /// It is only counted.
    #[default]
    Counted,
    /// In the namespace of applications.
    App {
        /// Restarts of all its containers.
        restarts: i32,
        /// The last end of any of its containers.
        restarted: Option<Timestamp>,
        /// When the pod was made.
        created: Option<Timestamp>,
        ip: String,
        node: String,
    },
    /// In the namespace of Longhorn.
    Storage {
        /// The label `app`.
        app: String,
        /// Since when it is Ready.
        ready_since: Option<Timestamp>,
    },
}

/// A virtual machine instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vm {
    pub phase: String,
    /// When the object was made.
    pub created: Option<Timestamp>,
    /// Its condition Ready is true.
    pub ready: bool,
    /// Since when it is.
    pub ready_since: Option<Timestamp>,
    pub node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimFact {
    /// The volume that it is bound to.
    pub volume: String,
    pub phase: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// What it asks for, in bytes.
    pub requested_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSet {
    /// The value of `app` by which it selects its pods.
    pub app: String,
    /// How many of its pods should run.
    pub desired: u64,
    /// How many of them are Ready.
    pub ready: u64,
}

/// A volume of Longhorn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// `attached`, `detached` and so on.
    pub state: String,
    /// `healthy`, `degraded`, `faulted`, `unknown`.
    pub robustness: String,
    /// Its size on disk, in bytes.
    pub actual_bytes: u64,
}

/// A replica of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    pub volume: String,
    /// The engine that uses it.
    pub engine: String,
    /// `running`, `stopped` and so on.
    pub state: String,
    /// The node that it is on, empty while it is on none.
    pub owner: String,
    /// Where the engine reaches it, as `10.42.0.7:10000`.
    pub address: String,
    /// It has been on a node at all: one that was never placed says nothing to anybody.
    pub placed: bool,
}

/// An engine of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineFact {
    /// By replica how it is used: `RW`, `WO` while it is filled, `ERR`.
    pub modes: BTreeMap<String, String>,
    /// By replica where it is reached.
    pub addresses: BTreeMap<String, String>,
    /// By `tcp://` and address how far a replica is filled, in percent.
    pub rebuilt: BTreeMap<String, u8>,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub volume: String,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// A node as Longhorn sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageNode {
    /// One of its disks takes no replica.
    pub disk_unschedulable: bool,
}
