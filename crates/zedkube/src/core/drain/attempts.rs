//! Attempts to drain: how one begins, what it reports, how it ends, and what starts the next one; their limit over all of
//! them, the pauses between them and restarts of this agent in the same boot; and what a restart must not forget of one.
//!
//! Not here: the pods, and the other limits (kubenodeop). In the journal, times are milliseconds of the boot's monotonic
//! clock, beside the boot's identity. Sources: spec/agents.md 4.3; goals D15, D16. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings;
use kubeapi::listed;
use kubenodeop::{AttemptOutcome, Progress, VOLUMES_LIMIT, VolumeAction};
use step::{Fault, Mono, planted, say};
use topics::{DrainJournal, DrainMarks, DrainStatus, NodeDrainRequest, PodCounts, RunningLimit};

use super::life::{Drain, StepOutcome};
use super::run::{DrainEnd, DrainRun, Repeats, Resume, Silence};
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, UnansweredCall, say_blocker_changed, say_given_up};
use crate::limits::{HOLD_LIMIT, Limits, volume_action};

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
        self.run = DrainRun::Draining { attempt, deadline: began + limit, now: Box::new(pods), held: None };
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
        if let DrainRun::Draining { now: pods, held: None, .. } = &mut self.run {
            let marks = std::mem::take(&mut pods.marks);
            *pods = newest;
            // Until the attempt has marks of its own, those that it was given count.
            if pods.marks.attempt_ms == 0 {
                pods.marks = marks;
            } else {
                pods.marks.drain_ms = marks.drain_ms;
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
    ) -> Option<StepOutcome> {
        self.silence = None;
        let DrainRun::Draining { attempt, now: last, held: None, .. } = &self.run else { return None };
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
                    // What follows a restart is not held against the limit of the drain.
                    marks: DrainMarks { drain_ms: 0, ..last.marks },
                    evicted: done.evicted,
                    recordons: done.recordons,
                    replies: last.replies,
                    ..Progress::default()
                });
                let (held, deadline) = (Some(done.took), now + HOLD_LIMIT);
                self.run = DrainRun::Draining { attempt, deadline, now: last, held };
                return self.release(out);
            }
            Err(failure) => *failure,
        };
        add_left(&mut self.left, &last.left);
        let last = Progress {
            blockers: failure.blockers,
            left: Vec::new(),
            marks: DrainMarks { drain_ms: last.marks.drain_ms, ..failure.marks },
            ..*last
        };
        let reason = failure.reason;
        say!(out, warn, "nodedrain-step:drain-failure attempt {attempt}: {reason}");
        if attempt + u32::from(planted(Fault::K1)) < node.limits.drain_tries {
            let until = now + node.limits.drain_retry();
            self.run = DrainRun::Retrying { attempt, until, reason, last: Box::new(last) };
            out.push(Effect::Await(self.run_id, Box::new(failure.watched)));
            return None;
        }
        let failed = self.give_up(attempt, reason, last, out);
        out.push(Effect::Await(self.run_id, Box::new(failure.watched.after_all_attempts())));
        Some(failed)
    }

    /// Hears whether the API has answered in the middle of a drain, in this run of the agent or in the one before it.
    pub(crate) fn api_silent(&mut self, now: Mono, away: Option<Box<UnansweredCall>>) {
        let amid = matches!(self.run, DrainRun::Draining { held: None, .. }) || self.resume.is_some();
        self.silence = away.filter(|_| amid).map(|last| match self.silence.take() {
            Some(before) => Silence { until: now, tries: before.tries.saturating_add(1), last, ..before },
            None => Silence { since: last.asked, until: now, tries: 1, last },
        });
    }
}

/// The limit of a whole drain.
impl Drain {
    /// When the first attempt of the drain that is under way began.
    fn began(&self) -> Option<Mono> {
        match &self.run {
            DrainRun::Draining { now: pods, .. } | DrainRun::Retrying { last: pods, .. } => {
                Mono::of_ms(pods.marks.drain_ms)
            }
            DrainRun::AtGate(_) | DrainRun::Cordoning(_) => Mono::of_ms(self.resume.as_ref()?.marks.drain_ms),
            DrainRun::Idle | DrainRun::Ended(_) => None,
        }
    }

    /// Since when the limit runs, and when it is over.
    fn drain_limit(&self, node: &NodeContext) -> Option<(Mono, Mono)> {
        let after = Some(node.limits.drain_limit()).filter(|it| !it.is_zero())?;
        self.began().map(|since| (since, since + after))
    }

    /// When the drain fails on it.
    pub(super) fn gives_up_at(&self, node: &NodeContext) -> Option<Mono> {
        Some(self.drain_limit(node)?.1)
    }

