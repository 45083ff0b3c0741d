//! Whether this node belongs to a cluster, and by which config, as zedkube has decided it.
//!
//! Pure: no clock, no I/O, no task.

use std::sync::Arc;

use topics::EdgeNodeClusterConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Membership {
    /// Undecided or unknown: the former value holds.
    #[default]
    Undecided,
    Member,
    /// Its config no longer names a cluster, and it is being taken out. No drain begins until it has left.
    Leaving,
    Outside,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterMembership {
    pub membership: Membership,
    /// The last decided config.
    pub config: Option<Arc<EdgeNodeClusterConfig>>,
    /// While leaving, the config of the cluster to leave.
    pub left: Option<Arc<EdgeNodeClusterConfig>>,
}
