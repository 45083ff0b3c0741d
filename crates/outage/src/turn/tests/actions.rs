//! What may happen in a world of turns, and how often.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Budget {
    pub(super) lost: u8,
    pub(super) late: u8,
    pub(super) restarts: u8,
    pub(super) power_cuts: u8,
    pub(super) failures: u8,
    pub(super) withdrawn: u8,
    pub(super) emergencies: u8,
    pub(super) deletions: u8,
    pub(super) restores: u8,
    pub(super) releases: u8,
    pub(super) uncordons: u8,
    pub(super) cuts: u8,
    pub(super) findings: u8,
    pub(super) gone: u8,
    pub(super) etcds: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The server carries out the call of a node and answers.
    Serve(usize),
    /// The server carries it out and the answer is lost.
    LoseAnswer(usize),
    LoseCall(usize),
    /// The write comes later; its sender has given up.
    Delay(usize),
    ServeLate,
    Watch(usize),
    Go(usize),
    Fail(usize),
    Withdraw(usize),
    Restart(usize),
    PowerCut(usize),
    Emergency(usize),
    DeleteLease,
    RestoreLease,
    /// Etcd is as it was before the first turn: no Lease, no cordon.
    RestoreEtcd,
    ReleaseByOperator(usize),
    UncordonByHand(usize),
    Cut(usize),
    Join(usize),
    /// Something keeps the drain of a node from starting, and then no longer.
    Find(usize),
    Mend(usize),
    DeleteNode(usize),
    Wait,
}
