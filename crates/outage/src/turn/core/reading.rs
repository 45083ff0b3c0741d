//! From a place in the queue to a turn, and from that to the last look: when the nodes are read, which facts have been seen
//! without a break and since when on our own clock, and what one reading of them leads to.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::{Fault, Inserted as _, LiteMap, Mono, planted};

use super::super::event::{Effect, Event, ReadError, RecordWritten, TurnRequest, Unconfirmed};
use super::super::rebuild::{marked, rebuild};
use super::super::record::{
    EarlierGrant, Fence, Holder, LEASE, Op, Phase, RecordSnapshot, TurnRecord, Waiter,
};
use super::super::rule::{self, LOCK_STATUS, Me, TakeoverProof, TurnNode, TurnRefusal, TurnRule};
use super::{Attempt, IN_DOUBT, KnownRecord, Turn, TurnCall, TurnGrant, WRITE};
use topics::number;

/// How long a fact must have been seen before anything follows from it.
const SEEN_FOR: Duration = Duration::from_secs(60);
/// So many of the queue read the nodes; the others wait for changes of the Lease.
const NEAR: usize = 3;
/// Pause between two readings of the nodes by one of the first of the queue.
const LOOK: Duration = Duration::from_secs(30);
/// The same for everybody else: those before it may all have stopped.
const FAR_LOOK: Duration = Duration::from_secs(600);

/// The same while it is not known whether the kubelets of others live: first, and longest; a kubelet renews its lease every
/// 10 s.
const UNSEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// Why nothing is done in a turn that is still ours.
const FORGOTTEN: &str =
    "the Lease of turns was deleted or restored: this node writes its turn in again first";

/// How far a last look is. On a server it continues without the API: `unread` says why that cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LookStep {
    Lease,
    Nodes {
        unread: Option<String>,
    },
    Margin {
        unread: Option<String>,
    },
    /// Our entry is being written.
    GoingDown,
}

/// A fact about another node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum NodeObservation {
    /// The turn of this node object with this fence could be taken over.
    Proof(String, Fence, TakeoverProof),
    /// A waiter for whom a grant is open and who does not take it: UID and request.
    Open(String, u64),
    /// The node object of a waiter is gone: UID.
    Absent(String),
}

/// Facts and since when they are seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Observed {
    since: LiteMap<NodeObservation, Mono>,
}

impl Observed {
    /// Takes one reading: facts that it does not show are forgotten.
    pub(super) fn take(&mut self, now: Mono, me: &Me, record: &TurnRecord, nodes: &[TurnNode]) {
        let others = record.holders.iter().filter(|it| it.node_uid != me.uid);
        let proofs = others.filter_map(|it| {
            Some(NodeObservation::Proof(it.node_uid.clone(), it.fence, rule::proof(it, nodes)?))
        });
        let absent = record.queue.iter().filter(|it| is_absent(it, nodes));
        let absent = absent.map(|it| NodeObservation::Absent(it.node_uid.clone()));
        let mut facts: BTreeSet<NodeObservation> = proofs.chain(absent).into_set();
        let down = rule::down(Some(me), record, nodes);
        for waiter in rule::order(record) {
            if waiter.node_uid == me.uid || !rule::is_open_for(waiter, record, nodes) {
                break;
            }
            if is_absent(waiter, nodes) || down.iter().any(|it| it.node == waiter.node) {
                continue;
            }
            let open = NodeObservation::Open(waiter.node_uid.clone(), waiter.counter);
            let late = self.is_ripe(now, &open);
            facts.insert(open);
            if !late {
                // The grant is open for this one first.
                break;
            }
        }
        self.since.retain(|fact, _| facts.contains(fact));
        for fact in facts {
            self.since.entry(fact).or_insert(now);
        }
    }

    fn is_ripe(&self, now: Mono, fact: &NodeObservation) -> bool {
        self.since.get(fact).is_some_and(|since| now.since(*since) >= SEEN_FOR)
    }

