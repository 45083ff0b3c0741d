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

use step::Mono;

use super::MachineOrder;

/// The operation that the machine is taken through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LatchedOrder {
    pub(super) order: MachineOrder,
    pub(super) phase: OrderPhase,
}

/// How far it is, each with its valid data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OrderPhase {
    /// Latched and published; other agents get time to end in order.
    Delay {
        until: Mono,
    },
    /// The reason is stored; applications halt.
    Halting {
        until: Mono,
        tell_at: Mono,
    },
    /// All applications are down, or no longer waited for.
    Settling {
        until: Mono,
    },
    /// The hooks before a reboot run, with a limit; the trouble is of the last try, or empty.
    Hooks {
        until: Mono,
        trouble: String,
    },
    /// Everything is synced, with a limit: nothing slow may come after the last look.
    Syncing {
        until: Mono,
    },
    /// zedkube's present status is being read; why zedkube is no longer asked.
    Checking {
        unasked: String,
    },
    /// zedkube was asked whether the machine may go down now, and may answer until then.
    Looking {
        until: Mono,
    },
    /// A restart on our own account is about to happen, as soon as it is its turn, or the wait ends.
    Turning,
    /// The node is being drained again, or zedkube holds it back: checked at each change, and then.
    Held {
        again_at: Mono,
    },
    /// The device was asked. `leave_at`: a machine that is up then will not go down by itself.
    Asked {
        leave_at: Option<Mono>,
    },
    /// The device obeys.
    Obeyed {
        leave_at: Mono,
    },
    Refused {
        again_at: Mono,
    },
    /// Carried out, and the machine is up by intention.
    Down,
    /// The machine did not go down; the agent ends.
    Leaving,
}

impl LatchedOrder {
    pub(super) const fn is_asked(&self) -> bool {
        use OrderPhase::{Asked, Down, Leaving, Obeyed};
        matches!(self.phase, Asked { .. } | Obeyed { .. } | Down | Leaving)
    }
}

impl OrderPhase {
    pub(super) fn due(&self) -> Option<Mono> {
        match self {
            Self::Delay { until: at }
            | Self::Settling { until: at }
            | Self::Hooks { until: at, .. }
            | Self::Syncing { until: at }
            | Self::Looking { until: at }
            | Self::Obeyed { leave_at: at }
            | Self::Held { again_at: at }
            | Self::Refused { again_at: at } => Some(*at),
            Self::Halting { until, tell_at } => Some(*until.min(tell_at)),
            Self::Asked { leave_at } => *leave_at,
            Self::Checking { .. } | Self::Turning | Self::Down | Self::Leaving => None,
        }
    }
}
