//! `KubeClusterInfo`: the cluster as its leader reports it, from watches.
//!
//! Not here: who leads (`leader`), how objects are read (`crate::collections`). Pure: `fold`, `storage`, `fit`, `rhythm`,
//! `told`; `board` writes, `task` waits. Sources: spec/agents.md 4.11, goals L2 and L6.

mod board;
mod fit;
mod fold;
mod rhythm;
mod state;
mod storage;
mod task;

pub use board::StatsPublisher;
pub use rhythm::{FIRST_WAIT, GAP};
pub use task::run;
