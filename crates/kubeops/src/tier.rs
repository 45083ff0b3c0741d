//! The order in which pods leave: first those that nothing else on the node uses.
//!
//! Not here: reading pods. Source: goals D11. A tier is over when none of its pods is left on the node.
//! Pure: no clock, no I/O, no task.

/// Tiers leave in this order, each wholly before the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Tier {
    /// What the node is there for.
    #[default]
    Application,
    /// Gives addresses to applications: load balancers, DHCP, virtual IPs.
    Address,
    /// Gives them devices.
    Device,
    /// Gives them volumes.
    Storage,
    /// Gives them, and storage, a network.
    Network,
    /// Critical for the node or the cluster.
    System,
}

impl Tier {
    /// The word for files and logs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Address => "address",
            Self::Device => "device",
            Self::Storage => "storage",
            Self::Network => "network",
            Self::System => "system",
        }
    }
}
