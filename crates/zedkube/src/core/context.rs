//! What all parts of the core share: limits, the boot and its wall clock, where this node belongs, and what is known of its
//! turn, of its hooks and windows, of a whole-site operation and of an update of k3s.
//!
//! Every time that a person reads is made from a monotonic one, and made again when the wall clock is set. No decision
//! depends on it. Not here: who notices that it was set (`agent::Clock`), which node has the turn, how far the
//! operation is (`outage`), and the update (`crate::k3s`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings::Properties;
use nodestatus::Membership;
use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::{TurnState, TurnWait};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::TurnRule;
use step::Mono;
use topics::{
    ClusterKnown, GoTime, K3sStage, K3sUpdate, NodeDrainRequest, OperationPause, PauseScope, Requester,
};

use super::facts::{ClosedWindow, CordonTurn, Effect, K3sHold, Learned, Pass, SiteHold};
use crate::limits::Limits;

/// Why the node was not drained for an update of k3s.
pub(super) const TURN_ALONE: &str = "k3s restarts and its pods stay: a turn is all that it needs";

/// A clock that was moved by less was not set: the journal of an earlier run is not written again for that.
const SET: Duration = Duration::from_millis(500);

/// What all parts of the core share.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NodeContext {
    pub(crate) limits: Limits,
    /// Config properties as they were heard last.
    pub(crate) properties: Properties,
    pub(crate) boot_id: String,
    /// When the monotonic clock started, by the wall clock.
    pub(crate) booted_at: GoTime,
    pub(crate) member: Membership,
    /// What a whole-site operation holds it to.
    pub(crate) site: SiteState,
    /// What an update of k3s says of it.
    pub(crate) k3s: K3sHold,
    /// The name of our Node object, empty until it is known.
    pub(crate) name: String,
    /// The turn of this node to be down.
    pub(crate) turn: Turns,
    pub(crate) hooks: HookState,
    /// Whether drains may start by the clock.
    pub(crate) window: WindowState,
    /// What is known of the cluster, also of earlier boots.
    pub(crate) known: ClusterKnown,
}

/// What a part gets of a step of the core.
pub(crate) struct Step<'a> {
    pub(crate) now: Mono,
    pub(crate) node: &'a NodeContext,
    pub(crate) out: &'a mut Vec<Effect>,
}

/// What is known of the hooks of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HookState {
    /// Those before a drain were called in this boot, and not undone.
    pub(crate) in_place: bool,
    pub(crate) undoing: bool,
    /// Those after the boot have not been called.
    pub(crate) after_boot: bool,
    /// What came of them, for a reader: who is refused, who failed without stopping anything.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WindowState {
    /// Why no drain starts; `None` while one may, and without windows.
    pub(crate) closed: Option<ClosedWindow>,
    pub(crate) pass: Option<Pass>,
    /// A person's pause; one that refuses the controller alone is its agents' to keep.
    pub(crate) pause: Option<OperationPause>,
}

impl WindowState {
    /// The pause that keeps every drain from starting.
    pub(crate) fn paused(&self) -> Option<&OperationPause> {
        self.pause.as_ref().filter(|it| it.scope == PauseScope::Node)
    }
}

impl NodeContext {
    /// The turn in which it may be cordoned; `None` while it has to wait for one.
    pub(crate) fn grant(&self) -> Option<CordonTurn> {
        if self.limits.take_turns { self.turn.held() } else { Some(CordonTurn::default()) }
    }

    /// Hears what was read of the cluster.
    pub(crate) fn learn(&mut self, learned: Learned) {
        let Learned { server, alone, servers, volume, addresses } = learned;
        let role = if server { "server" } else { "worker" }.to_owned();
        let servers_out = std::mem::take(&mut self.known.servers_out);
        self.known = ClusterKnown { role, alone, servers, servers_out, volume, addresses };
    }

