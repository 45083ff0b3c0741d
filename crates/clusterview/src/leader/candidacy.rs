//! What the drain allows the election.
//!
//! Pure: no clock, no I/O, no task.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidacy {
    Open,
    /// A leader stays leader, others do not become candidates: the node is about to be drained, or
    /// uncordoned.
    Kept,
    /// No candidate: the operation goes ahead, or the node leaves its cluster.
    Closed,
}
