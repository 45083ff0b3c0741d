//! Words of a person that let a drain begin, keep operations from starting or force a status, and the end of a person's
//! own drain.
//!
//! Called by `zedbox` alone. Not here: what they do (the agents).

pub(super) mod at_shutdown;
pub(super) mod confirm;
pub(super) mod done;
pub(super) mod force;
pub(super) mod pass;
pub(crate) mod pause;
pub(super) mod start_now;
