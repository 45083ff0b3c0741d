//! The life of one node's turn: wait, hold, lose, come back, release.
//!
//! Every decision follows from a fresh reading of the Lease and ends in a write that names its version, so that of two
//! writers one wins; one write covers the record rebuilt, turns taken over, our place in the queue and our grant.
//! Nothing ends a turn but its own node, one of the proofs of `rule`, or an operator. While it waits and nothing
//! changes, only the first three of the queue read the nodes. Pure: no clock, no I/O, no task.

mod reading;

use std::time::Duration;

use kubeapi::names::APP_NAMESPACE;
use reading::{LookStep, Observed, far_back, is_near, is_unfit};
use step::{CallId, Core, Dice, Fault, Mono, planted};

use super::event::{
    Ask, Effect, Event, ReadError, RecordWritten, TurnRequest, TurnState, TurnWait, Unconfirmed,
};
use super::rebuild::LeaseMemory;
use super::record::{
    Class, EarlierGrant, Fence, Holder, LEASE, Phase, RecordSnapshot, RecordWrite, TurnRecord,
};
use super::rule::{self, LOCK_STATUS, Me, TurnNode, TurnRefusal, TurnRule};

/// A write whose result is not known may come through for so long; the API server ends requests within 60 s.
pub const IN_DOUBT: Duration = Duration::from_secs(65);
/// First and longest pause after a failed attempt; it doubles.
const RETRY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(30 * 60));
/// The same after a call without an answer.
const NO_ANSWER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// The same after a write that others were faster than.
const OUTDATED: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// An agent writes once a second at most: so many writes may come at once, as those of a grant and of what follows it.
const WRITE_EACH: Duration = Duration::from_secs(1);
const AT_ONCE: Duration = Duration::from_secs(8);
/// So long the Lease counts as just read. An etcd that is restored meanwhile comes to the same version later.
const FRESH: Duration = Duration::from_secs(5);
/// Pause while the record is unusable; the watch ends it sooner.
const BAD_RECORD: Duration = Duration::from_secs(60);
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum KnownRecord {
    #[default]
    Unknown,
    Absent,
    There(Box<RecordSnapshot>),
}

impl From<Option<Box<RecordSnapshot>>> for KnownRecord {
    fn from(found: Option<Box<RecordSnapshot>>) -> Self {
        found.map_or(Self::Absent, Self::There)
    }
}

/// What this node wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum DesiredTurn {
    /// Not said yet.
    #[default]
    Unknown,
    /// `idle`: a reading has shown no entry of ours, and no write of ours may still come through.
    Nothing { idle: bool },
    /// A turn for this, since then.
    Turn { claim: TurnRequest, since: Mono },
}

/// The turn as this process has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum TurnGrant {
    #[default]
    None,
    Held {
        grant: EarlierGrant,
        /// What our own entry is to say.
        phase: Phase,
        /// The Lease does not have it any more, though no release ended it: it is written in again.
        forgotten: bool,
    },
    Lost {
        why: String,
    },
    Booted {
        fence: Fence,
        listed: bool,
    },
}

/// A grant that was written without a known result, and until when it may come through.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attempt {
    fence: Fence,
    phase: Phase,
    until: Mono,
}

/// A call that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TurnCall {
    Read {
        confirm: bool,
    },
    Cluster,
    /// With the nodes as they were read before it.
    Margin(Vec<TurnNode>),
    /// `looked`: the nodes were read for it.
    Write {
        looked: bool,
    },
    /// A step of the last look, for the question of this number.
    Look(u64, LookStep),
}

/// What is to be read as soon as no call is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct PendingReads {
    /// The Lease.
    lease: bool,
    /// The same, to answer [`Ask::Confirm`].
    confirm: bool,
    /// The last look of this number.
    look: Option<u64>,
    /// The same, put off until then.
    look_again: Option<(u64, Mono)>,
}

