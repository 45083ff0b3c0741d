//! What all parts of the core share: limits, the boot and its wall clock, where this node belongs, and what is known of its
//! hooks and windows.
//!
//! Every time that a person reads is made from a monotonic one, and made again when the wall clock is set. No decision
//! depends on it. Not here: who notices that it was set (`agent::Clock`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use nodestatus::Membership;
use step::Mono;
use topics::{ClusterKnown, GoTime, OperationPause, PauseScope};

use super::facts::{ClosedWindow, CordonTurn, K3sHold, Learned, Pass};
use super::site::SiteState;
use super::turn::Turns;
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
    pub(crate) site: SiteState,
    /// What an update of k3s says of it.
    pub(crate) k3s: K3sHold,
    /// Whether the name of our Node object is known.
    pub(crate) node_known: bool,
    /// The turn of this node to be down.
    pub(crate) turn: Turns,
    /// The hooks of this node.
    pub(crate) hooks: HookState,
    /// Whether drains may start by the clock.
    pub(crate) window: WindowState,
    /// What is known of the cluster, also of earlier boots.
    pub(crate) known: ClusterKnown,
}

/// What is known of the hooks of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HookState {
    /// Those before a drain were called in this boot, and not undone.
    pub(crate) in_place: bool,
    /// They are being undone.
    pub(crate) undoing: bool,
    /// Those after the boot have not been called.
    pub(crate) after_boot: bool,
    /// What came of them, for a reader: who is refused, who failed without stopping anything.
    pub(crate) notes: Vec<String>,
}

/// What is known of the windows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WindowState {
    /// Why no drain starts; `None` while one may, and without windows.
    pub(crate) closed: Option<ClosedWindow>,
    pub(crate) pass: Option<Pass>,
    /// A person's pause; one that refuses the controller alone is its agents' to keep.
    pub(crate) pause: Option<OperationPause>,
}

impl WindowState {
    /// The pause that keeps every drain from starting.
    pub(crate) fn paused(&self) -> Option<&OperationPause> {
        self.pause.as_ref().filter(|it| it.scope == PauseScope::Node)
    }
}

impl NodeContext {
    /// The turn in which it may be cordoned; `None` while it has to wait for one.
    pub(crate) fn grant(&self) -> Option<CordonTurn> {
        if self.limits.take_turns { self.turn.held() } else { Some(CordonTurn::default()) }
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
