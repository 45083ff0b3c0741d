//! Whether this node may be the one that reports on the cluster, as far as its drain is concerned (goal L5).
//!
//! Pure: no clock, no I/O, no task.

use topics::{CordonOwner, DrainStatus};

use super::facts::{Effect, Membership};
use super::machine::Zedkube;
use super::run::Care;

/// What a drain leaves of the right to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidacy {
    /// Everything.
    Open,
    /// Whoever leads goes on, and does not stand anew: the node is about to be drained, or is given back.
    Kept,
    /// Nothing: the operation goes ahead, or the node leaves its cluster.
    Closed,
}

impl Zedkube {
    /// `None` while it is not known: then nobody stands, and nothing is given back either.
    fn candidacy(&self) -> Option<Candidacy> {
        let complete = |status| status == DrainStatus::Complete;
        let told = self.status().status;
        if self.member == Membership::Leaving {
            return Some(Candidacy::Closed);
        }
        if complete(told) || complete(self.run_status()) || self.answers.iter().any(|it| complete(it.status))
        {
            return Some(Candidacy::Closed);
        }
        if self.run.is_active() || self.cordon == CordonOwner::Ours {
            return Some(Candidacy::Kept);
        }
        // A cordon of before this start is not known until the node has been looked at.
        (self.node_seen || self.care == Care::Done).then_some(Candidacy::Open)
    }

    /// Says it before COMPLETE can be read anywhere: who reads that may restart the machine.
    pub(super) fn tell_candidacy(&mut self, told: &mut Vec<Effect>) {
        let Some(candidacy) = self.candidacy() else { return };
        if self.said_candidacy != Some(candidacy) {
            self.said_candidacy = Some(candidacy);
            told.push(Effect::Candidacy(candidacy));
        }
    }
}
