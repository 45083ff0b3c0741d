//! The gate after a boot as a list: its layers, lowest first, what one that is not healthy does, and for how long at most.
//!
//! Not here: what is looked at (`checks`), judging (`gate`). Pure: no clock, no I/O, no task.

use std::time::Duration;

step::named! {
    /// What must be healthy, lowest first.
    pub enum Layer {
        /// Device nodes are there.
        Devices = "device-nodes",
        /// The wall clock is not known to be wrong.
        Clock = "clock",
        /// The Kubernetes API answers.
        Service = "kubernetes-service",
        /// Our node is Ready.
        Node = "node-ready",
        /// Its kubelet renews the node lease.
        Lease = "node-lease",
        /// The container runtime answers, where it has a socket.
        Runtime = "runtime",
        /// Each virtual IP has a holder that is Ready, and the node has the addresses that it had.
        Network = "network",
        /// No pod on it that gives volumes is crash-looping.
        Storage = "storage-pods",
        /// No volume is faulted that was healthy before.
        Volumes = "storage-volumes",
        /// The pods of kube-system that belong here are Ready, and none waits for a port or a taint.
        System = "system-pods",
        /// The virtual machines that belong here are up.
        Machines = "machines",
        /// What the probes file names answers.
        Probes = "probes",
        /// All that has held for the set time.
        Steady = "steady",
    }
}

/// What follows while a layer is not healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerHold {
    /// The gate is shut. After the limit that counts as failed, and nothing else follows.
    Shuts,
    /// The gate is shut until the limit, then it is a warning: one reading that is false, or that nobody may make, must not
    /// keep a healthy node cordoned.
    ShutsUntilLimit,
    /// The node keeps its turn until the limit, then it is a warning; the gate is not shut.
    KeepsTurn,
}

/// Each layer with its hold and its limit, in minutes.
pub(super) const GATE: [(Layer, LayerHold, u64); Layer::Steady as usize] = [
    (Layer::Devices, LayerHold::Shuts, 1),
    (Layer::Clock, LayerHold::ShutsUntilLimit, 5),
    (Layer::Service, LayerHold::Shuts, 10),
    (Layer::Node, LayerHold::Shuts, 10),
    (Layer::Lease, LayerHold::Shuts, 2),
    (Layer::Runtime, LayerHold::ShutsUntilLimit, 5),
    (Layer::Network, LayerHold::ShutsUntilLimit, 10),
    (Layer::Storage, LayerHold::Shuts, 10),
    (Layer::Volumes, LayerHold::ShutsUntilLimit, 10),
    (Layer::System, LayerHold::KeepsTurn, 15),
    (Layer::Machines, LayerHold::KeepsTurn, 5),
    (Layer::Probes, LayerHold::KeepsTurn, 5),
];

/// How long a layer may take before it counts as failed, and how long things must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerLimits {
    /// Of each layer that has one, in their order.
    pub layers: [Duration; Layer::Steady as usize],
    /// How long degraded volumes hold the turn of the node.
    pub degraded: Duration,
    /// How long all layers must hold before the gate opens.
    pub hold: Duration,
    /// How long the lease must have been renewed before stale taints are removed.
    pub taints: Duration,
    /// How often everything is looked at without an event.
    pub look: Duration,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self {
            layers: GATE.map(|(_, _, minutes)| Duration::from_mins(minutes)),
            degraded: Duration::from_mins(10),
            hold: Duration::from_secs(5),
            taints: Duration::from_mins(1),
            look: Duration::from_mins(2),
        }
    }
}

impl LayerLimits {
    /// The layer's own; `None` for one that only takes its time.
    pub fn of(&self, layer: Layer) -> Option<Duration> {
        self.layers.get(layer as usize).copied()
    }
}
