//! The pods of one attempt: which leave, how far each is, whom to ask next and how, and what an answer leads to.
//!
//! Not here: one pod and the order of all (`track`), what is said and limits (`telling`), the proof and the cordon
//! (`attempt`).
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::{Inserted as _, LiteMap, Mono, say};

use super::budgets::NamespaceBudgets;
use super::storage::StorageNeeds;
use super::track::{PodIndex, PodState, PodTrack, Returns};
use super::words::{AttemptRules, CallFailure, Effect, LimitAction, limit, say_gone, say_held, say_left};
use crate::calls::remove::RemovalCall;
use crate::calls::surge::{SurgeAnswer, SurgeRule, deployment_of};
use crate::calls::volumes::ClaimName;
use crate::node::cordon::NodeFacts;
use crate::plan::budget::BudgetFacts;
use crate::plan::{PodClass, PodFacts, PodOwner, tier};
use crate::progress::BlockCode;
use kubeapi::names::PodUid;
use kubeapi::pace::Pace;
use kubeapi::reply::{RefusedBy, Reply, ReplyClass};
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
    pub(super) returns_from: Option<Mono>,
    /// Since when pods are asked to leave that an attempt of this boot had asked before.
    marks: BTreeMap<String, u64>,
    /// The claims of pods that stay here.
    pub(super) stays: LiteMap<PodUid, BTreeSet<ClaimName>>,
    pub(super) needs: StorageNeeds,
    /// Pods that a person has kept, by the end of that.
    pub(super) holds: BTreeSet<(Mono, PodUid)>,
    /// When the whole drain is over its time.
    pub(super) drain_ends: Option<Mono>,
    /// What is known of the container runtime.
    pub(super) runtime: RuntimeLooks,
    /// Since when the kubelet does not report, and what the node says of it.
    pub(super) silent: Option<(Mono, String)>,
    /// Answers to the calls, counted.
    pub(super) replies: LiteMap<&'static str, u32>,
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
            pace,
            rules,
            ..Self::default()
        }
    }

    /// Notes a change that is not one of a pod.
    pub(super) fn bump(&mut self) {
        self.turn += 1;
    }

    /// What our node says of its kubelet.
    pub(super) fn hear_kubelet(&mut self, now: Mono, node: &NodeFacts) {
        let since = self.silent.as_ref().map_or(now, |it| it.0);
        self.silent = (!node.silent.is_empty()).then(|| (since, node.silent.clone()));
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
        let leave = self.rules.sticky == LimitAction::GetPast && self.returns.is_sticky(&facts);
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
                LimitAction::GetPast => {
                    self.book.change(uid, |track| track.state = PodState::Left);
                    say_left(&pod, &why, effects);
                    return;
                }
                LimitAction::GiveUp => {
                    self.given_up.get_or_insert_with(|| format!("pod {pod} cannot leave for good: {why}"));
                }
                LimitAction::Wait => {}
            }
            self.book.change(uid, |track| {
                track.sticky = true;
                track.state = PodState::Waiting { due: now, not_before: now };
            });
            say_held(&pod, &why, effects);
            return;
        }
        let deletes = self.rules.pod.then == LimitAction::GetPast && track.may_be_deleted();
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

    /// What the storage needs now.
    pub(super) fn need(&mut self, now: Mono, needs: StorageNeeds, effects: &mut Vec<Effect>) {
        if needs == self.needs {
            return;
        }
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

/// The calls: whom to ask next and how, and what an answer leads to.
impl PodTable {
    /// The answer to the call for a pod.
    pub(super) fn answered(&mut self, now: Mono, uid: &PodUid, reply: Reply, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let PodState::Asking { way, absent } = track.state else { return };
        let count = self.replies.entry(reply.word()).or_default();
        *count = count.saturating_add(1);
        let (before, text, done) = (track.code(), reply.text().to_owned(), reply == Reply::Done);
        let pod = track.facts.pod.clone();
        let many = matches!(reply, Reply::ManyBudgets { .. });
        if done || matches!(reply, Reply::Responding { .. }) {
            self.returns.sent(&track.facts);
        }
        if done {
            let deleted_for = track.delete_reason.clone().filter(|_| way == RemovalCall::Delete);
            let (progress, id) = ("nodedrain-step:pod-evict-progress", &pod.uid);
            if let Some(why) = deleted_for {
                say!(effects, warn, "{progress} deletion accepted: {pod}, uid {id}: {why}");
                self.deleted.push(format!("{pod}: {why}"));
            } else {
                say!(effects, info, "{progress} eviction accepted: {pod}, uid {id}");
            }
        }
        self.turn += 1;
        let (pace, turn) = (&mut self.pace, self.turn);
        self.book.change(uid, |track| {
            track.answered(now, pace, reply);
            if absent {
                track.state = PodState::Gone;
            }
            track.turn = turn;
        });
        let Some(track) = self.book.get(uid) else { return };
        let code = track.code();
        match track.state {
            PodState::Gone => say_gone(&pod, effects),
            PodState::Going { .. } | PodState::Left | PodState::ObjectOnly => {}
            PodState::Waiting { .. } | PodState::Asking { .. } | PodState::Ended => {
                if matches!(code, Some(BlockCode::Budget | BlockCode::ManyBudgets)) {
                    self.held_by_budget(now, uid, many, effects);
                } else {
                    self.book.change(uid, |track| track.told = true);
                }
                if code != before {
                    say_held(&pod, &text, effects);
                }
                self.settle(now, uid, effects);
                self.withhold(uid, effects);
            }
        }
    }

    /// Takes a pod back from its responders that is not asked to leave any more.
    pub(super) fn withhold(&self, uid: &PodUid, effects: &mut Vec<Effect>) {
        let idle = |it: &&PodTrack| matches!(it.state, PodState::Waiting { .. } | PodState::Left);
        let held = |it: &&PodTrack| it.due().is_none() && it.code() == Some(BlockCode::Responder);
        let held = self.book.get(uid).filter(idle).filter(held);
        effects.extend(held.map(|it| Effect::Withdraw(it.facts.pod.clone())));
    }

    /// No responder evicts this pod: from now on it is asked as any other.
    pub(super) fn unrequested(&mut self, now: Mono, uid: &PodUid, why: &str, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let PodState::Asking { absent, .. } = track.state else { return };
        let pod = track.facts.pod.clone();
        self.turn += 1;
        let turn = self.turn;
        self.book.change(uid, |track| {
            (track.direct, track.refusal, track.turn) = (true, None, turn);
            track.freed(now, absent);
        });
        if absent {
            return say_gone(&pod, effects);
        }
        let step = "nodedrain-step:pod-evict-progress";
        say!(effects, info, "{step} evicted without its responders: {pod}, uid {uid}: {why}");
        self.settle(now, uid, effects);
    }

    /// A budget holds this pod: its numbers are wanted, and what hinders it.
    fn held_by_budget(&mut self, now: Mono, uid: &PodUid, at_once: bool, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let namespace = track.facts.pod.namespace.clone();
        if self.spaces.follow(now, &namespace) {
            effects.push(Effect::FollowBudgets(namespace.clone()));
        }
        let guards = self.spaces.guards(&track.facts);
        let shut = guards.iter().filter(|it| !it.admits(track.facts.ready));
        let full = shut.map(|it| it.name.clone()).into_set();
        let many = track.facts.has_many(&guards);
        let shared = if many { full.clone() } else { BTreeSet::new() };
        self.spaces.hold(&namespace, &full, &shared);
        let told = self.spaces.is_reportable(&namespace);
        self.book.change(uid, |track| {
            track.told = told;
            track.on_hold = many && !full.is_empty();
            if many && full.is_empty() && at_once {
                // The other way is open.
                track.hurry(now);
            }
        });
    }

    /// The budgets of a namespace as they are now. Of the pods that they hold as many are due at once as have
    /// room, when their budgets are others than before. A budget that says the same again wakes nobody, so that
    /// the server is not asked in a circle.
    pub(super) fn budgets(&mut self, now: Mono, namespace: &str, after: Vec<BudgetFacts>) {
        let before = self.spaces.set(now, namespace, after);
        let (mut taken, mut holding) = (LiteMap::<String, i32>::new(), BTreeSet::new());
        let mut shared = BTreeSet::new();
        for uid in self.book.held_in(namespace) {
            let Some(track) = self.book.get(&uid) else { continue };
            let (guards, ready) = (self.spaces.guards(&track.facts), track.facts.ready);
            let shut: Vec<&&BudgetFacts> = guards.iter().filter(|it| !it.admits(ready)).collect();
            holding.extend(shut.iter().map(|it| it.name.clone()));
            let many = track.facts.has_many(&guards);
            if many {
                shared.extend(shut.iter().map(|it| it.name.clone()));
            }
            let on_hold = many && !shut.is_empty();
            let left = |it: &BudgetFacts| it.allowed > taken.get(&it.name).copied().unwrap_or(0);
            let room = guards.iter().all(|it| it.passes(ready) || left(it));
            let changed = before.as_ref().is_none_or(|before| before.guards(&track.facts.labels) != guards);
            let hurry = changed && room && matches!(track.state, PodState::Waiting { .. });
            if hurry {
                for budget in guards.iter().filter(|it| !it.passes(ready)) {
                    *taken.entry(budget.name.clone()).or_default() += 1;
                }
            }
            if hurry || on_hold != track.on_hold {
                self.book.change(&uid, |track| {
                    track.on_hold = on_hold && track.delete_reason.is_none();
                    if hurry {
                        track.hurry(now);
                    }
                });
            }
        }
        self.spaces.hold_only(namespace, &holding, &shared);
    }

    /// A pod whose readiness or phase is another one: budgets that let it pass now hold it no longer.
    pub(super) fn reweigh(&mut self, now: Mono, uid: &PodUid) {
        let Some(track) = self.book.get(uid) else { return };
        let guards = self.spaces.guards(&track.facts);
        let shut = guards.iter().any(|it| !it.admits(track.facts.ready));
        if track.on_hold && !(shut && track.facts.has_many(&guards)) {
            self.book.change(uid, |track| {
                track.on_hold = false;
                track.hurry(now);
            });
        }
    }

    /// By which call the pod is to be asked now; `None` when it has to wait for its budgets.
    fn way(&self, track: &PodTrack) -> Option<RemovalCall> {
        // A launcher that is deleted takes its guest with it, past KubeVirt's refusal.
        if tier::is_machine(&track.facts.labels) && !track.facts.finished {
            return Some(RemovalCall::Evict);
        }
        if track.delete_reason.is_some() {
            return Some(RemovalCall::Delete);
        }
        if self.rules.eviction_requests && track.has_responders() {
            return Some(RemovalCall::Request);
        }
        let guards = self.spaces.guards(&track.facts);
        if !track.facts.has_many(&guards) {
            return Some(RemovalCall::Evict);
        }
        guards.iter().all(|budget| budget.admits(track.facts.ready)).then_some(RemovalCall::Remove)
    }

    /// Starts calls, as many as may be under way.
    pub(super) fn ask_due(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        loop {
            let free = self.rules.at_once.saturating_sub(self.book.asking);
            if free == 0 {
                return;
            }
            let may = |track: &PodTrack| {
                self.way(track) != Some(RemovalCall::Remove)
                    || !self.book.removing.contains(&track.facts.pod.namespace)
            };
            let mut asked = false;
            for uid in self.book.ripe(now, free, may) {
                asked |= self.ask(now, &uid, effects);
            }
            if !asked {
                return;
            }
        }
    }

    /// Asks this pod to leave. Whether anything has come of it.
    fn ask(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) -> bool {
        let Some(track) = self.book.get(uid) else { return false };
        if self.wants_copy(track) {
            let (limit, pod) = (self.rules.surge_limit, track.facts.clone());
            let over = track.asked.filter(|asked| *asked + limit <= now).map(|_| limit);
            effects.push(Effect::Surge { pod, over });
            self.asking(now, uid, RemovalCall::Evict);
            return true;
        }
        let (pod, before) = (track.facts.pod.clone(), track.code());
        let Some(way) = self.way(track) else {
            let text = "more than one disruption budget guards it".to_owned();
            self.book.change(uid, |track| {
                track.asked.get_or_insert(now);
                track.refused(
                    now,
                    Reply::ManyBudgets { text: text.clone() },
                    BlockCode::ManyBudgets,
                    RemovalCall::Remove,
                );
            });
            self.held_by_budget(now, uid, false, effects);
            if before != Some(BlockCode::ManyBudgets) {
                say_held(&pod, &text, effects);
            }
            return true;
        };
        if way == RemovalCall::Remove && self.book.removing.contains(&pod.namespace) {
            return false;
        }
        effects.push(Effect::Ask(way, track.facts.guarded()));
        self.asking(now, uid, way);
        true
    }

    /// Its call is under way. The time of the pod's own limit begins with the first one.
    fn asking(&mut self, now: Mono, uid: &PodUid, way: RemovalCall) {
        self.book.change(uid, |track| {
            track.asked.get_or_insert(now);
            track.state = PodState::Asking { way, absent: false };
        });
    }

    /// Tells refusals whose numbers are known by now, and looks at what hinders budgets.
    pub(super) fn inspect(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.spaces.inspect(now, effects);
        for namespace in self.spaces.release_refusals(now) {
            for uid in self.book.held_in(&namespace) {
                self.book.change(&uid, |track| track.told = true);
            }
        }
    }
}

/// Between two looks at how far a second copy is. Its controller ends the pod without one.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Giving it up is tried so often before the pod is evicted all the same.
const GIVE_UPS: u32 = 5;
const RIGHT: &str = "the role pillar-rs-surge allows it: `zedbox role --with surge | kubectl apply -f -`";

/// A second copy elsewhere before the only Ready pods of a Deployment are evicted: when it is asked for, waited for, and
/// given up.
impl PodTable {
    /// Whether something is to be asked about a second copy before the pod is.
    fn wants_copy(&self, track: &PodTrack) -> bool {
        matches!(track.copy, None | Some(SurgeAnswer::UnderWay(_)))
            && self.rules.surge != SurgeRule::Never
            && track.delete_reason.is_none()
            && !track.facts.finished
            && deployment_of(&track.facts).is_some()
            // It is about to be deleted whatever is in the way.
            && !(track.over && self.rules.pod.then == LimitAction::GetPast)
    }

    pub(super) fn copy_answered(
        &mut self,
        now: Mono,
        uid: &PodUid,
        answer: Result<SurgeAnswer, CallFailure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(track) = self.book.get(uid) else { return };
        let PodState::Asking { absent, .. } = track.state else { return };
        let pod = track.facts.pod.clone();
        self.turn += 1;
        let (turn, limit, pace) = (self.turn, self.rules.surge_limit, &mut self.pace);
        let without = self.book.change(uid, |track| {
            track.turn = turn;
            if !track.freed(now, absent) {
                return None;
            }
            let is_last = track.tries + 1 >= GIVE_UPS && track.asked.is_some_and(|at| at + limit <= now);
            let copy = match answer.map_err(|it| (it.reply.class(), it)) {
                Ok(answer) => answer,
                Err((ReplyClass::Done, _)) => SurgeAnswer::NotNeeded,
                Err((ReplyClass::Budget | ReplyClass::Throttle | ReplyClass::Transient, it)) if !is_last => {
                    track.told = true;
                    track.answered(now, pace, it.reply);
                    return None;
                }
                Err((_, it)) => SurgeAnswer::Without(why_failed(track, &it)),
            };
            if let SurgeAnswer::UnderWay(_) = copy {
                let due = (track.asked.unwrap_or(now) + limit).min(now + LOOK_AGAIN);
                track.state = PodState::Waiting { due, not_before: now };
            }
            (track.copy, track.refusal, track.tries) = (Some(copy.clone()), None, 0);
            if let SurgeAnswer::Without(why) = copy { Some(why) } else { None }
        });
        if absent {
            return say_gone(&pod, effects);
        }
        if let Some(why) = without.flatten() {
            say_held(&pod, &format!("evicted without a second copy elsewhere: {why}"), effects);
        }
        self.settle(now, uid, effects);
    }
}

/// Why there is none when a call has failed for good, and what becomes of one that was asked for.
fn why_failed(track: &PodTrack, failure: &CallFailure) -> String {
    let by_role = matches!(failure.reply, Reply::Permanent { by: RefusedBy::Role, .. });
    let next = if by_role { RIGHT } else { &failure.next_step };
    let is_asked = matches!(track.copy, Some(SurgeAnswer::UnderWay(_)));
    let stays = "; what was asked for is withdrawn once the node is schedulable again";
    format!("{}; {next}{}", failure.text, if is_asked { stays } else { "" })
}
