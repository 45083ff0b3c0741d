//! Election of one node by a Lease, compatible with candidates that run client-go.
//!
//! Not here: what the leader does, whether this node may be a candidate (`leader`). Pure: `record`,
//! `election`. Sources: spec/agents.md 4.10, goals L1 to L5, client-go's `leaderelection` package (rules, not
//! code).

mod calls;
mod election;
mod record;
#[cfg(test)]
mod tests;

pub use calls::{read, write};
pub use election::{Effect, Election, ElectionState, ElectionTimes, Event};
pub use record::{ElectionWrite, LeaseSnapshot};

/// In the namespace of applications.
pub const NAME: &str = "eve-kube-stats-leader";
