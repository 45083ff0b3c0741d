//! Decisions of baseosmgr: which image is written and switched, and when.
//!
//! Pure: no clock, no I/O, no task.

mod drain;
mod event;
mod facts;
mod gate;
mod machine;
mod moves;
mod pause;
mod stage;
mod status;

pub use event::{
    Counter, Counters, Effect, Event, FallbackFrom, Found, LastBoot, Membership, Note, Order, Source, Why,
    Write,
};
pub use machine::BaseOs;

#[cfg(test)]
mod tests;
