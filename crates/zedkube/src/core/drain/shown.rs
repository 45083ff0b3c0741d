//! The members of NodeDrainProgress, DrainJournal and DrainHistory that are about the drain.
//!
//! Pure: no clock, no I/O, no task.

use kubenodeop::Progress;
use step::{Inserted as _, Mono};
use topics::{
    Blocker, CordonOwner, DrainJournal, DrainPhase, DrainStatus, GoTime, NodeDrainProgress, PodCounts,
    RequestId, Skip, StepWord, TurnShown,
};

use super::attempts::add_left;
use super::life::Drain;
use super::resume::{EarlierWork, SavedAttempts};
use super::run::{DrainEnd, DrainRun};
use super::words::trouble_words;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::whose;

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
        let (tier, estimate, deadline) = match &self.run {
            DrainRun::Draining { now, deadline, .. } => (now.tier, now.estimate, Some(*deadline)),
            DrainRun::Retrying { until, .. } | DrainRun::Holding { until, .. } => (None, None, Some(*until)),
            DrainRun::Hooks { again, .. } => (None, None, *again),
            DrainRun::Probing { away, .. } => (None, None, away.skip_at.filter(|_| away.refused.is_none())),
            DrainRun::Idle
            | DrainRun::Taken { .. }
            | DrainRun::OutsideWindow
            | DrainRun::Waiting { .. }
            | DrainRun::Entering { .. }
            | DrainRun::Cordoning { .. }
            | DrainRun::Confirming { .. }
            | DrainRun::Ended(_) => (None, None, None),
        };
        let deadline = deadline.into_iter().chain(self.gives_up_at(node)).chain(self.volumes_end(node)).min();
        let wall = |at: Option<Mono>| at.map_or(GoTime::ZERO, |at| node.wall(at));
        let serves = answers.shown(self.serves.as_ref());
        let (evicted, recordons) = self.sums();
        NodeDrainProgress {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            attempt: SavedAttempts::of(&self.run, self.resume.as_ref()).attempt,
            tier: tier.map(|it| it.text().to_owned()).unwrap_or_default(),
            counts: self.counts(),
            blockers: shown(self.obstacle().map_or(&pods.blockers, |(_, found)| found), node),
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
            deadline: self.opens(node).unwrap_or_else(|| wall(deadline)),
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
        if let DrainRun::Probing { away, .. } = &self.run
            && !away.trouble.is_empty()
        {
            return Some(away.since);
        }
        self.silence.as_ref().map(|it| it.since)
    }

    fn turn_shown(&self, node: &NodeContext) -> TurnShown {
        let Some(waiting) = node.turn.waiting().filter(|_| matches!(self.run, DrainRun::Waiting { .. }))
        else {
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
        let SavedAttempts { attempt, pause_end_ms, marks, reason } =
            SavedAttempts::of(&self.run, self.resume.as_ref());
        DrainJournal {
            requested_by: serves.requested_by,
            requested_at: serves.requested_at,
            context: serves.context,
            attempt,
            pause_end_ms,
            marks,
            started_at: self.started_at,
            skip: self.run.skip(),
            reason,
            left: self.all_left(),
            ..DrainJournal::default()
        }
    }

    /// Counts, blockers, evictions and cordons for the history, once the attempt has something to report: one that has
    /// not, as after a start in a pause, takes nothing away.
    pub(crate) fn facts(&self, node: &NodeContext) -> Option<(PodCounts, Vec<Blocker>, (u32, u32))> {
        let reported = |pods: &&Progress| {
            (pods.counts, pods.evicted, pods.recordons) != (PodCounts::default(), 0, 0)
                || !pods.blockers.is_empty()
        };
        let pods = self.run.pods().filter(|it| self.is_done() || reported(it))?;
        Some((self.counts(), shown(&pods.blockers, node), self.sums()))
    }

    /// The steps that where it is now brings to the history, each with its attempt and why.
    pub(crate) fn steps(&self, cordon: CordonOwner, node: &NodeContext) -> Vec<(StepWord, u32, String)> {
        let step = |word, attempt, why: &str| vec![(word, attempt, why.to_owned())];
        let cordoned = || step(StepWord::Cordoned, 0, whose(cordon));
        match &self.run {
            DrainRun::OutsideWindow => {
                let paused = node.window.paused().is_some();
                let word = if paused { StepWord::Paused } else { StepWord::OutsideWindow };
                step(word, 0, &Self::window_words(node).reason)
            }
            DrainRun::Probing { .. } | DrainRun::Waiting { .. } => {
                let passed = self.window_pass(node).map(|it| step(StepWord::WindowPassed, 0, &it.by));
                let (turn, is_asked) = (&node.turn, matches!(self.run, DrainRun::Waiting { .. }));
                let waits =
                    turn.waiting().filter(|_| is_asked && (turn.is_refused() || turn.is_unreachable()));
                let waits = waits.map(|it| step(StepWord::WaitsForTurn, 0, &it.why));
                let found = self.obstacle().map(|(what, _)| step(StepWord::CannotStart, 0, &what.why));
                passed.into_iter().chain(found.or(waits)).flatten().collect()
            }
            DrainRun::Hooks { trouble, .. } if !trouble.is_empty() => {
                step(StepWord::HookFailed, self.hook_tries, trouble)
            }
            DrainRun::Cordoning { .. } => step(StepWord::ApiReached, 0, ""),
            DrainRun::Confirming { .. } => cordoned(),
            DrainRun::Draining { attempt, now, .. } => {
                let proving = now.phase == DrainPhase::Proving;
                let word = if proving { StepWord::Proving } else { StepWord::Attempt };
                [cordoned(), step(word, *attempt, "")].concat()
            }
            DrainRun::Retrying { attempt, reason, .. } => {
                [cordoned(), step(StepWord::AttemptFailed, *attempt, reason)].concat()
            }
            DrainRun::Idle
            | DrainRun::Taken { .. }
            | DrainRun::Entering { .. }
            | DrainRun::Hooks { .. }
            | DrainRun::Holding { .. }
            | DrainRun::Ended(_) => Vec::new(),
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
            DrainEnd::FailedCordon(failure) => {
                (StepWord::Failed, DrainStatus::FailedCordon, because(&failure.why))
            }
            DrainEnd::FailedDrain { reason, .. } => {
                (StepWord::Failed, DrainStatus::FailedDrain, because(reason))
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

    fn is_done(&self) -> bool {
        matches!(self.run, DrainRun::Holding { .. } | DrainRun::Ended(DrainEnd::Drained { .. }))
    }

    /// Pods of this attempt, those that had gone before this agent restarted included.
    pub(super) fn counts(&self) -> PodCounts {
        let (counts, phase) = self.run.pods().map(|it| (it.counts, it.phase)).unwrap_or_default();
        let left =
            matches!(phase, DrainPhase::Detaching | DrainPhase::WaitingForStorage | DrainPhase::Proving);
        self.before.with(counts, left || self.is_done())
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
