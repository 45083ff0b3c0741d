//! The life of one node's turn: wait, hold, lose, come back, release.
//!
//! Every decision follows from a fresh reading of the Lease and ends in a write that names its version, so that of two
//! writers one wins. Nothing ends a turn but its own node, one of the proofs of `rule`, or an operator. While it waits
//! and nothing changes, only the first three of the queue read the nodes. Sources: spec/cluster-lock.md 3.2 to 3.6,
//! goals U1, U2, U10 to U12, U14. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::names::APP_NAMESPACE;
use step::{CallId, Core, Fault, Mono, planted};

use super::enter::far_back;
use super::event::{Effect, Event, ReadError, RecordWritten, TurnClaim, Unconfirmed};
use super::observed::Observed;
use super::record::{Holder, LEASE, Phase, RecordSnapshot, RecordWrite, TurnRecord};
use super::rule::{Me, TurnNode, TurnRefusal, TurnRule};
use super::state::{DesiredTurn, KnownRecord, LookStep, Turn, TurnCall, TurnGrant};

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

impl Turn {
    /// The nodes that wait, in the order of turns.
    pub fn next_nodes(&self) -> Vec<String> {
        let record = self.record();
        super::rule::order(&record).into_iter().map(|it| it.node.clone()).collect()
    }

    fn is_queued(&self) -> bool {
        matches!(&self.seen, KnownRecord::There(held) if held.record.waits(&self.me.node))
    }

    /// By chance up to half more, so that nodes do not all come at once; doubles with `failures`, from 1.
    fn pause(&mut self, (first, longest): (Duration, Duration), failures: u32) -> Duration {
        let thousandth = u32::try_from(self.dice.draw() % 1_000).unwrap_or_default();
        let grown = step::doubled(first, longest, failures);
        grown + grown * thousandth / 2_000
    }

    pub(super) fn begin(&mut self, call: TurnCall) -> CallId {
        self.calls += 1;
        self.call = Some(call);
        self.due = None;
        self.calls
    }

    pub(super) fn read_cluster(&mut self, out: &mut Vec<Effect>) {
        out.push(Effect::ReadCluster(self.begin(TurnCall::Cluster)));
    }

    pub(super) fn read_margin(&mut self, nodes: Vec<TurnNode>, out: &mut Vec<Effect>) {
        out.push(Effect::ReadMargin(self.begin(TurnCall::Margin(nodes))));
    }

    /// Writes `record`, or puts that off where too much was written lately. Returns whether it is on its way.
    pub(super) fn write(
        &mut self,
        now: Mono,
        record: TurnRecord,
        looked: bool,
        out: &mut Vec<Effect>,
    ) -> bool {
        let own = record.holder(&self.me.node, &self.me.uid);
        let goes = own.is_some_and(|it| matches!(it.phase, Phase::GoingDown | Phase::Emergency));
        let ahead = self.written.since(now);
        if ahead >= AT_ONCE && !goes {
            self.due = Some(now + ahead.saturating_sub(AT_ONCE) + WRITE_EACH);
            return false;
        }
        self.written = self.written.max(now) + WRITE_EACH;
        let on = match &self.seen {
            KnownRecord::There(held) => Some((held.uid.clone(), held.resource_version.clone())),
            KnownRecord::Absent | KnownRecord::Unknown => None,
        };
        let id = self.begin(TurnCall::Write { looked });
        out.push(Effect::Write(id, Box::new(RecordWrite { on, record })));
        true
    }

    /// The turn is not ours any more. Each one that is lost makes the pause before the next one longer: a node must not be
    /// emptied again and again.
    pub(super) fn lose(&mut self, now: Mono, why: String) {
        self.losses = self.losses.saturating_add(1);
        let pause = self.pause(RETRY, self.losses);
        (self.forgotten, self.barred) = (false, Some(now + pause));
        self.grant = TurnGrant::Lost { why };
    }

