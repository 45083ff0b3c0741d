//! Words of a person that let a drain begin: files that go with the boot.
//!
//! Called by `zedbox drain` alone. Not here: what they do (zedkube), and the force file (`force`).

pub(super) mod pass;
pub(super) mod start_now;