/// How often in a row something has failed: each pause after it is longer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Failures {
    /// A call.
    calls: u32,
    /// A write, as others were faster.
    writes: u32,
    /// An attempt.
    attempts: u32,
    /// A turn was lost, since one was used.
    losses: u32,
    /// A reading of the nodes, as it did not show whether their kubelets live.
    pulses: u32,
}

/// The turn of one node as this process has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Turn {
    me: Me,
    class: Class,
    want: DesiredTurn,
    seen: KnownRecord,
    /// What outlives a Lease that is deleted or suddenly older.
    memory: LeaseMemory,
    grant: TurnGrant,
    /// Another zedkube acts for this node: it has its turn.
    rival: bool,
    attempt: Option<Attempt>,
    /// Until when a write that we do not remember, or whose result we do not know, may come through.
    doubt: Option<Mono>,
    gate: Option<bool>,
    call: Option<TurnCall>,
    calls: CallId,
    asked: PendingReads,
    failures: Failures,
    /// When the Lease was read or written last.
    read_at: Mono,
    /// What has been written counts as spread over the time until then.
    written: Mono,
    due: Option<Mono>,
    /// When a node that is far back in the queue reads the nodes all the same.
    far: Option<Mono>,
    /// When the nodes are to be read again after a write that came of reading them.
    again: Option<Mono>,
    /// Until when no turn is taken: after a failed attempt, and after one that was lost.
    paused: Option<Mono>,
    barred: Option<Mono>,
    refusal: Option<TurnRefusal>,
    observed: Observed,
    dice: Dice,
    said: Option<TurnState>,
    /// What the step that is under way asks for and says; empty in between.
    out: Vec<Effect>,
}

impl Turn {
    /// The turn of `me`, of which nothing is known yet. `chance` differs from node to node.
    pub fn new(me: Me, class: Class, chance: u64) -> Self {
        Self { me, class, due: Some(Mono::START), dice: Dice::new(chance), ..Self::default() }
    }

    /// The nodes that wait, in the order of turns.
    pub fn next_nodes(&self) -> Vec<String> {
        rule::order(&self.record()).into_iter().map(|it| it.node.clone()).collect()
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
        let listed = self.held().map(|it| it.record.holders.as_slice()).unwrap_or_default();
        let all = listed.iter().chain(self.memory.missing(self.held()).map(|(_, it)| it));
        all.filter(|it| !self.me.is(&it.node, &it.node_uid))
    }

    pub fn state(&self) -> TurnState {
        match (&self.grant, &self.want) {
            (TurnGrant::Held { grant, .. }, _) => {
                let phase = self.own().map_or(Phase::Granted, |it| it.phase.clone());
                TurnState::Held { fence: grant.fence, lease_uid: grant.lease_uid.clone(), phase }
            }
            (TurnGrant::Lost { why }, _) => TurnState::Lost { why: why.clone() },
            (TurnGrant::Booted { fence, listed }, _) => TurnState::Booted { fence: *fence, listed: *listed },
            (TurnGrant::None, DesiredTurn::Turn { claim, since }) => {
                let queued = self.held().filter(|it| it.record.waits(&self.me.node));
                let mine = queued.map(|it| self.waiter(claim, &it.record));
                let place = queued.zip(mine).map(|(it, mine)| rule::ahead(&it.record, &mine).len() + 1);
                let why = || format!("checking Lease {LEASE}");
                let checking = || TurnRefusal::new(TurnRule::Reading, Vec::new(), why(), LOCK_STATUS);
                let TurnRefusal { rule, nodes, why, next } = self.refusal.clone().unwrap_or_else(checking);
                TurnState::Waiting(Box::new(TurnWait { nodes, rule, why, since: *since, place, next }))
            }
            (TurnGrant::None, want @ (DesiredTurn::Nothing { .. } | DesiredTurn::Unknown)) => {
                TurnState::NotWanted { idle: *want == DesiredTurn::Nothing { idle: true } }
            }
        }
    }

