//! The turn of one node as this process has it: what is known, what is wanted, which call is under way; and what it says of
//! itself and of the others that hold one.
//!
//! Not here: what changes it (`core`, `enter`, `keep`, `look`).
//! Pure: no clock, no I/O, no task.

use step::{CallId, Dice, Mono};

use super::event::{Effect, TurnClaim, TurnState, TurnWait};
use super::observed::Observed;
use super::rebuild::LeaseMemory;
use super::record::{Fence, Holder, LEASE, Phase, RecordSnapshot, TurnRecord};
use super::rule::{self, Me, TurnNode, TurnRefusal, TurnRule};

/// What we know of the Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum KnownRecord {
    Unknown,
    Absent,
    There(Box<RecordSnapshot>),
}

/// What this node wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DesiredTurn {
    /// Nobody has said yet.
    Unknown,
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

/// How far a last look is. On a server it continues without the API: `unread` says why that cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LookStep {
    /// The Lease is being read.
    Lease,
    /// The nodes are.
    Nodes { unread: Option<String> },
    /// The margin is.
    Margin { unread: Option<String> },
    /// Our entry is being written.
    GoingDown,
}

/// A call that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TurnCall {
    Read,
    Confirm,
    /// A step of the last look, for the question of this number.
    Look(u64, LookStep),
    Cluster,
    /// With the nodes as they were read before it.
    Margin(Vec<TurnNode>),
    /// `looked`: the nodes were read for it.
    Write {
        looked: bool,
    },
}

/// The turn of this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Turn {
    pub(super) me: Me,
    pub(super) want: DesiredTurn,
    pub(super) seen: KnownRecord,
    /// What outlives a Lease that is deleted or suddenly older.
    pub(super) memory: LeaseMemory,
    pub(super) grant: TurnGrant,
    /// The turn is ours, and the Lease does not have it any more, though nobody ended it: it is written in again.
    pub(super) forgotten: bool,
    /// Another zedkube acts for this node: it has its turn.
    pub(super) rival: bool,
    /// The fence of a grant that was written without a known result, and until when it may come through.
    pub(super) attempt: Option<(Fence, Mono)>,
    /// Until when a write that we do not remember, or whose result we do not know, may come through.
    pub(super) doubt: Option<Mono>,
    pub(super) gate: Option<bool>,
    /// The phase that our own entry is to say.
    pub(super) phase: Phase,
    pub(super) call: Option<TurnCall>,
    pub(super) calls: CallId,
    /// When the Lease was read or written last.
    pub(super) read_at: Mono,
    /// The Lease must be read again.
    pub(super) dirty: bool,
    pub(super) confirm: bool,
    /// The last look that is asked for.
    pub(super) look: Option<u64>,
    /// The same, put off until then.
    pub(super) look_again: Option<(u64, Mono)>,
    /// How often the nodes were read since it was not known whether their kubelets live.
    pub(super) unseen: u32,
    /// When a node that is far back in the queue reads the nodes all the same.
    pub(super) far: Option<Mono>,
    /// When the nodes are to be read again after a write that came of reading them.
    pub(super) again: Option<Mono>,
    pub(super) due: Option<Mono>,
    pub(super) troubles: u32,
    pub(super) outdated: u32,
    pub(super) failures: u32,
    /// After a failed attempt.
    pub(super) paused: Option<Mono>,
    /// How often a turn was lost since one was used, and until when no other is taken.
    pub(super) losses: u32,
    pub(super) barred: Option<Mono>,
    /// What has been written counts as spread over the time until then.
    pub(super) written: Mono,
    pub(super) since: Mono,
    pub(super) refusal: Option<TurnRefusal>,
    pub(super) observed: Observed,
    /// It wants no turn, a reading has shown no entry of ours, and no write of ours may still come through.
    pub(super) idle: bool,
    pub(super) dice: Dice,
    pub(super) said: Option<TurnState>,
}

impl Turn {
    /// The turn of `me`, of which nothing is known yet. `chance` differs from node to node.
    pub fn new(me: Me, chance: u64) -> Self {
        Self {
            me,
            want: DesiredTurn::Unknown,
            seen: KnownRecord::Unknown,
            memory: LeaseMemory::default(),
            grant: TurnGrant::None,
            forgotten: false,
            rival: false,
            attempt: None,
            doubt: None,
            gate: None,
            phase: Phase::Granted,
            call: None,
            calls: 0,
            read_at: Mono::START,
            dirty: false,
            confirm: false,
            look: None,
            look_again: None,
            unseen: 0,
            far: None,
            again: None,
            due: Some(Mono::START),
            troubles: 0,
            outdated: 0,
            failures: 0,
            paused: None,
            losses: 0,
            barred: None,
            written: Mono::START,
            since: Mono::START,
            refusal: None,
            observed: Observed::default(),
            idle: false,
            dice: Dice::new(chance),
            said: None,
        }
    }

    /// Our own entry among the holders.
    pub(super) fn own(&self) -> Option<&Holder> {
        self.held()?.record.holder(&self.me.node, &self.me.uid)
    }

    /// The record as it was read, or the one of a cluster without.
    pub(super) fn record(&self) -> TurnRecord {
        self.held().map(|it| it.record.clone()).unwrap_or_default()
    }

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

    /// Takes the Lease as it was read or written.
    pub(super) fn take_record(&mut self, found: Option<Box<RecordSnapshot>>) {
        if let Some(held) = &found {
            self.memory.see(held);
        }
        self.seen = found.map_or(KnownRecord::Absent, KnownRecord::There);
    }

    /// The Lease as it was read last.
    pub(super) fn held(&self) -> Option<&RecordSnapshot> {
        if let KnownRecord::There(held) = &self.seen { Some(held) } else { None }
    }

    fn others(&self) -> impl Iterator<Item = &Holder> {
        let listed = self.held().map(|it| it.record.holders.as_slice()).unwrap_or_default();
        let all = listed.iter().chain(self.memory.missing(self.held()).map(|(_, it)| it));
        all.filter(|it| it.node != self.me.node || it.node_uid != self.me.uid)
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
