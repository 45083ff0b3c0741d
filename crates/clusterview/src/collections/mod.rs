//! What the statistics of a cluster are made of, kept up to date by watches.
//!
//! Not here: the shape that is published and its rules; `stats` folds the facts. Sources: spec/agents.md 4.11, goals
//! L6. Each collection is a part of its own: one that fails takes no other with it.

mod facts;
mod follow;
mod gathering;
mod groups;
mod longhorn;
mod objects;
mod parts;
mod quantity;

pub use facts::{
    ClaimFact, ClusterFacts, DaemonSet, Detail, EngineFact, ObjectTable, PodFact, Replica, Snapshot,
    StorageNode, Vm, Volume,
};
pub(crate) use follow::{FactItem, ObjectFact, SLOT};
pub use gathering::{Gathering, PartUpdate};
pub use parts::{Collection, CollectionState, LAST_GOOD, Parts};
