//! The life of a drain, from the request to its end: what takes it on; its attempts, with what each reports, how it ends and
//! what starts the next one; their limit over all of them, the pauses between them and restarts in the same boot.
//!
//! Not here: where it is (`run`), what keeps it from its cordon (`gates`), what a reader gets (`shown`), the pods and
//! the other limits (kubenodeop). In the journal, times are milliseconds of the boot's monotonic clock, beside the
//! boot's identity. Sources: lf-edge/eve pkg/pillar/cmd/zedkube (drain, handlenodedrain). Pure: no clock, no I/O, no
//! task.

use std::time::Duration;

use agent::settings;
use kubeapi::listed;
use kubenodeop::{AttemptOutcome, LimitAction, Progress, STICKY_RETURNS, VOLUMES_LIMIT};
use outage::keeper::Ask;
use step::{Fault, Mono, planted, say};
use topics::{
    CordonOwner, DrainJournal, DrainMarks, DrainStatus, GoTime, NodeDrainRequest, PodCounts, RunningLimit,
    Skip, number,
};

use super::run::{
    ApiSilence, CordonStage, DrainEnd, DrainGate, DrainRun, EarlierWork, Repeats, Resume, TurnGate,
};
use crate::WAIT;
use crate::core::answers::Answers;
use crate::core::context::{NodeContext, Step};
use crate::core::facts::{
    CordonFailure, Effect, RemainingPod, RunId, UnansweredCall, say_blocker_changed, say_given_up,
    say_skipped, whose,
};
use crate::limits::{HOLD_LIMIT, Limits, volume_action};

/// How long the answer to whether the turn is still ours may take before the question is asked again.
pub(super) const CONFIRM_AGAIN: Duration = Duration::from_secs(30);

/// The longest pause before a drain whose cause of failure ends again and again.
const REPEAT_MOST: Duration = Duration::from_mins(30);

/// The drain of this node, or none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Drain {
    /// The fault-injection file holds a drain that is done.
    hold: bool,
    pub(crate) run: DrainRun,
    /// Number of the run: results of another one do not count. The model (`tests/model/print.rs`) knows it by this name, as it does `looks` of the node.
    pub(crate) run_id: RunId,
    /// The API does not answer in the middle of this drain.
    pub(super) silence: Option<ApiSilence>,
    /// The request in whose name the run works.
    pub(crate) serves: Option<NodeDrainRequest>,
    pub(super) started_at: GoTime,
    /// Before this no drain starts for a new request.
    pub(super) next_start: Option<Mono>,
    pub(super) repeats: Repeats,
    /// The attempt of an earlier run of this agent, until it is continued.
    pub(super) resume: Option<Resume>,
    /// What this drain had done before the task that is at work now.
    pub(super) before: EarlierWork,
    /// What was left in place by policy, in attempts that are over.
    pub(super) left: Vec<String>,
    /// What was shown before this agent restarted, while the run catches up.
    pub(super) floor: Option<DrainStatus>,
    /// Whoever waits needs a turn, and no drain.
    pub(crate) turn_alone: bool,
    /// Tries of the hooks before it that have failed.
    pub(super) hook_tries: u32,
}

/// What the rest of the core has to know of a step of the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    CordonSent,
    Cordoned(CordonOwner),
    /// It is proved done.
    Drained,
    /// It is skipped, for this reason.
    Skipped(Skip),
    Failed(DrainStatus),
    /// Its turn to be down is no longer its own, for this reason.
    TurnLost(String),
    /// The turn is its own, and it needs no more.
    TurnAlone,
    /// It was under way before this agent restarted, and has to wait for another turn or for a window.
    TurnRefused,
}

