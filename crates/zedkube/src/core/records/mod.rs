//! What readers get from the core: topics as they were published last, and the history of drains and force files.
//!
//! No decision depends on it. Not here: how a value is made (`core::view`). Pure: no clock, no I/O, no task.

mod history;
mod published;

pub(crate) use history::{History, kept_short, short, shorten};
pub(crate) use published::PublishedRecords;
