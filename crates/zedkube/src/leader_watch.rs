//! Whether this node leads, as those hear it who may act only while it does.

use step::Mono;

/// Whether this node holds the lease of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leading {
    /// It does not, or that is not certain.
    #[default]
    No,
    /// It does, and nobody else can before this moment of the monotonic clock.
    Until(Mono),
}
