//! Objects reduced to what the statistics need, so that thousands of them are small in memory.
//!
//! Words are the API's; the fold interprets them. A missing member is empty, zero or `None`. Pure: no clock,
//! no I/O, no task.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubeapi::nodes::Node;
use step::LiteMap;

/// Objects by namespace and name; the namespace is empty where there is none.
pub type ObjectTable<T> = LiteMap<(String, String), T>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterFacts {
    pub nodes: ObjectTable<Node>,
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
    /// Nodes as Longhorn reports them.
    pub storage_nodes: ObjectTable<StorageNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodFact {
    pub phase: String,
    pub detail: Detail,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Detail {
    #[default]
    Counted,
    /// In the namespace of applications.
    App {
        /// Restarts of all its containers.
        restarts: i32,
        /// The last end of any of its containers.
        restarted: Option<Timestamp>,
        created: Option<Timestamp>,
        ip: String,
        node: String,
    },
    /// In the namespace of Longhorn.
    Storage { app: String, ready_since: Option<Timestamp> },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vm {
    pub phase: String,
    pub created: Option<Timestamp>,
    pub ready: bool,
    pub ready_since: Option<Timestamp>,
    pub node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimFact {
    /// Its bound volume.
    pub volume: String,
    pub phase: String,
    pub created: Option<Timestamp>,
    pub requested_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSet {
    /// Its pods' label `app`.
    pub app: String,
    /// How many of its pods should run.
    pub desired: u64,
    pub ready: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volume {
    /// `attached`, `detached` and so on.
    pub state: String,
    /// `healthy`, `degraded`, `faulted`, `unknown`.
    pub robustness: String,
    pub actual_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    pub volume: String,
    pub engine: String,
    /// `running`, `stopped` and so on.
    pub state: String,
    /// Its node, empty while it has none.
    pub owner: String,
    /// As `10.42.0.7:10000`.
    pub address: String,
    /// It has been on a node: others are ignored.
    pub placed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineFact {
    /// By replica: `RW`, `WO` while it is filled, `ERR`.
    pub modes: BTreeMap<String, String>,
    /// Address by replica.
    pub addresses: BTreeMap<String, String>,
    /// By `tcp://` and address: how far a replica is filled, in percent.
    pub rebuilt: BTreeMap<String, u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    pub volume: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageNode {
    /// One of its disks takes no replica.
    pub disk_unschedulable: bool,
}