    /// Fails where that is over: whatever is under way ends, and no other attempt follows.
    pub(super) fn over_limit(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<StepOutcome> {
        self.gives_up_at(node).filter(|until| now >= *until)?;
        let (attempt, last, why) = if let DrainRun::Retrying { attempt, last, reason, .. } = &self.run {
            (*attempt, last.clone(), reason.clone())
        } else if let DrainRun::Draining { attempt, now: last, .. } = &self.run {
            (*attempt, last.clone(), self.why_left(last))
        } else {
            let resume = self.resume.as_ref()?;
            let last = Progress { marks: resume.marks.clone(), ..Progress::default() };
            (resume.attempt, Box::new(last), "it could not be continued after a restart".to_owned())
        };
        let secs = node.limits.drain_limit().as_secs();
        let reason = format!("not done within {secs} s, the limit for the whole drain: {why}");
        say_given_up(&reason, out);
        let serves = self.serves.take();
        add_left(&mut self.left, &last.left);
        self.end(Some(DrainEnd::FailedDrain { attempt, reason, last }), out);
        self.serves = serves;
        Some(StepOutcome::Failed(DrainStatus::FailedDrain))
    }

    fn why_left(&self, now: &Progress) -> String {
        let blockers: Vec<String> = now.blockers.iter().map(|it| it.reason.clone()).collect();
        if !blockers.is_empty() {
            return listed(&blockers, "; ");
        }
        if !now.volumes.is_empty() {
            return format!("still attached: {}", listed(&now.volumes, ", "));
        }
        let counts = self.counts();
        format!("{} of {} pods gone", counts.gone, counts.total)
    }

    /// When the attempt fails on volumes that it waits for, if it does.
    pub(super) fn volumes_end(&self, node: &NodeContext) -> Option<Mono> {
        let DrainRun::Draining { now, held: None, .. } = &self.run else { return None };
        let fails = waits(now, &node.limits).filter(|(.., then)| *then == VolumeAction::GiveUp);
        fails.map(|(_, (_, until), _)| until).min()
    }

    /// The limits that run, for a reader.
    pub(super) fn running_limits(&self, node: &NodeContext) -> Vec<RunningLimit> {
        let shown = |of: &str, (since, until): (Mono, Mono), then: VolumeAction| RunningLimit {
            of: of.to_owned(),
            since: node.wall(since),
            until: node.wall(until),
            then: volume_action(then).to_owned(),
        };
        let limits = &node.limits;
        let gives_up = VolumeAction::GiveUp;
        let drain = self.drain_limit(node).map(|it| shown("drain", it, gives_up));
        let mut all: Vec<RunningLimit> = drain.into_iter().collect();
        if let DrainRun::Draining { deadline, now, held: None, .. } = &self.run {
            let attempt = Mono::of_ms(now.marks.attempt_ms).map(|since| (since, *deadline));
            all.extend(attempt.map(|it| shown("attempt", it, gives_up)));
            all.extend(waits(now, limits).map(|(of, when, then)| shown(of, when, then)));
        }
        all
    }
}

/// What of volumes is waited for, since when and until when, and what is done then.
fn waits(
    now: &Progress,
    limits: &Limits,
) -> impl Iterator<Item = (&'static str, (Mono, Mono), VolumeAction)> + use<> {
    let of = |name, since_ms: u64, after: Option<Duration>, then| {
        let since = Mono::of_ms(since_ms)?;
        Some((name, (since, since + after?), then))
    };
    let volumes = of("volumes", now.marks.volumes_ms, Some(VOLUMES_LIMIT), VolumeAction::GoOn);
    let last_copy = limits.rules(Duration::ZERO).last_copy;
    volumes.into_iter().chain(of("last-copies", now.marks.storage_ms, last_copy.after, last_copy.then))
}

impl Drain {
    /// What the journal keeps of attempts: number, end of the pause, marks, why the last one failed.
    pub(super) fn saved(&self) -> DrainJournal {
        let (attempt, marks, pause) = match (&self.run, &self.resume) {
            (DrainRun::Draining { attempt, now: pods, .. }, _) => (*attempt, &pods.marks, None),
            (DrainRun::Retrying { attempt, until, reason, last }, _) => {
                (*attempt, &last.marks, Some((*until, reason)))
            }
            (_, Some(Resume { attempt, marks, pause, .. })) => {
                (*attempt, marks, pause.as_ref().map(|(until, reason)| (*until, reason)))
            }
            (_, None) => {
                let (attempt, reason) = (self.run.attempt(), self.run.failure().to_owned());
                return DrainJournal { attempt, reason, ..DrainJournal::default() };
            }
        };
        let (until, reason) =
            pause.map(|(until, reason)| (until.as_ms(), reason.clone())).unwrap_or_default();
        DrainJournal { attempt, pause_end_ms: until, marks: marks.clone(), reason, ..DrainJournal::default() }
    }
}

/// What an attempt takes over from the one before it: what was learned and is still owed, and since when the drain runs,
/// not since when its own limits ran.
pub(super) fn learned(last: &DrainMarks) -> DrainMarks {
    let DrainMarks { drain_ms, returns, claims, surged, .. } = last.clone();
    DrainMarks { drain_ms, returns, claims, surged, ..DrainMarks::default() }
}
