//! One attempt to empty a node, as a pure machine: who is asked next (`pod_table`), when a pod is over its limit
//! (`telling`), the proof (`attempt`).
//!
//! Not here: which pods leave and in which tier (`plan`), the calls (`drain`).

mod attempt;
mod budgets;
pub mod containers;
mod machines;
mod pod_table;
mod storage;
mod telling;
#[cfg(test)]
mod tests;
mod track;
mod words;

pub use attempt::Engine;
pub use storage::VOLUMES_LIMIT;
pub use track::STICKY_RETURNS;
pub use words::{
    AttemptFailure, AttemptOutcome, AttemptRules, CallFailure, DrainSuccess, Effect, Event, Limit,
    LimitAction,
};
