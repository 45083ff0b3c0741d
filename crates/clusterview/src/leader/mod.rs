//! This node's part in the election of the node that reports on the cluster.
//!
//! Not here: the rules of the lease (`crate::lease`), what the leader reports.

mod candidate;
mod shell;
#[cfg(test)]
mod tests;

pub use candidate::{Candidacy, Leadership};
pub use shell::{Door, Leader};
