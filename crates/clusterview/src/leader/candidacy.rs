//! What others leave of the right to lead.
//!
//! Pure: no clock, no I/O, no task.

/// What a drain leaves of the right to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidacy {
    Open,
    /// Who leads keeps leading, who does not becomes no candidate: the node is about to be drained, or uncordoned.
    Kept,
    /// Nothing: the operation goes ahead, or the node leaves its cluster.
    Closed,
}
