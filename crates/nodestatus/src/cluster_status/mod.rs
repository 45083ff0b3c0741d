//! EdgeNodeClusterStatus, from EdgeNodeClusterConfig and DeviceNetworkStatus.
//!
//! Not here: leaving the cluster (spec/agents.md 4.8), and the server at its address (`server`).

mod balance;
mod follow;
mod rules;

pub(crate) use follow::Speaker;
pub(crate) use rules::NodeAddress;
pub use rules::{ClusterMembership, Membership};