    /// Writes the record with a grant for this node.
    pub(super) fn enter(
        &mut self,
        now: Mono,
        mut record: TurnRecord,
        want: &TurnClaim,
        out: &mut Vec<Effect>,
    ) {
        let phase = if want.emergency { Phase::Emergency } else { Phase::Granted };
        let Me { node, uid, boot_id, server } = self.me.clone();
        record.release(&node, &uid);
        let fence = record.grant(Holder {
            node,
            node_uid: uid,
            boot_id,
            op: want.op.clone(),
            counter: want.counter,
            fence: 0,
            phase: phase.clone(),
            server,
            since: String::new(),
            earlier: None,
            rest: serde_json::Map::new(),
        });
        if self.write(now, record, true, out) {
            self.attempt = Some((fence, now + IN_DOUBT));
            self.phase = phase;
        }
    }

    pub(super) fn wants(&mut self, now: Mono, want: Option<TurnClaim>, out: &mut Vec<Effect>) {
        // The Lease is known as the watch has shown it last.
        let watched = (self.idle || self.stays_out()) && self.call.is_none() && !self.dirty;
        let want = want.map_or(DesiredTurn::Nothing, DesiredTurn::Turn);
        if self.want == want {
            return;
        }
        self.idle = false;
        if !matches!(self.want, DesiredTurn::Turn(_)) {
            self.since = now;
        }
        match &want {
            DesiredTurn::Nothing | DesiredTurn::Unknown => {
                (self.paused, self.refusal, self.failures) = (None, None, 0);
                self.observed = Observed::default();
            }
            DesiredTurn::Turn(want) if want.emergency => {
                (self.paused, self.barred) = (None, None);
                self.phase = Phase::Emergency;
                if matches!(self.grant, TurnGrant::Lost { .. }) {
                    self.grant = TurnGrant::None;
                }
            }
            DesiredTurn::Turn(_) => drop(self.refusal.take_if(|it| it.rule == TurnRule::Preflight)),
        }
        // A turn that is held serves the next request as well.
        let serves = matches!(self.grant, TurnGrant::Held { .. })
            && matches!(&want, DesiredTurn::Turn(want) if !want.emergency)
            && matches!(self.want, DesiredTurn::Turn(_));
        self.want = want;
        // That is enough for whoever stays out, and for a creation, which names no version and grants nothing.
        let is_enough = matches!(&self.want, DesiredTurn::Turn(want) if !want.emergency
            && (Self::is_unfit(want) || self.seen == KnownRecord::Absent));
        if watched && is_enough {
            self.decide(now, out);
        } else if !serves {
            self.due = Some(now);
        }
    }

    /// The watch shows a value. Whoever wants no turn and is not in it, or is far back in the queue, takes it as it is; others
    /// ask the store.
    pub(super) fn changed(&mut self, now: Mono, value: Option<Box<RecordSnapshot>>) {
        let known = match (&self.seen, &value) {
            (KnownRecord::There(old), Some(new)) => {
                (&old.uid, &old.resource_version) == (&new.uid, &new.resource_version)
            }
            (KnownRecord::Absent, None) => true,
            (KnownRecord::Unknown | KnownRecord::Absent | KnownRecord::There(_), _) => false,
        };
        if known {
            return;
        }
        if let Some(new) = &value {
            self.memory.see(new);
        }
        let Me { node, uid, .. } = &self.me;
        let ours = |it: &RecordSnapshot| it.record.holder(node, uid).is_some() || it.record.waits(node);
        if (self.idle || self.stays_out()) && self.call.is_none() && !value.as_deref().is_some_and(ours) {
            self.seen = value.map_or(KnownRecord::Absent, KnownRecord::There);
            return;
        }
        if let (TurnGrant::None, DesiredTurn::Turn(want), Some(new), None) =
            (&self.grant, &self.want, &value, &self.call)
            && new.record.holder(&self.me.node, &self.me.uid).is_none()
            && self.paused.is_none()
            && !Self::is_near(&self.waiter(want, &new.record), &new.record)
        {
            if !new.record.queue.contains(&self.waiter(want, &new.record)) {
                // Others write as well, and were faster: the pause after that is kept, or all would read at each write.
                self.dirty |= self.outdated == 0;
                return;
            }
            self.refusal = Some(far_back(&new.record, &self.waiter(want, &new.record)));
            self.seen = value.map_or(KnownRecord::Absent, KnownRecord::There);
            self.far = None;
            self.rest(now);
            return;
        }
        self.dirty = true;
    }

