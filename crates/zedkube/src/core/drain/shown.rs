//! What a reader gets of the drain: in words, what it does and what a person can do about it; and the members of
//! NodeDrainProgress, DrainJournal and DrainHistory that are about it.
//!
//! Not here: the words of gates that are shut (`gates`). Pure: no clock, no I/O, no task.

use kubeapi::listed;
use kubenodeop::{MachineState, Progress};
use step::{Inserted as _, Mono};
use topics::{
    Blocker, CordonOwner, DrainJournal, DrainPhase, DrainStatus, GoTime, NodeDrainProgress, PodCounts,
    RequestId, Skip, StepWord, TurnShown, number,
};

use super::life::{Drain, add_left};
use super::run::{ApiSilence, CordonStage, DrainEnd, DrainRun, EarlierWork};
use crate::WAIT;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{UnansweredCall, whose};

/// Blockers of a drain, by the wall clock.
fn shown(all: &[Blocker], node: &NodeContext) -> Vec<Blocker> {
    let at = |it: &Blocker| it.since.moved(GoTime::ZERO, node.booted_at);
    all.iter().map(|it| Blocker { since: at(it), ..it.clone() }).collect()
}

impl Drain {
    /// Continues with the counts of what was shown last, if that was the same drain. They are on no flash, as they
    /// change with every pod.
    pub(crate) fn count_on(&mut self, shown: &NodeDrainProgress) {
        let Some(resume) = self.resume.as_ref().filter(|_| shown.started_at == self.started_at) else {
            return;
        };
        let NodeDrainProgress { attempt, evicted, recordons, counts, .. } = *shown;
        let counts = if attempt == resume.attempt { counts } else { PodCounts::default() };
        self.before = EarlierWork { evicted, recordons, counts };
    }

    /// How far it is, for a reader: the members that are about the drain.
    pub(crate) fn progress(&self, answers: &Answers, node: &NodeContext) -> NodeDrainProgress {
        let pods = self.run.pods().cloned().unwrap_or_default();
        let ends = match &self.run {
            DrainRun::AtGate(gate) => Some(self.shut(gate, answers, node).until),
            DrainRun::Draining { deadline: at, .. } | DrainRun::Retrying { until: at, .. } => {
                Some(node.wall(*at))
            }
            DrainRun::Idle | DrainRun::Cordoning(_) | DrainRun::Ended(_) => None,
        };
        let limits = self.gives_up_at(node).into_iter().chain(self.volumes_end(node)).map(|at| node.wall(at));
        let deadline = ends.into_iter().chain(limits).filter(|at| !at.is_zero()).min();
        // What is left of a try says nothing of the next one.
        let (tier, estimate) = if let DrainRun::Draining { now, .. } = &self.run {
            (now.tier, now.estimate)
        } else {
            (None, None)
        };
        let wall = |at: Option<Mono>| at.map_or(GoTime::ZERO, |at| node.wall(at));
        let serves = answers.shown(self.serves.as_ref());
        let (evicted, recordons) = self.sums();
        NodeDrainProgress {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            attempt: self.saved().attempt,
            tier: tier.map(|it| it.text().to_owned()).unwrap_or_default(),
            counts: self.counts(),
            blockers: shown(self.found().unwrap_or(&pods.blockers), node),
            trouble: trouble_words(&pods),
            machines: pods.machines,
            left: self.all_left(),
            volumes: pods.volumes,
            storage: pods.storage,
            evicted,
            replies: pods.replies.iter().map(|(word, count)| ((*word).to_owned(), *count)).into_map(),
            recordons,
            turn: self.turn_shown(node),
            started_at: if self.is_idle() { GoTime::ZERO } else { self.started_at },
            deadline: deadline.unwrap_or(GoTime::ZERO),
            estimate: wall(estimate),
            api_silent_since: wall(self.silent_since()),
            limits: self.running_limits(node),
            hooks: node.hooks.notes.clone(),
            skip: self.run.skip(),
            ..NodeDrainProgress::default()
        }
    }

    /// Since when the API does not answer, before the cordon or in the middle of the drain.
    fn silent_since(&self) -> Option<Mono> {
        let away = self.at_turn().and_then(|it| it.away.as_ref()).filter(|it| !it.trouble.is_empty());
        away.map(|it| it.since).or(self.silence.as_ref().map(|it| it.since))
    }

    fn turn_shown(&self, node: &NodeContext) -> TurnShown {
        let Some(waiting) = node.turn.waiting().filter(|_| self.waits_for_turn().is_some()) else {
            let fence = node.turn.held().map(|it| it.fence).unwrap_or_default();
            return TurnShown { fence, ..TurnShown::default() };
        };
        TurnShown {
            fence: 0,
            rule: waiting.rule.text().to_owned(),
            nodes: waiting.nodes.clone(),
            since: node.wall(waiting.since),
            place: waiting.place.and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
        }
    }

