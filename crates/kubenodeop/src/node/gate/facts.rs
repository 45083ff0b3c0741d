//! What is seen of a node and its cluster after a boot, as the gate takes it in.
//!
//! Not here: reading it (`boot`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use super::Layer;
use crate::node::cordon::CordonSeen;
use crate::storage::{VolumesBefore, VolumesSeen};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateFact {
    /// The device nodes that are missing.
    Devices(Vec<String>),
    /// What is wrong with the wall clock; empty for nothing.
    Clock(String),
    /// Whether the API answers, or how it does not.
    Service(Result<(), String>),
    /// A call to the API failed, with this text. What is known of an API that is away stays as it is: many calls
    /// fail then, each with another text.
    Away(String),
    /// What the API itself waits for, seen from this node; empty for nothing.
    Waits(String),
    /// Wanted kernel parameters that this boot is without.
    Lost(Vec<String>),
    /// The addresses of the node before this boot; empty where they are not known.
    Known(Vec<String>),
    /// What is wrong with the container runtime; empty for nothing, and where it cannot be asked at all.
    Runtime(String),
    /// The leases of virtual IPs; none without kube-vip.
    Network(Vec<VirtualIp>),
    Node(GateNode),
    Lease(LeaseSeen),
    /// Storage pods on it that are crash-looping.
    Storage(Vec<String>),
    /// Storage pods on it that have no address in the network that they ask for.
    Unconnected(Vec<String>),
    /// Pods of kube-system on it that are not Ready.
    System(Vec<String>),
    /// Pods that belong on it and were not put there.
    Pending(Vec<String>),
    /// Virtual machines that belong on it and are not up.
    Machines(Vec<String>),
    /// What the probes of the site find, each with what a person can do; empty for nothing, and where there are none.
    Probes(Vec<(String, String)>),
    /// Volumes of the cluster that are not well.
    Volumes(VolumesSeen),
    /// A layer cannot be looked at, though the API answers.
    Trouble(Layer, String),
}

impl GateFact {
    /// Whether it can only be known from an answer of the API.
    pub(super) const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Node(_)
                | Self::Lease(_)
                | Self::Storage(_)
                | Self::Unconnected(_)
                | Self::System(_)
                | Self::Network(_)
                | Self::Pending(_)
                | Self::Machines(_)
                | Self::Volumes(_)
                | Self::Trouble(..)
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateNode {
    /// Empty when Ready, else what its condition says.
    pub not_ready: String,
    /// Taints of an outage that are on it, as `node.kubernetes.io/unreachable:NoExecute`.
    pub taints: Vec<String>,
    /// Other taints that keep pods away from it, and that most nodes do not have: what was seen, and what a person can do.
    pub unusual: Option<(String, String)>,
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

/// The lease of a virtual IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualIp {
    /// As `kube-system/plndr-cp-lock`.
    pub lease: String,
    /// The node that holds it, or empty.
    pub holder: String,
    pub ready: bool,
    /// Its time of renewal as text: compared with nothing but the one before it.
    pub renewed: String,
    /// Where this node holds it: its addresses that this machine has on no interface.
    pub absent: Vec<String>,
}