    pub(super) fn retry(&mut self, now: Mono, why: &str) {
        self.failures += 1;
        let pause = self.pause(RETRY, self.failures.max(self.losses));
        (self.paused, self.forgotten) = (Some(now + pause), false);
        self.refusal = Some(TurnRefusal {
            rule: TurnRule::Retry,
            nodes: Vec::new(),
            why: format!("attempt {} failed: {why}; the next one is in {} s", self.failures, pause.as_secs()),
            next: "zedbox lock status".to_owned(),
        });
        if matches!(self.grant, TurnGrant::Lost { .. }) {
            self.grant = TurnGrant::None;
        }
        self.due = Some(now);
    }

    pub(super) fn is_paused(&self, now: Mono) -> bool {
        [self.paused, self.barred].into_iter().flatten().any(|until| now < until)
    }

    pub(super) fn failed(&mut self, now: Mono, trouble: ReadError) {
        self.troubles += 1;
        let (rule, why, pause, next) = match trouble {
            ReadError::NoAnswer(why) | ReadError::Refused(why) => {
                (TurnRule::Api, why, self.pause(NO_ANSWER, self.troubles), "kubectl get nodes".to_owned())
            }
            ReadError::BadRecord(why) => {
                let next = format!("kubectl -n {APP_NAMESPACE} get lease {LEASE} -o yaml");
                (TurnRule::Record, why.to_string(), BAD_RECORD, next)
            }
        };
        self.refusal = Some(TurnRefusal { rule, nodes: Vec::new(), why, next });
        self.due = Some(now + pause);
    }

    pub(super) fn read(
        &mut self,
        now: Mono,
        confirm: bool,
        read: Result<Option<Box<RecordSnapshot>>, ReadError>,
        out: &mut Vec<Effect>,
    ) {
        match read {
            Ok(found) => {
                (self.troubles, self.read_at) = (0, now);
                if self.is_queued() && !found.as_deref().is_some_and(|it| it.record.waits(&self.me.node)) {
                    // Somebody else took our place away: our node may be another object, so the nodes are read.
                    self.far = Some(now);
                }
                self.rival |= found.as_deref().is_some_and(|it| self.is_rivals(it));
                self.take_record(found);
                self.reconcile(now, out);
                if confirm {
                    self.confirmed(now, out);
                }
                self.decide(now, out);
            }
            Err(trouble) => {
                if confirm {
                    out.push(Effect::Confirmed(Err(Unconfirmed::Unknown(trouble.to_string()))));
                }
                self.failed(now, trouble);
            }
        }
    }

    pub(super) fn wrote(&mut self, now: Mono, looked: bool, wrote: RecordWritten, out: &mut Vec<Effect>) {
        match wrote {
            RecordWritten::Done(held) => {
                (self.troubles, self.outdated, self.read_at) = (0, 0, now);
                self.take_record(Some(held));
                self.reconcile(now, out);
                if looked && self.grant == TurnGrant::None && matches!(self.want, DesiredTurn::Turn(_)) {
                    // The nodes were read for this write: nothing else follows from it.
                    self.rest(now);
                } else {
                    self.decide(now, out);
                }
            }
            RecordWritten::Outdated => {
                self.outdated += 1;
                // What the watch has shown is read after the pause.
                self.dirty &= self.grant != TurnGrant::None;
                let pause = self.pause(OUTDATED, self.outdated);
                self.due = Some(now + pause);
            }
            RecordWritten::Unknown(why) => {
                self.doubt = Some(now + IN_DOUBT);
                self.failed(now, ReadError::NoAnswer(why));
            }
        }
    }