    /// Where it is, for the next start: the members that are about the drain. Holds nothing that changes with every
    /// pod, but for the marks of limits.
    pub(crate) fn journal(&self) -> DrainJournal {
        let serves = self.serves.clone().unwrap_or_default();
        DrainJournal {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            started_at: self.started_at,
            skip: self.run.skip(),
            left: self.all_left(),
            ..self.saved()
        }
    }

    /// Counts, blockers, evictions and cordons for the history, once the attempt has something to report: one that has
    /// not, as after a start in a pause, takes nothing away.
    pub(crate) fn facts(&self, node: &NodeContext) -> Option<(PodCounts, Vec<Blocker>, (u32, u32))> {
        let reported = |pods: &&Progress| {
            (pods.counts, pods.evicted, pods.recordons) != (PodCounts::default(), 0, 0)
                || !pods.blockers.is_empty()
        };
        let pods = self.run.pods().filter(|it| self.run.is_drained() || reported(it))?;
        Some((self.counts(), shown(&pods.blockers, node), self.sums()))
    }

    /// The steps that where it is now brings to the history, each with its attempt and why.
    pub(crate) fn steps(
        &self,
        cordon: CordonOwner,
        answers: &Answers,
        node: &NodeContext,
    ) -> Vec<(StepWord, u32, String)> {
        let step = |word, attempt, why: &str| (word, attempt, why.to_owned());
        let cordoned = step(StepWord::Cordoned, 0, whose(cordon));
        match &self.run {
            DrainRun::AtGate(gate) => self.shut(gate, answers, node).steps,
            DrainRun::Cordoning(CordonStage::Trying { .. }) => vec![step(StepWord::ApiReached, 0, "")],
            DrainRun::Cordoning(CordonStage::Confirming { .. }) => vec![cordoned],
            DrainRun::Draining { attempt, now, held: None, .. } => {
                let proving = now.phase == DrainPhase::Proving;
                let word = if proving { StepWord::Proving } else { StepWord::Attempt };
                vec![cordoned, step(word, *attempt, "")]
            }
            DrainRun::Retrying { attempt, reason, .. } => {
                vec![cordoned, step(StepWord::AttemptFailed, *attempt, reason)]
            }
            DrainRun::Idle | DrainRun::Draining { held: Some(_), .. } | DrainRun::Ended(_) => Vec::new(),
        }
    }

    /// How the drain for this request ended and why, if it has; by its answer, where an earlier run of this agent was in it.
    pub(crate) fn end_of(&self, id: RequestId, answers: &Answers) -> Option<(StepWord, DrainStatus, Skip)> {
        let because = |why: &str| Skip { text: why.to_owned(), ..Skip::default() };
        let withdrawn = |why: &str| (StepWord::Withdrawn, DrainStatus::NotRequested, because(why));
        let DrainRun::Ended(end) = &self.run else {
            // After a start it is not known yet whether it continues.
            let is_over = self.is_idle() && answers.knows_requests();
            let none = answers.all_withdrawn();
            let why = if none {
                "all requests were withdrawn"
            } else {
                "this node takes no part in drains any more"
            };
            return is_over.then(|| withdrawn(why));
        };
        Some(match end {
            DrainEnd::Drained { .. } => (StepWord::Complete, DrainStatus::Complete, Skip::default()),
            DrainEnd::Skipped(skip) => (StepWord::Skipped, DrainStatus::Complete, skip.clone()),
            DrainEnd::FailedCordon(_) | DrainEnd::FailedDrain { .. } => {
                (StepWord::Failed, self.own_status(), because(self.run.failure()))
            }
            DrainEnd::Resumed(status) if status.is_under_way() => return None,
            DrainEnd::Resumed(_) => match answers.final_answer(id) {
                None => withdrawn("its request was withdrawn"),
                Some(it) if it.status.is_failure() => (StepWord::Failed, it.status, Skip::default()),
                Some(it) => match it.skipped() {
                    None => (StepWord::Complete, it.status, Skip::default()),
                    Some(skip) => (StepWord::Skipped, it.status, skip),
                },
            },
        })
    }

    /// Pods of this attempt, those that had gone before this agent restarted included.
    pub(super) fn counts(&self) -> PodCounts {
        let (counts, phase) = self.run.pods().map(|it| (it.counts, it.phase)).unwrap_or_default();
        let left =
            matches!(phase, DrainPhase::Detaching | DrainPhase::WaitingForStorage | DrainPhase::Proving);
        self.before.with(counts, left || self.run.is_drained())
    }

