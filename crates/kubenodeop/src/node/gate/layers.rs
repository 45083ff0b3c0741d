//! The layers of the gate after a boot, lowest first, and how long each may take.
//!
//! Not here: what a layer wants (`gate`). Pure: no clock, no I/O, no task.

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

/// How long a layer may take before it counts as failed, and how long things must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerLimits {
    /// Of each layer that has one, in their order; those from [`Layer::System`] on hold the turn of the node so long.
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
            // Device nodes, clock, API; node, lease, runtime; network, storage, volumes; system, machines, probes.
            layers: [1, 5, 10, 10, 2, 5, 10, 10, 10, 15, 5, 5].map(Duration::from_mins),
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
