//! What a shutdown or reboot of the whole site means for the drain of this node: no drain begins and no cordon is
//! removed while it holds the node, and the operation itself is let go ahead without a drain when it says so.
//!
//! For everything else the node is in other hands, as while it leaves its cluster. Not here: how far the operation is
//! (`outage::site`), and what follows for drain and answers (`core::settle`). Sources: goals U5, U13.
//! Pure: no clock, no I/O, no task.

use nodestatus::Membership;

use super::facts::SiteHold;

/// What is known of the operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SiteState {
    hold: SiteHold,
    /// What the config says about the cluster, whatever holds the node.
    member: Membership,
}

impl SiteState {
    /// Takes over whether this node is in a cluster.
    pub(super) fn hear_member(&mut self, member: Membership) {
        if member != Membership::Undecided {
            self.member = member;
        }
    }

    /// Takes over what a whole-site operation holds it to.
    pub(super) fn hear_hold(&mut self, hold: SiteHold) {
        self.hold = hold;
    }

    /// The membership of this node that counts for drains.
    pub(super) fn effective(&self) -> Membership {
        match self.member {
            Membership::Undecided | Membership::Member if self.hold != SiteHold::None => Membership::Leaving,
            member @ (Membership::Undecided
            | Membership::Member
            | Membership::Leaving
            | Membership::Outside) => member,
        }
    }

    /// The operation that holds this node; `None` while another cause keeps it in other hands.
    pub(super) fn holds(&self) -> Option<&str> {
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

    /// The operation that goes ahead.
    pub(super) fn lets_go(&self) -> Option<&str> {
        self.last_look()?.ok()
    }
}
