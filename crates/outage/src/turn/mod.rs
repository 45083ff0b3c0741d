//! Whose turn it is to be down.
//!
//! `record` is what the Lease says, `rule` decides about one reading, `core` is the life of one node's turn, with
//! `core/reading` for the way in and the last look; `event` has its words. Not here: calls, the wall clock, drains, the
//! margin of etcd.

pub mod core;
pub mod event;
pub mod pulses;
pub(crate) mod rebuild;
pub mod record;
pub mod rule;
#[cfg(test)]
pub(crate) mod tests;

pub use core::Turn;
