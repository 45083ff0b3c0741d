//! The shell that every agent runs in: loop, clock, owned tasks, topics in and out, and the seams to the
//! machine.
//!
//! Not here: decisions of any agent; those are pure cores in the agents' own crates.

pub mod clock;
pub mod device;
pub mod duties;
pub mod error;
pub mod force;
pub mod operator;
pub mod outlet;
pub mod partitions;
pub mod pid;
pub mod reasons;
pub mod runtime;
pub mod settings;
pub mod tasks;
pub mod turn;
pub mod watchdog;
pub mod wire;

pub use clock::Clock;
pub use error::Error;
pub use outlet::{Hands, Outlet, Troubles, Weight};
pub use tasks::{Inbox, Outbox, Tasks, inbox};
pub use tasks::{Stop, Stopper};
pub use wire::publication;

use pubsub::TopicRoot;

#[derive(Clone)]
pub struct AgentContext {
    pub topic_root: TopicRoot,
    /// The only source of time.
    pub clock: Clock,
    pub stop: Stop,
    /// Differs after every restart of the machine.
    pub boot_id: String,
}

impl AgentContext {
    /// The context of a single agent, as in tests, and its stopper.
    pub fn alone(topic_root: &TopicRoot, clock: Clock, boot_id: &str) -> (Stopper, Self) {
        let (stopper, stop) = Stop::new();
        (stopper, Self { topic_root: topic_root.clone(), clock, stop, boot_id: boot_id.to_owned() })
    }
}

#[cfg(test)]
fn test_context(root: &std::path::Path, boot: &str) -> (Stopper, AgentContext) {
    AgentContext::alone(&TopicRoot::open(root).unwrap(), Clock::new(), boot)
}
