//! What readers get from the core: topics as they were published last, and the history of drains and force files.
//!
//! No decision depends on it. Not here: how a value is made (`core::view`). Pure: no clock, no I/O, no task.
//!
//! What is kept of each drain and each force file: steps with their times, written when one is taken. Every text and
//! list is bounded, so that persistent topics stay under 64 KiB in all, whatever names and sentences a cluster holds.
//!
//! What was published last of each topic: only what differs from it is published, and not too often: at once after a
//! quiet time, else once per gap, and then the newest.

use std::fmt;
use std::time::Duration;

use agent::force::OrderedBy;
use clusterview::leader::Candidacy;
use step::{Mono, say};
use topics::{
    Blocker, CordonOwner, DrainHistory, DrainJournal, DrainMarks, DrainRecord, DrainStatus, DrainStep,
    ForceRecord, GoTime, NAME_BYTES, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, OperationPause,
    PauseRecord, PodCounts, RequestId, Skip, StepWord, cut_text as cut,
};

use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::drain::Drain;
use crate::core::facts::{Effect, Force};

/// Drains that are kept.
const DRAINS: usize = 10;
/// Force files that are kept, and pauses.
const FORCED: usize = 8;
/// Steps of a drain; five attempts that fail take fourteen.
const STEPS: usize = 16;
/// After these a step that was there already is another one.
const BEGINS_ANEW: [StepWord; 7] = [
    StepWord::Taken,
    StepWord::Restarted,
    StepWord::CannotStart,
    StepWord::OutsideWindow,
    StepWord::Paused,
    StepWord::WaitsForTurn,
    StepWord::TurnLost,
];
/// Of these many steps at the beginning none is left out.
const FIRST_STEPS: usize = 3;
/// Blockers and things left in place that are kept by name.
const NAMED: usize = 2;
/// Things left in place that the journal keeps.
const LEFT: usize = 16;
/// Pods and workloads of which the journal keeps marks.
const MARKED_PODS: usize = 64;
const MARKED_WORKLOADS: usize = 8;
/// Longest text of a step, on disk.
const TEXT_BYTES: usize = 80;
/// Longest sentence about a blocker, a skip or an effect, on disk.
const SENTENCE_BYTES: usize = 160;
/// Longest name of whoever gives an order, which `zedbox drain force` holds to 32 characters.
const BY_BYTES: usize = 40;

/// The history as it is kept, and what it needs to continue.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct History {
    pub(super) kept: DrainHistory,
    /// Something is to be written.
    changed: bool,
    /// Who wrote the force file that is heard of next, and the one that was heard of last.
    pub(super) next_author: Option<OrderedBy>,
    author: Option<OrderedBy>,
    heard_force: bool,
}

/// Shows nothing of what has been: no decision depends on it, and two cores that differ in it alone are in one state.
impl fmt::Debug for History {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("History").finish_non_exhaustive()
    }
}

impl History {
    /// The last drain of an operation in this boot, when it failed and its request is gone: the requester pauses before
    /// it asks again.
    pub(crate) fn failed_before(&self, boot_id: &str) -> Option<String> {
        let last = self.kept.drains.first()?;
        let failed = last.status.is_failure() && !last.is_open() && last.is_of_boot(boot_id);
        let by_operation = !last.requested_by.only_drains();
        let why = last.steps.iter().rev().find(|it| it.step == StepWord::Failed).map_or("", |it| &it.text);
        (failed && by_operation).then(|| {
            let at = last.requested_at.shown();
            format!("the last drain (for {}, requested {at}) failed: {why}", last.context)
        })
    }

    /// Continues with the history that earlier runs left, and returns it if it changes with that.
    pub(crate) fn recalled(
        kept: DrainHistory,
        now: Mono,
        node: &NodeContext,
    ) -> (Self, Option<DrainHistory>) {
        let mut all = Self { kept, ..Self::default() };
        let before = all.kept.booted_at;
        if all.kept.boot_id == cut(&node.boot_id, NAME_BYTES) && !before.is_zero() {
            all.set_clock(now, before, node);
        }
        all.interrupted(&node.boot_id, node.wall(now));
        let new = all.take_new(node);
        (all, new)
    }

    /// Keeps where the drain is now, and says all when it is worth a write.
    pub(crate) fn keep(
        &mut self,
        now: Mono,
        (drain, cordon): (&Drain, CordonOwner),
        answers: &Answers,
        node: &NodeContext,
    ) -> Option<DrainHistory> {
        let at = node.wall(now);
        self.audit(&answers.force, Some(&answers.effect_of_force()), (&node.boot_id, at));
        if let Some(id) = self.open().map(|it| it.id()) {
            if let Some((counts, blockers, sums)) = drain.facts(node) {
                self.facts(counts, &blockers, sums);
            }
            self.reached(drain.status(), &drain.all_left());
            for (step, attempt, text) in drain.steps(cordon, answers, node) {
                self.once(step, attempt, at, &text);
            }
            if let Some((step, status, why)) = drain.end_of(id, answers) {
                self.end(step, status, at, &why);
            }
        }
        self.take_new(node)
    }

