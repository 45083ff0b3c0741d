//! What the drain of this node has to know of an update of k3s: its request may need a turn alone, and a turn is not
//! released after a boot before the node is healthy with the k3s that it was taken for.
//!
//! Not here: how far the update is (`crate::k3s`). Source: goals U7, U10. Pure: no clock, no I/O, no task.

use topics::{DrainStatus, NodeDrainRequest, Requester};

use super::answers::Answers;
use super::drain::StateWords;
use super::facts::K3sHold;

/// Why the node was not drained for it.
pub(super) const TURN_ALONE: &str = "k3s restarts and its pods stay: a turn is all that it needs";

impl K3sHold {
    /// The node is not known to be healthy with it.
    pub(super) fn holds(&self) -> bool {
        !self.what.is_empty()
    }

    /// The words of a state, with what the update waits for.
    pub(super) fn beside(&self, words: &mut StateWords) {
        if self.holds() {
            let failed = if self.failed { "has failed and " } else { "" };
            words.reason = format!("{}; the update of k3s {failed}{}", words.reason, self.what);
            words.next_step.clone_from(&self.next_step);
        }
    }
}

impl Answers {
    /// Only an update of k3s waits, and it needs a turn alone.
    pub(super) fn needs_turn_alone(&self) -> bool {
        self.open().next().is_some() && self.open().all(NodeDrainRequest::is_turn_alone)
    }

    /// The update of k3s that was let go ahead: the turn is its own until it takes its request back.
    pub(super) fn keeps_turn(&self) -> Option<&NodeDrainRequest> {
        let given = |it: &&NodeDrainRequest| {
            self.final_answer(it.id()).is_some_and(|it| it.status == DrainStatus::Complete)
        };
        self.request_of(Requester::K3sUpdate).filter(given)
    }
}
