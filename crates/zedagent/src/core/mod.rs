//! What zedagent decides about device operations. Pure: no clock, no I/O, no task.

mod act;
mod facts;
mod machine;
mod wall;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod rules;

pub use facts::{Effect, Event, Found, Said, Wanted};
pub use machine::Zedagent;