    /// What is to be written now, if anything is; the wall clock of this boot is written beside it.
    fn take_new(&mut self, node: &NodeContext) -> Option<DrainHistory> {
        std::mem::take(&mut self.changed).then(|| {
            self.kept.boot_id = cut(&node.boot_id, NAME_BYTES);
            self.kept.booted_at = node.booted_at;
            self.kept.clone()
        })
    }

    /// The wall clock was set: the times of this boot move with it, those of earlier ones stay as they were written.
    pub(crate) fn set_clock(&mut self, now: Mono, before: GoTime, node: &NodeContext) {
        let (uptime, booted_at) = (now.since_start(), node.booted_at);
        let boot_id = cut(&node.boot_id, NAME_BYTES);
        let moved = |at: &mut GoTime| *at = at.moved(before, booted_at);
        for record in &mut self.kept.drains {
            if record.boot_id == boot_id {
                let own = [&mut record.started_at, &mut record.ended_at];
                let steps = record.steps.iter_mut().map(|it| &mut it.at);
                let blockers = record.blockers.iter_mut().map(|it| &mut it.since);
                own.into_iter().chain(steps).chain(blockers).for_each(moved);
            } else if let Some(last) = record.steps.last_mut()
                && last.step == StepWord::Interrupted
                && (before..=before.plus(uptime)).contains(&last.at)
            {
                // Of an earlier boot; that it was cut off was kept in this one.
                [&mut last.at, &mut record.ended_at].into_iter().for_each(moved);
            }
        }
        for record in self.kept.forced.iter_mut().filter(|it| it.boot_id == boot_id) {
            [&mut record.seen_at, &mut record.gone_at].into_iter().for_each(moved);
        }
        self.changed |= self.kept.boot_id == boot_id;
    }

    fn open(&mut self) -> Option<&mut DrainRecord> {
        self.kept.drains.first_mut().filter(|it| it.is_open())
    }

    /// A new drain, or the one that an earlier run of this agent was in, when this is what it `resumes`.
    pub(crate) fn taken(&mut self, request: &NodeDrainRequest, boot_id: &str, at: GoTime, resumes: bool) {
        let same = |it: &DrainRecord| it.id() == request.id() && it.is_of_boot(boot_id);
        if resumes && let Some(last) = self.kept.drains.first_mut().filter(|it| same(it)) {
            last.ended_at = GoTime::ZERO;
            last.seconds = 0;
            return self.step(StepWord::Restarted, 0, at, "");
        }
        self.end(StepWord::Withdrawn, DrainStatus::NotRequested, at, &Skip::default());
        self.kept.drains.insert(
            0,
            DrainRecord {
                requested_by: request.requested_by,
                requested_at: request.requested_at,
                context: cut(&request.context, NAME_BYTES),
                boot_id: cut(boot_id, NAME_BYTES),
                started_at: at,
                ..DrainRecord::default()
            },
        );
        self.kept.drains.truncate(DRAINS);
        self.step(StepWord::Taken, 0, at, "");
    }

    /// A step of the drain that is not over; without one nothing is kept.
    pub(crate) fn step(&mut self, step: StepWord, attempt: u32, at: GoTime, text: &str) {
        let Some(record) = self.open() else { return };
        record.attempts = record.attempts.max(attempt);
        add(record, DrainStep { at, step, attempt, text: cut(text, TEXT_BYTES) });
        self.changed = true;
    }

    /// The same for where the drain is, which is kept once: not when it is there already since it was there.
    fn once(&mut self, step: StepWord, attempt: u32, at: GoTime, text: &str) {
        let same = |it: &&DrainStep| (it.step, it.attempt) == (step, attempt);
        // A restart in a pause comes back to the attempt that had failed; a person's word is for one wait.
        let begins_anew: &[StepWord] = if step == StepWord::AttemptFailed {
            &[]
        } else if step == StepWord::WindowPassed {
            &[StepWord::Taken, StepWord::Restarted, StepWord::OutsideWindow]
        } else {
            &BEGINS_ANEW
        };
        let is_there = |record: &mut DrainRecord| {
            let last = record.steps.iter().rev().find(|it| same(it) || begins_anew.contains(&it.step));
            last.is_some_and(|it| same(&it))
        };
        if !self.open().is_some_and(is_there) {
            self.step(step, attempt, at, text);
        }
    }