    /// The Lease as it was read last.
    fn held(&self) -> Option<&RecordSnapshot> {
        if let KnownRecord::There(held) = &self.seen { Some(held) } else { None }
    }

    /// The record as it was read, or the one of a cluster without.
    fn record(&self) -> TurnRecord {
        self.held().map(|it| it.record.clone()).unwrap_or_default()
    }

    /// Our own entry among the holders.
    fn own(&self) -> Option<&Holder> {
        self.held()?.record.holder(&self.me.node, &self.me.uid)
    }

    fn claim(&self) -> Option<&TurnRequest> {
        if let DesiredTurn::Turn { claim, .. } = &self.want { Some(claim) } else { None }
    }

    /// Nothing of the Lease concerns this node, unless that has an entry of it: it wants no turn, or stays out.
    fn stands_by(&self) -> bool {
        let stays_out = self.grant == TurnGrant::None
            && self.claim().is_some_and(is_unfit)
            && self.refusal.as_ref().is_some_and(|it| it.rule == TurnRule::Preflight);
        (stays_out || self.want == DesiredTurn::Nothing { idle: true }) && self.call.is_none()
    }

    fn say(&mut self, what: impl Into<String>) {
        self.out.push(Effect::Say(what.into()));
    }

    fn refuse(&mut self, rule: TurnRule, why: impl Into<String>, next: &str) {
        self.refusal = Some(TurnRefusal::new(rule, Vec::new(), why, next));
    }

    fn set_idle(&mut self, is: bool) {
        if let DesiredTurn::Nothing { idle } = &mut self.want {
            *idle = is;
        }
    }

    /// By chance up to half more, so that nodes do not all come at once; doubles with `failures`, from 1.
    fn pause(&mut self, (first, longest): (Duration, Duration), failures: u32) -> Duration {
        let thousandth = u32::try_from(self.dice.draw() % 1_000).unwrap_or_default();
        let grown = step::doubled(first, longest, failures);
        grown + grown * thousandth / 2_000
    }

    fn is_paused(&self, now: Mono) -> bool {
        self.paused.max(self.barred).is_some_and(|until| now < until)
    }

    fn ask(&mut self, call: TurnCall, effect: impl FnOnce(CallId) -> Effect) {
        self.calls += 1;
        (self.call, self.due) = (Some(call), None);
        self.out.push(effect(self.calls));
    }

    /// Writes `record`, or puts that off where too much was written lately. Returns whether it is on its way.
    fn write(&mut self, now: Mono, record: TurnRecord, call: TurnCall) -> bool {
        let own = record.holder(&self.me.node, &self.me.uid);
        let goes = own.is_some_and(|it| matches!(it.phase, Phase::GoingDown | Phase::Emergency));
        let ahead = self.written.since(now);
        if ahead >= AT_ONCE && !goes {
            self.due = Some(now + ahead.saturating_sub(AT_ONCE) + WRITE_EACH);
            return false;
        }
        self.written = self.written.max(now) + WRITE_EACH;
        let on = self.held().map(RecordSnapshot::version);
        self.ask(call, |id| Effect::Write(id, Box::new(RecordWrite { on, record })));
        true
    }

    /// The same of a `record` that differs; returns whether it does.
    fn write_changed(&mut self, now: Mono, record: TurnRecord, looked: bool) -> bool {
        let other = record != self.record();
        if other {
            self.write(now, record, TurnCall::Write { looked });
        }
        other
    }

