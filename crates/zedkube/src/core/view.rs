//! What a person reads: the state of the core as NodeDrainProgress and DrainJournal.
//!
//! Pure: no clock, no I/O, no task.

use agent::settings;
use kubeapi::listed;
use kubenodeop::{Counts, Phase, Progress};
use nodestatus::Membership;
use step::Mono;
use topics::{
    Blocker, CordonOwner, DrainJournal, DrainPhase, DrainStatus, FORCE_FILE, GoTime, NodeDrainProgress,
    NodeDrainRequest, PodCounts, Requester,
};

use super::attempts::add_left;
use super::care::cordoned;
use super::facts::Force;
use super::machine::Zedkube;
use super::records::kept_short;
use super::resume::{Kept, ms};
use super::run::{End, Run};
use crate::WAIT;

/// A state in words.
struct Words {
    phase: DrainPhase,
    reason: String,
    next_step: String,
}

fn words(phase: DrainPhase, reason: impl Into<String>, next_step: impl Into<String>) -> Words {
    Words { phase, reason: reason.into(), next_step: next_step.into() }
}

/// A pod that does not leave, for a reader.
pub(crate) fn blocker(it: &kubenodeop::Blocker, since: GoTime) -> Blocker {
    Blocker {
        pod: it.pod.to_string(),
        uid: it.pod.uid.to_string(),
        code: it.code.text().to_owned(),
        reason: it.reason.clone(),
        since,
    }
}

impl Zedkube {
    /// The newest progress.
    pub(super) fn progress(&self) -> NodeDrainProgress {
        let Words { phase, reason, next_step } = self.words();
        let pods = self.run.pods().cloned().unwrap_or_default();
        let (tier, estimate, deadline) = match &self.run {
            Run::Draining { now, deadline, .. } => (now.tier, now.estimate, Some(*deadline)),
            Run::Pausing { until, .. } | Run::Holding { until, .. } => (None, None, Some(*until)),
            Run::Idle | Run::Taken { .. } | Run::Probing { .. } | Run::Cordoning { .. } | Run::Ended(_) => {
                (None, None, None)
            }
        };
        let wall = |at: Option<Mono>| at.map_or(GoTime::ZERO, |at| self.node.wall(at));
        let serves = self.shown_request();
        NodeDrainProgress {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            phase,
            status: self.status().status,
            attempt: Kept::of(&self.run, self.resume.as_ref()).attempt,
            max_attempts: self.node.limits.drain_tries,
            cordon: self.care.cordon(),
            tier: tier.map(|it| it.text().to_owned()).unwrap_or_default(),
            counts: self.counts(),
            blockers: self.blockers(&pods),
            // What does not fit is counted when it is written.
            blockers_omitted: 0,
            left: self.all_left(),
            left_omitted: 0,
            volumes: pods.volumes,
            volumes_omitted: 0,
            evicted: self.sums().0,
            replies: pods.replies.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect(),
            recordons: self.sums().1,
            started_at: if self.run == Run::Idle { GoTime::ZERO } else { self.started_at },
            deadline: wall(deadline),
            estimate: wall(estimate),
            api_silent_since: wall(self.silence.as_ref().and(self.silent_since)),
            skip: self.run.skip(),
            reason,
            next_step,
            gate: self.care.boot_gate(&self.node),
            repairs: self.care.repairs(),
            answers: self.answers.clone(),
            asked: self.asked.clone(),
            boot_id: self.node.boot_id.clone(),
            booted_at: self.node.booted_at,
        }
    }

    /// The request that is told of: the one that is served while it exists, else another one that does.
    pub(super) fn shown_request(&self) -> NodeDrainRequest {
        let exists = |it: &&NodeDrainRequest| {
            !self.knows_requests() || self.requests.values().any(|known| known.id() == it.id())
        };
        let served = self.serves.as_ref().filter(exists);
        served
            .or_else(|| self.open().next())
            .or_else(|| self.requests.values().next())
            .cloned()
            .unwrap_or_default()
    }

    /// Pods of this attempt, those that had gone before this agent started anew included.
    pub(super) fn counts(&self) -> PodCounts {
        let pods = self.run.pods();
        let over = matches!(self.run, Run::Holding { .. } | Run::Ended(End::Drained { .. }))
            || pods.is_some_and(|it| it.phase != Phase::Draining);
        self.before.with(pods.map(|it| counts(it.counts)).unwrap_or_default(), over)
    }

    /// Evictions that were accepted and cordons that were renewed in this drain.
    pub(super) fn sums(&self) -> (u32, u32) {
        let (evicted, recordons) = self.run.pods().map(|it| (it.evicted, it.recordons)).unwrap_or_default();
        (self.before.evicted.saturating_add(evicted), self.before.recordons.saturating_add(recordons))
    }

    /// What rules have let pass, in this attempt and in those before it.
    pub(super) fn all_left(&self) -> Vec<String> {
        let mut all = self.left.clone();
        if let Some(pods) = self.run.pods() {
            add_left(&mut all, &pods.left);
        }
        all
    }