    /// How far the attempt is; written with the next step.
    fn facts(&mut self, counts: PodCounts, blockers: &[Blocker], sums: (u32, u32)) {
        let Some(record) = self.open() else { return };
        record.counts = counts;
        record.more_blockers = more(blockers.len());
        record.blockers = blockers.iter().take(NAMED).map(short).collect();
        // Neither becomes less: what was shown last may be unknown after a restart.
        record.evicted = record.evicted.max(sums.0);
        record.recordons = record.recordons.max(sums.1);
    }

    /// The status of the drain, and what was left in place so far.
    fn reached(&mut self, status: DrainStatus, left: &[String]) {
        let Some(record) = self.open() else { return };
        record.status = status;
        record.left = left.iter().take(NAMED).map(|it| cut(it, SENTENCE_BYTES)).collect();
        record.more_left = more(left.len());
    }

    /// The open drain is over.
    fn end(&mut self, step: StepWord, status: DrainStatus, at: GoTime, why: &Skip) {
        self.step(step, 0, at, &why.text);
        let Some(record) = self.open() else { return };
        record.status = status;
        let secs = at.to_timestamp().as_second() - record.started_at.to_timestamp().as_second();
        record.seconds = u64::try_from(secs).unwrap_or_default();
        if step == StepWord::Skipped {
            (record.skip, record.skip_kind) = (cut(&why.text, SENTENCE_BYTES), why.kind);
        }
        // A zero says that it is open.
        record.ended_at = if at.is_zero() { record.started_at } else { at };
    }

    /// A drain in which the device went down ended with its last step: how long the device was off is not known.
    fn interrupted(&mut self, boot_id: &str, at: GoTime) {
        let Some(record) = self.open() else { return };
        if record.is_of_boot(boot_id) {
            return;
        }
        let (status, last) = (record.status, record.steps.last().map_or(record.started_at, |it| it.at));
        let why =
            Skip { text: "the device went down in the middle of this drain".to_owned(), ..Skip::default() };
        self.end(StepWord::Interrupted, status, at, &why);
        if let Some(record) = self.kept.drains.first_mut() {
            let secs = last.to_timestamp().as_second() - record.started_at.to_timestamp().as_second();
            record.seconds = u64::try_from(secs).unwrap_or_default();
        }
    }

    /// The newest drain, which was complete, counts no longer.
    pub(crate) fn void(&mut self, at: GoTime, why: &str) {
        if let Some(record) = self.kept.drains.first_mut() {
            add(record, DrainStep { at, step: StepWord::Void, attempt: 0, text: cut(why, TEXT_BYTES) });
            self.changed = true;
        }
    }

    /// A force file was heard of, or that there is none; who wrote it was heard of before.
    pub(crate) fn hear_force(&mut self) {
        self.author.clone_from(&self.next_author);
        self.heard_force = true;
    }

    /// Keeps account of the force file: who gave which order when, and what comes of it; `None` for one that released
    /// a request in this turn, which is shown on its own.
    fn audit(&mut self, force: &Force, effect: Option<&str>, (boot_id, at): (&str, GoTime)) {
        if !self.heard_force {
            return;
        }
        let (order, refused) = match force {
            Force::Absent => return self.gone(at),
            Force::Order(order) => (*order, String::new()),
            Force::Refused(why) => (NodeDrainStatus::default(), cut(why, SENTENCE_BYTES)),
        };
        let record = ForceRecord {
            seen_at: at,
            boot_id: cut(boot_id, NAME_BYTES),
            order,
            refused,
            effect: cut(effect.unwrap_or_default(), SENTENCE_BYTES),
            ..self.authored()
        };
        let the_same = |it: &ForceRecord| {
            let of = |it: &ForceRecord| {
                (it.order, it.refused.clone(), it.written_at, it.owner_uid, it.by.clone(), it.reason.clone())
            };
            it.gone_at.is_zero() && of(it) == of(&record)
        };
        if self.kept.forced.first().is_some_and(the_same) {
            return;
        }
        self.gone(at);
        let step = if record.refused.is_empty() { StepWord::Forced } else { StepWord::ForceRefused };
        let text = format!("by {}: {}", record.who(), record.effect);
        self.kept.forced.insert(0, record);
        self.kept.forced.truncate(FORCED);
        self.changed = true;
        if effect.is_some() {
            self.step(step, 0, at, &text);
        }
    }

    /// What is known of whoever wrote the force file.
    fn authored(&self) -> ForceRecord {
        let author = self.author.clone().unwrap_or_default();
        ForceRecord {
            written_at: author.written,
            owner_known: self.author.is_some(),
            owner_uid: author.uid,
            owner: cut(&author.name, NAME_BYTES),
            by: cut(&author.by, BY_BYTES),
            reason: cut(&author.reason, SENTENCE_BYTES),
            ..ForceRecord::default()
        }
    }

    /// Who forced and why, for the log.
    pub(crate) fn forced_by(&self) -> String {
        let author = self.authored();
        match author.reason.as_str() {
            "" => format!("{}, no reason given", author.who()),
            reason => format!("{}, \"{reason}\"", author.who()),
        }
    }