    /// It wants something else than before, or that as a node of another class.
    fn wants(&mut self, now: Mono, new: Option<TurnRequest>) {
        // The Lease is known as the watch has shown it last.
        let watched = self.stands_by() && !self.asked.lease;
        match &new {
            None => {
                (self.paused, self.refusal, self.failures.attempts) = (None, None, 0);
                self.observed = Observed::default();
            }
            Some(claim) if claim.emergency => {
                (self.paused, self.barred) = (None, None);
                if let Some(attempt) = &mut self.attempt {
                    attempt.phase = Phase::Emergency;
                }
                match &mut self.grant {
                    TurnGrant::Held { phase, .. } => *phase = Phase::Emergency,
                    TurnGrant::Lost { .. } => self.grant = TurnGrant::None,
                    TurnGrant::None | TurnGrant::Booted { .. } => {}
                }
            }
            Some(_) => drop(self.refusal.take_if(|it| it.rule == TurnRule::Preflight)),
        }
        let since = if let DesiredTurn::Turn { since, .. } = self.want { Some(since) } else { None };
        let waits = new.as_ref().filter(|it| !it.emergency);
        // A turn that is held serves the next request as well.
        let serves = matches!(self.grant, TurnGrant::Held { .. }) && waits.is_some() && since.is_some();
        // That is enough for a node that stays out, and for a creation, which names no version and grants nothing.
        let is_enough = waits.is_some_and(|it| is_unfit(it) || self.seen == KnownRecord::Absent);
        self.want = new.map_or(DesiredTurn::Nothing { idle: false }, |claim| DesiredTurn::Turn {
            claim,
            since: since.unwrap_or(now),
        });
        if watched && is_enough {
            self.decide(now);
        } else if !serves {
            self.due = Some(now);
        }
    }

    /// The watch shows a value. A node that wants no turn and is not in it, or is far back in the queue, takes it as it is;
    /// others ask the store.
    fn changed(&mut self, now: Mono, value: Option<Box<RecordSnapshot>>) {
        let new = value.as_deref();
        if self.seen != KnownRecord::Unknown
            && self.held().map(RecordSnapshot::version) == new.map(RecordSnapshot::version)
        {
            return;
        }
        if let Some(new) = new {
            self.memory.see(new);
        }
        let holds = new.is_some_and(|it| it.record.holder(&self.me.node, &self.me.uid).is_some());
        if self.stands_by() && !holds && !new.is_some_and(|it| it.record.waits(&self.me.node)) {
            self.seen = value.into();
            return;
        }
        let waits = self.grant == TurnGrant::None && self.call.is_none() && self.paused.is_none() && !holds;
        let waiter = self.claim().filter(|_| waits).zip(new);
        let waiter = waiter.map(|(claim, new)| (self.waiter(claim, &new.record), &new.record));
        match waiter.filter(|(mine, record)| !is_near(mine, record)) {
            Some((mine, record)) if record.queue.contains(&mine) => {
                self.refusal = Some(far_back(record, &mine));
                (self.seen, self.far) = (value.into(), None);
                self.rest(now);
            }
            // Others write as well, and were faster: the pause after that is kept, or all would read at each write.
            Some(_) => self.asked.lease |= self.failures.writes == 0,
            None => self.asked.lease = true,
        }
    }

    fn retry(&mut self, now: Mono, why: &str) {
        let count = self.failures.attempts + 1;
        self.failures.attempts = count;
        let pause = self.pause(RETRY, count.max(self.failures.losses));
        (self.paused, self.due) = (Some(now + pause), Some(now));
        let why = format!("attempt {count} failed: {why}; the next one is in {} s", pause.as_secs());
        self.refuse(TurnRule::Retry, why, LOCK_STATUS);
        match &mut self.grant {
            TurnGrant::Lost { .. } => self.grant = TurnGrant::None,
            TurnGrant::Held { forgotten, .. } => *forgotten = false,
            TurnGrant::None | TurnGrant::Booted { .. } => {}
        }
    }

    fn failed(&mut self, now: Mono, trouble: ReadError) {
        self.failures.calls += 1;
        let pause = match trouble {
            ReadError::NoAnswer(why) | ReadError::Refused(why) => {
                self.refuse(TurnRule::Api, why, "kubectl get nodes");
                self.pause(NO_ANSWER, self.failures.calls)
            }
            ReadError::BadRecord(why) => {
                let next = format!("kubectl -n {APP_NAMESPACE} get lease {LEASE} -o yaml");
                self.refuse(TurnRule::Record, why.to_string(), &next);
                BAD_RECORD
            }
        };
        self.due = Some(now + pause);
    }

