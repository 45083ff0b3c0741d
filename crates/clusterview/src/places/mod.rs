//! Where machines belong: the affinity of their replica sets follows the designated node, on which this runs.
//!
//! Running machines stay where they are. Pure: `affinity`; `task` calls. Source: spec/eve-rest.md 3.8.

mod affinity;
mod task;

pub use task::run;
