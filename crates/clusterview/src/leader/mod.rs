//! This node's part in the election of the node that reports on the cluster.
//!
//! Not here: the rules of the lease (`crate::lease`), what the leader reports. Sources: spec/agents.md 4.10,
//! spec/topics.md (KubeLeaderElectInfo), goals L1 to L5.

mod candidacy;
mod core;
mod door;
mod shell;
#[cfg(test)]
mod tests;

pub use candidacy::Candidacy;
pub use core::Leadership;
pub use door::Door;
pub use shell::Leader;
