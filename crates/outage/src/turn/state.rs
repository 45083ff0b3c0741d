//! What a turn says of itself, and of the others that hold one.
//!
//! Pure: no clock, no I/O, no task.

use super::core::Turn;
use super::event::{Effect, TurnClaim, TurnState, TurnWait};
use super::record::{Fence, Holder, LEASE, Phase, RecordSnapshot};
use super::rule::{self, TurnRefusal, TurnRule};

/// What we know of the Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum KnownRecord {
    /// Nothing.
    Unknown,
    /// There is none.
    Absent,
    /// This one.
    There(Box<RecordSnapshot>),
}

/// What this node wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DesiredTurn {
    /// Nobody has said yet.
    Unknown,
    /// No turn.
    Nothing,
    /// A turn for this.
    Turn(TurnClaim),
}

/// The turn as this process has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TurnGrant {
    None,
    Held { fence: Fence, lease_uid: String },
    Lost { why: String },
    Booted { fence: Fence, listed: bool },
}

impl Turn {
    /// Where this node is.
    pub fn state(&self) -> TurnState {
        match (&self.grant, &self.want) {
            (TurnGrant::Held { fence, lease_uid }, _) => {
                let phase = self.own().map_or(Phase::Granted, |it| it.phase.clone());
                TurnState::Held { fence: *fence, lease_uid: lease_uid.clone(), phase }
            }
            (TurnGrant::Lost { why }, _) => TurnState::Lost { why: why.clone() },
            (TurnGrant::Booted { fence, listed }, _) => TurnState::Booted { fence: *fence, listed: *listed },
            (TurnGrant::None, DesiredTurn::Turn(want)) => TurnState::Waiting(Box::new(self.waiting(want))),
            (TurnGrant::None, DesiredTurn::Nothing | DesiredTurn::Unknown) => {
                TurnState::NotWanted { idle: self.idle }
            }
        }
    }

    fn waiting(&self, want: &TurnClaim) -> TurnWait {
        let place = match &self.seen {
            KnownRecord::There(held) if held.record.queue.iter().any(|it| it.node == self.me.node) => {
                Some(rule::ahead(&held.record, &self.waiter(want, &held.record)).len() + 1)
            }
            KnownRecord::There(_) | KnownRecord::Absent | KnownRecord::Unknown => None,
        };
        let refusal = self.refusal.clone().unwrap_or_else(|| TurnRefusal {
            rule: TurnRule::Reading,
            nodes: Vec::new(),
            why: format!("checking Lease {LEASE}"),
            next: "zedbox lock status".to_owned(),
        });
        let TurnRefusal { rule, nodes, why, next } = refusal;
        TurnWait { nodes, rule, why, since: self.since, place, next }
    }

    /// The other nodes that hold a turn, as the Lease was read last.
    pub fn other_holders(&self) -> Vec<String> {
        self.others().map(|it| it.node.clone()).collect()
    }

    /// The servers among them; `None` before the first reading.
    pub fn servers_out(&self) -> Option<Vec<String>> {
        let servers = self.others().filter(|it| it.server).map(|it| it.node.clone()).collect();
        (self.seen != KnownRecord::Unknown).then_some(servers)
    }

    fn others(&self) -> impl Iterator<Item = &Holder> {
        let holders = match &self.seen {
            KnownRecord::There(held) => held.record.holders.as_slice(),
            KnownRecord::Absent | KnownRecord::Unknown => &[],
        };
        holders.iter().filter(|it| it.node != self.me.node || it.node_uid != self.me.uid)
    }

    /// Says what has changed about us.
    pub(super) fn show(&mut self, out: &mut Vec<Effect>) {
        let wanted = matches!(self.want, DesiredTurn::Turn(_));
        let turn_state = self.state();
        // A turn of before a boot is not known without a reading.
        let known = wanted || self.said.is_some() || self.seen != KnownRecord::Unknown;
        if known && self.said.as_ref() != Some(&turn_state) {
            self.said = Some(turn_state.clone());
            out.push(Effect::State(turn_state));
        }
    }
}
