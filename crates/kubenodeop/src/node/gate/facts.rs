//! What is seen of a node and its cluster after a boot, as the gate takes it in.
//!
//! Not here: reading it (`boot`), the sentences (crate `checks`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use checks::Finding;
use checks::network::VirtualIp;

use super::Layer;
use crate::node::cordon::CordonSeen;
use crate::storage::{VolumesBefore, VolumesSeen};

/// What is looked at for a layer, beside API, node, lease and volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Device nodes that are missing.
    Devices,
    /// What is wrong with the wall clock.
    Clock,
    /// Taints that keep pods away from our node, that most nodes do not have, and that nobody here removes.
    Taints,
    /// Other addresses of the node than before this boot.
    Addresses,
    Runtime,
    /// The leases of virtual IPs.
    VirtualIps,
    /// Storage pods on our node without an address in the network that they ask for.
    Unconnected,
    /// Storage pods on it that are crash-looping.
    CrashLoops,
    /// Pods of kube-system on it that are not Ready.
    SystemPods,
    /// Pods that belong on it and were not put there.
    Pending,
    /// Virtual machines that belong on it and are not up.
    Machines,
    /// What the probes of the site find.
    Probes,
}

impl Check {
    /// Those of which nothing is known at first; what it is that cannot be read, and how it is looked at by hand.
    pub(super) const UNKNOWN: [(Self, &'static str, &'static str); 6] = [
        (Self::Runtime, "the container runtime", "look at `crictl ps`"),
        (
            Self::VirtualIps,
            "leases of virtual IPs",
            "look at `kubectl -n kube-system get lease plndr-cp-lock plndr-svcs-lock`",
        ),
        (Self::CrashLoops, "pods of this node", "look at `kubectl get pods -A` of this node"),
        (
            Self::Pending,
            "pods that no node has taken",
            "look at `kubectl get pods -A --field-selector status.phase=Pending`",
        ),
        (Self::Machines, "virtual machines", "look at `kubectl get vmi -A`"),
        (Self::Probes, "probes", "`zedbox verify` tries them as well"),
    ];
    /// Those of what is put on a node: what was seen before it was Ready says nothing of now.
    pub(super) const UPPER: [Self; 3] = [Self::Pending, Self::Machines, Self::Probes];

    /// Whether it is a warning at once, and no more.
    pub(super) const fn warns(self) -> bool {
        matches!(self, Self::Taints | Self::Addresses)
    }

    pub(super) const fn layer(self) -> Layer {
        match self {
            Self::Devices => Layer::Devices,
            Self::Clock => Layer::Clock,
            Self::Taints => Layer::Node,
            Self::Runtime => Layer::Runtime,
            Self::Addresses | Self::VirtualIps | Self::Unconnected => Layer::Network,
            Self::CrashLoops => Layer::Storage,
            Self::SystemPods | Self::Pending => Layer::System,
            Self::Machines => Layer::Machines,
            Self::Probes => Layer::Probes,
        }
    }

    /// That it was not read, or cannot be.
    pub(crate) fn unread(self, why: &str) -> Vec<Finding> {
        let of = Self::UNKNOWN.into_iter().find(|(it, ..)| *it == self);
        let (_, what, next) = of.unwrap_or((self, self.layer().text(), ""));
        vec![Finding { unread: true, ..Finding::new(self.layer().text(), format!("{what}: {why}"), next) }]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateFact {
    /// What a check finds now; nothing when all is well, and where there is nothing to look at.
    Found(Check, Vec<Finding>),
    /// A call to the API failed, with this text. What is known of an API that is away stays as it is: many calls
    /// fail then, each with another text.
    Away(String),
    /// What the API itself waits for, seen from this node; empty for nothing.
    Waits(String),
    /// The leases of virtual IPs; none without kube-vip.
    VirtualIps(Result<Vec<VirtualIp>, String>),
    Node(Result<GateNode, String>),
    Lease(Result<LeaseSeen, String>),
    /// Volumes of the cluster that are not well.
    Volumes(Result<VolumesSeen, String>),
}

impl GateFact {
    /// Whether it can only be known from an answer of the API.
    pub(super) const fn is_answer(&self) -> bool {
        match self {
            Self::Found(check, _) => {
                !matches!(check, Check::Devices | Check::Clock | Check::Runtime | Check::Probes)
            }
            Self::Away(_) | Self::Waits(_) => false,
            Self::VirtualIps(_) | Self::Node(_) | Self::Lease(_) | Self::Volumes(_) => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateNode {
    /// Empty when Ready, else what its condition says.
    pub not_ready: String,
    /// Taints of an outage that are on it, as `node.kubernetes.io/unreachable:NoExecute`.
    pub taints: Vec<String>,
    /// Other taints that keep pods away from it, and that most nodes do not have.
    pub unusual: Vec<Finding>,
    /// Its addresses of the type `InternalIP`.
    pub addresses: Vec<String>,
    pub cordon: CordonSeen,
    /// Its volumes before the outage, where a drain has recorded them.
    pub volumes: Option<VolumesBefore>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Its time of renewal as text: compared with nothing but the one before it.
    pub renewed: String,
    pub lasts: Duration,
}
