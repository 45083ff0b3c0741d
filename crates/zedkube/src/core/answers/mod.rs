//! Who asks for a drain, what the force file orders, and what each requester is answered.
//!
//! Called by the core alone. Not here: the drain itself, and the Node object. Pure: no clock, no I/O, no task.

mod status;
mod table;
mod words;

pub(crate) use table::{Answers, is_drained, is_operation};
