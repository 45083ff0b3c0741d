//! A drain in words: what it does, and what a person can do about it. Pure: no clock, no I/O, no task.

use agent::settings;
use kubeapi::listed;
use kubenodeop::{MachineState, Progress};
use topics::{Blocker, DrainPhase, DrainStatus, PodCounts};

use super::api_away::{May, may_skip};
use super::life::Drain;
use super::run::{ApiAbsence, DrainEnd, DrainRun};
use crate::WAIT;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::limits::SKIP_SPREAD;

/// A state in words.
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
            DrainRun::Taken { .. } => words(DrainPhase::Checking, "request accepted", ""),
            DrainRun::OutsideWindow => Self::window_words(node),
            // It has answered, and not about the turn: that is waited for while it is asked again.
            DrainRun::Probing { away, tried, .. } if away.trouble.is_empty() && *tried > 0 => {
                self.waiting_words(node)
            }
            DrainRun::Probing { away, .. } if away.trouble.is_empty() => {
                words(DrainPhase::Checking, "checking whether the Kubernetes API is reachable", "")
            }
            DrainRun::Probing { away, .. } => {
                let (reason, then) = self.away_words(away, answers, node);
                words(
                    DrainPhase::Checking,
                    reason,
                    format!(
                        "check that the cluster software runs on this node: `systemctl status k3s`; {then}"
                    ),
                )
            }
            DrainRun::Waiting { .. } => self.waiting_words(node),
            DrainRun::Entering { .. } => {
                words(DrainPhase::Checking, "has its turn, no drain is needed; confirming the turn", "")
            }
            DrainRun::Hooks { running, trouble, .. } => self.hook_words(running, trouble, node),
            DrainRun::Confirming { .. } => words(DrainPhase::Cordoning, "cordoned; confirming the turn", ""),
            DrainRun::Cordoning { failure, .. } if failure.why.is_empty() => {
                words(DrainPhase::Cordoning, "making the node unschedulable", "")
            }
            DrainRun::Cordoning { tried, failure, .. } => words(
                DrainPhase::Cordoning,
                format!("try {tried} of {} to cordon failed: {}", node.limits.cordon_tries, failure.why),
                if failure.next_step.is_empty() {
                    "compare `kubectl get nodes` with the device's name, and look at the API server"
                        .to_owned()
                } else {
                    format!("{}; it is tried again by itself", failure.next_step)
                },
            ),
            DrainRun::Draining { now, .. } => match &self.silence {
                Some(silence) => {
                    let (reason, next_step) = self.silence_words(silence, answers, node);
                    words(DrainPhase::Draining, reason, next_step)
                }
                None => draining_words(now),
            },
            DrainRun::Retrying { attempt, reason, last, .. } => words(
                DrainPhase::Retrying,
                format!("attempt {attempt} of {} failed: {reason}", node.limits.drain_tries),
                format!(
                    "{}; the next attempt starts by itself, at its time or as soon as that changes",
                    what_to_do(last)
                ),
            ),
            DrainRun::Holding { .. } => words(
                DrainPhase::Proving,
                format!(
                    "drained; the file /{WAIT} delays COMPLETE until Deadline at most; `rm` it to continue"
                ),
                format!("`rm /{WAIT}`"),
            ),
            DrainRun::Ended(DrainEnd::Drained { .. }) => words(
                DrainPhase::Complete,
                format!("drained: {} pods evicted, none left{}", self.sums().0, self.but_for()),
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

    /// What it waits for before it may be cordoned.
    fn waiting_words(&self, node: &NodeContext) -> StateWords {
        if let Some((what, _)) = self.obstacle() {
            return words(
                DrainPhase::Checking,
                if node.limits.take_turns {
                    format!("its drain cannot start, so it does not wait for its turn yet: {}", what.why)
                } else {
                    format!("its drain cannot start yet: {}", what.why)
                },
                format!("{}; it is looked at again by itself", what.next_step),
            );
        }
        if !self.is_fit(node) {
            return words(DrainPhase::Checking, "running the preflight checks before the drain begins", "");
        }
        match node.turn.waiting() {
            Some(waiting) => words(
                DrainPhase::WaitingForTurn,
                format!("waits for its turn to be down: {}", waiting.why),
                waiting.next_step(),
            ),
            None => words(DrainPhase::WaitingForTurn, "requesting its turn to be down", ""),
        }
    }

    /// An API that is away before the drain has begun: what that leads to.
    fn away_words(&self, away: &ApiAbsence, answers: &Answers, node: &NodeContext) -> (String, String) {
        let mut reason = format!("the Kubernetes API is not reachable: {}", away.trouble);
        if self.resume.is_some() {
            let then = "the drain that was under way continues by itself once it answers";
            return (reason, then.to_owned());
        }
        let secs = self.properties.time(settings::DRAIN_SKIP).as_secs();
        let after = format!("once it has been unreachable for {secs} s, without a break");
        let may = if node.limits.take_turns { may_skip(&node.known) } else { May::Now };
        let refused = match &may {
            May::No(why) => Some(why),
            May::Now | May::Later | May::WithMargin { .. } => away.refused.as_ref(),
        };
        if let Some(why) = refused {
            reason.push_str("; the drain is not skipped for that: ");
            reason.push_str(why);
            return (reason, self.force_words(answers).to_owned());
        }
        if may == May::Now {
            return (reason, format!("{after}, the drain is skipped"));
        }
        let spared = if may == May::Later { "" } else { ", if etcd can spare this node then" };
        let later = SKIP_SPREAD.as_secs();
        if away.skip_at.is_none() {
            return (
                reason,
                format!("{after}, and up to {later} s more by chance, the drain is skipped{spared}"),
            );
        }
        let reason = format!(
            "{reason}; the drain is skipped at Deadline{spared}: each node waits a time by chance, up to {later} s, so \
             that they do not go together"
        );
        (reason, "it continues by itself once the API answers".to_owned())
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
        held(format!("{gone} of {} virtual machines gone", now.machines.len()))
    } else {
        let PodCounts { total, gone, blocked, .. } = now.counts;
        held(format!("{gone} of {total} pods gone, {blocked} blocked"))
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
pub(super) fn trouble_words(now: &Progress) -> String {
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