    /// What the wall clock of now shows for a point in this boot.
    pub(crate) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The monotonic clock started then, by the wall clock of now. If it was set, returns the start as it was known
    /// before: what was written by that one has to move.
    pub(crate) fn set_clock(&mut self, booted_at: GoTime) -> Option<GoTime> {
        let was_set = self.booted_at.apart(booted_at) >= SET;
        was_set.then(|| std::mem::replace(&mut self.booted_at, booted_at))
    }
}

impl K3sHold {
    pub fn of(record: Option<&K3sUpdate>) -> Self {
        record.filter(|it| it.is_under_way()).map_or_else(Self::default, |it| Self {
            what: format!("waits for {}", it.waiting_for),
            next_step: it.next_step.clone(),
            failed: it.stage == K3sStage::Failed,
        })
    }

    /// The node is not known to be healthy with it.
    pub(super) fn holds(&self) -> bool {
        !self.what.is_empty()
    }
}

/// What is known of a shutdown or reboot of the whole site: no drain begins and no cordon is removed while it holds the node,
/// as while that leaves its cluster, and the operation itself is let go ahead without a drain when it says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SiteState {
    pub(super) hold: SiteHold,
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

    /// The membership of this node that counts for drains.
    pub(super) fn effective(&self) -> Membership {
        let stays = matches!(self.member, Membership::Undecided | Membership::Member);
        let held = matches!(self.hold, SiteHold::Kept(_) | SiteHold::Go(_));
        if stays && held { Membership::Leaving } else { self.member }
    }

    /// The operation that holds this node; `None` while another cause keeps it in other hands.
    pub(super) fn holds(&self) -> Option<&str> {
        match &self.hold {
            SiteHold::Kept(what) | SiteHold::Go(what) if self.member != Membership::Leaving => Some(what),
            SiteHold::None | SiteHold::Queued(_) | SiteHold::Kept(_) | SiteHold::Go(_) => None,
        }
    }

    /// The order in which the nodes of a restart go, while this one waits for its place.
    pub(super) fn queue(&self) -> Option<&str> {
        if let SiteHold::Queued(order) = &self.hold { Some(order) } else { None }
    }

    /// What nodeagent is answered before the machine goes down: that it may, or which operation keeps it up.
    pub(super) fn last_look(&self) -> Option<Result<&str, &str>> {
        let what = self.holds()?;
        Some(if matches!(self.hold, SiteHold::Go(_)) { Ok(what) } else { Err(what) })
    }
}

/// The turn of this node to be down: what its keeper has said, and what it was asked last. Asked are levels: whether a turn is
/// wanted, whether the node is healthy after its boot, how far it is.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::option_option, reason = "not asked yet, and that nothing is wanted, differ")]
pub(crate) struct Turns {
    /// Where this node is; `None` before the keeper's first word.
    turn_state: Option<TurnState>,
    want: Option<Option<TurnRequest>>,
    gate: Option<bool>,
    phase: Option<Phase>,
    /// The loss after which it was asked to try again.
    retried: bool,
}

/// What the keeper is to know.
pub(crate) struct KeeperLevels<'a> {
    /// A turn is wanted, or kept.
    pub(crate) wanted: bool,
    /// For a restart on the node's own account.
    pub(crate) own: Option<TurnRequest>,
    /// Nothing is known that would keep the drain from starting.
    pub(crate) fit: bool,
    pub(crate) serves: Option<&'a NodeDrainRequest>,
    /// The gate after the boot is open and no cordon of ours is on the node.
    pub(crate) healthy: bool,
    pub(crate) phase: Option<Phase>,
    /// A cordon of ours is on the node.
    pub(crate) cordoned: bool,
}

impl Turns {
    /// Takes over the state of this node's turn; says whether it is new.
    pub(crate) fn hear(&mut self, turn_state: TurnState) -> bool {
        let turn_state = Some(turn_state);
        if self.turn_state == turn_state {
            return false;
        }
        self.turn_state = turn_state;
        if self.lost().is_none() {
            self.retried = false;
        }
        true
    }