impl Drain {
    /// None; after a start in the same boot, what `journal` says of one.
    pub(crate) fn new(journal: Option<&DrainJournal>) -> Self {
        let resume = journal.and_then(Resume::from);
        let status = journal.map(|it| it.status).filter(|it| *it != DrainStatus::NotRequested);
        Self {
            run: status.map_or(DrainRun::Idle, |it| DrainRun::Ended(DrainEnd::Resumed(it))),
            started_at: journal.map_or(GoTime::ZERO, |it| it.started_at),
            resume,
            left: journal.map(|it| it.left.clone()).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(crate) fn set_clock(&mut self, before: GoTime, booted_at: GoTime) {
        self.started_at = self.started_at.moved(before, booted_at);
    }

    /// Whether a task is, or soon will be, at work.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.run, DrainRun::Idle | DrainRun::Ended(_))
    }

    /// There is none, and none is over.
    pub(crate) fn is_idle(&self) -> bool {
        self.run == DrainRun::Idle
    }

    /// A request was accepted; the drain has not started.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.run, DrainRun::AtGate(DrainGate::Start { .. }))
    }

    /// It continues what an earlier run of this agent was in.
    pub(crate) fn catches_up(&self) -> bool {
        self.floor.is_some()
    }

    /// The status that says where it is by itself.
    pub(crate) fn own_status(&self) -> DrainStatus {
        self.run.status(None)
    }

    /// The same as it is shown: while it catches up, what was shown before the restart.
    pub(crate) fn status(&self) -> DrainStatus {
        self.run.status(self.floor)
    }

    /// How it ended or was before this agent restarted, while nothing has come after it.
    pub(crate) fn resumed(&self) -> Option<DrainStatus> {
        if let DrainRun::Ended(DrainEnd::Resumed(status)) = self.run { Some(status) } else { None }
    }

    /// A cordon of ours stays while a drain runs or is complete.
    pub(crate) fn keeps_cordon(&self, node: &NodeContext) -> bool {
        match &self.run {
            // A node that waits is not cordoned; one that continues what it was in is, until its turn is refused.
            DrainRun::AtGate(DrainGate::Start { .. } | DrainGate::Turn(_)) => {
                node.grant().is_some() || self.resume.is_some() || self.floor.is_some()
            }
            DrainRun::Idle
            | DrainRun::AtGate(DrainGate::Window | DrainGate::TurnAlone { .. })
            | DrainRun::Ended(DrainEnd::FailedCordon(_) | DrainEnd::FailedDrain { .. }) => false,
            DrainRun::Ended(DrainEnd::Resumed(status)) => !status.is_failure(),
            DrainRun::AtGate(DrainGate::Hooks { .. })
            | DrainRun::Cordoning(_)
            | DrainRun::Draining { .. }
            | DrainRun::Retrying { .. }
            | DrainRun::Ended(DrainEnd::Drained { .. } | DrainEnd::Skipped(_)) => true,
        }
    }

    /// Whether the drain left this pod in place by policy: by name, or as one more pod of a workload that comes back.
    pub(crate) fn leaves(&self, pod: &RemainingPod, node: &NodeContext) -> bool {
        let named = format!("{}/{}: ", pod.namespace, pod.name);
        let said = |why: &str| {
            self.left.iter().any(|text| text.strip_prefix(&named).is_some_and(|it| it.starts_with(why)))
        };
        // Of one that the drain has counted as gone, no answer of the runtime is no news.
        if said("it stays") || pod.unknown && said("no container of it runs") {
            return true;
        }
        let workload = format!("{}/{}", pod.namespace, pod.workload);
        let returns = self.run.pods().and_then(|pods| pods.marks.returns.get(&workload)).copied();
        node.limits.sticky_then == LimitAction::GetPast
            && returns.is_some_and(|times| times >= STICKY_RETURNS)
    }

    /// When it must be looked at again.
    pub(crate) fn due(&self, node: &NodeContext) -> Option<Mono> {
        self.run.due().into_iter().chain(self.preflight_due()).chain(self.gives_up_at(node)).min()
    }

    /// Ends whatever is under way, with every task; `None` leaves no drain at all.
    pub(crate) fn end(&mut self, end: Option<DrainEnd>, out: &mut Vec<Effect>) {
        self.run_id += 1;
        self.silence = None;
        self.serves = None;
        self.floor = None;
        self.resume = None;
        self.run = end.map_or(DrainRun::Idle, DrainRun::Ended);
        out.push(Effect::Cancel);
    }

