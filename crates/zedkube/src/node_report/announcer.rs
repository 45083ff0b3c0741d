//! What of a drain is said to the cluster, and when: out of one NodeDrainProgress after another, notices.
//!
//! What holds a drain up is said once it has done so for a while; that nothing progresses, once. A pause waits for a person
//! alone; so that none is forgotten, it is said again as often as `again` passes.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use outage::turn::rule::TurnRule;
use sheet::{blocker_words, for_whom, purpose};
use step::Mono;
use topics::{
    Answer, DrainPhase, DrainStatus, NodeDrainProgress, OperationPause, PauseScope, RequestId, Requester,
    SkipKind, StorageWait, cut_text,
};

use super::notices::{Notice, NoticeKind};

/// What holds a drain up for less is not said: budgets do so for seconds.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// The API server takes no longer text.
const MESSAGE_BYTES: usize = 1000;

/// What holds a drain up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoticedHold {
    kind: NoticeKind,
    subject: String,
    since: Mono,
    said: bool,
}

/// What shows that a drain progresses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProgressMark {
    id: RequestId,
    attempt: u32,
    phase: DrainPhase,
    evicted: u32,
    pods: [u32; 2],
    volumes: usize,
    storage: Vec<StorageWait>,
    machines: Vec<(String, String)>,
    turn: (u32, Vec<String>),
    gate: String,
}

impl ProgressMark {
    fn of(progress: &NodeDrainProgress) -> Self {
        let machines = progress.machines.iter().map(|it| (it.name.clone(), it.state.clone()));
        Self {
            id: id(progress),
            attempt: progress.attempt,
            phase: progress.phase,
            evicted: progress.evicted,
            pods: [progress.counts.gone, progress.counts.total],
            volumes: progress.volumes.len(),
            storage: progress.storage.clone(),
            machines: machines.collect(),
            turn: (progress.turn.place, progress.turn.nodes.clone()),
            gate: progress.gate.layer.clone(),
        }
    }
}

/// Remembers what was said of the drain under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announcer {
    stall_after: Duration,
    before: Option<NodeDrainProgress>,
    /// The drain whose start was said.
    started: Option<RequestId>,
    hold: Option<NoticedHold>,
    mark: Option<(ProgressMark, Mono)>,
    stalled: bool,
    /// How often our cordon was removed.
    uncordons: u32,
    pause: PauseTeller,
}

impl Announcer {
    /// `stall_after` is zero for never, and so is `pause_again`: how often it is said that a pause stays.
    pub(crate) fn new(stall_after: Duration, pause_again: Duration) -> Self {
        Self { stall_after, pause: PauseTeller::new(pause_again), ..Self::default() }
    }

    /// Whether nothing progresses at this moment.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// When time alone brings the next notice.
    pub(crate) fn due(&self) -> Option<Mono> {
        let hold = self.hold.as_ref().filter(|it| !it.said).map(|it| it.since + SETTLE);
        let limit = (!self.stalled && !self.stall_after.is_zero()).then_some(self.stall_after);
        let stall = self.mark.as_ref().zip(limit).map(|((_, since), limit)| *since + limit);
        hold.into_iter().chain(stall).chain(self.pause.due()).min()
    }

