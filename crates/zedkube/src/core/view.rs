//! What a person reads: the state of the core as NodeDrainProgress and DrainJournal.
//!
//! Pure: no clock, no I/O, no task.

use kubeops::Counts;
use topics::{
    Blocker, CordonOwner, DrainJournal, DrainPhase, DrainStatus, FORCE_FILE, GoTime, NodeDrainProgress,
    PodCounts, Requester,
};

use super::facts::{Draining, Force};
use super::machine::{Zedkube, is_final};
use super::run::{End, Run, cordoned};

/// A state in words.
struct Words {
    phase: DrainPhase,
    reason: String,
    next_step: String,
}

fn words(phase: DrainPhase, reason: impl Into<String>, next_step: impl Into<String>) -> Words {
    Words { phase, reason: reason.into(), next_step: next_step.into() }
}

impl Zedkube {
    /// The newest progress.
    pub(super) fn progress(&self) -> NodeDrainProgress {
        let Words { phase, reason, next_step } = self.words();
        let (draining, deadline) = match &self.run {
            Run::Draining { now, deadline, .. } => (Some(now), self.wall(*deadline)),
            Run::Pausing { last, until, .. } => (Some(last), self.wall(*until)),
            Run::Idle
            | Run::Taken
            | Run::Probing { .. }
            | Run::Cordoning { .. }
            | Run::Holding(..)
            | Run::Ended(_) => (None, GoTime::ZERO),
        };
        let serves =
            self.serves.clone().or_else(|| self.requests.values().next().cloned()).unwrap_or_default();
        NodeDrainProgress {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            phase,
            status: self.status().status,
            attempt: self.run.attempt(),
            max_attempts: self.limits.drain_tries,
            cordon: self.cordon,
            counts: draining.map(|it| counts(it.counts)).unwrap_or_default(),
            blockers: draining.map(|it| self.blockers(it)).unwrap_or_default(),
            started_at: if self.run == Run::Idle { GoTime::ZERO } else { self.started_at },
            deadline,
            skip: self.run.skip(),
            reason,
            next_step,
            answers: self.answers.clone(),
            ..NodeDrainProgress::default()
        }
    }

    fn blockers(&self, draining: &Draining) -> Vec<Blocker> {
        let blocker = |it: &kubeops::Blocker| Blocker {
            pod: it.pod.to_string(),
            uid: it.pod.uid.to_string(),
            code: it.code.text().to_owned(),
            reason: it.reason.clone(),
            since: self.wall(it.since),
        };
        draining.blockers.iter().map(blocker).collect()
    }

    /// Where we are, for the next start: not what a person has forced, which stands in its own file. Holds nothing
    /// that changes with every pod.
    pub(super) fn journal(&self) -> DrainJournal {
        let serves = self.serves.clone().unwrap_or_default();
        DrainJournal {
            boot_id: self.boot_id.clone(),
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            status: self.own_status().status,
            attempt: self.run.attempt(),
            cordon: self.cordon,
            started_at: self.started_at,
            skip: self.run.skip(),
            reason: self.run.failure(),
            answers: self.answers.clone(),
        }
    }

    fn words(&self) -> Words {
        let mut words = self.run_words();
        match &self.force {
            Force::Absent => {}
            Force::Refused(why) => {
                words.next_step = format!("force file refused: {why}; correct or remove {FORCE_FILE}");
            }
            Force::Order(order) if order.status == DrainStatus::Complete => {
                if !self.requests.contains_key(&order.requested_by) {
                    let update = order.requested_by == Requester::Update;
                    let who = if update { "no update" } else { "no reboot or shutdown" };
                    words.next_step = format!(
                        "the force file says {order}, but {who} waits; correct or remove {FORCE_FILE}"
                    );
                }
            }
            Force::Order(order) => {
                words.phase = DrainPhase::Forced;
                words.reason =
                    format!("a person has forced {order} with the force file; beneath it: {}", words.reason);
                words.next_step = format!("remove {FORCE_FILE} to go back to what is");
            }
        }
        words
    }