    /// The cordon goes, and with it what was left in place.
    pub(crate) fn forget_left(&mut self) {
        self.left.clear();
    }

    /// One that was complete counts no more.
    pub(crate) fn void(&mut self) {
        if !self.is_active() {
            self.forget_left();
            self.run = DrainRun::Ended(DrainEnd::Resumed(DrainStatus::NotRequested));
        }
    }

    /// Begins for this request, or continues what an earlier run of this agent was in for one that still exists.
    pub(crate) fn begin(&mut self, request: NodeDrainRequest, answers: &Answers, step: Step<'_>) {
        let Step { now, node, out } = step;
        let floor = self.resumed().filter(|status| status.is_under_way());
        let resume = self.resume.take().filter(|it| it.is_for(answers.requests()));
        self.end(None, out);
        let from = self.next_start.filter(|_| resume.is_none()).unwrap_or(now).max(now);
        if resume.is_none() {
            self.started_at = node.wall(now);
            self.before = EarlierWork::default();
        }
        say!(
            out,
            info,
            "nodedrain-step:drain-request-handle NodeDrainRequest {} taken: {}",
            request.id().text(),
            request.context
        );
        (self.resume, self.serves, self.floor) = (resume, Some(request), floor);
        self.hook_tries = 0;
        self.run = DrainRun::AtGate(DrainGate::Start { from });
    }

    /// What time alone brings.
    pub(crate) fn advance(&mut self, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        if let Some(failed) = self.over_limit(Step { now, node, out }) {
            return Some(failed);
        }
        let waited = self.is_outside_window();
        let starts = waited || matches!(self.run, DrainRun::AtGate(DrainGate::Start { from }) if now >= from);
        if let Some(closed) = self.shut_out(node)
            && (starts || self.at_turn().is_some())
        {
            return self.close(closed, waited, out);
        }
        if starts {
            return self.start(now, node, out);
        }
        let is_due = |at: &Option<Mono>| at.is_some_and(|at| now >= at);
        match &mut self.run {
            DrainRun::AtGate(DrainGate::Turn(gate)) if is_due(&gate.again) => {
                gate.again = None;
                if gate.away.is_none() {
                    return self.turn(Step { now, node, out });
                }
                out.push(Effect::Probe(self.run_id));
            }
            DrainRun::AtGate(DrainGate::Hooks { again, .. }) if is_due(again) => {
                self.go_to_cordon(now);
                return self.advance(Step { now, node, out });
            }
            DrainRun::AtGate(DrainGate::TurnAlone { again })
            | DrainRun::Cordoning(CordonStage::Confirming { again })
                if now >= *again =>
            {
                *again = now + CONFIRM_AGAIN;
                out.push(Effect::Turn(Ask::Confirm));
            }
            DrainRun::Cordoning(CordonStage::Trying { tried, again, .. }) if is_due(again) => {
                *tried += 1;
                if node.turn.held().is_none() {
                    *again = None;
                    return self.send_cordon(node, out);
                }
                // The try that failed has taken its time; the turn may be another's by now.
                *again = Some(now + CONFIRM_AGAIN);
                out.push(Effect::Turn(Ask::Confirm));
            }
            DrainRun::Retrying { attempt, until, last, .. } if now >= *until => {
                let (next, last) = (*attempt + 1, last.clone());
                self.next_attempt(next, &last, Step { now, node, out });
            }
            DrainRun::Draining { held: Some(_), deadline, .. } if now >= *deadline => {
                say!(
                    out,
                    warn,
                    "the fault-injection file {WAIT} has held this drain for too long; it is complete now"
                );
                return self.complete(out);
            }
            DrainRun::Idle
            | DrainRun::AtGate(_)
            | DrainRun::Cordoning(_)
            | DrainRun::Draining { .. }
            | DrainRun::Retrying { .. }
            | DrainRun::Ended(_) => {}
        }
        None
    }