    /// The Lease was read or written a moment ago, the watch shows nothing newer, and only kubelets were waited for: what follows
    /// is a write that names this version.
    fn is_fresh(&self, now: Mono) -> bool {
        let waits_for_kubelets = self.refusal.as_ref().is_some_and(|it| it.rule == TurnRule::Reading);
        waits_for_kubelets && self.grant == TurnGrant::None && now.since(self.read_at) < FRESH
    }

    /// The next call, when one is due and none is under way.
    pub(super) fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.call.is_some() {
            return;
        }
        if let Some((number, _)) = self.look_again.take_if(|(_, at)| *at <= now) {
            self.look = self.look.or(Some(number));
        }
        if let Some(number) = self.look.take() {
            self.look_again = None;
            self.dirty = false;
            out.push(Effect::Read(self.begin(TurnCall::Look(number, LookStep::Lease))));
        } else if self.confirm {
            self.confirm = false;
            self.dirty = false;
            out.push(Effect::Read(self.begin(TurnCall::Confirm)));
        } else if !self.dirty && self.due.is_some_and(|due| due <= now) && self.is_fresh(now) {
            self.due = None;
            self.decide(now, out);
        } else if self.dirty || self.due.is_some_and(|due| due <= now) {
            // A process of before may have left a write under way.
            self.doubt.get_or_insert(now + IN_DOUBT);
            self.dirty = false;
            out.push(Effect::Read(self.begin(TurnCall::Read)));
        }
    }
}

impl Core for Turn {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Want(want) => self.wants(now, want, &mut out),
            Event::Changed(value) => self.changed(now, value),
            Event::Confirm if planted(Fault::TurnLastLook) => self.confirmed(now, &mut out),
            Event::Confirm => self.confirm = true,
            Event::LastLook(number) => self.look = Some(number),
            Event::Look => self.dirty = true,
            Event::Retry(why) => self.retry(now, &why),
            Event::Gate(open) => {
                self.gate = Some(open);
                if matches!(self.grant, TurnGrant::Booted { .. }) {
                    self.due = Some(now);
                }
            }
            Event::Phase(phase) => {
                if matches!(self.grant, TurnGrant::Held { .. }) && self.phase != phase {
                    (self.phase, self.due) = (phase, Some(now));
                }
            }
            Event::Read(id, read) if id == self.calls => match self.call.take() {
                Some(TurnCall::Read) => self.read(now, false, read, &mut out),
                Some(TurnCall::Confirm) => self.read(now, true, read, &mut out),
                Some(TurnCall::Look(number, _)) => self.look_at_lease(now, number, read, &mut out),
                other => self.call = other,
            },
            Event::Cluster(id, read) if id == self.calls => match (self.call.take(), read) {
                (Some(TurnCall::Cluster), Ok(nodes)) => self.evaluate(now, nodes, None, &mut out),
                (Some(TurnCall::Cluster), Err(trouble)) => self.failed(now, trouble),
                (Some(TurnCall::Look(number, step)), read) => {
                    self.look_at_nodes(now, number, step, read, &mut out);
                }
                (other, _) => self.call = other,
            },
            Event::Margin(id, margin) if id == self.calls => match self.call.take() {
                Some(TurnCall::Margin(nodes)) => self.evaluate(now, nodes, Some(&margin), &mut out),
                Some(TurnCall::Look(number, step)) => {
                    self.look_at_margin(now, number, step, margin, &mut out);
                }
                other => self.call = other,
            },
            Event::Wrote(id, wrote) if id == self.calls => match self.call.take() {
                Some(TurnCall::Write { looked }) => self.wrote(now, looked, wrote, &mut out),
                Some(TurnCall::Look(number, _)) => self.said_going_down(now, number, wrote, &mut out),
                other => self.call = other,
            },
            Event::Read(..) | Event::Cluster(..) | Event::Margin(..) | Event::Wrote(..) | Event::Tick => {}
        }
        self.advance(now, &mut out);
        self.show(&mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let again = self.look_again.map(|(_, at)| at);
        [self.due, again].into_iter().flatten().min().filter(|_| self.call.is_none())
    }

    fn tick() -> Event {
        Event::Tick
    }
}