    /// Takes the Lease as it was read or written.
    fn take_record(&mut self, found: Option<Box<RecordSnapshot>>) {
        if let Some(held) = &found {
            self.memory.see(held);
        }
        self.seen = found.into();
    }

    fn read(&mut self, now: Mono, confirm: bool, read: Result<Option<Box<RecordSnapshot>>, ReadError>) {
        match read {
            Ok(found) => {
                let waits = |it: Option<&RecordSnapshot>| it.is_some_and(|it| it.record.waits(&self.me.node));
                if waits(self.held()) && !waits(found.as_deref()) {
                    // Somebody else took our place away: our node may be another object, so the nodes are read.
                    self.far = Some(now);
                }
                self.rival |= found.as_deref().is_some_and(|it| self.is_rivals(it));
                (self.failures.calls, self.read_at) = (0, now);
                self.take_record(found);
                self.reconcile(now);
                if confirm {
                    self.confirmed(now);
                }
                self.decide(now);
            }
            Err(trouble) => {
                if confirm {
                    self.out.push(Effect::Confirmed(Err(Unconfirmed::Unknown(trouble.to_string()))));
                }
                self.failed(now, trouble);
            }
        }
    }

    fn wrote(&mut self, now: Mono, looked: bool, wrote: RecordWritten) {
        match wrote {
            RecordWritten::Done(held) => {
                (self.failures.calls, self.failures.writes, self.read_at) = (0, 0, now);
                self.take_record(Some(held));
                self.reconcile(now);
                if looked && self.grant == TurnGrant::None && self.claim().is_some() {
                    // The nodes were read for this write: nothing else follows from it.
                    self.rest(now);
                } else {
                    self.decide(now);
                }
            }
            RecordWritten::Outdated => {
                self.failures.writes += 1;
                // What the watch has shown is read after the pause.
                self.asked.lease &= self.grant != TurnGrant::None || self.own().is_some();
                self.due = Some(now + self.pause(OUTDATED, self.failures.writes));
            }
            RecordWritten::Unknown(why) => {
                self.doubt = Some(now + IN_DOUBT);
                self.failed(now, ReadError::NoAnswer(why));
            }
        }
    }

    fn hold(&mut self, grant: EarlierGrant, phase: Phase) {
        (self.refusal, self.paused, self.barred) = (None, None, None);
        self.grant = TurnGrant::Held { grant, phase, forgotten: false };
    }

    /// The turn is not ours any more. Each one that is lost makes the pause before the next one longer: a node must not be
    /// emptied again and again.
    fn lose(&mut self, now: Mono, why: String) {
        self.failures.losses = self.failures.losses.saturating_add(1);
        self.barred = Some(now + self.pause(RETRY, self.failures.losses));
        self.grant = TurnGrant::Lost { why };
    }

