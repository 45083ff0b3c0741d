//! From a place in the queue to a turn: when the nodes are read, and what one reading of them leads to.
//!
//! One write covers all of it: the record rebuilt, turns taken over, our place in the queue, our grant.
//! Source: spec/cluster-lock.md 3.2, 3.3, 3.5. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Fault, Mono, planted};

use super::event::{Effect, TurnClaim};
use super::rebuild::rebuild;
use super::record::{EarlierGrant, Holder, Op, TurnRecord, Waiter};
use super::rule::{self, CordonMark, Me, TakeoverProof, TurnNode, TurnReading, TurnRefusal, TurnRule};
use super::state::{DesiredTurn, KnownRecord, Turn, TurnGrant};

/// So many of the queue read the nodes; the others wait for changes of the Lease.
const NEAR: usize = 3;
/// Pause between two readings of the nodes by one of those.
pub(super) const LOOK: Duration = Duration::from_secs(30);
/// The same while it is not known whether the kubelets of others live: first, and longest; a kubelet renews its lease every
/// 10 s.
const UNSEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// The same for everybody else: those before it may all have stopped.
const FAR_LOOK: Duration = Duration::from_secs(600);

impl Turn {
    /// Our place in the queue as it is to be; members of another version stay in it.
    pub(super) fn waiter(&self, want: &TurnClaim, record: &TurnRecord) -> Waiter {
        let old = record.queue.iter().find(|it| it.node == self.me.node && it.node_uid == self.me.uid);
        Waiter {
            node: self.me.node.clone(),
            node_uid: self.me.uid.clone(),
            class: want.class.clone(),
            op: want.op.clone(),
            counter: want.counter,
            rest: old.map(|it| it.rest.clone()).unwrap_or_default(),
        }
    }

    /// Whether `mine` is one of the first.
    pub(super) fn is_near(mine: &Waiter, record: &TurnRecord) -> bool {
        rule::ahead(record, mine).len() < NEAR
    }

    /// The Lease is fresh and this node wants a turn that it does not hold.
    pub(super) fn seek(&mut self, now: Mono, want: &TurnClaim, out: &mut Vec<Effect>) {
        if self.seen == KnownRecord::Absent {
            // A creation names no version: the Lease may have been created, used and deleted meanwhile. So it grants
            // nothing, and the nodes are read after it.
            let mut record = self.memory.blank();
            let mine = self.waiter(want, &record);
            queue(&mut record, mine);
            self.write(now, record, false, out);
            return;
        }
        let mut record = self.record();
        let mine = self.waiter(want, &record);
        let near = Self::is_near(&mine, &record);
        let far = *self.far.get_or_insert(now + FAR_LOOK);
        if near || self.own().is_some() || far <= now {
            self.far = None;
            self.read_cluster(out);
            return;
        }
        self.refusal = Some(far_back(&record, &mine));
        if queue(&mut record, mine) {
            self.write(now, record, false, out);
        } else {
            self.due = Some(far);
        }
    }

    /// The nodes were read, after the Lease; `margin` is asked for when nothing else is in the way.
    pub(super) fn evaluate(
        &mut self,
        now: Mono,
        nodes: Vec<TurnNode>,
        margin: Option<&Result<(), String>>,
        out: &mut Vec<Effect>,
    ) {
        self.memory.forget_back(&nodes);
        if self.forgotten {
            self.write_again(now, nodes, out);
            return;
        }
        // It may have been withdrawn, or something was lost or failed, while the calls were under way.
        let (DesiredTurn::Turn(want), TurnGrant::None, false) =
            (self.want.clone(), &self.grant, self.is_paused(now))
        else {
            self.dirty = true;
            return;
        };
        let Some(held) = self.held().cloned() else {
            self.dirty = true;
            return;
        };
        let reading = TurnReading { held: Some(held), nodes };
        let rebuilt = rebuild(&reading, &self.memory, Some(&self.me));
        let nodes = reading.nodes;
        if rebuilt.is_some() {
            out.push(Effect::Say(
                "the Lease was deleted or restored: rebuilt from the nodes' cordon marks and from what was seen of it"
                    .to_owned(),
            ));
        }
        let mut record = rebuilt.unwrap_or_else(|| self.record());
        self.observed.take(now, &self.me, &record, &nodes);
        let known = margin.cloned().unwrap_or(Ok(()));
        let mut asks = self.take_over(now, &mut record, &known, out);
        let mine = self.waiter(&want, &record);
        let mut passed = self.observed.passed(now, &record);
        if let Some(entry) = record.holder(&self.me.node, &self.me.uid).cloned() {
            if self.adopt(&entry, &want, &nodes, out) {
                return;
            }
            // Ours, but nothing was done under it: it keeps its place at the front, if the rule still allows it.
            record.release(&self.me.node, &self.me.uid);
            passed.extend(record.queue.iter().map(|it| it.node.clone()));
        }
        if Self::is_unfit(&want) {
            self.stay_out(now, record, out);
            return;
        }
        let may = rule::may_enter(&self.me, &mine, &record, &nodes, &passed, &known);
        asks |= may.is_ok() && !rule::is_alone(&self.me, &nodes);
        if asks && margin.is_none() {
            self.read_margin(nodes, out);
            return;
        }
        match may {
            Ok(()) => self.enter(now, record, &want, out),
            Err(refusal) => self.wait(now, record, mine, refusal, out),
        }
    }