    pub(super) fn blockers(&self, draining: &Progress) -> Vec<Blocker> {
        draining.blockers.iter().map(|it| blocker(it, self.node.wall(it.since))).collect()
    }

    /// Where we are, for the next start: not what a person has forced, which stands in its own file. Holds nothing
    /// that changes with every pod, but for the marks of limits.
    pub(super) fn journal(&self) -> DrainJournal {
        let serves = self.serves.clone().unwrap_or_default();
        let Kept { attempt, pause_end_ms, marks, reason } = Kept::of(&self.run, self.resume.as_ref());
        kept_short(DrainJournal {
            boot_id: self.node.boot_id.clone(),
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            status: self.run_status(),
            attempt,
            pause_end_ms,
            marks,
            api_silent_since_ms: self.silent_since.filter(|_| self.may_be_lost()).map(ms).unwrap_or_default(),
            stake: self.stake.clone(),
            cordon: self.care.cordon(),
            started_at: self.started_at,
            skip: self.run.skip(),
            reason,
            left: self.all_left(),
            left_omitted: 0,
            answers: self.answers.clone(),
            asked: self.asked.clone(),
            booted_at: self.node.booted_at,
        })
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
            Run::Taken { .. } => words(DrainPhase::Checking, "request accepted", "nothing"),
            Run::Probing { trouble, .. } if trouble.is_empty() => {
                words(DrainPhase::Checking, "checking whether the Kubernetes API is reachable", "nothing")
            }
            Run::Probing { trouble, .. } => {
                let then = if self.resume.is_some() {
                    format!(
                        "the drain that was under way continues by itself once it answers{}",
                        self.skip_words()
                    )
                } else {
                    let secs = self.properties.time(settings::DRAIN_SKIP).as_secs();
                    format!(
                        "once it has been unreachable for {secs} s, without a break, the drain is skipped"
                    )
                };
                words(
                    DrainPhase::Checking,
                    format!("the Kubernetes API is not reachable: {trouble}"),
                    format!(
                        "check that the cluster software runs on this node: `systemctl status k3s`; {then}"
                    ),
                )
            }
            Run::Cordoning { trouble, .. } if trouble.is_empty() => {
                words(DrainPhase::Cordoning, "makes the node unschedulable", "nothing")
            }
            Run::Cordoning { tried, trouble, .. } => words(
                DrainPhase::Cordoning,
                format!("try {tried} of {} to cordon failed: {trouble}", self.node.limits.cordon_tries),
                "compare `kubectl get nodes` with the device's name, and look at the API server",
            ),
            Run::Draining { now, .. } => match &self.silence {
                Some(silence) => {
                    let (reason, next_step) = self.silence_words(silence);
                    words(DrainPhase::Draining, reason, next_step)
                }
                None => draining_words(now),
            },
            Run::Pausing { attempt, reason, last, .. } => words(
                DrainPhase::Pausing,
                format!("attempt {attempt} of {} failed: {reason}", self.node.limits.drain_tries),
                format!("{}; the next attempt starts at Deadline, or as soon as that changes", mend(last)),
            ),
            Run::Holding { .. } => words(
                DrainPhase::Proving,
                format!("drained; the file /{WAIT} holds COMPLETE back, until Deadline at most"),
                format!("`rm /{WAIT}`"),
            ),
            Run::Ended(End::Drained { .. }) => words(
                DrainPhase::Complete,
                format!("drained: {} pods evicted, none left{}", self.sums().0, self.but_for()),
                self.goes_ahead(),
            ),
            Run::Ended(End::Skipped(skip)) => {
                words(DrainPhase::Skipped, format!("drain skipped: {skip}"), self.goes_ahead())
            }
            Run::Ended(End::FailedCordon(reason)) => words(
                DrainPhase::FailedCordon,
                format!("could not cordon: {reason}"),
                format!("mend that; {}", self.asks_again()),
            ),
            Run::Ended(End::FailedDrain { reason, last, .. }) => words(
                DrainPhase::FailedDrain,
                format!("could not drain: {reason}"),
                format!("{}; {}", mend(last), self.asks_again()),
            ),
            Run::Ended(End::Resumed(status)) if status.is_final() => words(
                resumed_phase(*status),
                format!("answered before; see Answers for when and how{}", self.but_for()),
                if *status == DrainStatus::Complete { self.goes_ahead() } else { self.asks_again() },
            ),
            Run::Ended(End::Resumed(status)) => {
                words(resumed_phase(*status), "zedkube has started anew and catches up", "nothing")
            }
        }
    }

    fn idle_words(&self) -> Words {
        match self.node.member {
            // Whatever else is known: a cordon of ours that stays is shown with its cause.
            _ if self.care.earlier_cordon() == Some(true) => words(
                DrainPhase::AfterBoot,
                "the node is healthy after the boot; removing our cordon of the earlier boot",
                "nothing",
            ),
            _ if self.care.earlier_cordon().is_some() => {
                let gate = self.care.boot_gate(&self.node);
                let seen = if gate.words.is_empty() { "the first look is under way" } else { &gate.words };
                words(
                    DrainPhase::AfterBoot,
                    format!("keeps its own cordon of an earlier boot: {seen}"),
                    if gate.next_step.is_empty() { "nothing".to_owned() } else { gate.next_step },
                )
            }
            Membership::Leaving => words(
                DrainPhase::Leaving,
                "this node is leaving its cluster; what is asked for waits until it has left",
                "read NodeLeave: it says how far that is, and what holds it up",
            ),
            Membership::Undecided => words(
                DrainPhase::Idle,
                "waits to hear whether this node is in a cluster",
                "if this stays: look at run/zedagent/EdgeNodeClusterConfig and the log of zedagent",
            ),
            Membership::Member | Membership::Outside if self.care.cordon() == CordonOwner::Ours => words(
                DrainPhase::Withdrawing,
                format!("gives its own cordon back: {}", self.care.trouble()),
                "if this stays: look at `kubectl describe node` of this node",
            ),
            Membership::Member | Membership::Outside if cordoned(self.care.cordon()) => words(
                DrainPhase::Idle,
                "no drain requested; the node is cordoned by somebody else",
                "`kubectl uncordon` the node if that cordon is yours",
            ),
            Membership::Member if !self.care.trouble().is_empty() => words(
                DrainPhase::Idle,
                format!("no drain requested; the node cannot be read: {}", self.care.trouble()),
                "check the API server and the kubeconfig",
            ),
            Membership::Member => match self.history.failed_before(&self.node.boot_id) {
                Some(failed) => words(
                    DrainPhase::Idle,
                    format!("no drain requested now; {failed}"),
                    "an operation that still waits for its drain requests it again by itself: `zedbox drain status` \
                     shows it under pending; `zedbox drain history` shows what failed",
                ),
                None => words(DrainPhase::Idle, "no drain requested", "nothing"),
            },
            Membership::Outside => {
                words(DrainPhase::Idle, "this node is in no cluster: there is nothing to drain", "nothing")
            }
        }
    }

    /// What a drain that is done has let pass, in words; empty when nothing.
    fn but_for(&self) -> String {
        if self.left.is_empty() {
            String::new()
        } else {
            format!("; left in place by policy: {}", listed(&self.left, "; "))
        }
    }

    /// Nobody but a person with a shell waits.
    fn only_a_person_waits(&self) -> bool {
        !self.requests.is_empty() && self.requests.keys().all(|who| *who == Requester::Operator)
    }

    fn goes_ahead(&self) -> &'static str {
        if !self.only_a_person_waits() {
            "nothing: the operation goes ahead"
        } else if self.answers.iter().any(|it| !it.skip.is_empty()) {
            "NOT drained, pods may still run here: remove the cause, then `zedbox drain cancel` and \
             `zedbox drain request` again"
        } else {
            "work on the node; it takes pods again after `zedbox drain cancel`"
        }
    }

    fn asks_again(&self) -> &'static str {
        if self.only_a_person_waits() {
            "then ask again with `zedbox drain request`, or give up with `zedbox drain cancel`"
        } else {
            "the requester asks again by itself, or force COMPLETE"
        }
    }
}

