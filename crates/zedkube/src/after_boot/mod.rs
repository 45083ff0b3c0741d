//! What is done and looked at on this machine after a boot, beside what the API shows.
//!
//! For the shell of zedkube, and for `zedbox verify`, which does the same by hand. Not here: what the gate makes of it
//! (`kubenodeop::node::gate`), hooks (`hooks`).

pub mod probes;
pub mod repairs;
