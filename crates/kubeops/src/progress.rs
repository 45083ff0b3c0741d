//! What a drain says about itself.
//!
//! Not here: how it comes to it (`engine`). Sources: goals O1, O2; the counts and blockers of `NodeDrainProgress`.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use crate::names::PodRef;

/// One attempt at one moment. Equal values mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What is going on.
    pub phase: Phase,
    /// Pods by state.
    pub counts: Counts,
    /// What holds the drain up, in the order of the pods' names.
    pub blockers: Vec<Blocker>,
    /// Evictions that the server has accepted.
    pub evicted: u32,
    /// How often the node was found uncordoned and cordoned again.
    pub recordons: u32,
    /// The newest trouble with the API that has not passed, or empty.
    pub trouble: String,
}

/// What an attempt is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Pods leave.
    #[default]
    Draining,
    /// None is left as far as we know; the lists that prove it are being read.
    Proving,
}

/// Pods by state. `total` is the sum of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All pods of this attempt that leave or have left.
    pub total: u32,
    /// No longer there.
    pub gone: u32,
    /// Evicted or deleted, not yet gone.
    pub going: u32,
    /// Not yet asked, or to be asked again after passing trouble.
    pub waiting: u32,
    /// Held by a budget or an ending namespace, or given up.
    pub blocked: u32,
}

/// A pod that does not leave, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The pod.
    pub pod: PodRef,
    /// The reason for machines.
    pub code: BlockCode,
    /// The reason for a person, in one sentence with names and numbers.
    pub reason: String,
    /// Since when it is held for this reason, on the clock that the drain was given.
    pub since: Mono,
}

/// Why a pod does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockCode {
    /// A disruption budget has no room.
    Budget,
    /// More than one budget selects the pod, and the server evicts no such pod.
    ManyBudgets,
    /// Its namespace is being deleted.
    NamespaceEnding,
    /// The server has too much to do.
    Throttled,
    /// The API fails in passing.
    ApiTrouble,
    /// The server refuses for good.
    Refused,
    /// It was asked to end and takes longer than its grace period.
    SlowToEnd,
}

impl BlockCode {
    /// The word for files and logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::ManyBudgets => "many-budgets",
            Self::NamespaceEnding => "namespace-ending",
            Self::Throttled => "throttled",
            Self::ApiTrouble => "api-trouble",
            Self::Refused => "refused",
            Self::SlowToEnd => "slow-to-end",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Two lists at least the proof gap apart showed nothing left on a cordoned node.
    Drained {
        /// From the start of the attempt.
        took: Duration,
        /// Evictions that the server accepted.
        evicted: u32,
        /// How often the cordon had to be renewed.
        recordons: u32,
    },
    /// The attempt came to nothing.
    Failed {
        /// In one sentence, with the pods' names.
        reason: String,
        /// What held it up at the end.
        blockers: Vec<Blocker>,
    },
}