    /// Takes over what may be taken over, and takes waiters that are gone out of the queue. Returns whether the margin
    /// decides about a take-over.
    pub(super) fn take_over(
        &self,
        now: Mono,
        record: &mut TurnRecord,
        margin: &Result<(), String>,
        out: &mut Vec<Effect>,
    ) -> bool {
        record.queue.retain(|it| !self.is_ripe(now, &NodeObservation::Absent(it.node_uid.clone())));
        if record.mode.as_ref().is_some_and(|it| !it.keeps_turns()) {
            return false;
        }
        let mut asks = false;
        record.holders.retain(|it| {
            let is_proved =
                |by| self.is_ripe(now, &NodeObservation::Proof(it.node_uid.clone(), it.fence, by));
            let gone = is_proved(TakeoverProof::Gone);
            asks |= gone && it.server;
            if gone && it.server && margin.is_err() || !gone && !is_proved(TakeoverProof::Idle) {
                return true;
            }
            let why = if gone { "was deleted from the cluster" } else { "is healthy and not in that turn" };
            out.push(Effect::Say(format!("turn of node {} (fence {}) ended: it {why}", it.node, it.fence)));
            false
        });
        asks
    }

    /// The waiters that left an open grant for too long, each after those before it.
    pub(super) fn passed(&self, now: Mono, record: &TurnRecord) -> BTreeSet<String> {
        let late = |it: &&Waiter| self.is_ripe(now, &NodeObservation::Open(it.node_uid.clone(), it.counter));
        record.queue.iter().filter(late).map(|it| it.node.clone()).collect()
    }

    /// When the next fact becomes ripe, after `now`.
    pub(super) fn next(&self, now: Mono) -> Option<Mono> {
        self.since.values().map(|since| *since + SEEN_FOR).filter(|at| *at > now).min()
    }
}

impl Turn {
    /// This node wants a turn that it does not hold.
    pub(super) fn seek(&mut self, now: Mono, claim: &TurnRequest) {
        if claim.emergency {
            self.enter(now, self.record(), claim);
        } else if let Some(why) = self.rivals() {
            let nodes = vec![self.me.node.clone()];
            self.refusal = Some(TurnRefusal::new(TurnRule::Holder, nodes, why, "pgrep -a zedbox"));
        } else if self.is_paused(now) {
            let until = self.paused.max(self.barred);
            if let Some(until) = until.filter(|_| self.refusal.is_none()) {
                let (lost, secs) = (self.failures.losses, until.since(now).as_secs());
                let why = format!("its turn was lost {}; the next one is in {secs} s", number(lost, "time"));
                self.refuse(TurnRule::Retry, why, LOCK_STATUS);
            }
            self.leave(now, until);
        } else if is_unfit(claim) && self.own().is_none() {
            self.stay_out(now, self.record());
        } else if self.seen == KnownRecord::Absent {
            // A creation names no version: the Lease may have been created, used and deleted meanwhile. So it grants
            // nothing, and the nodes are read after it.
            let mut record = self.memory.blank();
            let mine = self.waiter(claim, &record);
            queue(&mut record, mine);
            self.write(now, record, WRITE);
        } else {
            let mut record = self.record();
            let mine = self.waiter(claim, &record);
            let far = *self.far.get_or_insert(now + FAR_LOOK);
            if is_near(&mine, &record) || self.own().is_some() || far <= now {
                self.far = None;
                self.read_cluster();
                return;
            }
            self.refusal = Some(far_back(&record, &mine));
            queue(&mut record, mine);
            if !self.write_changed(now, record, false) {
                self.due = Some(far);
            }
        }
    }

