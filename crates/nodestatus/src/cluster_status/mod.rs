//! EdgeNodeClusterStatus, from EdgeNodeClusterConfig and DeviceNetworkStatus.
//!
//! Not here: leaving the cluster, and the server at its address (`server`).

mod balance;
mod follow;
#[cfg(test)]
pub(crate) use follow::tests::Node;
mod rules;

pub(crate) use follow::Speaker;
pub(crate) use rules::NodeAddress;
pub use rules::{ClusterMembership, Membership};