    /// Evictions that were accepted and cordons that were renewed in this drain.
    pub(super) fn sums(&self) -> (u32, u32) {
        let (evicted, recordons) = self.run.pods().map(|it| (it.evicted, it.recordons)).unwrap_or_default();
        (self.before.evicted.saturating_add(evicted), self.before.recordons.saturating_add(recordons))
    }

    /// What was left in place by policy, in this attempt and in those before it.
    pub(crate) fn all_left(&self) -> Vec<String> {
        let mut all = self.left.clone();
        if let Some(pods) = self.run.pods() {
            add_left(&mut all, &pods.left);
        }
        all
    }
}

pub(crate) struct StateWords {
    pub(crate) phase: DrainPhase,
    pub(crate) reason: String,
    pub(crate) next_step: String,
}

pub(crate) fn words(
    phase: DrainPhase,
    reason: impl Into<String>,
    next_step: impl Into<String>,
) -> StateWords {
    StateWords { phase, reason: reason.into(), next_step: next_step.into() }
}

impl Drain {
    /// Where it is, in words; `None` without one.
    pub(crate) fn words(&self, answers: &Answers, node: &NodeContext) -> Option<StateWords> {
        Some(match &self.run {
            DrainRun::Idle => return None,
            DrainRun::AtGate(gate) => self.shut(gate, answers, node).words,
            DrainRun::Cordoning(CordonStage::Confirming { .. }) => {
                words(DrainPhase::Cordoning, "cordoned; confirming the turn", "")
            }
            DrainRun::Cordoning(CordonStage::Trying { failure, .. }) if failure.why.is_empty() => {
                words(DrainPhase::Cordoning, "making the node unschedulable", "")
            }
            DrainRun::Cordoning(CordonStage::Trying { tried, failure, .. }) => words(
                DrainPhase::Cordoning,
                format!("try {tried} of {} to cordon failed: {}", node.limits.cordon_tries, failure.why),
                if failure.next_step.is_empty() {
                    "compare `kubectl get nodes` with the device's name, and look at the API server"
                        .to_owned()
                } else {
                    format!("{}; it is tried again by itself", failure.next_step)
                },
            ),
            DrainRun::Draining { now, held: None, .. } => {
                let silence = self.silence.as_ref();
                silence.map_or_else(|| draining_words(now), |it| self.silence_words(it, answers, node))
            }
            DrainRun::Retrying { attempt, reason, last, .. } => words(
                DrainPhase::Retrying,
                format!("attempt {attempt} of {} failed: {reason}", node.limits.drain_tries),
                format!(
                    "{}; the next attempt starts by itself, at its time or as soon as that changes",
                    what_to_do(last)
                ),
            ),
            DrainRun::Draining { held: Some(_), .. } => words(
                DrainPhase::Proving,
                format!(
                    "drained; the file /{WAIT} delays COMPLETE until Deadline at most; `rm` it to continue"
                ),
                format!("`rm /{WAIT}`"),
            ),
            DrainRun::Ended(DrainEnd::Drained { .. }) => words(
                DrainPhase::Complete,
                format!("drained: {} evicted, none left{}", number(self.sums().0, "pod"), self.but_for()),
                answers.after_complete(),
            ),
            DrainRun::Ended(DrainEnd::Skipped(skip)) => {
                words(DrainPhase::Skipped, format!("drain skipped: {}", skip.text), answers.after_complete())
            }
            DrainRun::Ended(DrainEnd::FailedCordon(failure)) => words(
                DrainPhase::FailedCordon,
                format!("could not cordon: {}", failure.why),
                if failure.next_step.is_empty() {
                    format!("fix the cause that the reason names; {}", answers.after_failure())
                } else {
                    format!("{}; {}", failure.next_step, answers.after_failure())
                },
            ),
            DrainRun::Ended(DrainEnd::FailedDrain { reason, last, .. }) => words(
                DrainPhase::FailedDrain,
                format!("could not drain: {reason}"),
                format!("{}; {}", what_to_do(last), answers.after_failure()),
            ),
            DrainRun::Ended(DrainEnd::Resumed(status)) if status.is_final() => words(
                resumed_phase(*status),
                format!("already answered; see Answers for when and how{}", self.but_for()),
                if *status == DrainStatus::Complete {
                    answers.after_complete()
                } else {
                    answers.after_failure()
                },
            ),
            DrainRun::Ended(DrainEnd::Resumed(status)) => {
                words(resumed_phase(*status), "zedkube restarted and is catching up", "")
            }
        })
    }