    /// The force file answers this request now, without a proved drain.
    pub(crate) fn released(
        &mut self,
        force: &Force,
        (id, context): (RequestId, &str),
        (boot_id, at): (&str, GoTime),
    ) {
        self.audit(force, None, (boot_id, at));
        let Some(forced) = self.kept.forced.first_mut() else { return };
        forced.released_at = id.at;
        forced.effect = cut(
            &format!("the {context} requested at {} went ahead without a proved drain", id.at.shown()),
            SENTENCE_BYTES,
        );
        let text = format!("by {}: went ahead without a proved drain", forced.who());
        self.changed = true;
        if let Some(record) = self.kept.drains.iter_mut().find(|it| it.id() == id) {
            add(record, DrainStep { at, step: StepWord::Forced, attempt: 0, text: cut(&text, TEXT_BYTES) });
        }
    }

    /// Keeps account of a person's pause, which outlives a boot: the same one is the same record.
    pub(crate) fn pause(&mut self, pause: Option<&OperationPause>, at: GoTime) {
        let pause = pause.map(|it| OperationPause {
            by: cut(&it.by, BY_BYTES),
            reason: cut(&it.reason, SENTENCE_BYTES),
            ..it.clone()
        });
        if let Some(open) = self.kept.pauses.first_mut().filter(|it| it.ended_at.is_zero()) {
            if pause.as_ref() == Some(&open.pause) {
                return;
            }
            // A zero says that it holds.
            open.ended_at = if at.is_zero() { open.pause.since } else { at };
            self.changed = true;
        }
        if let Some(pause) = pause {
            self.kept.pauses.insert(0, PauseRecord { pause, ..PauseRecord::default() });
            self.kept.pauses.truncate(FORCED);
            self.changed = true;
        }
    }

    fn gone(&mut self, at: GoTime) {
        if let Some(forced) = self.kept.forced.first_mut().filter(|it| it.gone_at.is_zero()) {
            forced.gone_at = at;
            self.changed = true;
        }
    }
}

/// One more step; where there is no room, the oldest goes that is neither at the beginning nor at the end.
fn add(record: &mut DrainRecord, step: DrainStep) {
    if record.steps.len() >= STEPS && record.steps.len() > FIRST_STEPS {
        record.steps.remove(FIRST_STEPS);
        record.steps_left_out = record.steps_left_out.saturating_add(1);
    }
    record.steps.push(step);
}

fn more(all: usize) -> u32 {
    u32::try_from(all.saturating_sub(NAMED)).unwrap_or(u32::MAX)
}

/// A blocker whose texts are bounded, without what was to be done then.
pub(crate) fn short(blocker: &Blocker) -> Blocker {
    Blocker {
        pod: cut(&blocker.pod, NAME_BYTES),
        uid: cut(&blocker.uid, NAME_BYTES),
        code: cut(&blocker.code, NAME_BYTES),
        reason: cut(&blocker.reason, SENTENCE_BYTES),
        next_step: String::new(),
        since: blocker.since,
    }
}

/// A journal whose texts and lists are bounded, but for its claims: what is owed is never forgotten. Of marks that
/// are left out, the limit starts again with a restart.
pub(crate) fn kept_short(mut journal: DrainJournal) -> DrainJournal {
    let sentence = |text: &mut String| *text = cut(text, SENTENCE_BYTES);
    journal.context = cut(&journal.context, NAME_BYTES);
    sentence(&mut journal.skip);
    sentence(&mut journal.reason);
    journal.left_omitted = u32::try_from(journal.left.len().saturating_sub(LEFT)).unwrap_or(u32::MAX);
    journal.left.truncate(LEFT);
    journal.left.iter_mut().for_each(sentence);
    for answer in &mut journal.answers {
        answer.context = cut(&answer.context, NAME_BYTES);
        sentence(&mut answer.skip);
    }
    shorten(&mut journal.marks);
    journal
}

/// Bounds marks, but for the claims.
pub(crate) fn shorten(marks: &mut DrainMarks) {
    let mut room = MARKED_PODS;
    marks.pods_ms.retain(|_, _| room.checked_sub(1).map(|rest| room = rest).is_some());
    let mut room = MARKED_WORKLOADS;
    marks.returns.retain(|_, _| room.checked_sub(1).map(|rest| room = rest).is_some());
}

/// Each topic as it was published last.
#[derive(Debug, Clone, PartialEq, Default)]
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
        Self { journal, ..Self::default() }
    }

    /// When a value that was held back must be written.
    pub(crate) fn due(&self) -> Option<Mono> {
        [self.progress_gap.due, self.marks_gap.due].into_iter().flatten().min()
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
    /// When a value that is held back must be written.
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
}
