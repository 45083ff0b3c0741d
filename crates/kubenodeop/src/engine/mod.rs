//! One attempt to empty a node, as data. Only re-exports.

mod attempt;
mod calls;
mod estimate;
mod index;
mod limits;
mod roster;
mod sentence;
mod spaces;
mod sticky;
mod telling;
#[cfg(test)]
mod tests;
mod track;
mod volumes;
mod words;

pub use attempt::Engine;
pub use words::{Claim, Effect, Event, Failure, Limit, PodAction, Rules, Said, StickyAction, VolumeAction};
