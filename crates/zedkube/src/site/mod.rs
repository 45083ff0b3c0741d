//! This node in a shutdown or reboot of the whole site: its own record on disk, what it does to itself, and, where it is
//! the one that works for all, what it does for all.
//!
//! Not here: any decision (`outage::site`), and what the drain makes of it (`core::context`). What runs it: `zedkube::run`.

mod restart;
mod run;

pub(crate) use run::Sites;
