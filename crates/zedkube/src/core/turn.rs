//! The turn of this node to be down: what the drain has to know of it, and what its keeper is asked.
//!
//! Asked are levels: whether a turn is wanted, whether the node is healthy after its boot, how far it is. Not here: which
//! node has the turn (`outage`). Sources: design.md section 12; goals U1, U10, U12. Pure: no clock, no I/O, no task.

use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::{TurnState, TurnWait};
use outage::turn::record::{Op, Phase};
use outage::turn::rule::TurnRule;
use topics::{NodeDrainRequest, Requester};

use super::facts::{CordonTurn, Effect};

/// What the keeper has said, and what it was asked last.
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
    /// How far the drain is.
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

    /// The turn, if it is ours.
    pub(crate) fn held(&self) -> Option<CordonTurn> {
        let Some(TurnState::Held { fence, lease_uid, .. }) = &self.turn_state else { return None };
        Some(CordonTurn { fence: *fence, lease_uid: lease_uid.clone() })
    }

    /// What it waits for.
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
        Requester::Operator | Requester::Unset | Requester::None | Requester::Stranger(_) => Op::Drain,
    };
    // A later request has another number, as its time at the front of the queue begins anew.
    let counter = u64::try_from(request.requested_at.to_timestamp().as_millisecond()).unwrap_or_default();
    TurnRequest { op, counter, emergency: false, fit }
}