    fn run_words(&self) -> Words {
        match &self.run {
            Run::Idle => self.idle_words(),
            Run::Taken => words(DrainPhase::Checking, "a request was taken", "nothing"),
            Run::Probing { trouble, .. } if trouble.is_empty() => {
                words(DrainPhase::Checking, "looks whether the Kubernetes API is there", "nothing")
            }
            Run::Probing { trouble, .. } => words(
                DrainPhase::Checking,
                format!("the Kubernetes API is not there: {trouble}"),
                "check that the cluster software runs on this node; without it the drain is skipped in the end",
            ),
            Run::Cordoning { trouble, .. } if trouble.is_empty() => {
                words(DrainPhase::Cordoning, "makes the node unschedulable", "nothing")
            }
            Run::Cordoning { tried, trouble, .. } => words(
                DrainPhase::Cordoning,
                format!("try {tried} of {} to cordon failed: {trouble}", self.limits.cordon_tries),
                "compare `kubectl get nodes` with the device's name, and look at the API server",
            ),
            Run::Draining { now, .. } => Self::draining_words(now),
            Run::Pausing { attempt, reason, .. } => words(
                DrainPhase::Pausing,
                format!("attempt {attempt} of {} failed: {reason}", self.limits.drain_tries),
                "mend that; the next attempt starts at Deadline",
            ),
            Run::Holding(..) => words(
                DrainPhase::Proving,
                "drained, and held by the file tmp/DrainStatus_FaultInjection_Wait",
                "remove that file",
            ),
            Run::Ended(End::Drained { evicted, .. }) => words(
                DrainPhase::Complete,
                format!("drained: {evicted} pods evicted, none left"),
                "nothing: the operation goes ahead",
            ),
            Run::Ended(End::Skipped(skip)) => words(
                DrainPhase::Skipped,
                format!("drain skipped: {skip}"),
                "nothing: the operation goes ahead",
            ),
            Run::Ended(End::FailedCordon(reason)) => words(
                DrainPhase::FailedCordon,
                format!("could not cordon: {reason}"),
                "mend that; the requester asks again by itself, or force COMPLETE",
            ),
            Run::Ended(End::FailedDrain(reason)) => words(
                DrainPhase::FailedDrain,
                format!("could not drain: {reason}"),
                "mend that; the requester asks again by itself, or force COMPLETE",
            ),
            Run::Ended(End::Resumed(status)) if is_final(*status) => words(
                resumed_phase(*status),
                "answered before; see Answers for when and how",
                "nothing: the requester goes ahead, or asks again by itself",
            ),
            Run::Ended(End::Resumed(status)) => {
                words(resumed_phase(*status), "zedkube has started anew and catches up", "nothing")
            }
        }
    }

    fn idle_words(&self) -> Words {
        match self.member {
            None => words(
                DrainPhase::Idle,
                "waits to hear whether this node is in a cluster",
                "if this stays: look at run/zedagent/EdgeNodeClusterConfig and the log of zedagent",
            ),
            Some(_) if self.cordon == CordonOwner::Ours => words(
                DrainPhase::Withdrawing,
                format!("gives its own cordon back: {}", self.care_trouble),
                "if this stays: look at `kubectl describe node` of this node",
            ),
            Some(_) if cordoned(self.cordon) => words(
                DrainPhase::Idle,
                "nothing is asked for; the node is cordoned by somebody else",
                "`kubectl uncordon` the node if that cordon is yours",
            ),
            Some(true) if !self.care_trouble.is_empty() => words(
                DrainPhase::Idle,
                format!("nothing is asked for; the node cannot be looked at: {}", self.care_trouble),
                "check the API server and the kubeconfig",
            ),
            Some(true) => words(DrainPhase::Idle, "nothing is asked for", "nothing"),
            Some(false) => {
                words(DrainPhase::Idle, "this node is in no cluster: there is nothing to drain", "nothing")
            }
        }
    }

    fn draining_words(now: &Draining) -> Words {
        let counts = now.counts;
        if now.proving {
            return words(DrainPhase::Proving, "no pod is left; reads the lists that prove it", "nothing");
        }
        let mut reason = format!("{} of {} pods gone, {} blocked", counts.gone, counts.total, counts.blocked);
        let next_step = match now.blockers.first() {
            Some(first) => {
                reason = format!("{reason}: {}", first.reason);
                "see Blockers: add a replica or mend the pod that a budget waits for"
            }
            None => "nothing: pods are leaving",
        };
        if !now.trouble.is_empty() {
            reason = format!("{reason}; trouble with the API: {}", now.trouble);
        }
        words(DrainPhase::Draining, reason, next_step)
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
        DrainStatus::DrainRetrying => DrainPhase::Pausing,
        DrainStatus::FailedCordon => DrainPhase::FailedCordon,
        DrainStatus::FailedDrain => DrainPhase::FailedDrain,
        DrainStatus::Complete => DrainPhase::Complete,
    }
}

fn counts(counts: Counts) -> PodCounts {
    let Counts { total, gone, going, waiting, blocked } = counts;
    PodCounts { total, gone, going, waiting, blocked }
}
