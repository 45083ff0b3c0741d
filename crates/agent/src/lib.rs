//! The shell that every agent runs in: one loop, one clock, owned tasks, topics in and out, the seams to the
//! machine.
//!
//! Not here: decisions of any one agent; those are pure cores in the agents' own crates.

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
pub mod report;
pub mod runtime;
pub mod settings;
pub mod stop;
pub mod tasks;
pub mod turn;
pub mod watchdog;
pub mod wire;

pub use clock::Clock;
pub use error::Error;
pub use outlet::{Outlet, Troubles, Weight};
pub use stop::{Stop, Stopper};
pub use tasks::Tasks;
pub use turn::{Hands, Inbox, Outbox};
pub use wire::publication;

use pubsub::TopicRoot;

/// What every agent is given to work with.
#[derive(Clone)]
pub struct AgentContext {
    /// Topics and files under one root.
    pub topic_root: TopicRoot,
    /// The only source of time.
    pub clock: Clock,
    /// Says when to leave.
    pub stop: Stop,
    /// Identity of this boot; another one after every restart of the machine.
    pub boot_id: String,
}

/// A context for tests, and the hand that stops it.
#[cfg(test)]
fn test_context(root: &std::path::Path, boot: &str) -> (Stopper, AgentContext) {
    let (stopper, stop) = Stop::new();
    let context = AgentContext {
        topic_root: TopicRoot::open(root).unwrap(),
        clock: Clock::new(),
        stop,
        boot_id: boot.to_owned(),
    };
    (stopper, context)
}