    /// What is to be said of `progress` at `now`, in its order; our cordon was removed so often since the start of zedkube.
    pub(crate) fn step(&mut self, now: Mono, progress: &NodeDrainProgress, uncordons: u32) -> Vec<Notice> {
        let mut out = Vec::new();
        let before = self.before.replace(progress.clone());
        let is_new = before.is_some();
        let id = id(progress);
        let mut say = |kind: NoticeKind, id: RequestId, subject: &str, message: String| {
            let message = cut_text(&message, MESSAGE_BYTES);
            out.push(Notice { kind, id, subject: subject.to_owned(), message, is_new });
        };
        let whom = for_whom(progress.requested_by, &progress.context);
        let phase = progress.phase;
        let entered = |wanted: &[DrainPhase]| {
            let same = |it: &NodeDrainProgress| it.phase == phase && self::id(it) == id;
            wanted.contains(&phase) && !before.as_ref().is_some_and(same)
        };
        // Right after a start of zedkube it may not be known yet who asks.
        let is_asked = !matches!(id.by, Requester::Unset | Requester::None);
        if works(phase) && is_asked && self.started != Some(id) {
            self.started = Some(id);
            say(NoticeKind::Started, id, "", format!("the drain {whom} begins"));
        }
        if phase == DrainPhase::Idle {
            self.started = None;
        }
        self.hold(now, progress);
        if let Some(hold) = self.hold.as_mut().filter(|it| !it.said && now.since(it.since) >= SETTLE) {
            hold.said = true;
            say(hold.kind, id, &hold.subject, hold_words(hold.kind, &whom, progress));
        }
        let is_complete = |it: &Answer| it.status == DrainStatus::Complete;
        let known =
            |it: &Answer| before.as_ref().and_then(|all| all.answer(it.id())).is_some_and(is_complete);
        for answer in progress.answers.iter().filter(|it| is_complete(it) && !known(it)) {
            let Some(skip) = answer.skipped() else { continue };
            let what = purpose(answer.requested_by, &answer.context);
            let forced = skip.kind == SkipKind::Forced;
            let kind = if forced { NoticeKind::Forced } else { NoticeKind::Skipped };
            say(kind, answer.id(), "", format!("{what} goes ahead without a proved drain: {}", skip.text));
        }
        let proved = progress.answer(id).is_none_or(|it| it.skipped().is_none());
        if entered(&[DrainPhase::Complete]) && proved && progress.skip.is_empty() {
            let but = progress.exceptions().map(|it| format!(", with {it}")).unwrap_or_default();
            let message = format!("drained and verified, {whom}: no pod is left to evict{but}");
            say(NoticeKind::Complete, id, "", message);
        }
        if entered(&[DrainPhase::Forced]) {
            say(NoticeKind::Forced, id, "status", with_step(&progress.reason, &progress.next_step));
        }
        if entered(&[DrainPhase::FailedCordon, DrainPhase::FailedDrain]) {
            let why = with_step(&progress.reason, &progress.next_step);
            say(NoticeKind::Failed, id, "", format!("the drain {whom} failed: {why}"));
        }
        if let Some(started) = self.started.filter(|_| entered(&[DrainPhase::Withdrawing])) {
            let text = "nobody requests this drain any more: our cordon is being removed";
            say(NoticeKind::Withdrawn, started, "", text.to_owned());
        }
        if uncordons > std::mem::replace(&mut self.uncordons, uncordons) {
            let text = "our cordon is removed: the node is schedulable";
            say(NoticeKind::Uncordoned, RequestId::default(), "", text.to_owned());
        }
        if let Some((kind, subject, message)) = self.pause.step(now, &progress.pause) {
            say(kind, RequestId::default(), &subject, message);
        }
        if self.stall(now, progress) {
            let waited = self.stall_after.as_secs() / 60;
            let why = with_step(&progress.reason, next_step(progress));
            say(NoticeKind::Stalled, id, "", format!("no progress for {waited} min: {why}"));
        }
        out
    }

    /// What holds the drain up now, since when.
    fn hold(&mut self, now: Mono, progress: &NodeDrainProgress) {
        let found = held(progress);
        let same = |it: &NoticedHold| found.as_ref().is_some_and(|now| *now == (it.kind, it.subject.clone()));
        if !self.hold.as_ref().is_some_and(same) {
            self.hold = found.map(|(kind, subject)| NoticedHold { kind, subject, since: now, said: false });
        }
    }

    /// Whether nothing has changed for so long, for the first time since something did.
    fn stall(&mut self, now: Mono, progress: &NodeDrainProgress) -> bool {
        if !may_stall(progress.phase) {
            (self.mark, self.stalled) = (None, false);
            return false;
        }
        let mark = ProgressMark::of(progress);
        let since = match &self.mark {
            Some((held, since)) if *held == mark => *since,
            Some(_) | None => {
                (self.mark, self.stalled) = (Some((mark, now)), false);
                now
            }
        };
        let is_over = !self.stall_after.is_zero() && now.since(since) >= self.stall_after;
        is_over && !std::mem::replace(&mut self.stalled, true)
    }
}

const fn id(progress: &NodeDrainProgress) -> RequestId {
    RequestId { by: progress.requested_by, at: progress.requested_at }
}

/// Its turn has come, and it is not over.
const fn works(phase: DrainPhase) -> bool {
    matches!(
        phase,
        DrainPhase::RunningHooks
            | DrainPhase::Cordoning
            | DrainPhase::MovingMachines
            | DrainPhase::Draining
            | DrainPhase::Detaching
            | DrainPhase::WaitingForStorage
            | DrainPhase::Proving
            | DrainPhase::Retrying
    )
}

/// Phases in which something should change: the others end, or wait for a time that is shown.
const fn may_stall(phase: DrainPhase) -> bool {
    works(phase) && !matches!(phase, DrainPhase::Retrying)
        || matches!(
            phase,
            DrainPhase::Checking
                | DrainPhase::WaitingForTurn
                | DrainPhase::Withdrawing
                | DrainPhase::AfterBoot
        )
}