    /// What the record says about our turn.
    fn reconcile(&mut self, now: Mono) {
        let mine = self.own().cloned();
        let lease_uid = self.held().map(|it| it.uid.clone()).unwrap_or_default();
        let attempt = self.attempt.take_if(|_| mine.is_some());
        match (&mut self.grant, mine) {
            (TurnGrant::None, Some(entry)) if entry.boot_id != self.me.boot_id => {
                self.grant = TurnGrant::Booted { fence: entry.fence, listed: true };
                self.say(format!("back from the turn with fence {} in a new boot", entry.fence));
            }
            (TurnGrant::None, Some(Holder { fence, .. })) => {
                if let Some(granted) = attempt.filter(|it| it.fence == fence && now < it.until) {
                    self.say(format!("turn granted with fence {fence}"));
                    self.hold(EarlierGrant { fence, lease_uid }, granted.phase);
                }
            }
            (TurnGrant::Held { grant, forgotten, .. }, Some(entry))
                if entry.fence == grant.fence && grant.lease_uid == lease_uid =>
            {
                *forgotten = false;
            }
            // Written in again, by us or by somebody who knew of it.
            (TurnGrant::Held { grant, forgotten, .. }, Some(entry))
                if entry.earlier.is_some() && entry.boot_id == self.me.boot_id =>
            {
                *forgotten = false;
                let old = std::mem::replace(grant, EarlierGrant { fence: entry.fence, lease_uid });
                self.say(format!(
                    "the turn with fence {} continues with fence {}: the Lease was deleted or restored",
                    old.fence, entry.fence
                ));
            }
            (TurnGrant::Held { grant, forgotten, .. }, mine) => {
                // A node that releases finds its entry missing.
                let leaves = self.paused.is_some() || matches!(self.want, DesiredTurn::Nothing { .. });
                let is_known = leaves || std::mem::replace(forgotten, true);
                let grant = grant.clone();
                // Agents of a node alone grant it a turn, and this one did not.
                self.rival = mine.is_some_and(|it| it.boot_id == self.me.boot_id && it.fence > grant.fence);
                if !leaves && !self.is_forgotten(&grant) {
                    let why = self.why_lost();
                    self.say(why.clone());
                    self.lose(now, why);
                } else if !is_known {
                    self.say(self.why_lost());
                }
            }
            (TurnGrant::Booted { listed, .. }, None)
                if *listed && self.gate != Some(true) && !planted(Fault::TurnGate) =>
            {
                *listed = false;
                self.say(self.why_lost());
            }
            (TurnGrant::None | TurnGrant::Lost { .. } | TurnGrant::Booted { .. }, _) => {}
        }
    }

    /// Whether the Lease knows nothing of this grant, as it was deleted or restored; otherwise somebody has ended it.
    fn is_forgotten(&self, grant: &EarlierGrant) -> bool {
        self.held().is_none_or(|held| {
            let of_this = held.uid == grant.lease_uid;
            let released = held.record.is_released(&self.me.uid, of_this.then_some(grant.fence), grant);
            !released && (!of_this || held.record.fence < grant.fence)
        })
    }

    fn why_lost(&self) -> String {
        let Some(held) = self.held() else {
            return format!("Lease {LEASE} was deleted, and our turn with it");
        };
        let forced = held.record.forced.iter().rev().find(|it| it.node_uid == self.me.uid);
        self.rivals().unwrap_or_else(|| match forced {
            Some(it) => format!("{} released our turn with fence {}: {}", it.who, it.fence, it.why),
            None => {
                format!(
                    "Lease {LEASE} does not have our turn any more: it was deleted, restored or taken over"
                )
            }
        })
    }

    /// Why the turn of this node is not ours: another zedkube has it.
    fn rivals(&self) -> Option<String> {
        let fence = self.own().filter(|_| self.rival)?.fence;
        Some(format!(
            "another zedkube acts for this node and has its turn (fence {fence}): one node is for one zedbox"
        ))
    }

    /// Whether `new` has a turn of this node that another zedkube took: this one wants none, and has seen the Lease without it.
    /// What a restored Lease brings back is an earlier grant.
    fn is_rivals(&self, new: &RecordSnapshot) -> bool {
        let idle = self.want == DesiredTurn::Nothing { idle: true };
        let Some(old) = self.held().filter(|old| idle && old.uid == new.uid) else { return false };
        let granted_since = old.record.fence + 1..=new.record.fence;
        new.record.holder(&self.me.node, &self.me.uid).is_some_and(|it| {
            it.boot_id == self.me.boot_id && it.earlier.is_none() && granted_since.contains(&it.fence)
        })
    }

