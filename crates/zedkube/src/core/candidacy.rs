//! Whether this node may be the one that reports on the cluster, as far as its drain is concerned (goal L5).
//!
//! Pure: no clock, no I/O, no task.

use topics::{CordonOwner, DrainStatus};

use super::facts::Effect;
use super::machine::Zedkube;
use super::run::Care;
use clusterview::leader::Candidacy;
use nodestatus::Membership;

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
