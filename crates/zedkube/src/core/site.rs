//! A shutdown or reboot of the whole site, as far as the drain of this node is concerned: no drain begins and no cordon
//! is removed while it holds the node, and the operation itself is let go ahead without a drain when it says so.
//!
//! For everything else the node is in other hands, as while it leaves its cluster. Not here: how far the operation is
//! (`outage::site`). Sources: goals U5, U13. Pure: no clock, no I/O, no task.

use nodestatus::Membership;
use step::Mono;
use topics::{DrainPhase, Requester};

use super::drain::{DrainEnd, StateWords, words};
use super::facts::{DrainLogEvent, Effect};
use super::machine::Zedkube;

/// What a whole-site operation holds this node to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SiteHold {
    /// Nothing.
    #[default]
    None,
    /// No drain begins, and the cordon stays; which operation it is.
    Kept(String),
    /// Its machine goes down now, with its pods; which operation it is.
    Go(String),
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SiteState {
    hold: SiteHold,
    /// What the config says about the cluster, whatever holds the node.
    member: Membership,
}

impl SiteState {
    /// How this node stands to its cluster as far as drains are concerned.
    fn effective(&self) -> Membership {
        match self.member {
            Membership::Undecided | Membership::Member if self.hold != SiteHold::None => Membership::Leaving,
            member @ (Membership::Undecided
            | Membership::Member
            | Membership::Leaving
            | Membership::Outside) => member,
        }
    }

    /// The operation that holds this node; `None` while another cause keeps it in other hands.
    fn holds(&self) -> Option<&str> {
        match &self.hold {
            SiteHold::Kept(what) | SiteHold::Go(what) if self.member != Membership::Leaving => Some(what),
            SiteHold::None | SiteHold::Kept(_) | SiteHold::Go(_) => None,
        }
    }

    /// What nodeagent is answered before the machine goes down: that it may, or which operation keeps it up.
    pub(super) fn last_look(&self) -> Option<Result<&str, &str>> {
        let what = self.holds()?;
        Some(if matches!(self.hold, SiteHold::Go(_)) { Ok(what) } else { Err(what) })
    }
}

impl Zedkube {
    /// Hears whether this node is in a cluster.
    pub(super) fn member_heard(&mut self, now: Mono, member: Membership, out: &mut Vec<Effect>) {
        if member != Membership::Undecided {
            self.node.site.member = member;
        }
        self.joined(now, self.node.site.effective(), out);
    }

    /// Hears what a whole-site operation holds it to.
    pub(super) fn site_heard(&mut self, now: Mono, hold: SiteHold, out: &mut Vec<Effect>) {
        self.node.site.hold = hold;
        let effective = self.node.site.effective();
        if effective == Membership::Undecided {
            // Released before anything else is known.
            self.node.member = effective;
        }
        self.joined(now, effective, out);
    }

    /// The operation goes ahead: whoever asks for it is answered that pods stay.
    pub(super) fn settle_site(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let SiteHold::Go(what) = &self.node.site.hold else { return };
        if self.node.site.holds().is_none() {
            return;
        }
        let skip = format!("{what}: pods stay");
        if self.answers.skip_for(now, Requester::DeviceOp, &skip, &self.node) {
            out.push(Effect::Say(DrainLogEvent::Skipped(skip.clone())));
            self.end_drain(Some(DrainEnd::Skipped(skip)), out);
        }
    }

    /// What a person reads while it is held.
    pub(super) fn site_words(&self) -> Option<StateWords> {
        let what = self.node.site.holds()?;
        Some(words(
            DrainPhase::Held,
            format!("{what} holds this node: no drain begins, and its cordon stays"),
            "`zedbox site status` shows how far it is",
        ))
    }
}