    /// A reading of the Lease is fresh: what follows from it.
    fn decide(&mut self, now: Mono) {
        self.reconcile(now);
        self.rival &= self.own().is_some();
        let claim = self.claim().cloned();
        let nothing = matches!(self.want, DesiredTurn::Nothing { .. });
        match self.grant.clone() {
            TurnGrant::Booted { .. } if self.gate == Some(true) || planted(Fault::TurnGate) => {
                self.leave(now, None);
            }
            TurnGrant::Booted { .. } => {
                let emergency = claim.is_some_and(|it| it.emergency);
                let waits = if self.gate == Some(false) { Phase::Gate } else { Phase::Booted };
                self.say_phase(now, if emergency { Phase::Emergency } else { waits }, WRITE);
            }
            TurnGrant::Held { .. } if claim.is_some() && self.paused.is_some() => self.leave(now, None),
            TurnGrant::Held { forgotten: true, .. } if claim.is_some() => self.read_cluster(),
            TurnGrant::Held { phase, .. } if !nothing => drop(self.say_phase(now, phase, WRITE)),
            TurnGrant::Lost { .. } if nothing => {
                self.grant = TurnGrant::None;
                self.decide(now);
            }
            // What the other one took is not taken from it, or both would continue for ever.
            TurnGrant::None if nothing && self.rival => self.set_idle(false),
            TurnGrant::None | TurnGrant::Held { .. } if nothing => {
                self.leave(now, self.doubt.filter(|until| now < *until));
            }
            TurnGrant::None => claim.iter().for_each(|it| self.seek(now, it)),
            TurnGrant::Lost { .. } | TurnGrant::Held { .. } => {}
        }
    }

    fn read_cluster(&mut self) {
        self.ask(TurnCall::Cluster, Effect::ReadCluster);
    }

    fn without_us(&self, mut record: TurnRecord) -> TurnRecord {
        record.release(&self.me.node, &self.me.uid);
        record.queue.retain(|it| it.node != self.me.node);
        record
    }

    /// Takes our entry and our place in the queue away; when there are none, looks again at `next`. A turn that is being
    /// released is used no more: one that is wanted meanwhile is asked for like any other, also if the write fails.
    fn leave(&mut self, now: Mono, next: Option<Mono>) {
        let leaves = self.write_changed(now, self.without_us(self.record()), false);
        if let TurnGrant::Held { grant: EarlierGrant { fence, .. }, .. } | TurnGrant::Booted { fence, .. } =
            self.grant
            && !(leaves && matches!(self.grant, TurnGrant::Booted { .. }))
        {
            self.say(format!("releases the turn with fence {fence}"));
            (self.grant, self.failures.losses, self.barred) = (TurnGrant::None, 0, None);
            // A turn may be wanted again, after a pause or at once.
            self.asked.lease |= !leaves && self.claim().is_some();
        }
        self.set_idle(!leaves && next.is_none());
        self.due = if leaves { self.due } else { next };
    }

    /// Writes `phase` into our own entry if it says another one; returns whether it did not.
    fn say_phase(&mut self, now: Mono, phase: Phase, call: TurnCall) -> bool {
        let mut record = self.record();
        let own = record.holders.iter_mut().find(|it| self.me.is(&it.node, &it.node_uid));
        let Some(entry) = own.filter(|it| it.phase != phase) else { return false };
        entry.phase = phase;
        self.write(now, record, call)
    }

    /// The Lease was read or written a moment ago, the watch shows nothing newer, and only kubelets were waited for: what follows
    /// is a write that names this version.
    fn is_fresh(&self, now: Mono) -> bool {
        let waits_for_kubelets = self.refusal.as_ref().is_some_and(|it| it.rule == TurnRule::Reading);
        waits_for_kubelets && self.grant == TurnGrant::None && now.since(self.read_at) < FRESH
    }

