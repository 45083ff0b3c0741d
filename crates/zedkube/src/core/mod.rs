//! What zedkube decides about the drain of its node. Pure: no clock, no I/O, no task.

mod after_boot;
mod attempts;
mod candidacy;
mod facts;
mod gap;
mod history;
mod lost;
mod machine;
mod notes;
mod resume;
mod run;
mod settle;
mod told;
mod view;
mod void;
mod wall;

#[cfg(test)]
mod tests;

pub use clusterview::leader::Candidacy;
pub use facts::{Author, Away, Done, Effect, Event, Failure, Force, RunId, Said, Seen, Stayer};
pub(crate) use history::{short, shorten};
pub use machine::Zedkube;
pub use nodestatus::Membership;
pub(crate) use resume::{kept_marks, marks, ms};
pub(crate) use view::blocker;
