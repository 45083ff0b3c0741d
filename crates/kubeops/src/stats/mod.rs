//! What the statistics of a cluster are made of, kept up to date by watches.
//!
//! Not here: the shape that is published and its rules; zedkube folds the facts. Sources: spec/agents.md 4.11, goals
//! L6. Each collection is a part of its own: one that fails takes no other with it.

mod facts;
mod follow;
mod gathering;
mod groups;
mod longhorn;
mod members;
mod objects;
mod parts;
mod quantity;

pub use facts::{
    Claim, DaemonSet, Detail, Engine, Facts, Node, Pod, Replica, Snapshot, StorageNode, Table, Vm, Volume,
};
pub use gathering::{Gathering, Told};
pub use members::{Member, members};
pub use parts::{LAST_GOOD, Part, Parts, State};

/// The namespace of applications.
pub const APP_NAMESPACE: &str = "eve-kube-app";
/// The namespace of Longhorn.
pub const STORAGE_NAMESPACE: &str = "longhorn-system";
