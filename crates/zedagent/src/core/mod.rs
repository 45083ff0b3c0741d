//! What zedagent decides about device operations. Pure: no clock, no I/O, no task.
//!
//! Not here: the judgement whether one may be carried out (`requester`), carrying it out (nodeagent).

mod act;
mod facts;
mod machine;
mod ordered;

#[cfg(test)]
mod tests;

pub use facts::{DesiredDevice, Effect, Event, SavedDeviceOps, SiteOrder};
pub use machine::Zedagent;
