//! The drain of the node: its phases, failures, limits and restarts.

mod away;
mod cordons;
mod crowd;
mod failures;
mod flapping;
mod gone;
mod limits;
mod lost;
mod preflight;
mod restarts;
mod retries;
mod stops;