    /// The nodes were read, after the Lease; `margin` is asked for when nothing else is in the way.
    pub(super) fn evaluate(&mut self, now: Mono, nodes: Vec<TurnNode>, margin: Option<&Result<(), String>>) {
        self.memory.forget_back(&nodes);
        // It may have been withdrawn, or something was lost or failed, while the calls were under way.
        let claim = self.claim().filter(|_| !self.is_paused(now)).cloned();
        if let (TurnGrant::Held { grant, phase, forgotten: true }, Some(claim)) = (self.grant.clone(), &claim)
        {
            return self.write_again(now, &nodes, claim, grant, phase);
        }
        let may = self.grant == TurnGrant::None;
        let (Some(want), Some(held)) = (claim.filter(|_| may), self.held()) else {
            self.asked.lease = true;
            return;
        };
        let rebuilt = rebuild(Some(held), &nodes, &self.memory, Some(&self.me));
        if rebuilt.is_some() {
            self.say(
                "the Lease was deleted or restored: rebuilt from the nodes' cordon marks and from what was seen of it",
            );
        }
        let mut record = rebuilt.unwrap_or_else(|| self.record());
        self.observed.take(now, &self.me, &record, &nodes);
        let known = margin.cloned().unwrap_or(Ok(()));
        let mut asks = self.observed.take_over(now, &mut record, &known, &mut self.out);
        let mine = self.waiter(&want, &record);
        let mut passed = self.observed.passed(now, &record);
        if let Some(entry) = record.holder(&self.me.node, &self.me.uid).cloned() {
            if let Some(grant) = continued(&self.me, &entry, self.held(), &want, &nodes) {
                self.say(format!("continues the turn with fence {}", grant.fence));
                self.hold(grant, entry.phase);
                self.asked.lease = true;
                return;
            }
            // Ours, but nothing was done under it: it keeps its place at the front, if the rule still allows it.
            record.release(&self.me.node, &self.me.uid);
            passed.extend(record.queue.iter().map(|it| it.node.clone()));
        }
        if is_unfit(&want) {
            self.stay_out(now, record);
            return;
        }
        let may = rule::may_enter(&self.me, &mine, &record, &nodes, &passed, &known);
        asks |= may.is_ok() && !rule::is_alone(&self.me, &nodes);
        match may {
            _ if asks && margin.is_none() => self.ask(TurnCall::Margin(nodes), Effect::ReadMargin),
            Ok(()) => self.enter(now, record, &want),
            Err(refusal) => {
                // A node that is not there waits for its object, and for nothing before it.
                let near = is_near(&mine, &record);
                if refusal.rule != TurnRule::NotListed {
                    queue(&mut record, mine);
                }
                self.wait(now, record, near, refusal);
            }
        }
    }

    /// Not yet: what the reading has changed is written, our place in the queue with it.
    fn wait(&mut self, now: Mono, record: TurnRecord, near: bool, refusal: TurnRefusal) {
        let again = if refusal.rule == TurnRule::Reading {
            Some(now + self.unseen_pause())
        } else {
            self.failures.pulses = 0;
            near.then_some(now + LOOK)
        };
        self.refusal = Some(refusal);
        self.again = [again, self.observed.next(now)].into_iter().flatten().min();
        if !self.write_changed(now, record, true) {
            self.rest(now);
        }
    }

    /// Nothing changes by us until the next reading.
    pub(super) fn rest(&mut self, now: Mono) {
        let far = *self.far.get_or_insert(now + FAR_LOOK);
        let again = self.again.take().filter(|at| *at < far);
        // The next reading is one of the nodes, wherever in the queue we are.
        self.far = again.or(self.far);
        self.due = again.or(Some(far));
    }

    /// Neither in the queue nor among the holders, until the drain can start.
    pub(super) fn stay_out(&mut self, now: Mono, record: TurnRecord) {
        self.refuse(TurnRule::Preflight, "the preflight of its drain is not clean yet", "zedbox status");
        (self.again, self.far, self.due) = (None, None, None);
        self.write_changed(now, self.without_us(record), false);
    }

    /// Our place in the queue as it is to be; members of another version stay in it.
    pub(super) fn waiter(&self, claim: &TurnRequest, record: &TurnRecord) -> Waiter {
        let old = record.queue.iter().find(|it| self.me.is(&it.node, &it.node_uid));
        Waiter {
            node: self.me.node.clone(),
            node_uid: self.me.uid.clone(),
            class: self.class.clone(),
            op: claim.op.clone(),
            counter: claim.counter,
            rest: old.map(|it| it.rest.clone()).unwrap_or_default(),
        }
    }

