//! Waiting for a change that another attempt could profit from, and for one that undoes a drain.
//!
//! Not here: what is done then (zedkube).

mod changed;
pub(crate) mod machines;
mod stirred;
pub(crate) mod watched;

pub use changed::until_changed;
pub use stirred::until_stirred;
pub use watched::WatchedBlockers;