fn draining_words(now: &Progress) -> Words {
    let (phase, mut reason, mut next_step) = match now.phase {
        Phase::Proving => (
            DrainPhase::Proving,
            "no pod is left; reads the lists that prove it".to_owned(),
            "nothing".to_owned(),
        ),
        Phase::Detaching => (
            DrainPhase::Detaching,
            format!("no pod is left; volumes are still attached: {}", listed(&now.volumes, ", ")),
            "wait; if they stay: look at `kubectl get volumeattachments` and the pods of their CSI driver"
                .to_owned(),
        ),
        Phase::Draining => {
            let Counts { total, gone, blocked, .. } = now.counts;
            let reason = format!("{gone} of {total} pods gone, {blocked} blocked");
            match now.blockers.first() {
                Some(first) => {
                    (DrainPhase::Draining, format!("{reason}: {}", first.reason), next_step(&now.blockers))
                }
                None => (DrainPhase::Draining, reason, "nothing: pods are leaving".to_owned()),
            }
        }
    };
    if !now.trouble.is_empty() {
        reason = format!("{reason}; trouble with the API: {}", now.trouble);
        if now.blockers.is_empty() {
            next_step.clone_from(&now.trouble_step);
        }
    }
    words(phase, reason, next_step)
}

/// What a person can do about the first blocker, by name; empty when nothing blocks.
fn next_step(blockers: &[kubenodeop::Blocker]) -> String {
    let Some(first) = blockers.first() else { return String::new() };
    let step = format!("{}: {}", first.pod, first.next_step());
    match blockers.len() {
        1 => step,
        all => format!("{step} ({} more in Blockers)", all - 1),
    }
}

/// What a person can do about an attempt that failed.
fn mend(last: &Progress) -> String {
    let step = next_step(&last.blockers);
    match (step.is_empty(), last.trouble_step.is_empty()) {
        (false, _) => step,
        (true, false) => last.trouble_step.clone(),
        (true, true) => "mend that".to_owned(),
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