    /// Our own entry, of a grant in this boot.
    fn entry(&self, claim: &TurnRequest, phase: Phase, earlier: Option<EarlierGrant>) -> Holder {
        let Me { node, uid, boot_id, server } = self.me.clone();
        Holder {
            node,
            node_uid: uid,
            boot_id,
            op: claim.op.clone(),
            counter: claim.counter,
            phase,
            server,
            earlier,
            ..Holder::default()
        }
    }

    /// Writes the record with a grant for this node.
    fn enter(&mut self, now: Mono, mut record: TurnRecord, claim: &TurnRequest) {
        let phase = if claim.emergency { Phase::Emergency } else { Phase::Granted };
        record.release(&self.me.node, &self.me.uid);
        let fence = record.grant(self.entry(claim, phase.clone(), None));
        if self.write(now, record, TurnCall::Write { looked: true }) {
            self.attempt = Some(Attempt { fence, phase, until: now + IN_DOUBT });
        }
    }

    /// The turn is ours and in no Lease any more, and no release has ended it: this node writes itself in again, unless
    /// others hold a turn by now.
    fn write_again(
        &mut self,
        now: Mono,
        nodes: &[TurnNode],
        claim: &TurnRequest,
        grant: EarlierGrant,
        phase: Phase,
    ) {
        let rebuilt = rebuild(self.held(), nodes, &self.memory, Some(&self.me));
        let mut record = rebuilt.unwrap_or_else(|| self.record());
        if let Some(why) = rule::taken(&self.me, &record) {
            self.say(why.clone());
            self.lose(now, why);
            return;
        }
        let entry = self.entry(claim, phase, Some(grant));
        let mine = |it: &&mut Holder| self.me.is(&it.node, &it.node_uid) && it.earlier == entry.earlier;
        if let Some(brought) = record.holders.iter_mut().find(mine) {
            (brought.op, brought.counter, brought.phase) = (entry.op, entry.counter, entry.phase);
        } else {
            record.release(&self.me.node, &self.me.uid);
            record.grant(entry);
        }
        self.write(now, record, TurnCall::Write { looked: true });
    }

    /// Pause before the nodes are read again, as it is not known whether their kubelets live.
    fn unseen_pause(&mut self) -> Duration {
        self.failures.pulses = self.failures.pulses.saturating_add(1);
        step::doubled(UNSEEN.0, UNSEEN.1, self.failures.pulses)
    }

    /// Whether this node may continue in its turn, by the Lease.
    fn standing(&self) -> Result<(), Unconfirmed> {
        match &self.grant {
            TurnGrant::Held { forgotten: true, .. } => Err(Unconfirmed::Unknown(FORGOTTEN.to_owned())),
            TurnGrant::Held { .. } => Ok(()),
            TurnGrant::Lost { why } => Err(Unconfirmed::Lost(why.clone())),
            TurnGrant::None | TurnGrant::Booted { .. } => {
                Err(Unconfirmed::Lost("this node holds no turn".to_owned()))
            }
        }
    }

    /// Answers [`super::Ask::Confirm`] from a reading that began after it.
    pub(super) fn confirmed(&mut self, now: Mono) {
        self.end_in_mode(now);
        self.out.push(Effect::Confirmed(self.standing()));
    }

    /// A whole-cluster operation ends every other turn.
    fn end_in_mode(&mut self, now: Mono) {
        let begun = self.held().and_then(|it| it.record.mode.as_ref()).is_some_and(|it| !it.keeps_turns());
        if begun && matches!(self.grant, TurnGrant::Held { .. }) {
            let why = "a whole-cluster operation has begun, and no other turn may be used in it".to_owned();
            self.lose(now, why);
        }
    }

