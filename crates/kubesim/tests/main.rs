//! The embedded cluster as its clients see it.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

mod answers;
mod cluster;
mod controllers;
mod kubectl;
mod leases;
mod logs;
mod longhorn;
mod machines;
mod node_failure;
mod nodes;
mod requests;
mod watches;
