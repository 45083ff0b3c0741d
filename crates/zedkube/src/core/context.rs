//! What all parts of the core share: limits, the boot and its wall clock, and where this node belongs.
//!
//! Every time that a person reads is made from a monotonic one, and made again when the wall clock is set. No decision
//! depends on it. Not here: who notices that it was set (`agent::Clock`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use nodestatus::Membership;
use step::Mono;
use topics::{ClusterKnown, GoTime};

use crate::core::facts::Learned;
use crate::core::turn::Turns;
use crate::limits::Limits;

/// A clock that was moved by less was not set: the journal of an earlier run is not written again for that.
const SET: Duration = Duration::from_millis(500);

/// What all parts of the core share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeContext {
    pub(crate) limits: Limits,
    pub(crate) boot_id: String,
    /// When the monotonic clock started, by the wall clock.
    pub(crate) booted_at: GoTime,
    pub(crate) member: Membership,
    /// What a whole-site operation holds it to.
    pub(crate) site: super::site::SiteState,
    /// What an update of k3s says of it.
    pub(crate) k3s: super::k3s::K3sHold,
    /// Whether the name of our Node object is known.
    pub(crate) node_known: bool,
    /// The turn of this node to be down.
    pub(crate) turn: Turns,
    /// The hooks of this node.
    pub(crate) hooks: super::drain::HookState,
    /// Whether drains may start by the clock.
    pub(crate) window: super::drain::WindowState,
    /// What is known of the cluster, also of earlier boots.
    pub(crate) known: ClusterKnown,
}

impl NodeContext {
    /// The turn in which it may be cordoned; `None` while it has to wait for one.
    pub(crate) fn grant(&self) -> Option<super::facts::CordonTurn> {
        if self.limits.take_turns { self.turn.held() } else { Some(super::facts::CordonTurn::default()) }
    }

    /// Hears what was read of the cluster.
    pub(crate) fn learn(&mut self, learned: Learned) {
        let Learned { server, alone, servers, volume, addresses } = learned;
        let role = if server { "server" } else { "worker" }.to_owned();
        let servers_out = std::mem::take(&mut self.known.servers_out);
        self.known = ClusterKnown { role, alone, servers, servers_out, volume, addresses };
    }

    /// What the wall clock of now shows for a point in this boot.
    pub(crate) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The monotonic clock started then, by the wall clock of now. If it was set, returns the start as it was known
    /// before: what was written by that one has to move.
    pub(crate) fn set_clock(&mut self, booted_at: GoTime) -> Option<GoTime> {
        let was_set = self.booted_at.apart(booted_at) >= SET;
        was_set.then(|| std::mem::replace(&mut self.booted_at, booted_at))
    }
}