    /// The last look before the machine goes down: the Lease, the nodes, on a server the margin of etcd, each read after the
    /// question; then our entry says that it goes down. The nodes are read because a Lease that was restored from an older
    /// state may have our entry again after an operator released it: the marks of the others show that. What follows from
    /// an API that cannot be reached is the caller's to say.
    pub(super) fn look(&mut self, now: Mono, number: u64, step: LookStep, answer: Event) {
        let next = match (step, answer) {
            (LookStep::Lease, Event::Read(_, Ok(found))) => {
                self.failures.calls = 0;
                self.take_record(found);
                self.reconcile(now);
                self.end_in_mode(now);
                let standing = match &self.grant {
                    TurnGrant::Booted { listed: true, .. } => Ok(()),
                    TurnGrant::Booted { listed: false, .. } => Err(Unconfirmed::Lost(self.why_lost())),
                    // After a restart of the agent, until the nodes were read.
                    TurnGrant::None if self.own().is_some() => {
                        Err(Unconfirmed::Unknown("the turn of this node is being checked".to_owned()))
                    }
                    TurnGrant::None | TurnGrant::Held { .. } | TurnGrant::Lost { .. } => self.standing(),
                };
                standing.map(|()| LookStep::Nodes { unread: None })
            }
            (LookStep::Lease, Event::Read(_, Err(ReadError::NoAnswer(why)))) if self.me.server => {
                Ok(LookStep::Nodes { unread: Some(why) })
            }
            // It answers again.
            (LookStep::Nodes { unread: Some(why) }, Event::Cluster(_, Ok(_))) => {
                return self.look_failed(now, number, ReadError::Refused(why));
            }
            (LookStep::Nodes { unread: None }, Event::Cluster(_, Ok(nodes))) => {
                let alone = rule::is_alone(&self.me, &nodes);
                if marked(self.held(), &nodes, &self.memory).any(|(it, _)| it.uid != self.me.uid) {
                    let why = format!(
                        "Lease {LEASE} was deleted or restored: nodes have marks of turns that it does not know"
                    );
                    self.say(why.clone());
                    self.lose(now, why.clone());
                    Err(Unconfirmed::Lost(why))
                } else if !alone && !rule::unseen(&self.me, &self.record(), &nodes).is_empty() {
                    // Another machine may have gone down a moment ago; that is known after 40 s.
                    self.asked.look_again = Some((number, now + self.unseen_pause()));
                    return;
                } else {
                    self.failures.pulses = 0;
                    let asks = self.me.server && !alone;
                    Ok(if asks { LookStep::Margin { unread: None } } else { LookStep::GoingDown })
                }
            }
            (LookStep::Nodes { unread }, Event::Cluster(_, Err(ReadError::NoAnswer(why))))
                if self.me.server =>
            {
                Ok(LookStep::Margin { unread: unread.or(Some(why)) })
            }
            (_, Event::Read(_, Err(trouble)) | Event::Cluster(_, Err(trouble))) => {
                return self.look_failed(now, number, trouble);
            }
            (LookStep::Margin { unread: Some(why) }, Event::Margin(_, margin)) => {
                let refused = Unconfirmed::Unreachable { why: why.clone(), margin };
                self.out.push(Effect::LookedLast(number, Err(refused)));
                return self.failed(now, ReadError::NoAnswer(why));
            }
            (LookStep::Margin { unread: None }, Event::Margin(_, margin)) => {
                margin.map(|()| LookStep::GoingDown).map_err(Unconfirmed::NoMargin)
            }
            // What became of our entry. Only another writer is a reason to look again.
            (LookStep::GoingDown, Event::Wrote(_, RecordWritten::Outdated)) => {
                self.asked.look = self.asked.look.or(Some(number));
                return;
            }
            (LookStep::GoingDown, Event::Wrote(_, RecordWritten::Done(held))) => {
                self.take_record(Some(held));
                self.out.push(Effect::LookedLast(number, Ok(())));
                return self.decide(now);
            }
            (LookStep::GoingDown, Event::Wrote(_, RecordWritten::Unknown(why))) => {
                self.out.push(Effect::LookedLast(number, Ok(())));
                return self.failed(now, ReadError::NoAnswer(why));
            }
            (step, _) => {
                self.call = Some(TurnCall::Look(number, step));
                return;
            }
        };
        match next {
            Ok(LookStep::GoingDown) => {
                // Of a boot before, or of an emergency, the entry says enough.
                let call = TurnCall::Look(number, LookStep::GoingDown);
                if let TurnGrant::Held { phase, .. } = &mut self.grant
                    && *phase != Phase::Emergency
                {
                    *phase = Phase::GoingDown;
                    if self.say_phase(now, Phase::GoingDown, call) {
                        return;
                    }
                }
                self.out.push(Effect::LookedLast(number, Ok(())));
            }
            Ok(step) => {
                let margin = matches!(step, LookStep::Margin { .. });
                let effect = if margin { Effect::ReadMargin } else { Effect::ReadCluster };
                self.ask(TurnCall::Look(number, step), effect);
            }
            Err(refused) => {
                self.out.push(Effect::LookedLast(number, Err(refused)));
                self.decide(now);
            }
        }
    }

