//! Attempts to drain: how one begins, what it reports, how it ends, and what starts the next one.
//!
//! Not here: the pods. Sources: spec/agents.md 4.3; goals D15, D16. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings;
use kubenodeop::{AttemptOutcome, Progress};
use step::{Fault, Mono, planted, say};
use topics::{DrainMarks, DrainStatus, NodeDrainRequest, PodCounts};

use super::life::{Drain, DrainStepOutcome};
use super::resume::{Resume, learned};
use super::run::{DrainEnd, DrainRun, Repeats};
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, say_blocker_changed, say_given_up};
use crate::limits::HOLD_LIMIT;

/// The longest pause before a drain whose cause of failure ends again and again.
const REPEAT_MOST: Duration = Duration::from_mins(30);

/// Adds to `all`, each once, what was left in place by policy.
pub(super) fn add_left(all: &mut Vec<String>, left: &[String]) {
    for text in left {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
}

impl Drain {
    /// Attempt number `attempt`, which began now or when the marks say.
    fn attempt(
        &mut self,
        now: Mono,
        attempt: u32,
        mut marks: DrainMarks,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        let limit = self.properties.time(settings::DRAIN_TIMEOUT);
        let began = Mono::of_ms(marks.attempt_ms).unwrap_or(now);
        marks.attempt_ms = began.as_ms();
        if marks.drain_ms == 0 {
            marks.drain_ms = marks.attempt_ms;
        }
        say!(out, info, "nodedrain-step:drain-attempt {attempt} of {}", node.limits.drain_tries);
        if let Some(request) = &self.serves {
            // Whose cordon it is stays as it was when the turn is not known for a moment.
            let grant = node.grant().unwrap_or_default();
            out.push(Effect::Drain(self.run_id, (request.clone(), grant), limit, Box::new(marks.clone())));
        }
        let pods = Progress { marks, ..Progress::default() };
        self.run = DrainRun::Draining { attempt, deadline: began + limit, now: Box::new(pods) };
    }

    /// Another attempt after the one that went so far.
    pub(super) fn next_attempt(
        &mut self,
        now: Mono,
        attempt: u32,
        last: &Progress,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        self.before = self.before.and(last);
        self.attempt(now, attempt, learned(&last.marks), node, out);
    }

    /// The first attempt, or the one that an earlier run of this agent was in.
    pub(super) fn first_attempt(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) {
        let Some(Resume { attempt, marks, pause, .. }) = self.resume.take() else {
            return self.attempt(now, 1, DrainMarks::default(), node, out);
        };
        let Some((until, reason)) = pause else { return self.attempt(now, attempt, marks, node, out) };
        let last = Box::new(Progress { marks, ..Progress::default() });
        if now < until {
            let secs = until.since(now).as_secs();
            say!(
                out,
                info,
                "attempt {attempt} failed before zedkube restarted, waiting {secs} s for the rest of the pause"
            );
            self.run = DrainRun::Retrying { attempt, until, reason, last };
        } else {
            self.next_attempt(now, attempt + 1, &last, node, out);
        }
    }

    /// Hears how far the attempt is.
    pub(crate) fn draining(&mut self, newest: Box<Progress>) {
        if let DrainRun::Draining { now: held, .. } = &mut self.run {
            let marks = std::mem::take(&mut held.marks);
            *held = newest;
            // Until the attempt has marks of its own, those that it was given count.
            if held.marks.attempt_ms == 0 {
                held.marks = marks;
            } else {
                held.marks.drain_ms = marks.drain_ms;
            }
        }
    }

    /// What the drain has failed of has ended, and whoever asked for it asks still: another one begins at once, and after
    /// that, for the same request, ever later.
    pub(crate) fn cause_ended(&mut self, now: Mono, node: &NodeContext) {
        let id = self.serves.as_ref().map(NodeDrainRequest::id);
        if self.repeats.of != id {
            self.repeats = Repeats { of: id, nth: 0 };
        }
        let pause = match self.repeats.nth {
            0 => Duration::ZERO,
            nth => step::doubled(node.limits.drain_gap(), REPEAT_MOST, nth),
        };
        self.repeats.nth += 1;
        self.next_start = self.next_start.max(Some(now + pause));
    }

    /// What held the failed attempt up is no longer what it was: the next one starts at once (goals D16).
    pub(crate) fn blocker_changed(
        &mut self,
        now: Mono,
        what: &str,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        if let DrainRun::Retrying { attempt, last, .. } = &self.run {
            let (next, last) = (attempt + 1, last.clone());
            say_blocker_changed(what, out);
            self.next_attempt(now, next, &last, node, out);
        }
    }

    /// Hears what came of the attempt.
    pub(crate) fn drained(
        &mut self,
        now: Mono,
        result: AttemptOutcome,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        self.silence = None;
        let DrainRun::Draining { attempt, now: last, .. } = &self.run else { return None };
        let (attempt, last) = (*attempt, last.clone());
        let failure = match result {
            Ok(done) => {
                add_left(&mut self.left, &done.left);
                let last = Box::new(Progress {
                    counts: PodCounts {
                        total: last.counts.total,
                        gone: last.counts.total,
                        ..PodCounts::default()
                    },
                    marks: last.marks,
                    evicted: done.evicted,
                    recordons: done.recordons,
                    replies: last.replies,
                    ..Progress::default()
                });
                self.run = DrainRun::Holding { done, attempt, last, until: now + HOLD_LIMIT };
                return self.release(out);
            }
            Err(failure) => *failure,
        };
        add_left(&mut self.left, &last.left);
        let last = Box::new(Progress {
            blockers: failure.blockers,
            left: Vec::new(),
            marks: DrainMarks { drain_ms: last.marks.drain_ms, ..failure.marks },
            ..*last
        });
        let reason = failure.reason;
        say!(out, warn, "nodedrain-step:drain-failure attempt {attempt}: {reason}");
        if attempt + u32::from(planted(Fault::K1)) < node.limits.drain_tries {
            let until = now + node.limits.drain_retry();
            self.run = DrainRun::Retrying { attempt, until, reason, last };
            out.push(Effect::Await(self.run_id, Box::new(failure.watched)));
            return None;
        }
        say_given_up(&reason, out);
        out.push(Effect::Await(self.run_id, Box::new(failure.watched.after_all_attempts())));
        Some(self.fail(DrainStatus::FailedDrain, DrainEnd::FailedDrain { attempt, reason, last }))
    }
}
