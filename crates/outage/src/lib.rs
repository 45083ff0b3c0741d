//! Which node may be down now, whether the cluster can spare this node, and how a whole site goes down and comes back.
//!
//! Callers: `zedkube`, which composes, and `zedbox` for `lock` and `site`. Not here: drains, the Node object of this
//! node, settings.

pub mod calls;
pub mod failover;
pub mod findings;
pub mod keeper;
pub mod margin;
pub mod operator;
pub mod site;
#[cfg(test)]
mod tests;
pub mod trial;
pub mod turn;

use kubeapi::NodeName;

use margin::calls::EtcdAccess;

/// This node, as the device knows it.
#[derive(Debug, Clone)]
pub struct Ours {
    pub node: NodeName,
    pub device_uuid: String,
    pub boot_id: String,
    pub etcd: EtcdAccess,
    /// TCP port at which the agents of nodes answer each other.
    pub port: u16,
}
