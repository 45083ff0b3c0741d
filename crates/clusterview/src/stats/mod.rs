//! `KubeClusterInfo`: the cluster as its leader reports it, from watches.
//!
//! Not here: who leads (`leader`), how objects are read (`crate::collections`). Pure: `fold`, `state`; `task` waits
//! and writes.

mod fold;
mod state;
mod task;

pub use state::StatsPublisher;
pub use state::{FIRST_WAIT, GAP};
pub use task::run;

use jiff::Timestamp;
use topics::GoTime;

/// Go writes a list that nothing was put into as `null`.
fn listed<T>(items: impl IntoIterator<Item = T>) -> Option<Vec<T>> {
    let items: Vec<T> = items.into_iter().collect();
    (!items.is_empty()).then_some(items)
}

fn time(at: Option<Timestamp>) -> GoTime {
    at.map(GoTime::from).unwrap_or_default()
}
