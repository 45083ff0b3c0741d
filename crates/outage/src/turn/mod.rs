//! Whose turn it is to be down.
//!
//! `record` is what the Lease says, `rule` decides about one reading, `observed` counts how long a fact has been seen,
//! `state` is one node's turn and what it says of it, `core` its life, with `enter` for the way in, `keep` for the way
//! through and `look` for the last look before the machine goes down; `event` has its words. Not here: calls, the wall clock, drains, the margin of
//! etcd. Sources: design.md section 12; spec/cluster-lock.md 1.1, 2, 3 and 8.3; goals U1, U2, U5, U7, U10 to U14.

pub mod core;
mod enter;
pub mod event;
mod keep;
mod look;
mod observed;
pub mod pulses;
pub(crate) mod rebuild;
pub mod record;
pub mod rule;
mod state;
#[cfg(test)]
mod tests;
mod words;

pub use state::Turn;
