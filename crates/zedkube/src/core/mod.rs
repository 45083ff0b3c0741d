//! What zedkube decides about the drain of its node. Pure: no clock, no I/O, no task.

mod answers;
mod cleanup;
mod context;
mod drain;
mod facts;
mod last_look;
mod machine;
mod records;
mod view;

#[cfg(test)]
mod tests;

pub use clusterview::leader::Candidacy;
pub use facts::{
    ClosedWindow, CordonFailure, CordonTurn, Effect, Event, Force, K3sHold, Learned, NodeLook, Pass,
    RemainingPod, RunId, SiteHold, StartObstacle, UnansweredCall, UndoScope,
};
pub use machine::Zedkube;
pub use nodestatus::Membership;
pub(crate) use records::{short, shorten};
