//! Who holds the lease, decided from our own observations and their times.
//!
//! A holder leads from the start of its last successful write for the renew deadline: until then no other
//! candidate can have seen its record unchanged for the whole lease. Others are judged in the same way, by
//! how long *we* have seen no write: no wall clocks are compared (goal L3). Every write names the version
//! that was read, so that of two writers one wins.
//!
//! Sources: spec/agents.md 4.10, the rules of client-go's `leaderelection` package. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{CallId, Core, Dice, LogMessage, Mono, WriteOutcome, say};

use super::record::{ElectionWrite, LeaseSnapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElectionTimes {
    lease: Duration,
    renew: Duration,
    retry: Duration,
    silence: Duration,
}

impl ElectionTimes {
    /// `lease`: how long a holder is left alone after a sign of life. `renew`: how long it leads after its
    /// last write; at most four fifths of `lease`, as it has to end first. `retry`: pause between looks, with
    /// up to a fifth of jitter, and between failed tries. `silence`: the cluster counts as gone without a
    /// successful look for so long.
    pub fn new(lease: Duration, renew: Duration, retry: Duration, silence: Duration) -> Self {
        Self { lease, renew: renew.min(lease * 4 / 5), retry, silence }
    }

    /// Pause between renewals: four of them fit into the time that a holder leads without one.
    fn rest(&self) -> Duration {
        self.retry.max(self.renew / 4)
    }
}

impl Default for ElectionTimes {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self::new(secs(300), secs(180), secs(15), secs(300))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Whether this node is a candidate. Before the first one, nothing is done.
    Wanted(bool),
    /// Answer to [`Effect::Read`]: the lease, `None` when there is none, or an error.
    Read(CallId, Result<Option<Box<LeaseSnapshot>>, String>),
    Wrote(CallId, WriteOutcome<LeaseSnapshot>),
    Tick,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Read(CallId),
    Write(CallId, Box<ElectionWrite>),
    Say(LogMessage),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ElectionState {
    /// Until when we certainly lead, if we do.
    pub leads: Option<Mono>,
    /// The last known holder; empty for none.
    pub leader: String,
    pub answers: bool,
    /// We are no candidate, and know of no record of ours in the lease.
    pub clear: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum KnownLease {
    Unknown,
    Absent,
    /// Seen since then.
    There(Box<LeaseSnapshot>, Mono),
}

/// A call under way, and its start.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LeaseCall {
    Read,
    Hold { started: Mono },
    Release,
}

/// The election from one candidate's view.
#[derive(Debug, Clone, PartialEq)]
pub struct Election {
    times: ElectionTimes,
    identity: String,
    wanted: Option<bool>,
    seen: KnownLease,
    /// Our own record is known from an answer: it may be renewed without a read.
    sure: bool,
    leads: Option<Mono>,
    calls: CallId,
    call: Option<LeaseCall>,
    /// Consecutive writes that lost a race.
    outdated: u32,
    /// The next call, while none is under way.
    due: Option<Mono>,
    /// Since when we try to release the lease.
    leaving: Option<Mono>,
    answered: Option<Mono>,
    answers: bool,
    trouble: String,
    dice: Dice,
}

impl Election {
    /// An idle candidate. `chance` differs between candidates.
    pub fn new(times: ElectionTimes, identity: impl Into<String>, chance: u64) -> Self {
        Self {
            times,
            identity: identity.into(),
            wanted: None,
            seen: KnownLease::Unknown,
            sure: false,
            leads: None,
            calls: 0,
            call: None,
            outdated: 0,
            due: None,
            leaving: None,
            answered: None,
            answers: false,
            trouble: String::new(),
            dice: Dice::new(chance),
        }
    }

    pub fn state(&self) -> ElectionState {
        let holding = matches!(self.call, Some(LeaseCall::Hold { .. }));
        ElectionState {
            leads: self.leads,
            leader: match &self.seen {
                KnownLease::There(held, _) => held.holder().to_owned(),
                KnownLease::Unknown | KnownLease::Absent => String::new(),
            },
            answers: self.answers,
            clear: self.wanted != Some(true) && !holding && !self.is_ours(),
        }
    }

    pub fn leads(&self, now: Mono) -> bool {
        self.leads.is_some_and(|until| now < until)
    }

    /// Pause between looks, with jitter so that candidates do not ask together.
    fn pause(&mut self) -> Duration {
        let thousandth = u32::try_from(self.dice.draw() % 1_000).unwrap_or_default();
        self.times.retry + self.times.retry * thousandth / 5_000
    }

    fn is_ours(&self) -> bool {
        matches!(&self.seen, KnownLease::There(held, _) if held.holder() == self.identity)
    }

    fn lose(&mut self, why: &'static str, out: &mut Vec<Effect>) {
        if self.leads.take().is_some() {
            say!(out, warn, "leader election: this node leads no longer: {why}");
        }
    }

    /// Ends what has expired. First in each step, as the process may have been suspended.
    fn expire(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.leads.is_some_and(|until| now >= until) {
            self.lose("the lease was not renewed within the renew deadline", out);
        }
        if self.leaving.is_some_and(|since| now >= since + self.times.lease) {
            // Expired for all others by now.
            self.leaving = None;
            self.due = None;
            self.seen = KnownLease::Unknown;
            say!(out, warn, "leader election: lease not released, it has run out by now");
        }
        if self.answers && self.silent_at().is_some_and(|at| now >= at) {
            self.answers = false;
            // Without a candidacy there is no look, which is no trouble.
            if !self.trouble.is_empty() {
                say!(out, warn, "leader election: the cluster does not answer: {}", self.trouble);
            }
        }
    }

    fn silent_at(&self) -> Option<Mono> {
        self.answered.map(|at| at + self.times.silence)
    }

    fn want(&mut self, now: Mono, wanted: bool, out: &mut Vec<Effect>) {
        if self.wanted == Some(wanted) {
            return;
        }
        self.wanted = Some(wanted);
        self.due = Some(now);
        self.leaving = (!wanted).then_some(now);
        if !wanted {
            self.lose("this node is no candidate any more", out);
        }
    }

    fn observe(&mut self, now: Mono, found: Option<Box<LeaseSnapshot>>, out: &mut Vec<Effect>) {
        self.answered = Some(now);
        self.trouble.clear();
        if !self.answers {
            self.answers = true;
            say!(out, info, "leader election: the cluster answers");
        }
        self.seen = match (std::mem::replace(&mut self.seen, KnownLease::Unknown), found) {
            (_, None) => KnownLease::Absent,
            // No write: its time continues.
            (KnownLease::There(old, since), Some(new)) if old.version() == new.version() => {
                KnownLease::There(new, since)
            }
            (_, Some(new)) => KnownLease::There(new, now),
        };
        if !self.is_ours() {
            self.lose("somebody else holds the lease", out);
        }
    }

    fn begin(&mut self, call: LeaseCall) -> CallId {
        self.calls += 1;
        self.call = Some(call);
        self.due = None;
        self.calls
    }

    fn look(&mut self, out: &mut Vec<Effect>) {
        let id = self.begin(LeaseCall::Read);
        out.push(Effect::Read(id));
    }

    fn write(&mut self, call: LeaseCall, order: ElectionWrite, out: &mut Vec<Effect>) {
        let id = self.begin(call);
        out.push(Effect::Write(id, Box::new(order)));
    }

    fn hold(&mut self, now: Mono, on: Option<Box<LeaseSnapshot>>, out: &mut Vec<Effect>) {
        let (identity, lease) = (self.identity.clone(), self.times.lease);
        let order = match on {
            Some(on) => ElectionWrite::Hold { on, identity, lease },
            None => ElectionWrite::Create { identity, lease },
        };
        self.write(LeaseCall::Hold { started: now }, order, out);
    }

    /// The next call, if due. A leader that is sure of its record writes at once; others read first.
    fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.call.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        match (&self.seen, self.wanted) {
            (_, None) => self.due = None,
            (_, Some(false)) if self.leaving.is_none() => self.due = None,
            (KnownLease::There(held, _), Some(true)) if self.sure && self.leads.is_some() => {
                let on = Some(held.clone());
                self.hold(now, on, out);
            }
            (KnownLease::There(held, _), Some(false)) if self.sure && held.holder() == self.identity => {
                let order = ElectionWrite::Release { on: held.clone() };
                self.write(LeaseCall::Release, order, out);
            }
            (_, Some(_)) => self.look(out),
        }
    }

    /// After a read: the right to write, or the wait.
    fn decide(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let ours = self.is_ours();
        match (&self.seen, self.wanted) {
            (KnownLease::There(held, _), Some(false)) if ours => {
                let order = ElectionWrite::Release { on: held.clone() };
                self.write(LeaseCall::Release, order, out);
            }
            (_, Some(false)) => {
                self.leaving = None;
                self.due = None;
            }
            (KnownLease::Absent, Some(true)) => self.hold(now, None, out),
            (KnownLease::There(held, since), Some(true)) => {
                let left_alone = held.duration().unwrap_or(self.times.lease);
                let free = ours || held.holder().is_empty() || now.since(*since) >= left_alone;
                if free {
                    let on = Some(held.clone());
                    self.hold(now, on, out);
                } else {
                    self.outdated = 0;
                    self.due = Some(now + self.pause());
                }
            }
            (KnownLease::Unknown, Some(true)) | (_, None) => {}
        }
    }

    fn failed(&mut self, now: Mono, why: String, out: &mut Vec<Effect>) {
        if !self.answers && self.trouble.is_empty() {
            // This trouble was not logged yet.
            say!(out, warn, "leader election: the cluster does not answer: {why}");
        }
        self.trouble = why;
        self.sure = false;
        let pause = self.pause();
        // Shorter while we release.
        self.due = Some(now + if self.leaving.is_some() { pause / 10 } else { pause });
    }

    fn wrote(
        &mut self,
        now: Mono,
        call: LeaseCall,
        wrote: WriteOutcome<LeaseSnapshot>,
        out: &mut Vec<Effect>,
    ) {
        match wrote {
            WriteOutcome::Done(held) => {
                self.outdated = 0;
                self.sure = true;
                self.observe(now, Some(held), out);
                match call {
                    LeaseCall::Hold { started } => self.held(now, started, out),
                    LeaseCall::Release | LeaseCall::Read => {
                        self.leaving = None;
                        self.due = (self.wanted == Some(true)).then_some(now);
                        say!(out, info, "leader election: lease released");
                    }
                }
            }
            WriteOutcome::Outdated => {
                self.sure = false;
                self.outdated += 1;
                // After a lost race, read at once; after several, with a pause.
                self.due = Some(if self.outdated > 1 { now + self.pause() } else { now });
            }
            WriteOutcome::Unknown(why) => self.failed(now, why, out),
        }
    }

    /// The lease is ours by a write begun at `started`.
    fn held(&mut self, now: Mono, started: Mono, out: &mut Vec<Effect>) {
        let until = started + self.times.renew;
        if self.wanted != Some(true) || now >= until {
            self.due = Some(now);
            return;
        }
        if self.leads.is_none() {
            say!(out, info, "leader election: this node leads lease {}", super::NAME);
        }
        self.leads = Some(until);
        self.due = Some(now + self.times.rest());
    }
}

impl Core for Election {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.expire(now, &mut out);
        match (event, self.call) {
            (Event::Wanted(wanted), _) => self.want(now, wanted, &mut out),
            (Event::Read(id, read), Some(LeaseCall::Read)) if id == self.calls => {
                self.call = None;
                match read {
                    Ok(found) => {
                        self.sure = true;
                        self.observe(now, found, &mut out);
                        self.decide(now, &mut out);
                    }
                    Err(why) => self.failed(now, why, &mut out),
                }
            }
            (Event::Wrote(id, wrote), Some(call @ (LeaseCall::Hold { .. } | LeaseCall::Release)))
                if id == self.calls =>
            {
                self.call = None;
                self.wrote(now, call, wrote, &mut out);
            }
            (Event::Read(..) | Event::Wrote(..) | Event::Tick, _) => {}
        }
        self.advance(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let due = self.due.filter(|_| self.call.is_none());
        let given_up = self.leaving.map(|since| since + self.times.lease);
        let silent = self.silent_at().filter(|_| self.answers);
        [due, self.leads, given_up, silent].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
