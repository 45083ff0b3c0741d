//! The facts behind the statistics of a cluster, kept up to date by watches.
//!
//! Not here: the published shape (`stats`). Each collection is a part of its own: a failing one affects no other.

mod facts;
mod follow;
mod gathering;
mod groups;
mod objects;
mod parts;

pub use facts::{
    ClaimFact, ClusterFacts, DaemonSet, Detail, EngineFact, ObjectTable, PodFact, Replica, Snapshot,
    StorageNode, Vm, Volume,
};
pub(crate) use follow::{FactItem, ObjectFact, SLOT};
pub use gathering::{Gathering, PartUpdate};
pub use parts::{Collection, CollectionState, LAST_GOOD, Parts};
