//! EdgeNodeClusterStatus: this node in its cluster, out of EdgeNodeClusterConfig and DeviceNetworkStatus.
//!
//! Not here: leaving the cluster (spec/agents.md 4.8), and the server whose place comes out of this (`server`).

mod balance;
mod follow;
mod rules;

pub(crate) use follow::Speaker;
pub(crate) use rules::NodeAddress;