    fn start(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        if let Some(pass) = self.window_pass(node) {
            say!(out, warn, "the drain starts outside of its windows by a person's word: {}", pass.by);
        }
        self.next_start = Some(now + node.limits.drain_gap()).filter(|at| *at > now);
        say!(out, info, "nodedrain-step:drain-starting cordonAndDrainNode");
        self.run = DrainRun::AtGate(DrainGate::Turn(TurnGate::default()));
        if node.limits.take_turns {
            return self.turn(Step { now, node, out });
        }
        if self.is_fit(node) {
            self.probe(now, out);
        }
        None
    }

    pub(super) fn send_cordon(&mut self, node: &NodeContext, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        let (Some(request), Some(grant)) = (self.serves.clone(), node.grant()) else {
            // The turn is not known to be ours any more: it is waited for again.
            self.run = DrainRun::AtGate(DrainGate::Turn(TurnGate::default()));
            return None;
        };
        out.push(Effect::Cordon(self.run_id, request, grant));
        Some(StepOutcome::CordonSent)
    }

    /// Hears what came of a try to cordon.
    pub(crate) fn cordoned(
        &mut self,
        result: Result<CordonOwner, CordonFailure>,
        step: Step<'_>,
    ) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
        let DrainRun::Cordoning(CordonStage::Trying { tried, again: None, .. }) = self.run else {
            return None;
        };
        match result {
            Ok(owner) => {
                self.floor = None;
                say!(out, info, "nodedrain-step:drain-cordon-complete cordonNode: it is {}", whose(owner));
                if node.limits.take_turns {
                    out.push(Effect::Turn(Ask::Confirm));
                    self.run = DrainRun::Cordoning(CordonStage::Confirming { again: now + CONFIRM_AGAIN });
                } else {
                    self.first_attempt(now, node, out);
                }
                Some(StepOutcome::Cordoned(owner))
            }
            Err(failure) => {
                say!(
                    out,
                    warn,
                    "nodedrain-step:drain-cordon-failure cordonNode, try {tried}: {}",
                    failure.why
                );
                if tried < node.limits.cordon_tries {
                    let again = Some(now + node.limits.cordon_retry());
                    self.run = DrainRun::Cordoning(CordonStage::Trying { tried, again, failure });
                    return None;
                }
                Some(self.fail(DrainEnd::FailedCordon(failure)))
            }
        }
    }

    pub(super) fn skip(&mut self, skip: Skip, out: &mut Vec<Effect>) -> StepOutcome {
        say_skipped(&skip, out);
        self.run = DrainRun::Ended(DrainEnd::Skipped(skip.clone()));
        self.resume = None;
        StepOutcome::Skipped(skip)
    }

    pub(super) fn fail(&mut self, end: DrainEnd) -> StepOutcome {
        self.run = DrainRun::Ended(end);
        self.floor = None;
        self.resume = None;
        StepOutcome::Failed(self.own_status())
    }

    /// The drain fails for good.
    pub(super) fn give_up(
        &mut self,
        attempt: u32,
        reason: String,
        last: Progress,
        out: &mut Vec<Effect>,
    ) -> StepOutcome {
        say_given_up(&reason, out);
        self.fail(DrainEnd::FailedDrain { attempt, reason, last: Box::new(last) })
    }

    /// Whether the fault-injection file holds a drain that is done.
    pub(crate) fn hold(&mut self, hold: bool, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        self.hold = hold;
        self.release(out)
    }

    /// A proved drain becomes COMPLETE, unless the fault-injection file holds it.
    pub(super) fn release(&mut self, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        if self.hold { None } else { self.complete(out) }
    }

    fn complete(&mut self, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        let DrainRun::Draining { held: Some(took), attempt, now: last, .. } = &self.run else { return None };
        let end = DrainEnd::Drained { attempt: *attempt, last: last.clone() };
        for left in &self.left {
            say!(out, warn, "left by policy: {left}");
        }
        say!(out, info, "nodedrain-step:drain-complete");
        let secs = took.as_secs_f64();
        say!(out, info, "kubevirt_node_drain_completion_time_seconds:{secs:.6}");
        self.run = DrainRun::Ended(end);
        Some(StepOutcome::Drained)
    }
}

