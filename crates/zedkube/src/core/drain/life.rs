//! The life of a drain, from the request to its end: where it is, and what takes it on.
//!
//! Not here: what keeps it from its cordon (`gates`), attempts (`attempts`), and what a reader gets (`shown`). Sources:
//! lf-edge/eve pkg/pillar/cmd/zedkube (drain, handlenodedrain). Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings::Properties;
use kubenodeop::{Progress, STICKY_RETURNS, StickyAction};
use outage::keeper::Ask;
use step::{Mono, say};
use topics::{CordonOwner, DrainJournal, DrainStatus, GoTime, NodeDrainRequest, Skip};

use super::run::{
    CordonStage, DrainEnd, DrainGate, DrainRun, EarlierWork, Repeats, Resume, Silence, TurnGate,
};
use crate::WAIT;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{CordonFailure, Effect, RemainingPod, RunId, say_given_up, say_skipped, whose};

/// How long the answer to whether the turn is still ours may take before the question is asked again.
pub(super) const CONFIRM_AGAIN: Duration = Duration::from_secs(30);

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
    /// Whoever waits needs a turn, and no drain.
    pub(crate) turn_alone: bool,
    /// Tries of the hooks before it that have failed.
    pub(super) hook_tries: u32,
}

/// What the rest of the core has to know of a step of the drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepOutcome {
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

    /// The request in whose name it works.
    pub(crate) fn serves(&self) -> Option<&NodeDrainRequest> {
        self.serves.as_ref()
    }

    /// The wall clock was set.
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
        self.run = DrainRun::AtGate(DrainGate::Start { from });
    }

    /// What time alone brings.
    pub(crate) fn advance(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<StepOutcome> {
        if let Some(failed) = self.over_limit(now, node, out) {
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
                    return self.turn(now, node, out);
                }
                out.push(Effect::Probe(self.run_id));
            }
            DrainRun::AtGate(DrainGate::Hooks { again, .. }) if is_due(again) => {
                self.go_to_cordon(now);
                return self.advance(now, node, out);
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
                self.next_attempt(now, next, &last, node, out);
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

    /// The drain starts.
    fn start(&mut self, now: Mono, node: &NodeContext, out: &mut Vec<Effect>) -> Option<StepOutcome> {
        if let Some(pass) = self.window_pass(node) {
            say!(out, warn, "the drain starts outside of its windows by a person's word: {}", pass.by);
        }
        self.next_start = Some(now + node.limits.drain_gap()).filter(|at| *at > now);
        say!(out, info, "nodedrain-step:drain-starting cordonAndDrainNode");
        self.run = DrainRun::AtGate(DrainGate::Turn(TurnGate::default()));
        if node.limits.take_turns {
            return self.turn(now, node, out);
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
        now: Mono,
        result: Result<CordonOwner, CordonFailure>,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<StepOutcome> {
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
