//! The drain of this node: what keeps it from its cordon, attempts, limits, and what is kept of it over a restart.
//!
//! Called by the core alone, which performs what an [`StepOutcome`] brings for the node and for whoever waits. Not here:
//! requests and answers, the Node object, and the pods. Pure: no clock, no I/O, no task.

mod gates;
mod life;
mod run;
mod shown;

pub(crate) use life::{Drain, StepOutcome};
pub(crate) use run::DrainEnd;
pub(crate) use shown::{StateWords, words};