    /// The next call, when one is due and none is under way.
    fn advance(&mut self, now: Mono) {
        if self.call.is_some() {
            return;
        }
        if let Some((number, _)) = self.asked.look_again.take_if(|(_, at)| *at <= now) {
            self.asked.look = self.asked.look.or(Some(number));
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if let Some(number) = self.asked.look.take() {
            (self.asked.look_again, self.asked.lease) = (None, false);
            self.ask(TurnCall::Look(number, LookStep::Lease), Effect::Read);
        } else if self.asked.confirm {
            (self.asked.confirm, self.asked.lease) = (false, false);
            self.ask(TurnCall::Read { confirm: true }, Effect::Read);
        } else if !self.asked.lease && is_due && self.is_fresh(now) {
            self.due = None;
            self.decide(now);
        } else if self.asked.lease || is_due {
            // A process of before may have left a write under way.
            self.doubt.get_or_insert(now + IN_DOUBT);
            self.asked.lease = false;
            self.ask(TurnCall::Read { confirm: false }, Effect::Read);
        }
    }

    fn answered(&mut self, now: Mono, id: CallId, answer: Event) {
        let Some(call) = self.call.take_if(|_| id == self.calls) else { return };
        match (call, answer) {
            (TurnCall::Read { confirm }, Event::Read(_, read)) => self.read(now, confirm, read),
            (TurnCall::Cluster, Event::Cluster(_, Ok(nodes))) => self.evaluate(now, nodes, None),
            (TurnCall::Cluster, Event::Cluster(_, Err(trouble))) => self.failed(now, trouble),
            (TurnCall::Margin(nodes), Event::Margin(_, margin)) => self.evaluate(now, nodes, Some(&margin)),
            (TurnCall::Write { looked }, Event::Wrote(_, wrote)) => self.wrote(now, looked, wrote),
            (TurnCall::Look(number, step), answer) => self.look(now, number, step, answer),
            (call, _) => self.call = Some(call),
        }
    }
}

/// A write for which the nodes were not read.
const WRITE: TurnCall = TurnCall::Write { looked: false };

impl Core for Turn {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        match event {
            Event::Ask(Ask::Want(want))
                if self.want != DesiredTurn::Unknown && self.claim() == want.as_ref() => {}
            Event::Ask(Ask::Want(want)) => self.wants(now, want),
            Event::Ask(Ask::Confirm) if planted(Fault::TurnLastLook) => self.confirmed(now),
            Event::Ask(Ask::Confirm) => self.asked.confirm = true,
            Event::Ask(Ask::LastLook(number)) => self.asked.look = Some(number),
            Event::Ask(Ask::Look) => self.asked.lease = true,
            Event::Ask(Ask::Retry(why)) => self.retry(now, &why),
            Event::Ask(Ask::Gate(open)) => {
                self.gate = Some(open);
                if matches!(self.grant, TurnGrant::Booted { .. }) {
                    self.due = Some(now);
                }
            }
            Event::Ask(Ask::Phase(new)) => {
                if let TurnGrant::Held { phase, .. } = &mut self.grant
                    && *phase != new
                {
                    (*phase, self.due) = (new, Some(now));
                }
            }
            Event::Class(class) if class != self.class => {
                self.class = class;
                if let Some(claim) = self.claim().cloned() {
                    self.wants(now, Some(claim));
                }
            }
            Event::Changed(value) => self.changed(now, value),
            Event::Read(id, _) | Event::Cluster(id, _) | Event::Margin(id, _) | Event::Wrote(id, _) => {
                self.answered(now, id, event);
            }
            Event::Class(_) | Event::Tick => {}
        }
        self.advance(now);
        // A turn of before a boot is not known without a reading.
        let known = self.claim().is_some() || self.said.is_some() || self.seen != KnownRecord::Unknown;
        let state = self.state();
        if known && self.said.as_ref() != Some(&state) {
            self.said = Some(state.clone());
            self.out.push(Effect::State(state));
        }
        std::mem::take(&mut self.out)
    }

    fn next_wake(&self) -> Option<Mono> {
        let again = self.asked.look_again.map(|(_, at)| at);
        [self.due, again].into_iter().flatten().min().filter(|_| self.call.is_none())
    }

    fn tick() -> Event {
        Event::Tick
    }
}
