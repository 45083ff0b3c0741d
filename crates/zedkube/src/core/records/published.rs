//! What was published last of each topic: only what differs from it is published, and not too often:
//! at once after a quiet time, else once per gap, and then the newest (goals O1).
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use clusterview::leader::Candidacy;
use step::{Mono, say};
use topics::{DrainJournal, DrainMarks, NodeDrainProgress, NodeDrainStatus};

use crate::core::facts::Effect;

/// Each topic as it was published last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PublishedRecords {
    candidacy: Option<Candidacy>,
    status: Option<NodeDrainStatus>,
    progress: Option<Box<NodeDrainProgress>>,
    progress_gap: Gap,
    journal: DrainJournal,
    marks_gap: Gap,
}

impl PublishedRecords {
    /// After a start, beside the journal that is on disk.
    pub(crate) fn beside(journal: DrainJournal) -> Self {
        Self {
            candidacy: None,
            status: None,
            progress: None,
            progress_gap: Gap::default(),
            journal,
            marks_gap: Gap::default(),
        }
    }

    /// When a value that was held back must be written.
    pub(crate) fn due(&self) -> Option<Mono> {
        [self.progress_gap.due(), self.marks_gap.due()].into_iter().flatten().min()
    }

    /// Everything is kept at once but since when limits run: that changes with pods, and may be a little old. The
    /// claims of volumes that are owed may not: nothing else names them once their pods are gone.
    pub(crate) fn journal(&mut self, now: Mono, journal: DrainJournal, gap: Duration, out: &mut Vec<Effect>) {
        if self.journal == journal {
            self.marks_gap.settled();
            return;
        }
        let claims = journal.marks.claims.clone();
        let marks = DrainMarks { claims, ..self.journal.marks.clone() };
        let marks_alone = DrainJournal { marks, ..journal.clone() } == self.journal;
        if !marks_alone || self.marks_gap.opens(now, gap) {
            out.push(Effect::Journal(Box::new(journal.clone())));
            self.journal = journal;
            self.marks_gap.written(now);
        }
    }

    /// Before COMPLETE can be read anywhere: who reads that may restart the machine. What is not known changes nothing.
    pub(crate) fn candidacy(&mut self, candidacy: Option<Candidacy>, out: &mut Vec<Effect>) {
        if let Some(newest) = candidacy.filter(|_| self.candidacy != candidacy) {
            self.candidacy = candidacy;
            out.push(Effect::Candidacy(newest));
        }
    }

    /// A reader of the status looks for its answer in the progress: with a new status or answer it is published at
    /// once and before the status, everything else with a gap.
    pub(crate) fn progress_and_status(
        &mut self,
        now: Mono,
        progress: NodeDrainProgress,
        status: NodeDrainStatus,
        gap: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.progress.as_deref() == Some(&progress) {
            self.progress_gap.settled();
        } else {
            let answered = self.progress.as_ref().is_none_or(|last| last.answers != progress.answers);
            let urgent = answered || self.status != Some(status);
            if urgent || self.progress_gap.opens(now, gap) {
                let progress = Box::new(progress);
                out.push(Effect::Progress(progress.clone()));
                self.progress = Some(progress);
                self.progress_gap.written(now);
            }
        }
        if self.status != Some(status) {
            let from = self.status.unwrap_or_default();
            say!(out, info, "nodedrain-step:changing publishNodeDrainStatus from {from} to {status}");
            out.push(Effect::Status(status));
            self.status = Some(status);
        }
    }
}

/// Keeps writes of one file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Gap {
    last: Option<Mono>,
    /// When a value that is held back is due.
    due: Option<Mono>,
}

impl Gap {
    /// Whether a changed value is written now. If not, [`Gap::due`] says when to ask again.
    fn opens(&mut self, now: Mono, gap: Duration) -> bool {
        match self.last.map(|last| last + gap) {
            Some(next) if now < next => {
                self.due = Some(next);
                false
            }
            Some(_) | None => true,
        }
    }

    /// It has been written, in turn or before its turn.
    fn written(&mut self, now: Mono) {
        *self = Self { last: Some(now), due: None };
    }

    /// The value is again what was written last.
    fn settled(&mut self) {
        self.due = None;
    }

    /// When a value that is held back must be written.
    fn due(&self) -> Option<Mono> {
        self.due
    }
}
