//! What others leave of the right to lead.
//!
//! Pure: no clock, no I/O, no task.

/// What a drain leaves of the right to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidacy {
    /// Everything.
    Open,
    /// Whoever leads continues, and does not stand again: the node is about to be drained, or is given back.
    Kept,
    /// Nothing: the operation goes ahead, or the node leaves its cluster.
    Closed,
}
