//! A node that has gone silent: whether it may be dead, who vouches for that, and the one patch that lets its work move.
//!
//! `silence` judges what is seen of the nodes, `record` is what the Lease of turns says of nodes that a person has declared
//! dead, `rule` says what keeps a person from it, `calls` reads and writes, `act` brings an entry to its end. Nothing here
//! resets a machine, and nothing is declared without a person's word. Not here: what runs on a node (`kubenodeop`), its way
//! back (`kubenodeop::node`). Sources: the Kubernetes pages "Nodes" (heartbeats) and "Node Shutdowns" (non-graceful).

pub mod act;
pub mod calls;
pub mod record;
pub mod rule;
pub mod silence;
#[cfg(test)]
mod tests;

pub use crate::turn::record::{DeclaredNode, FailoverState};
