//! The life of a drain, from the request to its end.
//!
//! Sources: lf-edge/eve pkg/pillar/cmd/zedkube (drain, handlenodedrain). Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings::Properties;
use kubenodeop::{STICKY_RETURNS, StickyAction};
use outage::keeper::Ask;
use step::{Mono, say};
use topics::{CordonOwner, DrainJournal, DrainStatus, GoTime, NodeDrainRequest, Skip};

use super::resume::{EarlierWork, Resume};
use super::run::{DrainEnd, DrainRun, PreflightState, Repeats, Silence};
use crate::WAIT;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{CordonFailure, Effect, RemainingPod, RunId, say_skipped, whose};

/// How long the answer to whether the turn is still ours may take before the question is asked again.
const CONFIRM_AGAIN: Duration = Duration::from_secs(30);

/// The drain of this node, or none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drain {
    /// Config properties as they were heard last.
    pub(crate) properties: Properties,
    /// The fault-injection file holds a drain that is done.
    hold: bool,
    pub(super) run: DrainRun,
    /// The model (`tests/model/print.rs`) knows it by this name, as it does `looks` of the node.
    pub(super) run_id: RunId,
    /// The API does not answer in the middle of this drain.
    pub(super) silence: Option<Silence>,
    /// The request in whose name the run works.
    pub(super) serves: Option<NodeDrainRequest>,
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
    /// What was looked at before a turn is asked for, or the node is cordoned.
    pub(super) preflight: PreflightState,
    /// Whoever waits needs a turn, and no drain.
    pub(crate) turn_alone: bool,
    /// Tries of the hooks before it that have failed.
    pub(super) hook_tries: u32,
}

