//! Decisions of nodeagent: which operation the device is taken through, what is said of drain and image test.
//!
//! Pure: no clock, no I/O, no task.
//!
//! Not here: whether an operation may begin (`requester`), but for the last look in `course` and `outage`; calls to the device.

mod course;
mod event;
mod last_boot;
mod last_look;
mod machine;
mod order;
mod phase;
mod talk;
mod trial;
mod vault;

pub use event::{DeviceCommand, Effect, Event, RequiredReading, Resumed, SavedNodeState, Took, Waits};
pub use last_boot::{Evidence, LastBoot, Stored};
pub use machine::NodeAgent;
pub use order::{MachineOrder, OrderCause};
pub use trial::LABELS;
pub use vault::Vault;

#[cfg(test)]
mod tests;
