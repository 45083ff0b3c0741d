//! Real processes, one an agent or all in one, that share only files: killed, short of descriptors, on
//! failing disks, with clocks that are set, beside other candidates; and the words of their logs.
//!
//! One binary, so that their waits overlap. Not here: `crashes.rs`, which counts writes and runs many at once itself.

mod clock_set;
mod descriptors;
mod disk;
mod election;
mod held;
mod killed;
mod log_words;
mod secrets;
pub(crate) mod typed;