/// What holds the drain up, and what of it.
fn held(progress: &NodeDrainProgress) -> Option<(NoticeKind, String)> {
    if matches!(progress.requested_by, Requester::Unset | Requester::None) {
        return None;
    }
    let turn = &progress.turn;
    let first = progress.blockers.first().map(|it| format!("{} {}", it.code, it.pod));
    let phase = progress.phase;
    if phase == DrainPhase::OutsideWindow {
        return Some((NoticeKind::WaitingForWindow, String::new()));
    }
    if phase == DrainPhase::WaitingForTurn && turn.rule == "preflight" {
        return Some((NoticeKind::Blocked, first.unwrap_or_else(|| "preflight".to_owned())));
    }
    // For the first turn of a cluster it is looked for some seconds whether all kubelets live: that holds nothing up.
    if phase == DrainPhase::WaitingForTurn && turn.rule != TurnRule::Reading.text() {
        return Some((NoticeKind::WaitingForTurn, turn.rule.clone()));
    }
    let blocked = works(phase) || phase == DrainPhase::Checking;
    first.filter(|_| blocked).map(|it| (NoticeKind::Blocked, it))
}

fn hold_words(kind: NoticeKind, whom: &str, progress: &NodeDrainProgress) -> String {
    if let Some(first) = progress.blockers.first().filter(|_| kind == NoticeKind::Blocked) {
        let why = with_step(&blocker_words(first), &first.next_step);
        return format!("the drain {whom} is blocked: {why}");
    }
    format!("the drain {whom} waits: {}", with_step(&progress.reason, &progress.next_step))
}

/// What a person can do: of the first blocker where the whole names nothing.
fn next_step(progress: &NodeDrainProgress) -> &str {
    let first = progress.blockers.first().map(|it| it.next_step.as_str());
    match progress.next_step.as_str() {
        "" => first.filter(|it| !it.is_empty()).unwrap_or("zedbox status"),
        step => step,
    }
}

/// A reason, and what to do about it.
fn with_step(why: &str, step: &str) -> String {
    if step.is_empty() { why.to_owned() } else { format!("{why}; {step}") }
}

/// Remembers what was said of the pause.
#[derive(Debug, Clone, Default)]
pub(crate) struct PauseTeller {
    /// Between two words on one that stays; zero for never.
    again: Duration,
    pause: OperationPause,
    said: Option<Mono>,
}

impl PauseTeller {
    pub(crate) fn new(again: Duration) -> Self {
        Self { again, ..Self::default() }
    }

    /// When time alone brings the next word.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.said.filter(|_| !self.again.is_zero()).map(|at| at + self.again)
    }

    /// What is to be said at `now`, with its subject and its sentence.
    pub(crate) fn step(&mut self, now: Mono, pause: &OperationPause) -> Option<(NoticeKind, String, String)> {
        let subject = pause.since.rfc3339();
        let what = match pause.scope {
            PauseScope::Node => "no operation starts on this node",
            PauseScope::Controller => "what the controller orders of this node waits",
        };
        let words = format!("{what}: {}; {}", pause.words(), pause.next_step());
        if self.pause != *pause {
            let ended = std::mem::replace(&mut self.pause, pause.clone());
            self.said = pause.is_set().then_some(now);
            return Some(if pause.is_set() {
                (NoticeKind::Paused, subject, words)
            } else {
                let words = format!("operations may start again: no longer {}", ended.words());
                (NoticeKind::Resumed, ended.since.rfc3339(), words)
            });
        }
        if self.due().is_none_or(|at| now < at) {
            return None;
        }
        self.said = Some(now);
        Some((NoticeKind::StillPaused, subject, format!("still {words}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_a_pause_is_said_once_and_one_that_is_forgotten_again_and_again() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let mut teller = PauseTeller::new(Duration::from_secs(100));
        let none = OperationPause::default();
        let pause = OperationPause { by: "field".into(), reason: "new disk".into(), ..none.clone() };
        let mut kinds = Vec::new();
        for (secs, pause) in [
            (0, &none),
            (1, &pause),
            (50, &pause),
            (101, &pause),
            (102, &pause),
            (250, &pause),
            (251, &none),
            (900, &none),
        ] {
            kinds.extend(
                teller.step(at(secs), pause).map(|(kind, _, words)| (secs, kind, words.contains("new disk"))),
            );
        }
        assert_eq!(
            kinds,
            [
                (1, NoticeKind::Paused, true),
                (101, NoticeKind::StillPaused, true),
                (250, NoticeKind::StillPaused, true),
                (251, NoticeKind::Resumed, true)
            ]
        );
        assert_eq!(teller.due(), None);
        let mut silent = PauseTeller::new(Duration::ZERO);
        assert!(silent.step(at(0), &pause).is_some() && silent.step(at(1_000_000), &pause).is_none());
    }
}
