//! The pods of one attempt: which leave, and how far each is.
//!
//! Not here: the calls (`calls`), what is said and limits (`telling`), the proof and the cordon (`attempt`).
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::{Inserted as _, Mono, say};

use super::index::NamespaceBudgets;
use super::index::PodIndex;
use super::storage::StorageNeeds;
use super::track::Returns;
use super::track::{PodState, PodTrack, SLACK};
use super::words::{AttemptRules, Effect, PodAction, StickyAction, limit, say_gone, say_held, say_left};
use crate::calls::volumes::ClaimName;
use crate::node::cordon::NodeFacts;
use crate::plan::{PodClass, PodFacts, PodOwner, tier};
use kubeapi::names::PodUid;
use kubeapi::pace::Pace;
use topics::{DrainMarks, number};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodSource {
    /// By a watch, which may lag behind our own calls.
    Watch,
    /// In a list read from the store that was asked for in this turn.
    Store(u64),
}

/// All pods that leave or have left.
#[derive(Debug, Default)]
pub(super) struct PodTable {
    pub(super) rules: AttemptRules,
    pub(super) book: PodIndex,
    pub(super) spaces: NamespaceBudgets,
    pub(super) returns: Returns,
    /// From then on a pod that comes is a return; `None` while the scheduler may place any pod here.
    returns_from: Option<Mono>,
    /// Since when pods are asked to leave that an attempt of this boot had asked before.
    marks: BTreeMap<String, u64>,
    /// The claims of pods that stay here.
    pub(super) stays: BTreeMap<PodUid, BTreeSet<ClaimName>>,
    pub(super) needs: StorageNeeds,
    /// Pods that a person has kept, by the end of that.
    pub(super) holds: BTreeSet<(Mono, PodUid)>,
    /// When the whole drain is over its time.
    drain_ends: Option<Mono>,
    /// What is known of the container runtime.
    pub(super) runtime: RuntimeLooks,
    /// Since when nobody reports for the kubelet, and what the node says of it.
    pub(super) silent: Option<(Mono, String)>,
    /// Answers to the calls, counted.
    pub(super) replies: BTreeMap<&'static str, u32>,
    /// Deployments that were asked for a second copy, as `shop/web`.
    pub(super) surged: BTreeSet<String>,
    /// Pods that a rule has had deleted.
    pub(super) deleted: Vec<String>,
    /// When the attempt is given up, or the whole drain, and by which limit.
    pub(super) given_up_at: (Mono, String),
    /// Why the attempt fails on a workload that comes back, or a pod that is over its limit.
    pub(super) given_up: Option<String>,
    /// A list of the watch lacks a pod and may be older than the one that has shown it: a fresh one is needed.
    pub(super) unsure: bool,
    /// Rises with each change. A list does not speak about what changed after it was asked for.
    pub(super) turn: u64,
    pub(super) pace: Pace,
}

