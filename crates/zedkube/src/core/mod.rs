//! What zedkube decides about the drain of its node. Pure: no clock, no I/O, no task.

mod attempts;
mod care;
mod context;
mod facts;
mod lost;
mod machine;
mod records;
mod resume;
mod run;
mod settle;
mod told;
mod view;
mod void;

#[cfg(test)]
mod tests;

pub use clusterview::leader::Candidacy;
pub use facts::{Author, Away, Done, Effect, Event, Failure, Force, RunId, Said, Seen, Stayer};
pub use machine::Zedkube;
pub use nodestatus::Membership;
pub(crate) use records::{short, shorten};
pub(crate) use resume::{kept_marks, marks, ms};
pub(crate) use view::blocker;
