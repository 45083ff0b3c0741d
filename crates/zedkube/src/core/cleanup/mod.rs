//! What this agent takes care of on its Node object beside a drain: its own cordon, the gate after a boot, taints.
//!
//! It is given how the node is to be; called by the core alone. Not here: the drain, and who is
//! answered what. Pure: no clock, no I/O, no task.

mod after_boot;
mod cordon;

pub(crate) use cordon::{CordonCleanup, DesiredNode, Voided, cordoned};
