//! The events of a turn, what it asks for, and what it says of itself.
//!
//! Pure: no clock, no I/O, no task.

use step::{CallId, Mono, WriteOutcome};

use super::record::{BadRecord, Class, Fence, Op, Phase, RecordSnapshot, RecordWrite};
use super::rule::{LOCK_STATUS, TurnNode, TurnRule};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnRequest {
    pub op: Op,
    /// Which request of that kind.
    pub counter: u64,
    /// It restarts whatever the record says: the entry is for the others to see.
    pub emergency: bool,
    /// Nothing is known that would keep its drain from starting. Until then it neither waits in the queue nor enters.
    pub fit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReadError {
    /// The API cannot be reached.
    #[error("{0}")]
    NoAnswer(String),
    /// It answers, and not with the object: throttled, refused.
    #[error("{0}")]
    Refused(String),
    /// The Lease is not a record that this version can use.
    #[error(transparent)]
    BadRecord(BadRecord),
}

/// What became of a write; one with an unknown outcome may still come through within [`super::core::IN_DOUBT`].
pub type RecordWritten = WriteOutcome<RecordSnapshot>;

/// What is asked of the turn of this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// What a turn is wanted for; `None` for nothing, and what is held is given back.
    Want(Option<TurnRequest>),
    /// What kept the last call from being answered may be over, as the API answers again: look now.
    Look,
    /// The holder is about to evict: look again. Answered by [`Effect::Confirmed`].
    Confirm,
    /// The machine is about to go down, question of this number: look at everything again. Answered by
    /// [`Effect::LookedLast`], from readings that began after it.
    LastLook(u64),
    /// The attempt failed for this reason and our cordon is removed: release, and queue again after a growing pause.
    Retry(String),
    /// Whether the checks after boot are passed and nothing of ours is left on the node.
    Gate(bool),
    /// How far the holder has come.
    Phase(Phase),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    Ask(Ask),
    /// The class of this node now.
    Class(Class),
    /// Answer to [`Effect::Read`].
    Read(CallId, Result<Option<Box<RecordSnapshot>>, ReadError>),
    /// Answer to [`Effect::ReadCluster`].
    Cluster(CallId, Result<Vec<TurnNode>, ReadError>),
    /// Answer to [`Effect::ReadMargin`]: whether the cluster can spare this node, or why not.
    Margin(CallId, Result<(), String>),
    /// Answer to [`Effect::Write`].
    Wrote(CallId, RecordWritten),
    /// The watch of the Lease shows this value, `None` for a deleted one. It may be older than what is known.
    Changed(Option<Box<RecordSnapshot>>),
    Tick,
}

impl From<Ask> for Event {
    fn from(ask: Ask) -> Self {
        Self::Ask(ask)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Read the Lease, from the store and not from a cache.
    Read(CallId),
    /// Read the nodes and their kubelets' leases.
    ReadCluster(CallId),
    /// Ask whether the cluster can spare this node now.
    ReadMargin(CallId),
    /// Write the Lease as ordered, or not at all.
    Write(CallId, Box<RecordWrite>),
    /// Where this node is has changed.
    State(TurnState),
    /// What the look of [`Ask::Confirm`] has shown.
    Confirmed(Result<(), Unconfirmed>),
    /// What the last look of [`Ask::LastLook`] has shown. After `Ok` our entry says that it goes down, if it could
    /// be written.
    LookedLast(u64, Result<(), Unconfirmed>),
    Say(String),
}

/// Why a holder may not continue now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unconfirmed {
    /// The turn is no longer its own: stop, uncordon, then [`Ask::Retry`] or withdraw.
    Lost(String),
    /// The record could not be read, or says too little yet.
    Unknown(String),
    /// The last look alone: the API cannot be reached. The caller's rule decides.
    Unreachable {
        why: String,
        /// Whether etcd can spare this node by its own word and those of its peers; always for a worker.
        margin: Result<(), String>,
    },
    /// The last look alone: the turn is our own, and etcd needs this node for its quorum now.
    NoMargin(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// It wants no turn and holds none.
    NotWanted {
        /// That is known for certain: a reading has shown no entry of ours, and no write of ours may still come through.
        idle: bool,
    },
    Waiting(Box<TurnWait>),
    Held {
        fence: Fence,
        lease_uid: String,
        phase: Phase,
    },
    /// The turn was its own and is no longer. Nothing more may be done under it.
    Lost {
        why: String,
    },
    /// It is back in a new boot; the turn is kept until the gate is open.
    Booted {
        fence: Fence,
        /// The record still has the entry; an operator may have released it.
        listed: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnWait {
    pub nodes: Vec<String>,
    pub rule: TurnRule,
    /// The same as a sentence.
    pub why: String,
    pub since: Mono,
    /// Its place in the queue from 1; `None` before it is in it.
    pub place: Option<usize>,
    /// What an operator can type.
    pub next: String,
}

impl TurnWait {
    /// What a person can do while it waits.
    pub fn next_step(&self) -> String {
        let first = format!("wait; `{LOCK_STATUS}` shows who is before it");
        if self.rule == TurnRule::Cordoned {
            return format!("once whoever has cordoned agrees: `{}`; `{LOCK_STATUS}`", self.next);
        }
        if self.next == LOCK_STATUS { first } else { format!("{first}; `{}`", self.next) }
    }
}
