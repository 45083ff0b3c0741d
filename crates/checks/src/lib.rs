//! Findings against an operation on a node or a site, and the rules and readers that make them.
//!
//! `finding` is their type; `cluster` reads the cluster before an operation, `local` this machine, `verify` both after
//! an outage; the other modules are pure rules. Who may call: `outage` before the whole site goes down, `kubenodeop`
//! and `zedkube` before a drain, `zedbox`. Not here: consequences of a finding. Reads only.

pub mod certificates;
pub mod cluster;
mod finding;
pub mod local;
pub mod network;
pub mod nodes;
pub mod storage;
pub mod verify;
pub mod workloads;

pub use finding::{Finding, IllObject, Severity, blocking, settled};

/// Codes of findings before a drain.
pub const DRAIN_CODES: [&str; 18] = [
    "nodes",
    "cordons",
    "etcd",
    "snapshot",
    "certificates",
    "volumes",
    "rebuilds",
    "backups",
    "machines",
    "room",
    "disk",
    "clock",
    "turns",
    "token",
    "lvm",
    "address",
    "evictions",
    "last-copy",
];
/// Those that stop a drain by default.
pub const DRAIN_STOPS: [&str; 3] = ["backups", "token", "last-copy"];
