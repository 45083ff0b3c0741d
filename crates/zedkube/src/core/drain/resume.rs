//! What a restart in the same boot must not forget of an attempt: its number, its limits, its pause (goals D15).
//!
//! Not here: the file. Times are there in milliseconds of the boot's monotonic clock, beside the boot's identity.
//! Pure: no clock, no I/O, no task.

use kubenodeop::Progress;
use step::Mono;
use topics::{DrainJournal, DrainMarks, NodeDrainRequest, PodCounts, RequestId};

use super::run::DrainRun;

/// An attempt in which this agent restarted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resume {
    /// The requests that it was for.
    of: Vec<RequestId>,
    /// From 1.
    pub(super) attempt: u32,
    /// Since when its limits run.
    pub(super) marks: DrainMarks,
    /// The end of the pause after it, and why it failed; `None` when it was under way.
    pub(super) pause: Option<(Mono, String)>,
}

impl Resume {
    /// What `journal` says of an attempt that is not over.
    pub(super) fn from(journal: &DrainJournal) -> Option<Self> {
        (journal.attempt > 0 && journal.status.is_under_way()).then(|| Self {
            of: journal
                .answers
                .iter()
                .filter(|it| it.status.is_under_way())
                .map(topics::Answer::id)
                .collect(),
            attempt: journal.attempt,
            marks: journal.marks.clone(),
            pause: Mono::of_ms(journal.pause_end_ms).map(|at| (at, journal.reason.clone())),
        })
    }

    /// Whether one of those who waited for it still does; a later request gets attempts of its own.
    pub(super) fn is_for<'a>(&self, mut waiting: impl Iterator<Item = &'a NodeDrainRequest>) -> bool {
        waiting.any(|request| self.of.contains(&request.id()))
    }
}

/// What a drain had done before the task that is at work now: in earlier attempts, and before this agent restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EarlierWork {
    /// Evictions that the server had accepted.
    pub(super) evicted: u32,
    /// How often the cordon had to be renewed.
    pub(super) recordons: u32,
    /// Pods of this attempt, as they were shown last.
    pub(super) counts: PodCounts,
}

impl EarlierWork {
    /// With an attempt that is over.
    pub(super) fn and(self, last: &Progress) -> Self {
        Self {
            evicted: self.evicted.saturating_add(last.evicted),
            recordons: self.recordons.saturating_add(last.recordons),
            counts: PodCounts::default(),
        }
    }

    /// What an attempt counts `now`, with the pods that had gone before this agent restarted. One that is `over`
    /// has none left.
    pub(super) fn with(self, now: PodCounts, over: bool) -> PodCounts {
        let was = self.counts;
        match was.total.checked_sub(now.total) {
            None | Some(0) => now,
            // Nothing is known yet.
            Some(_) if now.total == 0 && !over => was,
            Some(gone) => PodCounts { total: was.total, gone: now.gone + gone, ..now },
        }
    }
}

/// The part of a journal about attempts: number, end of the pause, marks, why the last one failed.
pub(super) struct SavedAttempts {
    pub(super) attempt: u32,
    pub(super) pause_end_ms: u64,
    pub(super) marks: DrainMarks,
    pub(super) reason: String,
}

impl SavedAttempts {
    /// Of a run, or of what it will continue from.
    pub(super) fn of(run: &DrainRun, resume: Option<&Resume>) -> Self {
        let kept = |attempt: u32, until: Option<Mono>, held: &DrainMarks, reason: String| Self {
            attempt,
            pause_end_ms: until.map_or(0, Mono::as_ms),
            marks: held.clone(),
            reason,
        };
        match run {
            DrainRun::Draining { now: pods, .. } => kept(run.attempt(), None, &pods.marks, String::new()),
            DrainRun::Holding { last, .. } => {
                // It is proved: what follows a restart is not held against the limit of the drain.
                let held = DrainMarks { drain_ms: 0, ..last.marks.clone() };
                kept(run.attempt(), None, &held, String::new())
            }
            DrainRun::Retrying { attempt, until, reason, last } => {
                kept(*attempt, Some(*until), &last.marks, reason.clone())
            }
            DrainRun::Idle
            | DrainRun::Taken { .. }
            | DrainRun::OutsideWindow
            | DrainRun::Probing { .. }
            | DrainRun::Waiting { .. }
            | DrainRun::Hooks { .. }
            | DrainRun::Cordoning { .. }
            | DrainRun::Entering { .. }
            | DrainRun::Confirming { .. }
            | DrainRun::Ended(_) => match resume {
                Some(Resume { attempt, marks, pause, .. }) => {
                    let (until, reason) = pause.clone().unzip();
                    kept(*attempt, until, marks, reason.unwrap_or_default())
                }
                None => kept(run.attempt(), None, &DrainMarks::default(), run.failure()),
            },
        }
    }
}

/// What an attempt takes over from the one before it: what was learned and is still owed, and since when the drain runs,
/// not since when its own limits ran.
pub(super) fn learned(last: &DrainMarks) -> DrainMarks {
    let DrainMarks { drain_ms, returns, claims, surged, .. } = last.clone();
    DrainMarks { drain_ms, returns, claims, surged, ..DrainMarks::default() }
}