    /// The turn is ours and in no Lease any more, and nobody has ended it: this node writes itself in again, unless others hold
    /// a turn by now (goals T6).
    fn write_again(&mut self, now: Mono, nodes: Vec<TurnNode>, out: &mut Vec<Effect>) {
        let (DesiredTurn::Turn(want), TurnGrant::Held { fence, lease_uid }, None) =
            (self.want.clone(), self.grant.clone(), self.paused)
        else {
            (self.forgotten, self.dirty) = (false, true);
            return;
        };
        let reading = TurnReading { held: self.held().cloned(), nodes };
        let mut record = rebuild(&reading, &self.memory, Some(&self.me)).unwrap_or_else(|| self.record());
        if let Some(why) = rule::taken(&self.me, &record) {
            out.push(Effect::Say(why.clone()));
            self.lose(now, why);
            return;
        }
        let Me { node, uid, boot_id, server } = self.me.clone();
        let earlier = Some(EarlierGrant { fence, lease_uid });
        let mine = |it: &&mut Holder| it.node == node && it.node_uid == uid && it.earlier == earlier;
        if let Some(brought) = record.holders.iter_mut().find(mine) {
            (brought.op, brought.counter, brought.phase) = (want.op, want.counter, self.phase.clone());
        } else {
            record.release(&node, &uid);
            record.grant(Holder {
                node,
                node_uid: uid,
                boot_id,
                op: want.op,
                counter: want.counter,
                fence: 0,
                phase: self.phase.clone(),
                server,
                since: String::new(),
                earlier,
                rest: serde_json::Map::new(),
            });
        }
        self.write(now, record, true, out);
    }

    /// Whether its drain is not known to be able to start: a node like that holds the turn of the cluster for nothing.
    pub(super) fn is_unfit(want: &TurnClaim) -> bool {
        !want.fit && !want.emergency && !planted(Fault::TurnPreflight)
    }

    /// It has said so, and nothing in the record changes that.
    pub(super) fn stays_out(&self) -> bool {
        self.grant == TurnGrant::None
            && matches!(&self.want, DesiredTurn::Turn(want) if Self::is_unfit(want))
            && self.refusal.as_ref().is_some_and(|it| it.rule == TurnRule::Preflight)
    }

    /// Neither in the queue nor among the holders, until the drain can start.
    pub(super) fn stay_out(&mut self, now: Mono, mut record: TurnRecord, out: &mut Vec<Effect>) {
        record.release(&self.me.node, &self.me.uid);
        record.queue.retain(|it| it.node != self.me.node);
        self.refusal = Some(TurnRefusal {
            rule: TurnRule::Preflight,
            nodes: Vec::new(),
            why: "the preflight of its drain is not clean yet".to_owned(),
            next: "zedbox drain status".to_owned(),
        });
        (self.again, self.far, self.due) = (None, None, None);
        if record != self.record() {
            self.write(now, record, false, out);
        }
    }

    /// Takes over what may be taken over, and takes waiters that are gone out of the queue. Returns whether the margin
    /// decides about a take-over.
    fn take_over(
        &mut self,
        now: Mono,
        record: &mut TurnRecord,
        margin: &Result<(), String>,
        out: &mut Vec<Effect>,
    ) -> bool {
        record.queue.retain(|it| !self.observed.is_gone(now, it));
        if record.mode.as_ref().is_some_and(|it| !it.keeps_turns()) {
            return false;
        }
        let mut asks = false;
        record.holders.retain(|it| {
            let Some(proof) = self.observed.proof(now, &it.node_uid, it.fence) else { return true };
            let server = proof == TakeoverProof::Gone && it.server;
            asks |= server;
            if server && margin.is_err() {
                return true;
            }
            let why = match proof {
                TakeoverProof::Gone => "was deleted from the cluster",
                TakeoverProof::Idle => "is healthy and not in that turn",
            };
            out.push(Effect::Say(format!("turn of node {} (fence {}) ended: it {why}", it.node, it.fence)));
            false
        });
        asks
    }