/// Adds to `all`, each once, what was left in place by policy.
pub(super) fn add_left(all: &mut Vec<String>, left: &[String]) {
    for text in left {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
}

/// Its attempts.
impl Drain {
    /// Attempt number `attempt`, which began now or when the marks say.
    fn attempt(&mut self, attempt: u32, mut marks: DrainMarks, step: Step<'_>) {
        let Step { now, node, out } = step;
        let limit = node.properties.time(settings::DRAIN_TIMEOUT);
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
    pub(super) fn next_attempt(&mut self, attempt: u32, last: &Progress, step: Step<'_>) {
        let Step { now, node, out } = step;
        self.before = self.before.and(last);
        self.attempt(attempt, learned(&last.marks), Step { now, node, out });
    }

    /// The first attempt, or the one that an earlier run of this agent was in.
    pub(super) fn first_attempt(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) {
        let Some(Resume { attempt, marks, pause, .. }) = self.resume.take() else {
            return self.attempt(1, DrainMarks::default(), Step { now, node, out });
        };
        let Some((until, reason)) = pause else {
            return self.attempt(attempt, marks, Step { now, node, out });
        };
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
            self.next_attempt(attempt + 1, &last, Step { now, node, out });
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

    /// What held the failed attempt up is no longer what it was: the next one starts at once.
    pub(crate) fn blocker_changed(&mut self, what: &str, step: Step<'_>) {
        let Step { now, node, out } = step;
        if let DrainRun::Retrying { attempt, last, .. } = &self.run {
            let (next, last) = (attempt + 1, last.clone());
            say_blocker_changed(what, out);
            self.next_attempt(next, &last, Step { now, node, out });
        }
    }

    /// Hears what came of the attempt.
    pub(crate) fn drained(&mut self, result: AttemptOutcome, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
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
            Some(before) => ApiSilence { until: now, tries: before.tries.saturating_add(1), last, ..before },
            None => ApiSilence { since: last.asked, until: now, tries: 1, last },
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

    pub(super) fn gives_up_at(&self, node: &NodeContext) -> Option<Mono> {
        Some(self.drain_limit(node)?.1)
    }

    /// Fails where that is over: whatever is under way ends, and no other attempt follows.
    pub(super) fn over_limit(&mut self, step: Step<'_>) -> Option<StepOutcome> {
        let Step { now, node, out } = step;
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
        format!("{} of {} gone", counts.gone, number(counts.total, "pod"))
    }

    /// When the attempt fails on volumes that it waits for, if it does.
    pub(super) fn volumes_end(&self, node: &NodeContext) -> Option<Mono> {
        let DrainRun::Draining { now, held: None, .. } = &self.run else { return None };
        let fails = waits(now, &node.limits).filter(|(.., then)| *then == LimitAction::GiveUp);
        fails.map(|(_, (_, until), _)| until).min()
    }

    /// The limits that run, for a reader.
    pub(super) fn running_limits(&self, node: &NodeContext) -> Vec<RunningLimit> {
        let shown = |of: &str, (since, until): (Mono, Mono), then: LimitAction| RunningLimit {
            of: of.to_owned(),
            since: node.wall(since),
            until: node.wall(until),
            then: volume_action(then).to_owned(),
        };
        let limits = &node.limits;
        let gives_up = LimitAction::GiveUp;
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
) -> impl Iterator<Item = (&'static str, (Mono, Mono), LimitAction)> + use<> {
    let of = |name, since_ms: u64, after: Option<Duration>, then| {
        let since = Mono::of_ms(since_ms)?;
        Some((name, (since, since + after?), then))
    };
    let volumes = of("volumes", now.marks.volumes_ms, Some(VOLUMES_LIMIT), LimitAction::GetPast);
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
    let DrainMarks { drain_ms, returns, claims, .. } = last.clone();
    DrainMarks { drain_ms, returns, claims, ..DrainMarks::default() }
}
