//! What a restart in the same boot must not forget of an attempt: its number, its limits, its pause (goals D15).
//!
//! Not here: the file. Times are there in milliseconds of the boot's monotonic clock, beside the boot's identity.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use kubeapi::PodUid;
use kubenodeop::{Marks, Progress};
use step::{Inserted as _, Mono};
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
    pub(super) marks: Marks,
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
            marks: marks(&journal.marks),
            pause: (journal.pause_end_ms > 0).then(|| (mono(journal.pause_end_ms), journal.reason.clone())),
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
        let kept = |attempt: u32, until: Option<Mono>, held: &Marks, reason: String| Self {
            attempt,
            pause_end_ms: until.map(ms).unwrap_or_default(),
            marks: kept_marks(held),
            reason,
        };
        match run {
            DrainRun::Draining { now: pods, .. } => kept(run.attempt(), None, &pods.marks, String::new()),
            DrainRun::Holding { last, .. } => {
                // It is proved: what follows a restart is not held against the limit of the drain.
                let held = Marks { drain: None, ..last.marks.clone() };
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
                None => kept(run.attempt(), None, &Marks::default(), run.failure()),
            },
        }
    }
}

/// What an attempt takes over from the one before it: what was learned and is still owed, and since when the drain runs,
/// not since when its own limits ran.
pub(super) fn learned(last: &Marks) -> Marks {
    Marks {
        drain: last.drain,
        returns: last.returns.clone(),
        claims: last.claims.clone(),
        surged: last.surged.clone(),
        ..Marks::default()
    }
}

/// A point on disk, beside the identity of its boot.
pub(crate) fn ms(at: Mono) -> u64 {
    u64::try_from(at.since_start().as_millis()).unwrap_or(u64::MAX)
}

fn mono(at_ms: u64) -> Mono {
    Mono::from_start(Duration::from_millis(at_ms))
}

fn some(at_ms: u64) -> Option<Mono> {
    (at_ms > 0).then(|| mono(at_ms))
}

pub(crate) fn kept_marks(held: &Marks) -> DrainMarks {
    let at = |mark: Option<Mono>| mark.map(ms).unwrap_or_default();
    DrainMarks {
        attempt_ms: at(held.attempt),
        drain_ms: at(held.drain),
        volumes_ms: at(held.volumes),
        storage_ms: at(held.storage),
        pods_ms: held.pods.iter().map(|(uid, since)| (uid.to_string(), ms(*since))).into_map(),
        returns: held
            .returns
            .iter()
            .map(|((namespace, workload), count)| (format!("{namespace}/{workload}"), *count))
            .into_map(),
        claims: held.claims.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect(),
        claims_omitted: 0,
    }
}

/// Marks from disk; of this boot.
pub(crate) fn marks(kept: &DrainMarks) -> Marks {
    Marks {
        attempt: some(kept.attempt_ms),
        drain: some(kept.drain_ms),
        volumes: some(kept.volumes_ms),
        storage: some(kept.storage_ms),
        pods: kept.pods_ms.iter().map(|(uid, since)| (PodUid::new(uid.clone()), mono(*since))).into_map(),
        returns: kept
            .returns
            .iter()
            .filter_map(|(name, count)| Some((in_namespace(name)?, *count)))
            .into_map(),
        claims: kept.claims.iter().filter_map(|name| in_namespace(name)).into_set(),
        surged: BTreeSet::new(),
    }
}

fn in_namespace(text: &str) -> Option<(String, String)> {
    let (namespace, name) = text.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn d15_marks_come_back_from_the_journal_as_they_went_in() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let held = Marks {
            attempt: Some(at(1)),
            drain: Some(at(1)),
            volumes: Some(at(3)),
            storage: Some(at(4)),
            pods: BTreeMap::from([(PodUid::new("u1".to_owned()), at(4))]),
            returns: BTreeMap::from([(("shop".to_owned(), "ReplicaSet/web".to_owned()), 2)]),
            claims: BTreeSet::from([("shop".to_owned(), "data".to_owned())]),
            // The Deployments themselves say that.
            surged: BTreeSet::new(),
        };
        assert_eq!(marks(&kept_marks(&held)), held);
        assert_eq!(marks(&kept_marks(&Marks::default())), Marks::default());
        // The next attempt knows what it need not ask twice.
        let surged = Marks { surged: BTreeSet::from(["shop/web".to_owned()]), ..Marks::default() };
        assert_eq!(learned(&surged), surged);
    }
}
