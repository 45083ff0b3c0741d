//! `KubeClusterInfo`: the cluster as its leader reports it, from watches.
//!
//! Not here: who leads (`leader`), how objects are read (`crate::collections`). Pure: `fold`, `state`; `task` waits
//! and writes.

mod fold;
mod state;
mod task;

pub use state::{FIRST_WAIT, GAP};
pub use task::run;

use jiff::Timestamp;
use topics::GoTime;

fn time(at: Option<Timestamp>) -> GoTime {
    at.map(GoTime::from).unwrap_or_default()
}
