//! The drain of the node: its phases, failures, limits and restarts.

mod away;
mod cordons;
mod crowd;
mod failures;
mod flapping;
mod limits;
mod lost;
mod pauses;
mod preflight;
mod restarts;
