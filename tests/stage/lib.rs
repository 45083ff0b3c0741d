//! The stage of the whole-system tests: a device in a temporary root, agents as tasks or as real processes, and a
//! cluster, embedded or real.
//!
//! Not here: any test. Those of agents as tasks are in `scenarios/`, those of processes in
//! `crates/zedbox/tests/processes.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "made for tests: a panic is their way to fail"
)]
#![expect(clippy::missing_panics_doc, reason = "every function here fails its test by a panic")]

mod cluster;
mod hold;
mod noted;
mod real;
mod server;
mod world;

pub use cluster::Cluster;
pub use hold::{ALL_STATES, At};
pub use server::SKIPPED;
pub use world::{Agent, PENDING, World, reboot_config};