    fn look_failed(&mut self, now: Mono, number: u64, trouble: ReadError) {
        let refused = match &trouble {
            ReadError::NoAnswer(why) => Unconfirmed::Unreachable { why: why.clone(), margin: Ok(()) },
            ReadError::Refused(_) | ReadError::BadRecord(_) => Unconfirmed::Unknown(trouble.to_string()),
        };
        self.out.push(Effect::LookedLast(number, Err(refused)));
        self.failed(now, trouble);
    }
}

fn is_absent(waiter: &Waiter, nodes: &[TurnNode]) -> bool {
    !nodes.iter().any(|it| it.name == waiter.node && it.uid == waiter.node_uid)
}

/// After a restart of the agent in the same boot: the grant of `entry`, where this node is cordoned under it, or where it is for
/// the same update of k3s, which may need no cordon.
pub(super) fn continued(
    me: &Me,
    entry: &Holder,
    held: Option<&RecordSnapshot>,
    claim: &TurnRequest,
    nodes: &[TurnNode],
) -> Option<EarlierGrant> {
    let own = nodes.iter().find(|it| me.is(&it.name, &it.uid));
    let mark = own.and_then(|it| it.mark.as_ref()).filter(|it| it.boot_id == me.boot_id);
    let mark = mark
        .map(rule::CordonMark::grant)
        .filter(|it| it.fence == entry.fence || entry.earlier.as_ref() == Some(it));
    let k3s = (&entry.op, &entry.op, entry.counter) == (&Op::K3sUpdate, &claim.op, claim.counter);
    let listed = held.and_then(|it| it.record.holder(&me.node, &me.uid)?.earlier.as_ref());
    let written = held.map(|it| EarlierGrant { fence: entry.fence, lease_uid: it.uid.clone() });
    match mark {
        Some(mark) => written.filter(|_| listed == Some(&mark)).or(Some(mark)),
        None => written.filter(|_| k3s && entry.boot_id == me.boot_id),
    }
}

/// Whether `mine` is one of the first.
pub(super) fn is_near(mine: &Waiter, record: &TurnRecord) -> bool {
    rule::ahead(record, mine).len() < NEAR
}

/// Why a node waits that does not read the others: for those before it.
pub(super) fn far_back(record: &TurnRecord, mine: &Waiter) -> TurnRefusal {
    let ahead = rule::ahead(record, mine);
    let holders: Vec<String> = record.holders.iter().map(|it| it.node.clone()).collect();
    let holder = if holders.is_empty() { "none".to_owned() } else { holders.join(", ") };
    let first = ahead.first().map(|it| it.node.clone());
    let why = format!("nodes before this one in the queue: {}; current holders: {holder}", ahead.len());
    let nodes = if holders.is_empty() { first.into_iter().collect() } else { holders };
    TurnRefusal::new(TurnRule::Order, nodes, why, LOCK_STATUS)
}

/// Puts `mine` in its place in the queue, or at the end.
pub(super) fn queue(record: &mut TurnRecord, mine: Waiter) {
    let listed = record.queue.iter().any(|it| it.node == mine.node && it.node_uid == mine.node_uid);
    // One entry for each node: a joined node's earlier one goes.
    record.queue.retain(|it| it.node != mine.node || it.node_uid == mine.node_uid);
    match record.queue.iter_mut().find(|it| listed && it.node == mine.node) {
        Some(place) => *place = mine,
        None => record.queue.push(mine),
    }
}

/// Whether its drain is not known to be able to start: a node like that holds the turn of the cluster for nothing.
pub(super) fn is_unfit(claim: &TurnRequest) -> bool {
    !claim.fit && !claim.emergency && !planted(Fault::TurnPreflight)
}
