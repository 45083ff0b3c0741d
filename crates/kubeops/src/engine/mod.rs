//! One attempt to empty a node, as data. Only re-exports.

mod attempt;
mod roster;
#[cfg(test)]
mod tests;
mod track;
mod words;

pub use attempt::Engine;
pub use words::{Effect, Event, Failure, Limit, PodAction, Rules, Said, StickyAction, VolumeAction};