    pub(crate) fn held(&self) -> Option<CordonTurn> {
        let Some(TurnState::Held { fence, lease_uid, .. }) = &self.turn_state else { return None };
        Some(CordonTurn { fence: *fence, lease_uid: lease_uid.clone() })
    }

    pub(crate) fn waiting(&self) -> Option<&TurnWait> {
        if let Some(TurnState::Waiting(waiting)) = &self.turn_state { Some(waiting) } else { None }
    }

    /// It waits for somebody else, by a rule that was looked at: nothing of before counts any more.
    pub(crate) fn is_refused(&self) -> bool {
        self.waiting().is_some_and(|it| {
            !matches!(it.rule, TurnRule::Reading | TurnRule::Preflight | TurnRule::Api | TurnRule::NotListed)
        })
    }

    /// It waits because the API does not answer, or knows no such node.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.waiting().is_some_and(|it| matches!(it.rule, TurnRule::Api | TurnRule::NotListed))
    }

    /// It is back in a new boot, and the turn is kept until the node is healthy.
    pub(crate) fn is_back(&self) -> bool {
        matches!(&self.turn_state, Some(TurnState::Booted { listed: true, .. }))
    }

    /// Why the turn is no longer ours, if it was.
    pub(crate) fn lost(&self) -> Option<&str> {
        if let Some(TurnState::Lost { why }) = &self.turn_state { Some(why) } else { None }
    }

    /// The drain cannot start any more: it must not queue, whatever else is not known yet.
    pub(crate) fn settle_fit(&mut self, fit: bool, out: &mut Vec<Effect>) {
        if let Some(Some(wish)) = &mut self.want
            && wish.fit
            && !fit
        {
            wish.fit = false;
            out.push(Effect::Turn(Ask::Want(Some(wish.clone()))));
        }
    }

    /// Asks the keeper for what has changed.
    pub(crate) fn settle(&mut self, now: &KeeperLevels<'_>, out: &mut Vec<Effect>) {
        let wish = now.wanted.then(|| match (&now.own, now.serves, &self.want) {
            (Some(own), serves, _) if own.emergency || serves.is_none() => own.clone(),
            (_, Some(request), _) => wish(request, now.fit),
            (_, None, Some(Some(before))) => before.clone(),
            (_, None, _) => TurnRequest { op: Op::Drain, counter: 0, emergency: false, fit: true },
        });
        if self.gate != Some(now.healthy) {
            self.gate = Some(now.healthy);
            out.push(Effect::Turn(Ask::Gate(now.healthy)));
        }
        if self.want.as_ref() != Some(&wish) {
            self.want = Some(wish);
            out.push(Effect::Turn(Ask::Want(self.want.clone().flatten())));
        }
        if now.phase.is_some() && self.phase != now.phase {
            out.extend(now.phase.clone().map(|it| Effect::Turn(Ask::Phase(it))));
        }
        self.phase.clone_from(&now.phase);
        if let Some(why) = self.lost().map(str::to_owned)
            && now.wanted
            && !now.cordoned
            && !self.retried
        {
            self.retried = true;
            out.push(Effect::Turn(Ask::Retry(why)));
        }
    }
}

fn wish(request: &NodeDrainRequest, fit: bool) -> TurnRequest {
    let op = match request.requested_by {
        Requester::DeviceOp if request.context == "shutdown" => Op::Shutdown,
        Requester::DeviceOp => Op::Reboot,
        Requester::Update => Op::OsUpdate,
        Requester::K3sUpdate => Op::K3sUpdate,
        Requester::Operator
        | Requester::NodeMaintenance
        | Requester::Unset
        | Requester::None
        | Requester::Stranger(_) => Op::Drain,
    };
    // A later request has another number, as its time at the front of the queue begins anew.
    let counter = u64::try_from(request.requested_at.to_timestamp().as_millisecond()).unwrap_or_default();
    TurnRequest { op, counter, emergency: false, fit }
}