/// What the rest of the core has to know of a step of the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DrainStepOutcome {
    /// A cordon was sent.
    CordonSent,
    /// The node is cordoned.
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
            properties: Properties::default(),
            hold: false,
            run: status.map_or(DrainRun::Idle, |it| DrainRun::Ended(DrainEnd::Resumed(it))),
            run_id: 0,
            silence: None,
            serves: None,
            started_at: journal.map_or(GoTime::ZERO, |it| it.started_at),
            next_start: None,
            repeats: Repeats::default(),
            resume,
            before: EarlierWork::default(),
            left: journal.map(|it| it.left.clone()).unwrap_or_default(),
            floor: None,
            preflight: PreflightState::Due,
            turn_alone: false,
            hook_tries: 0,
        }
    }

    /// Number of the run: results of another one do not count.
    pub(crate) fn run_id(&self) -> RunId {
        self.run_id
    }

    #[cfg(test)]
    pub(crate) fn run(&self) -> &DrainRun {
        &self.run
    }

    /// The wall clock was set.
    pub(crate) fn set_clock(&mut self, before: GoTime, booted_at: GoTime) {
        self.started_at = self.started_at.moved(before, booted_at);
    }

    /// Whether a task is, or soon will be, at work.
    pub(crate) fn is_active(&self) -> bool {
        self.run.is_active()
    }

    /// There is none, and none is over.
    pub(crate) fn is_idle(&self) -> bool {
        self.run == DrainRun::Idle
    }

    /// A request was accepted; the drain has not started.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.run, DrainRun::Taken { .. })
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
        self.run.resumed()
    }

    /// A cordon of ours stays while a drain runs or is complete.
    pub(crate) fn keeps_cordon(&self, node: &NodeContext) -> bool {
        match &self.run {
            // A node that waits is not cordoned; one that continues what it was in is, until its turn is refused.
            DrainRun::Taken { .. } | DrainRun::Probing { .. } | DrainRun::Waiting { .. } => {
                node.grant().is_some() || self.resume.is_some() || self.floor.is_some()
            }
            DrainRun::Idle
            | DrainRun::OutsideWindow
            | DrainRun::Entering { .. }
            | DrainRun::Ended(DrainEnd::FailedCordon(_) | DrainEnd::FailedDrain { .. }) => false,
            DrainRun::Ended(DrainEnd::Resumed(status)) => {
                !matches!(status, DrainStatus::FailedCordon | DrainStatus::FailedDrain)
            }
            DrainRun::Hooks { .. }
            | DrainRun::Cordoning { .. }
            | DrainRun::Confirming { .. }
            | DrainRun::Draining { .. }
            | DrainRun::Retrying { .. }
            | DrainRun::Holding { .. }
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
        node.limits.sticky_then == StickyAction::Leave && returns.is_some_and(|times| times >= STICKY_RETURNS)
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
        self.preflight = PreflightState::Due;
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
    pub(crate) fn begin(
        &mut self,
        now: Mono,
        request: NodeDrainRequest,
        answers: &Answers,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
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
            request.id(),
            request.context
        );
        (self.resume, self.serves, self.floor) = (resume, Some(request), floor);
        self.hook_tries = 0;
        self.run = DrainRun::Taken { from };
    }

    /// What time alone brings.
    pub(crate) fn advance(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        if let Some(failed) = self.over_limit(now, node, out) {
            return Some(failed);
        }
        let outside = self.is_outside_window();
        if self.settle_window(node, out) {
            return self.let_go(outside);
        }
        match &mut self.run {
            DrainRun::Taken { from } if now >= *from => return self.start(now, node, out),
            DrainRun::OutsideWindow => return self.start(now, node, out),
            DrainRun::Waiting { again, .. } if again.is_some_and(|at| now >= at) => {
                *again = None;
                return self.turn(now, node, out);
            }
            DrainRun::Confirming { again } | DrainRun::Entering { again } if now >= *again => {
                *again = now + CONFIRM_AGAIN;
                out.push(Effect::Turn(Ask::Confirm));
            }
            DrainRun::Probing { again, .. } if again.is_some_and(|at| now >= at) => {
                *again = None;
                out.push(Effect::Probe(self.run_id));
            }
            DrainRun::Hooks { again, .. } if again.is_some_and(|at| now >= at) => {
                self.go_to_cordon(now);
                return self.advance(now, node, out);
            }
            DrainRun::Cordoning { tried, again, .. } if again.is_some_and(|at| now >= at) => {
                *tried += 1;
                if node.turn.held().is_some() {
                    // The try that failed has taken its time; the turn may be another's by now.
                    *again = Some(now + CONFIRM_AGAIN);
                    out.push(Effect::Turn(Ask::Confirm));
                    return None;
                }
                *again = None;
                return self.send_cordon(node, out);
            }
            DrainRun::Retrying { attempt, until, last, .. } if now >= *until => {
                let (next, last) = (*attempt + 1, last.clone());
                self.next_attempt(now, next, &last, node, out);
            }
            DrainRun::Holding { until, .. } if now >= *until => {
                say!(
                    out,
                    warn,
                    "the fault-injection file {WAIT} has held this drain for too long; it is complete now"
                );
                return self.complete(out);
            }
            DrainRun::Idle
            | DrainRun::Taken { .. }
            | DrainRun::Probing { .. }
            | DrainRun::Waiting { .. }
            | DrainRun::Hooks { .. }
            | DrainRun::Cordoning { .. }
            | DrainRun::Entering { .. }
            | DrainRun::Confirming { .. }
            | DrainRun::Draining { .. }
            | DrainRun::Retrying { .. }
            | DrainRun::Holding { .. }
            | DrainRun::Ended(_) => {}
        }
        None
    }

    /// The drain starts, unless the windows keep it from that.
    fn start(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) -> Option<DrainStepOutcome> {
        let outside = self.is_outside_window();
        if !self.may_start(node, out) {
            return self.let_go(outside);
        }
        self.next_start = Some(now + node.limits.drain_gap()).filter(|at| *at > now);
        say!(out, info, "nodedrain-step:drain-starting cordonAndDrainNode");
        self.run = DrainRun::Waiting { tried: 0, again: None };
        if node.limits.take_turns {
            return self.turn(now, node, out);
        }
        if self.is_fit(node) {
            self.probe(now, out);
        }
        None
    }

    /// Asks whether the API is there, before the first try to cordon.
    pub(super) fn probe(&mut self, now: Mono, out: &mut Vec<Effect>) {
        out.push(Effect::Probe(self.run_id));
        self.run = DrainRun::probing(now, 0);
    }

    pub(super) fn send_cordon(
        &mut self,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let (Some(request), Some(grant)) = (self.serves.clone(), node.grant()) else {
            // The turn is not known to be ours any more: it is waited for again.
            self.run = DrainRun::Waiting { tried: 0, again: None };
            return None;
        };
        out.push(Effect::Cordon(self.run_id, request, grant));
        Some(DrainStepOutcome::CordonSent)
    }

    /// The way to the cordon is free.
    pub(super) fn begin_cordon(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let outside = self.is_outside_window();
        if self.settle_window(node, out) {
            return self.let_go(outside);
        }
        if self.turn_alone && node.limits.take_turns {
            out.push(Effect::Turn(Ask::Confirm));
            self.run = DrainRun::Entering { again: now + CONFIRM_AGAIN };
            return None;
        }
        self.run = DrainRun::Cordoning { tried: 1, again: None, failure: CordonFailure::default() };
        // A look that removes a cordon of before must not remove this one.
        out.push(Effect::Cancel);
        self.send_cordon(node, out)
    }

    /// The request in whose name it works.
    pub(crate) fn serves(&self) -> Option<&NodeDrainRequest> {
        self.serves.as_ref()
    }

    /// Hears what came of a try to cordon.
    pub(crate) fn cordoned(
        &mut self,
        now: Mono,
        result: Result<CordonOwner, CordonFailure>,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let DrainRun::Cordoning { tried, again: None, .. } = self.run else { return None };
        match result {
            Ok(owner) => {
                self.floor = None;
                say!(out, info, "nodedrain-step:drain-cordon-complete cordonNode: it is {}", whose(owner));
                if node.limits.take_turns {
                    out.push(Effect::Turn(Ask::Confirm));
                    self.run = DrainRun::Confirming { again: now + CONFIRM_AGAIN };
                } else {
                    self.first_attempt(now, node, out);
                }
                Some(DrainStepOutcome::Cordoned(owner))
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
                    self.run = DrainRun::Cordoning { tried, again, failure };
                    return None;
                }
                Some(self.fail(DrainStatus::FailedCordon, DrainEnd::FailedCordon(failure)))
            }
        }
    }

    pub(super) fn skip(&mut self, skip: Skip, out: &mut Vec<Effect>) -> DrainStepOutcome {
        say_skipped(&skip, out);
        self.run = DrainRun::Ended(DrainEnd::Skipped(skip.clone()));
        self.resume = None;
        DrainStepOutcome::Skipped(skip)
    }

    pub(super) fn fail(&mut self, status: DrainStatus, end: DrainEnd) -> DrainStepOutcome {
        self.run = DrainRun::Ended(end);
        self.floor = None;
        self.resume = None;
        DrainStepOutcome::Failed(status)
    }

    /// Whether the fault-injection file holds a drain that is done.
    pub(crate) fn hold(&mut self, hold: bool, out: &mut Vec<Effect>) -> Option<DrainStepOutcome> {
        self.hold = hold;
        self.release(out)
    }

    /// A proved drain becomes COMPLETE, unless the fault-injection file holds it.
    pub(super) fn release(&mut self, out: &mut Vec<Effect>) -> Option<DrainStepOutcome> {
        if self.hold { None } else { self.complete(out) }
    }

    fn complete(&mut self, out: &mut Vec<Effect>) -> Option<DrainStepOutcome> {
        let DrainRun::Holding { done, attempt, last, .. } = &self.run else { return None };
        let end = DrainEnd::Drained { attempt: *attempt, last: last.clone() };
        for left in &self.left {
            say!(out, warn, "left by policy: {left}");
        }
        say!(out, info, "nodedrain-step:drain-complete");
        let secs = done.took.as_secs_f64();
        say!(out, info, "kubevirt_node_drain_completion_time_seconds:{secs:.6}");
        self.run = DrainRun::Ended(end);
        Some(DrainStepOutcome::Drained)
    }
}
