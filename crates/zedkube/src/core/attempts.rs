//! Attempts to drain: how one begins, what it tells, how it ends, and what starts the next one.
//!
//! Not here: the pods. Sources: spec/agents.md 4.3; goals D15, D16. Pure: no clock, no I/O, no task.

use agent::settings;
use kubenodeop::{Counts, Left, Marks, Progress};
use step::{Fault, Mono, planted};
use topics::DrainStatus;

use super::facts::{Done, Effect, Failure, Said};
use super::machine::Zedkube;
use super::resume::{Resume, learned};
use super::run::{End, Run};

/// Adds to `all`, in words and each once, what a rule has let pass.
pub(super) fn add_left(all: &mut Vec<String>, left: &[Left]) {
    for text in left.iter().map(ToString::to_string) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
}

impl Zedkube {
    /// Attempt number `attempt`, which began now or when the marks say.
    pub(super) fn attempt(&self, now: Mono, attempt: u32, marks: Marks, out: &mut Vec<Effect>) -> Run {
        let limit = self.properties.time(settings::DRAIN_TIMEOUT);
        let began = marks.attempt.unwrap_or(now);
        let marks = Marks { attempt: Some(began), ..marks };
        out.push(Effect::Say(Said::Attempt(attempt, self.node.limits.drain_tries)));
        if let Some(request) = &self.serves {
            out.push(Effect::Drain(self.run_id, request.clone(), limit, Box::new(marks.clone())));
        }
        let pods = Progress { marks, ..Progress::default() };
        Run::Draining { attempt, deadline: began + limit, now: Box::new(pods) }
    }

    /// Another attempt after the one that went so far.
    pub(super) fn next_attempt(
        &mut self,
        now: Mono,
        attempt: u32,
        last: &Progress,
        out: &mut Vec<Effect>,
    ) -> Run {
        self.before = self.before.and(last);
        self.attempt(now, attempt, learned(&last.marks), out)
    }

    /// The first attempt, or the one that an earlier run of this agent was in.
    pub(super) fn first_attempt(&mut self, now: Mono, out: &mut Vec<Effect>) -> Run {
        let Some(Resume { attempt, marks, pause, .. }) = self.resume.take() else {
            return self.attempt(now, 1, Marks::default(), out);
        };
        match pause {
            None => self.attempt(now, attempt, marks, out),
            Some((until, reason)) if now < until => {
                out.push(Effect::Say(Said::PauseKept(attempt, until.since(now))));
                let last = Box::new(Progress { marks, ..Progress::default() });
                Run::Pausing { attempt, until, reason, last }
            }
            Some(_) => self.next_attempt(now, attempt + 1, &Progress { marks, ..Progress::default() }, out),
        }
    }

    pub(super) fn draining(&mut self, newest: Box<Progress>) {
        if let Run::Draining { now: held, .. } = &mut self.run {
            let marks = std::mem::take(&mut held.marks);
            *held = newest;
            // Until the attempt has marks of its own, those that it was given stand.
            if held.marks.attempt.is_none() {
                held.marks = marks;
            }
            self.remaining();
        }
    }

    /// What held the failed attempt up is no longer what it was: the next one starts at once (goals D16).
    pub(super) fn changed(&mut self, now: Mono, what: String, out: &mut Vec<Effect>) {
        if let Run::Pausing { attempt, last, .. } = &self.run {
            let (next, last) = (attempt + 1, last.clone());
            out.push(Effect::Say(Said::BlockerChanged(what)));
            self.run = self.next_attempt(now, next, &last, out);
        }
    }

    fn let_pass(&mut self, left: &[Left]) {
        add_left(&mut self.left, left);
    }

    pub(super) fn drained(&mut self, now: Mono, result: Result<Done, Box<Failure>>, out: &mut Vec<Effect>) {
        self.heard();
        let Run::Draining { attempt, now: last, .. } = &self.run else { return };
        let (attempt, last) = (*attempt, last.clone());
        match result {
            Ok(done) => {
                self.let_pass(&done.left);
                let last = Box::new(Progress {
                    counts: Counts { total: last.counts.total, gone: last.counts.total, ..Counts::default() },
                    marks: last.marks,
                    evicted: done.evicted,
                    recordons: done.recordons,
                    replies: last.replies,
                    ..Progress::default()
                });
                self.run = Run::Holding { done, attempt, last, until: now + self.node.limits.hold_limit() };
                self.release(now, out);
            }
            Err(failure) => {
                let failure = *failure;
                self.let_pass(&last.left);
                let last = Box::new(Progress {
                    blockers: failure.blockers,
                    left: Vec::new(),
                    marks: failure.marks,
                    ..*last
                });
                out.push(Effect::Say(Said::AttemptFailed(attempt, failure.reason.clone())));
                if failure.all_drain {
                    out.push(Effect::Say(Said::NobodyLeft));
                    let skip = format!(
                        "every other node is being drained too, nothing can move: {}",
                        failure.reason
                    );
                    self.skip(now, skip, out);
                } else if attempt + u32::from(planted(Fault::K1)) < self.node.limits.drain_tries {
                    let until = now + self.node.limits.drain_pause();
                    self.run = Run::Pausing { attempt, until, reason: failure.reason, last };
                    out.push(Effect::Await(self.run_id, Box::new(failure.watched)));
                } else {
                    let reason = failure.reason;
                    out.push(Effect::Say(Said::GivingUp(reason.clone())));
                    self.fail(now, DrainStatus::FailedDrain, End::FailedDrain { attempt, reason, last });
                }
            }
        }
    }

    /// A proved drain becomes COMPLETE, unless the fault-injection file holds it.
    pub(super) fn release(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if !self.hold {
            self.complete(now, out);
        }
    }

    pub(super) fn complete(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Run::Holding { done, attempt, last, .. } = &self.run else { return };
        let end = End::Drained { attempt: *attempt, last: last.clone() };
        out.extend(self.left.iter().map(|it| Effect::Say(Said::Left(it.clone()))));
        out.push(Effect::Say(Said::Complete(done.took)));
        self.answer(now, DrainStatus::Complete, "");
        self.run = Run::Ended(end);
        // At once: with the first look the watch begins.
        self.care.check_at(now);
    }
}
