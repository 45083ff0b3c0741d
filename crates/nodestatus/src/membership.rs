//! Whether this node belongs to a cluster, and by which config, as zedkube has decided it.
//!
//! Pure: no clock, no I/O, no task.

use std::sync::Arc;

use topics::EdgeNodeClusterConfig;

/// Whether this node is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Membership {
    /// Not decided, or not heard: what was known holds.
    #[default]
    Undecided,
    Member,
    /// Its config says that it is in none any more, and it is being taken out. No drain begins until it has left.
    Leaving,
    /// It is in none.
    Outside,
}

/// Whether this node belongs to a cluster, and by which config.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterMembership {
    /// In, on its way out, or outside.
    pub membership: Membership,
    /// The last config that was decided upon.
    pub config: Option<Arc<EdgeNodeClusterConfig>>,
    /// On the way out, the config of the cluster that is being left.
    pub left: Option<Arc<EdgeNodeClusterConfig>>,
}
