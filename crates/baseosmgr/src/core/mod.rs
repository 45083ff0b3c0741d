//! Decisions of baseosmgr: which image is written and switched, and when; or, where no partitions are named, that
//! none is.
//!
//! Pure: no clock, no I/O, no task.
//!
//! Not here: whether the drain allows a switch (`requester`), writing images.

mod drain;
mod event;
mod machine;
mod moves;
mod refusal;
mod stage;
mod status;

pub use event::{
    Counter, Counters, Effect, Event, FallbackFrom, LastBootReport, PartitionChange, PartitionWrite,
    RequiredTopic, SavedUpdates,
};
pub use machine::BaseOs;

#[cfg(test)]
mod tests;
