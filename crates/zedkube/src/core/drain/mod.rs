//! The drain of this node: phases, attempts, limits, and what is kept of it over a restart.
//!
//! Called by the core alone, which performs what an [`DrainStepOutcome`] brings for the node and for whoever waits. Not here:
//! requests and answers, the Node object, and the pods. Pure: no clock, no I/O, no task.

mod api_away;
mod attempts;
mod hooks;
mod life;
mod limit;
mod preflight;
mod resume;
mod run;
mod shown;
mod turn;
mod window;
mod words;

pub(crate) use life::{Drain, DrainStepOutcome};
pub(crate) use run::DrainEnd;
pub(crate) use words::{StateWords, words};
