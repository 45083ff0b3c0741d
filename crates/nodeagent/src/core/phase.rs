//! The phase of an operation. Pure: no clock, no I/O, no task.
//!
//! ```text
//! Idle ─► Delay ─► Halting ─► Settling ─► Syncing ─► Checking ─► Looking ─► Asked ─► Obeyed ─► Leaving  (reboot, power-off)
//!            30 s    ≤ 300 s      30 s      ▲ ≤ 120 s   │     60 s │          │   120 s
//!                       │          30 s Held┘◄──────────┴──────────┘          │
//!                       └─────────────► Syncing ─► Checking ─► Looking ─► Asked ─► Down    (shutdown; a stand-in)
//!                                           ▲                                 │
//!                                    Refused┘◄────────────────────────────────┘ 30 s
//!
//! Where there are hooks before a reboot, they are called once, for 30 min at most, in the place of the first Syncing.
//! A restart on the agent's own account waits for its turn before Delay, and again in Turning in the place of Checking.
//! ```

use agent::device::MachineOperation;
use step::Mono;

use super::MachineOrder;

/// Each with its valid data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum OrderPhase {
    #[default]
    Idle,
    /// Latched and published; other agents get time to end in order.
    Delay {
        order: MachineOrder,
        until: Mono,
    },
    /// The reason is stored; applications halt.
    Halting {
        order: MachineOrder,
        until: Mono,
        tell_at: Mono,
    },
    /// All applications are down, or no longer waited for.
    Settling {
        order: MachineOrder,
        until: Mono,
    },
    /// The hooks before a reboot run, with a limit.
    Hooks {
        order: MachineOrder,
        until: Mono,
        /// Of the last try, or empty.
        trouble: String,
    },
    /// Everything is synced, with a limit: nothing slow may come after the last look.
    Syncing {
        order: MachineOrder,
        until: Mono,
    },
    /// zedkube's present status is being read.
    Checking {
        order: MachineOrder,
        /// Why zedkube is no longer asked.
        unasked: String,
    },
    /// zedkube was asked whether the machine may go down now, and may answer until then.
    Looking {
        order: MachineOrder,
        until: Mono,
    },
    /// A restart on our own account is about to happen, as soon as it is its turn, or the wait ends.
    Turning {
        order: MachineOrder,
    },
    /// The node is being drained again, or zedkube holds it back: checked at each change, and then.
    Held {
        order: MachineOrder,
        again_at: Mono,
    },
    /// The device was asked. `leave_at`: a machine that is up then will not go down by itself.
    Asked {
        order: MachineOrder,
        leave_at: Option<Mono>,
    },
    /// The device obeys.
    Obeyed {
        order: MachineOrder,
        leave_at: Mono,
    },
    Refused {
        order: MachineOrder,
        again_at: Mono,
    },
    /// Carried out, and the machine is up by intention.
    Down {
        order: MachineOrder,
    },
    /// The machine did not go down; the agent ends.
    Leaving {
        order: MachineOrder,
    },
}

impl OrderPhase {
    pub(super) const fn order(&self) -> Option<&MachineOrder> {
        match self {
            Self::Idle => None,
            Self::Delay { order, .. }
            | Self::Halting { order, .. }
            | Self::Settling { order, .. }
            | Self::Hooks { order, .. }
            | Self::Syncing { order, .. }
            | Self::Checking { order, .. }
            | Self::Looking { order, .. }
            | Self::Turning { order }
            | Self::Held { order, .. }
            | Self::Asked { order, .. }
            | Self::Obeyed { order, .. }
            | Self::Refused { order, .. }
            | Self::Down { order }
            | Self::Leaving { order } => Some(order),
        }
    }

    /// The machine itself is about to go down, irrevocably.
    pub(super) fn going_down(&self) -> bool {
        self.order().is_some_and(|order| order.operation != MachineOperation::Shutdown)
    }

    pub(super) const fn is_asked(&self) -> bool {
        matches!(self, Self::Asked { .. } | Self::Obeyed { .. } | Self::Down { .. } | Self::Leaving { .. })
    }

    pub(super) fn due(&self) -> Option<Mono> {
        match self {
            Self::Delay { until, .. }
            | Self::Settling { until, .. }
            | Self::Hooks { until, .. }
            | Self::Syncing { until, .. }
            | Self::Looking { until, .. } => Some(*until),
            Self::Halting { until, tell_at, .. } => Some(*until.min(tell_at)),
            Self::Asked { leave_at, .. } => *leave_at,
            Self::Obeyed { leave_at, .. } => Some(*leave_at),
            Self::Held { again_at, .. } | Self::Refused { again_at, .. } => Some(*again_at),
            Self::Idle
            | Self::Checking { .. }
            | Self::Turning { .. }
            | Self::Down { .. }
            | Self::Leaving { .. } => None,
        }
    }
}
