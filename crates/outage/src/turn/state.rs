//! What a turn says of itself, and of the others that hold one.
//!
//! Pure: no clock, no I/O, no task.

use super::core::{Grant, KnownLease, Turn, Wanted};
use super::event::{Effect, TurnState, Waiting, Want};
use super::record::{Holder, LEASE, Phase};
use super::rule::{self, Refusal, Rule};

impl Turn {
    /// Where this node is.
    pub fn standing(&self) -> TurnState {
        match (&self.grant, &self.want) {
            (Grant::Held { fence, lease_uid }, _) => {
                let phase = self.own().map_or(Phase::Granted, |it| it.phase.clone());
                TurnState::Held { fence: *fence, lease_uid: lease_uid.clone(), phase }
            }
            (Grant::Lost { why }, _) => TurnState::Lost { why: why.clone() },
            (Grant::Booted { fence, listed }, _) => TurnState::Booted { fence: *fence, listed: *listed },
            (Grant::None, Wanted::Turn(want)) => TurnState::Waiting(Box::new(self.waiting(want))),
            (Grant::None, Wanted::Nothing | Wanted::Unknown) => TurnState::NotWanted { idle: self.idle },
        }
    }

    fn waiting(&self, want: &Want) -> Waiting {
        let place = match &self.seen {
            KnownLease::There(held) if held.record.queue.iter().any(|it| it.node == self.me.node) => {
                Some(rule::ahead(&held.record, &self.waiter(want, &held.record)).len() + 1)
            }
            KnownLease::There(_) | KnownLease::Absent | KnownLease::Unknown => None,
        };
        let refusal = self.refusal.clone().unwrap_or_else(|| Refusal {
            rule: Rule::Reading,
            nodes: Vec::new(),
            why: format!("checking Lease {LEASE}"),
            next: "zedbox lock status".to_owned(),
        });
        let Refusal { rule, nodes, why, next } = refusal;
        Waiting { nodes, rule, why, since: self.since, place, next }
    }

    /// The other nodes that hold a turn, as the Lease was read last.
    pub fn other_holders(&self) -> Vec<String> {
        self.others().map(|it| it.node.clone()).collect()
    }

    /// The servers among them; `None` before the first reading.
    pub fn servers_out(&self) -> Option<Vec<String>> {
        let servers = self.others().filter(|it| it.server).map(|it| it.node.clone()).collect();
        (self.seen != KnownLease::Unknown).then_some(servers)
    }

    fn others(&self) -> impl Iterator<Item = &Holder> {
        let holders = match &self.seen {
            KnownLease::There(held) => held.record.holders.as_slice(),
            KnownLease::Absent | KnownLease::Unknown => &[],
        };
        holders.iter().filter(|it| it.node != self.me.node || it.node_uid != self.me.uid)
    }

    /// Says what has changed about us.
    pub(super) fn show(&mut self, out: &mut Vec<Effect>) {
        let wanted = matches!(self.want, Wanted::Turn(_));
        let standing = self.standing();
        // A turn of before a boot is not known without a reading.
        let known = wanted || self.said.is_some() || self.seen != KnownLease::Unknown;
        if known && self.said.as_ref() != Some(&standing) {
            self.said = Some(standing.clone());
            out.push(Effect::Stand(standing));
        }
    }
}
