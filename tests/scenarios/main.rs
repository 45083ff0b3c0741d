//! Whole agents on real files and an embedded cluster: what a person at a device would see.
//!
//! Each test waits for states of the topics, never for a while. Waits are shortened by `Limits`; rules and
//! counts are those of a device.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod force;
mod order;
mod reboot;
mod update;
mod withdraw;