    /// The API is silent in the middle of the drain: why it waits, and what can be done.
    fn silence_words(&self, silence: &ApiSilence, answers: &Answers, node: &NodeContext) -> StateWords {
        let ApiSilence { since, until, tries, last } = silence;
        let PodCounts { total, gone, .. } = self.counts();
        let force = self.force_words(answers);
        let UnansweredCall { address, why, .. } = &**last;
        let reason = format!(
            "no answer from the Kubernetes API at {address} since {}, for {} s, tried {}: {why}; {gone} of \
             {} gone then",
            node.wall(*since).shown(),
            until.since(*since).as_secs(),
            number(*tries, "time"),
            number(total, "pod"),
        );
        let next_step = format!(
            "check the network and the cluster software of this node: `systemctl status k3s`; the drain continues \
             by itself once the API answers, until Deadline; {force}"
        );
        words(DrainPhase::Draining, reason, next_step)
    }

    /// What a drain that is done has left in place, in words; empty when nothing.
    fn but_for(&self) -> String {
        if self.left.is_empty() {
            String::new()
        } else {
            format!("; by policy: {}", listed(&self.left, "; "))
        }
    }
}

fn draining_words(now: &Progress) -> StateWords {
    let held = |reason: String| match now.blockers.first() {
        Some(first) => (format!("{reason}: {}", first.reason), next_step(&now.blockers)),
        None => (reason, String::new()),
    };
    let (mut reason, mut next_step) = if now.phase == DrainPhase::Proving {
        ("all pods are gone; verifying".to_owned(), String::new())
    } else if now.phase == DrainPhase::Detaching {
        let reason = format!("no pod is left; volumes are still attached: {}", listed(&now.volumes, ", "));
        let step =
            "wait; if they stay: look at `kubectl get volumeattachments` and the pods of their CSI driver";
        (reason, step.to_owned())
    } else if now.phase == DrainPhase::WaitingForStorage {
        now.storage.first().map_or_else(
            || {
                let reason = "all other pods are gone; the state of the storage is not known yet";
                (reason.to_owned(), String::new())
            },
            |it| {
                let reason = format!("all other pods are gone; volume {}: {}", it.volume, it.reason);
                (reason, it.next_step.clone())
            },
        )
    } else if now.phase == DrainPhase::MovingMachines {
        let gone = now.machines.iter().filter(|it| it.state == MachineState::Gone.text()).count();
        held(format!("{gone} of {} gone", number(now.machines.len(), "virtual machine")))
    } else {
        let PodCounts { total, gone, blocked, .. } = now.counts;
        held(format!("{gone} of {} gone, {blocked} blocked", number(total, "pod")))
    };
    let trouble = trouble_words(now);
    if !trouble.is_empty() {
        reason = format!("{reason}; {trouble}");
    }
    if !now.trouble.is_empty() && now.blockers.is_empty() {
        next_step.clone_from(&now.trouble_step);
    }
    let phase = if now.phase == DrainPhase::Idle { DrainPhase::Draining } else { now.phase };
    words(phase, reason, next_step)
}

/// What is wrong with the runtime and the API, or empty.
fn trouble_words(now: &Progress) -> String {
    let runtime =
        (!now.runtime.is_empty()).then(|| format!("whether they still run is not known: {}", now.runtime));
    let api = (!now.trouble.is_empty()).then(|| format!("trouble with the API: {}", now.trouble));
    runtime.into_iter().chain(api).collect::<Vec<_>>().join("; ")
}

/// What a person can do about the first blocker, by name; empty when nothing blocks.
fn next_step(blockers: &[Blocker]) -> String {
    let Some(first) = blockers.first() else { return String::new() };
    let step = format!("{}: {}", first.pod, first.next_step);
    match blockers.len() {
        1 => step,
        all => format!("{step} (and {} more)", all - 1),
    }
}

/// What a person can do about an attempt that failed.
fn what_to_do(last: &Progress) -> String {
    let step = next_step(&last.blockers);
    match (step.is_empty(), last.trouble_step.is_empty()) {
        (false, _) => step,
        (true, false) => last.trouble_step.clone(),
        (true, true) => "fix the cause that the reason names".to_owned(),
    }
}

fn resumed_phase(status: DrainStatus) -> DrainPhase {
    match status {
        DrainStatus::Unknown
        | DrainStatus::NotSupported
        | DrainStatus::NotRequested
        | DrainStatus::Stranger(_) => DrainPhase::Idle,
        DrainStatus::Requested | DrainStatus::Starting => DrainPhase::Checking,
        DrainStatus::Cordoned => DrainPhase::Draining,
        DrainStatus::DrainRetrying => DrainPhase::Retrying,
        DrainStatus::FailedCordon => DrainPhase::FailedCordon,
        DrainStatus::FailedDrain => DrainPhase::FailedDrain,
        DrainStatus::Complete => DrainPhase::Complete,
    }
}
