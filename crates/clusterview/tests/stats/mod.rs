//! The statistics as a whole: watches of an embedded cluster, the fold, and real files, on a clock that stands still.

mod absent;
mod crowd;
mod failing;
mod golden;
mod leading;
pub(crate) mod lines;
mod requests;
mod seeds;
mod sizes;
mod stage;