impl PodTable {
    pub(super) fn new(rules: AttemptRules, marks: &DrainMarks, now: Mono, pace: Pace) -> Self {
        Self {
            book: PodIndex::owing(
                marks
                    .claims
                    .iter()
                    .filter_map(|it| it.split_once('/'))
                    .map(|(space, name)| (space.to_owned(), name.to_owned()))
                    .into_set(),
            ),
            given_up_at: given_up_at(&rules, marks, now),
            drain_ends: Mono::of_ms(marks.drain_ms).zip(rules.drain).map(|(since, it)| since.min(now) + it),
            returns: Returns::new(marks.returns.clone()),
            returns_from: Some(now),
            marks: marks.pods_ms.clone(),
            surged: marks.surged.clone(),
            pace,
            rules,
            ..Self::default()
        }
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    /// Notes a change that is not one of a pod.
    pub(super) fn bump(&mut self) {
        self.turn += 1;
    }

    /// Whether a pod is still to be waited for.
    pub(super) fn is_active(&self) -> bool {
        self.book.is_active()
    }

    /// What our node says of its kubelet.
    pub(super) fn hear_kubelet(&mut self, now: Mono, node: &NodeFacts) {
        let since = self.silent.as_ref().map_or(now, |it| it.0);
        self.silent = (!node.silent.is_empty()).then(|| (since, node.silent.clone()));
    }

    /// From when on a pod that comes is a return; `None` while the node is open for any.
    pub(super) fn count_returns(&mut self, from: Option<Mono>) {
        self.returns_from = from;
    }

    /// Whether pods that come count as returns now or soon.
    pub(super) fn counts_returns(&self) -> bool {
        self.returns_from.is_some()
    }

    /// One pod as it is now.
    pub(super) fn see(
        &mut self,
        now: Mono,
        mut facts: PodFacts,
        source: PodSource,
        effects: &mut Vec<Effect>,
    ) {
        let uid = facts.pod.uid.clone();
        if source == PodSource::Watch && self.book.get(&uid).is_some_and(|it| !it.watched) {
            self.book.change(&uid, |track| track.watched = true);
        }
        let Some(track) = self.book.get(&uid) else { return self.meet(now, facts, source, effects) };
        match source {
            PodSource::Store(turn) if track.turn > turn => return,
            // A list found out that the DaemonSet is gone; a watch does not look.
            PodSource::Watch if track.facts.owner == PodOwner::VanishedDaemonSet => {
                facts.owner = track.facts.owner;
            }
            PodSource::Store(_) | PodSource::Watch => {}
        }
        if matches!(facts.class(), PodClass::Keep(_)) {
            self.turn += 1;
            self.book.remove(&uid);
            self.stay(facts);
            return;
        }
        if track.state == PodState::Left && !facts.terminating {
            return;
        }
        let other = (track.facts.ready, track.facts.pending) != (facts.ready, facts.pending);
        let text = |it: &PodFacts| it.hold.as_ref().map(|it| it.text.clone());
        let hold = text(&track.facts) != text(&facts) || track.facts.finished != facts.finished;
        let (pace, turn) = (&mut self.pace, self.turn + 1);
        let changed = self.book.change(&uid, |track| {
            let before = track.state.clone();
            let terminating = facts.terminating;
            track.facts = facts;
            match (&before, source) {
                (PodState::Asking { way, .. }, _) => {
                    track.state = PodState::Asking { way: *way, absent: false }
                }
                (PodState::ObjectOnly, _) if terminating => {}
                (_, _) if terminating => track.going(now),
                // Only a list withdraws an end that the server has accepted.
                (PodState::Waiting { .. } | PodState::Ended | PodState::Left, _)
                | (PodState::Going { .. }, PodSource::Watch) => {}
                (PodState::Gone, PodSource::Watch) if track.accepted.is_some() => track.going(now),
                (
                    PodState::Going { .. } | PodState::Gone | PodState::ObjectOnly,
                    PodSource::Watch | PodSource::Store(_),
                ) => {
                    track.delete_reason = None;
                    track.again(now, pace, None);
                }
            }
            let changed = track.state != before;
            if changed {
                track.turn = turn;
            }
            changed
        });
        if changed == Some(true) {
            self.turn = turn;
            self.settle(now, &uid, effects);
        }
        if other {
            self.reweigh(now, &uid);
        }
        if hold {
            self.hold(now, &uid, effects);
        }
    }

    /// Keeps a pod as long as its annotation says, from how far ahead that was when it was read; the limits of a pod and of
    /// the whole drain leave it the time to end.
    fn hold(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let facts = &track.facts;
        if let Some(why) = facts.hold_refused() {
            say!(effects, warn, "{why}");
        }
        let since = track.held.map_or(now, |it| it.0);
        let ahead = facts.hold.as_ref().and_then(|it| it.ahead.ok());
        let ahead = ahead.filter(|_| !facts.finished && !tier::is_machine(&facts.labels));
        let late =
            self.drain_ends.map(|at| Mono::from_start(at.since_start().saturating_sub(facts.grace + SLACK)));
        let ends = [ahead.map(|it| now + it), self.rules.pod.after.map(|it| since + it), late];
        let ends = ends.into_iter().flatten().min().filter(|at| ahead.is_some() && *at > now);
        self.holds.retain(|it| it.1 != *uid);
        self.holds.extend(ends.map(|at| (at, uid.clone())));
        self.book.change(uid, |track| track.held = ends.map(|at| (since, at)));
    }

    /// Ends the holds that are over.
    pub(super) fn end_holds(&mut self, now: Mono) {
        while let Some((_, uid)) = self.holds.first().filter(|(at, _)| *at <= now).cloned() {
            self.holds.pop_first();
            self.book.change(&uid, |track| track.held = None);
        }
    }

    /// A pod that was not known before.
    fn meet(&mut self, now: Mono, facts: PodFacts, source: PodSource, effects: &mut Vec<Effect>) {
        match facts.class() {
            PodClass::Keep(_) => return self.stay(facts),
            PodClass::Leave | PodClass::Await => {}
        }
        let uid = facts.pod.uid.clone();
        self.stays.remove(&uid);
        let counts = self.returns_from.is_some_and(|from| from <= now);
        let turned = counts && self.returns.came(&facts);
        let leave = self.rules.sticky == StickyAction::Leave && self.returns.is_sticky(&facts);
        if !leave || facts.terminating {
            self.turn += 1;
        }
        let mut track = PodTrack::new(facts, now, self.turn);
        track.watched = source == PodSource::Watch;
        track.kept = self.needs.keeps(&track.facts).then_some(now);
        if let Some(mark) = self.marks.get(uid.as_str()) {
            track.asked = Some(Mono::of_ms(*mark).unwrap_or_default().min(now));
        }
        self.book.insert(track);
        self.hold(now, &uid, effects);
        self.settle(now, &uid, effects);
        if turned {
            let siblings = self.book.all().filter(|(_, track)| self.returns.is_sticky(&track.facts));
            let siblings: Vec<PodUid> = siblings.map(|(uid, _)| uid.clone()).collect();
            for uid in siblings {
                self.settle(now, &uid, effects);
                self.withhold(&uid, effects);
            }
        }
    }

    /// A pod that a drain does not touch: its volumes stay attached.
    fn stay(&mut self, facts: PodFacts) {
        if facts.claims.is_empty() {
            return;
        }
        let claims = facts.claims.into_iter().map(|claim| (facts.pod.namespace.clone(), claim));
        self.stays.insert(facts.pod.uid.clone(), claims.collect());
    }

    /// Applies to a pod the rules for workloads that come back, and for limits that are over.
    pub(super) fn settle(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let idle = matches!(track.state, PodState::Waiting { .. } | PodState::Ended);
        if let Some(why) = self.needs.stays(&track.facts).filter(|_| idle && track.is_held_by_budget()) {
            say_left(&track.facts.pod, why, effects);
            self.book.change(uid, |track| track.state = PodState::Left);
            return;
        }
        if self.returns.is_sticky(&track.facts) {
            if !idle || track.sticky {
                return;
            }
            let (pod, why) = (track.facts.pod.clone(), self.why_sticky(track));
            match self.rules.sticky {
                StickyAction::Leave => {
                    self.book.change(uid, |track| track.state = PodState::Left);
                    say_left(&pod, &why, effects);
                    return;
                }
                StickyAction::GiveUp => {
                    self.given_up.get_or_insert_with(|| format!("pod {pod} cannot leave for good: {why}"));
                }
                StickyAction::Wait => {}
            }
            self.book.change(uid, |track| {
                track.sticky = true;
                track.state = PodState::Waiting { due: now, not_before: now };
            });
            say_held(&pod, &why, effects);
            return;
        }
        let deletes = self.rules.pod.then == PodAction::Delete && track.may_be_deleted();
        if !track.over || !deletes || !track.is_here() {
            return;
        }
        let limit = limit(self.rules.pod.after.unwrap_or_default(), "a pod");
        let why = format!("deleted whatever its budgets say: over the limit {limit}");
        self.book.change(uid, |track| track.delete_by_rule(now, why));
    }

    /// Whether a pod that uses this claim is not asked as the storage needs it.
    pub(super) fn stays_for(&self, (namespace, name): &ClaimName) -> bool {
        self.book.all().any(|(_, it)| {
            it.kept.is_some() && it.facts.pod.namespace == *namespace && it.facts.claims.contains(name)
        })
    }

    /// What the storage needs, where it may have changed.
    pub(super) fn need(&mut self, now: Mono, needs: Option<StorageNeeds>, effects: &mut Vec<Effect>) {
        let Some(needs) = needs.filter(|needs| *needs != self.needs) else { return };
        let before = std::mem::replace(&mut self.needs, needs);
        let other = |track: &PodTrack| before.stays(&track.facts) != self.needs.stays(&track.facts);
        let other = self.book.all().filter(|(_, track)| other(track));
        let other: Vec<PodUid> = other.map(|(uid, _)| uid.clone()).collect();
        for uid in other {
            self.book.change(&uid, |track| {
                if track.state == PodState::Left {
                    // It passes no longer.
                    track.state = PodState::Waiting { due: now, not_before: now };
                }
            });
            self.settle(now, &uid, effects);
        }
        let kept = |track: &PodTrack| track.is_here() && self.needs.keeps(&track.facts);
        let changed = self.book.all().filter(|(_, track)| track.kept.is_some() != kept(track));
        let changed: Vec<PodUid> = changed.map(|(uid, _)| uid.clone()).collect();
        for uid in changed {
            self.book.change(&uid, |track| {
                track.kept = if track.kept.is_some() { None } else { Some(now) };
            });
            self.withhold(&uid, effects);
        }
    }

    /// Why it is left in place.
    pub(super) fn why_left(&self, track: &PodTrack) -> String {
        self.needs.stays(&track.facts).cloned().unwrap_or_else(|| self.why_sticky(track))
    }

    pub(super) fn why_sticky(&self, track: &PodTrack) -> String {
        let count = self.returns.count(&track.facts);
        format!("its {} has come back to this node {}", track.facts.workload, number(count, "time"))
    }

    /// All pods that are there: those that were there before and are not among them are gone.
    pub(super) fn see_all(
        &mut self,
        now: Mono,
        pods: Vec<PodFacts>,
        source: PodSource,
        effects: &mut Vec<Effect>,
    ) {
        let speaks_of = |track: &PodTrack| match source {
            PodSource::Watch => track.watched,
            PodSource::Store(turn) => track.turn <= turn,
        };
        let there: BTreeSet<&PodUid> = pods.iter().map(|facts| &facts.pod.uid).into_set();
        let lacks =
            |(uid, track): (&PodUid, &PodTrack)| track.is_here() && !speaks_of(track) && !there.contains(uid);
        self.unsure = source == PodSource::Watch && self.book.all().any(lacks);
        let absent = |uid: &PodUid, track: &PodTrack| {
            track.state != PodState::Gone && speaks_of(track) && !there.contains(uid)
        };
        let absent: Vec<PodUid> =
            self.book.all().filter(|(uid, track)| absent(uid, track)).map(|(uid, _)| uid.clone()).collect();
        self.stays.retain(|uid, _| there.contains(uid));
        for uid in absent {
            self.gone(&uid, effects);
        }
        for facts in pods {
            self.see(now, facts, source, effects);
        }
    }

    pub(super) fn gone(&mut self, uid: &PodUid, effects: &mut Vec<Effect>) {
        self.stays.remove(uid);
        let Some(track) = self.book.get(uid) else { return };
        let pod = track.facts.pod.clone();
        let state = match track.state {
            PodState::Gone => return,
            PodState::Left => return self.book.remove(uid),
            PodState::Asking { way, .. } => PodState::Asking { way, absent: true },
            PodState::Waiting { .. } | PodState::Going { .. } | PodState::Ended | PodState::ObjectOnly => {
                PodState::Gone
            }
        };
        if state == PodState::Gone {
            say_gone(&pod, effects);
        }
        self.turn += 1;
        let turn = self.turn;
        self.book.change(uid, |track| (track.state, track.turn) = (state, turn));
    }
}

/// When the attempt is given up, or the whole drain, whichever is first, and the limit in words.
fn given_up_at(rules: &AttemptRules, marks: &DrainMarks, now: Mono) -> (Mono, String) {
    let began = Mono::of_ms(marks.attempt_ms).map_or(now, |mark| mark.min(now));
    let attempt = (began + rules.attempt, limit(rules.attempt, "an attempt"));
    let drain = Mono::of_ms(marks.drain_ms).zip(rules.drain);
    let drain = drain.map(|(since, after)| (since.min(now) + after, limit(after, "the whole drain")));
    drain.filter(|(at, _)| *at <= attempt.0).unwrap_or(attempt)
}

/// From one answer of the container runtime to the next question.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The same after an answer that says nothing.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the container runtime.
#[derive(Debug, Default)]
pub(super) struct RuntimeLooks {
    asking: bool,
    from: Option<Mono>,
    /// Why its last answer says nothing; empty when it does, and before the first one.
    pub(super) trouble: String,
}

impl RuntimeLooks {
    /// When to ask, where the first pod is overdue at `overdue`.
    pub(super) fn due(&self, overdue: Option<Mono>) -> Option<Mono> {
        let at = overdue.filter(|_| !self.asking)?;
        Some(self.from.map_or(at, |from| from.max(at)))
    }

    pub(super) fn ask(&mut self, now: Mono, overdue: Option<Mono>, effects: &mut Vec<Effect>) {
        if self.due(overdue).is_some_and(|at| at <= now) {
            self.asking = true;
            effects.push(Effect::AskRuntime);
        }
    }

    pub(super) fn answered(&mut self, now: Mono, trouble: Option<&String>) {
        self.asking = false;
        self.from = Some(now + if trouble.is_some() { TRY_AGAIN } else { ASK_AGAIN });
        self.trouble = trouble.cloned().unwrap_or_default();
    }
}
