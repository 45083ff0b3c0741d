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
mod any_order;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod gated;
#[cfg(test)]
mod losing;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod records;
#[cfg(test)]
mod restarted;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod said;
#[cfg(test)]
mod seen;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod voided;
#[cfg(test)]
mod world;

pub use candidacy::Candidacy;
pub use facts::{Author, Away, Done, Effect, Event, Failure, Force, Membership, RunId, Said, Seen, Stayer};
pub(crate) use history::{short, shorten};
pub use machine::Zedkube;
pub(crate) use resume::{kept_marks, marks, ms};
pub(crate) use view::blocker;
