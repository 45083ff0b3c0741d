//! What an attempt is told and what it asks for.
//!
//! Not here: how one follows from the other (`attempt`). Sources: goals D5; spec/agents.md 4.4.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::budget::BudgetFacts;
use crate::cordon::NodeFacts;
use crate::names::{PodRef, PodUid};
use crate::plan::PodFacts;
use crate::progress::Outcome;
use crate::reply::Reply;

/// The rules of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// After this the attempt has failed (`kubernetes.drain.timeout`).
    pub attempt: Duration,
    /// Evictions under way at the same time.
    pub at_once: usize,
    /// Least time between the two lists of the proof (goals D5).
    pub proof_gap: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { attempt: Duration::from_secs(24 * 3600), at_once: 32, proof_gap: Duration::from_secs(1) }
    }
}

/// A call that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it means.
    pub reply: Reply,
    /// Which call it was and what happened, for a person.
    pub text: String,
}

/// A fact for the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The pods of the node as a watch lists them.
    Pods(Vec<PodFacts>),
    /// One pod as it is now.
    Pod(PodFacts),
    /// One pod is gone.
    PodGone(PodUid),
    /// The answer to [`Effect::Look`] of `turn`: all pods and the node, read from the store.
    Looked {
        /// Which look.
        turn: u64,
        /// What it saw, or why it saw nothing.
        seen: Result<(Vec<PodFacts>, NodeFacts), Failure>,
    },
    /// The answer to [`Effect::Evict`].
    Evicted {
        /// Of this pod.
        uid: PodUid,
        /// What the server said.
        reply: Reply,
    },
    /// The budgets of a namespace as they are now.
    Budgets {
        /// The namespace.
        namespace: String,
        /// All its budgets.
        budgets: Vec<BudgetFacts>,
    },
    /// Our node as it is now.
    Node(NodeFacts),
    /// The answer to [`Effect::Cordon`]: whether it had to be written.
    Cordoned(Result<bool, Failure>),
    /// A watch fails; it goes on by itself.
    Trouble(String),
    /// Time has passed.
    Tick,
}

/// Something to do for the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// List the pods and read the node; answer with [`Event::Looked`] of the same turn.
    Look {
        /// To be given back.
        turn: u64,
    },
    /// Evict this pod.
    Evict(PodRef),
    /// Cordon the node again.
    Cordon,
    /// Follow the budgets of this namespace.
    FollowBudgets(String),
    /// Write to the log.
    Say(Said),
    /// The attempt is over.
    End(Outcome),
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The server has accepted the eviction.
    Evicted(PodRef),
    /// The pod is gone.
    Gone(PodRef),
    /// The pod is held, for a reason that is not the one of last time.
    Held(PodRef, String),
    /// The node was found schedulable.
    Uncordoned,
}