    /// After a restart of the agent in the same boot: a turn under which this node is cordoned continues, and so does one for
    /// the same update of k3s, which may need no cordon.
    fn adopt(&mut self, entry: &Holder, want: &TurnClaim, nodes: &[TurnNode], out: &mut Vec<Effect>) -> bool {
        let own = nodes.iter().find(|it| it.name == self.me.node && it.uid == self.me.uid);
        let mark = own.and_then(|it| it.mark.as_ref());
        let continues = |it: &CordonMark| entry.earlier.as_ref() == Some(&it.grant());
        let marked =
            mark.filter(|it| it.boot_id == self.me.boot_id && (it.fence == entry.fence || continues(it)));
        let k3s = (&entry.op, &entry.op, entry.counter) == (&Op::K3sUpdate, &want.op, want.counter);
        let listed = self.own().and_then(|it| it.earlier.as_ref());
        let (fence, lease_uid) = match (marked, self.held()) {
            (Some(mark), Some(held)) if listed == Some(&mark.grant()) => (entry.fence, held.uid.clone()),
            (Some(mark), _) => (mark.fence, mark.lease_uid.clone()),
            (None, Some(held)) if k3s && entry.boot_id == self.me.boot_id => (entry.fence, held.uid.clone()),
            (None, _) => return false,
        };
        out.push(Effect::Say(format!("continues the turn with fence {fence}")));
        self.hold(fence, lease_uid, entry.phase.clone());
        self.dirty = true;
        true
    }

    /// Not yet: what the reading has changed is written, our place in the queue with it.
    fn wait(
        &mut self,
        now: Mono,
        mut record: TurnRecord,
        mine: Waiter,
        refusal: TurnRefusal,
        out: &mut Vec<Effect>,
    ) {
        let near = Self::is_near(&mine, &record);
        // A node that is not there waits for its object, and for nothing before it.
        if refusal.rule != TurnRule::NotListed {
            queue(&mut record, mine);
        }
        let again = if refusal.rule == TurnRule::Reading {
            Some(now + self.unseen_pause())
        } else {
            self.unseen = 0;
            near.then_some(now + LOOK)
        };
        self.refusal = Some(refusal);
        self.again = [again, self.observed.next(now)].into_iter().flatten().min();
        if record == self.record() {
            self.rest(now);
        } else {
            self.write(now, record, true, out);
        }
    }

    /// Pause before the nodes are read again, as it is not known whether their kubelets live.
    pub(super) fn unseen_pause(&mut self) -> Duration {
        self.unseen = self.unseen.saturating_add(1);
        step::doubled(UNSEEN.0, UNSEEN.1, self.unseen)
    }

    /// Nothing changes by us until the next reading.
    pub(super) fn rest(&mut self, now: Mono) {
        let far = *self.far.get_or_insert(now + FAR_LOOK);
        match self.again.take().filter(|at| *at < far) {
            Some(at) => {
                // The next reading is one of the nodes, wherever in the queue we are.
                (self.due, self.far) = (Some(at), Some(at));
            }
            None => self.due = Some(far),
        }
    }
}

/// Why a node waits that does not read the others: for those before it.
pub(super) fn far_back(record: &TurnRecord, mine: &Waiter) -> TurnRefusal {
    let ahead = rule::ahead(record, mine);
    let holders: Vec<String> = record.holders.iter().map(|it| it.node.clone()).collect();
    let holder = if holders.is_empty() { "none".to_owned() } else { holders.join(", ") };
    let first = ahead.first().map(|it| it.node.clone());
    TurnRefusal {
        rule: TurnRule::Order,
        nodes: if holders.is_empty() { first.into_iter().collect() } else { holders },
        why: format!("{} nodes are before this node in the queue; current holders: {holder}", ahead.len()),
        next: "zedbox lock status".to_owned(),
    }
}

/// Puts `mine` in its place in the queue, or at the end; returns whether that changes anything.
fn queue(record: &mut TurnRecord, mine: Waiter) -> bool {
    let old = record.queue.clone();
    let at = old.iter().position(|it| it.node == mine.node && it.node_uid == mine.node_uid);
    // One entry for each node: a joined node's earlier one goes.
    record.queue.retain(|it| it.node != mine.node || it.node_uid == mine.node_uid);
    match at.and_then(|_| record.queue.iter_mut().find(|it| it.node == mine.node)) {
        Some(place) => *place = mine,
        None => record.queue.push(mine),
    }
    record.queue != old
}
