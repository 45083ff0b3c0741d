//! One attempt: evict until nothing is left, keep the node cordoned, prove it, or say why not.
//!
//! Not here: the way of a single pod (`pod_table`, `track`), making calls, counting attempts (zedkube). Pure: no
//! clock, no I/O, no task.

use std::time::Duration;

use step::{Core, Inserted as _, Mono, SmallSort as _, say};

use super::machines::MachineTable;
use super::pod_table::{PodSource, PodTable};
use super::storage::Detaching;
use super::storage::LastCopyGuard;
use super::words::{AttemptFailure, AttemptOutcome, AttemptRules, CallFailure, DrainSuccess, Effect, Event};
use crate::calls::volumes::ClaimName;
use crate::changes::machines::WatchedMachines;
use crate::changes::watched::{NodeMark, PermanentRefusal, RefusedCall, WatchedBlockers};
use crate::machines::rules::DrainIdentity;
use crate::node::cordon::NodeFacts;
use crate::plan::PodFacts;
use crate::progress::Progress;
use crate::storage::{StorageView, VolumesBefore};
use kubeapi::names::{PodUid, listed};
use kubeapi::pace::Pace;
use kubeapi::reply::{Reply, ReplyClass};
use topics::{Blocker, DrainMarks, DrainPhase, PodCounts};

/// How long after its last look the engine looks again while a pod is overdue: the safety net under the watch.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Least time between two cordons, should somebody undo each of ours at once (it is back within 5 s).
const CORDON_AGAIN: Duration = Duration::from_secs(2);
/// How long after a cordon pods may still come that were placed before it, and are no return.
const PLACED_BEFORE: Duration = Duration::from_secs(5);

/// A call of which there is at most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CallState {
    #[default]
    Idle,
    Due(Mono),
    Flying,
}

impl CallState {
    fn due(self) -> Option<Mono> {
        match self {
            Self::Due(at) => Some(at),
            Self::Idle | Self::Flying => None,
        }
    }

    fn is_due(self, now: Mono) -> bool {
        self.due().is_some_and(|at| at <= now)
    }
}

/// One attempt to empty a node. The first tick asks for the first list.
#[derive(Debug, Default)]
pub struct Engine {
    rules: AttemptRules,
    pace: Pace,
    started: Mono,
    /// As in the marks: when the drain began, where that is known.
    drain_ms: u64,
    /// When it last heard an event.
    now: Mono,
    /// When this run of it began; `started` may be before a restart.
    began: Mono,
    roster: PodTable,
    machines: MachineTable,
    volumes: Detaching,
    guard: LastCopyGuard,
    /// Our node when it was last seen.
    node: Option<NodeMark>,
    node_gone: Option<CallFailure>,
    /// The pods of the node have been read.
    listed: bool,
    look: CallState,
    /// Looks in a row that failed.
    look_tries: u32,
    /// When the last look was answered.
    looked_at: Mono,
    /// When the first list of the proof was answered, as long as nothing has spoilt it.
    empty_since: Option<Mono>,
    cordon: CallState,
    /// Cordons in a row that failed.
    cordon_tries: u32,
    cordon_from: Mono,
    /// Cordons that had to be written.
    recordons: u32,
    trouble: Option<CallFailure>,
    /// The look or the cordon that the server refused for good.
    refused: Option<PermanentRefusal>,
    /// Counts and phase at the last change of them, and when the attempt was to be done by then.
    estimated: (PodCounts, DrainPhase, Option<Mono>),
    over: Option<AttemptOutcome>,
}

impl Engine {
    /// An attempt of `drain` that starts `now`, or goes on from `marks`. `seed` is for jitter.
    pub fn new(
        drain: DrainIdentity,
        mut rules: AttemptRules,
        marks: &DrainMarks,
        now: Mono,
        seed: u64,
    ) -> Self {
        rules.at_once = rules.at_once.max(1);
        Self {
            pace: Pace::new(seed),
            started: Mono::of_ms(marks.attempt_ms).map_or(now, |mark| mark.min(now)),
            drain_ms: marks.drain_ms,
            now,
            began: now,
            roster: PodTable::new(rules.clone(), marks, now, Pace::new(!seed)),
            machines: MachineTable::new(drain, seed ^ 1),
            volumes: Detaching::new(Mono::of_ms(marks.volumes_ms)),
            guard: LastCopyGuard::new(&rules, marks),
            rules,
            look: CallState::Due(now),
            looked_at: now,
            cordon_from: now,
            ..Self::default()
        }
    }

    fn phase(&self) -> DrainPhase {
        let stored = self.roster.book.only_kept() && self.guard.is_waited_for() && self.listed;
        match self.empty_since {
            _ if self.machines.is_active() => DrainPhase::MovingMachines,
            Some(_) => DrainPhase::Proving,
            None if !self.roster.book.is_active() && !self.volumes.is_over() => DrainPhase::Detaching,
            None if stored => DrainPhase::WaitingForStorage,
            None => DrainPhase::Draining,
        }
    }

    pub fn progress(&self, now: Mono) -> Progress {
        let trouble = self.node_gone.as_ref().or(self.machines.trouble.as_ref()).or(self.trouble.as_ref());
        let trouble = trouble.or(self.guard.trouble.as_ref());
        Progress {
            phase: self.phase(),
            tier: self.roster.book.open_tier(),
            counts: self.roster.book.counts,
            machines: self.machines.shown(),
            blockers: self.blockers(now),
            volumes: self.volumes.waited_for(),
            storage: self.guard.waits(),
            left: self.left(),
            estimate: self.estimate(now),
            marks: self.marks(now),
            evicted: self.evicted(),
            replies: self.roster.replies.clone(),
            recordons: self.recordons,
            trouble: trouble.map(|it| it.text.clone()).unwrap_or_default(),
            trouble_step: trouble.map(|it| it.next_step.clone()).unwrap_or_default(),
            runtime: self.roster.runtime_trouble(now),
        }
    }

    /// When it is expected to be done; not while its kubelet ends no pod, nor once that time is over.
    fn estimate(&self, now: Mono) -> Option<Mono> {
        if self.machines.is_active() {
            return self.machines.estimate;
        }
        let stuck = self.roster.silent.is_some() && self.roster.book.counts.going > 0;
        self.estimated.2.filter(|at| *at > now && !stuck)
    }

    /// Volumes with a copy here as they were seen last, as a record for the time after the outage.
    pub fn volumes_before(&self) -> Option<VolumesBefore> {
        VolumesBefore::of(&self.guard.look()?.findings)
    }

    fn blockers(&self, now: Mono) -> Vec<Blocker> {
        if self.node_gone.is_some() {
            // Nothing else is worth a person's time before it is back.
            return Vec::new();
        }
        if self.machines.is_active() {
            return self.machines.blockers();
        }
        let mut all = self.roster.blockers(now);
        all.extend(self.guard.blockers());
        all
    }

    fn marks(&self, now: Mono) -> DrainMarks {
        DrainMarks {
            attempt_ms: self.started.as_ms(),
            drain_ms: self.drain_ms,
            volumes_ms: self.volumes.since().map_or(0, Mono::as_ms),
            storage_ms: self.guard.since.map_or(0, Mono::as_ms),
            ..self.roster.marks(now)
        }
    }

    fn left(&self) -> Vec<String> {
        let mut left = self.roster.left();
        left.extend(self.volumes.left());
        left.extend(self.guard.left());
        left.extend(self.machines.left());
        left.order();
        left.dedup();
        left
    }

    fn evicted(&self) -> u32 {
        self.roster.book.evicted + self.machines.evicted
    }

    /// Whether a machine or a pod is still to be waited for.
    fn is_active(&self) -> bool {
        self.machines.is_active() || self.roster.book.is_active()
    }

    /// The answer to the look of `turn`.
    fn looked(
        &mut self,
        now: Mono,
        turn: u64,
        seen: Result<(Vec<PodFacts>, NodeFacts, Option<StorageView>), CallFailure>,
        effects: &mut Vec<Effect>,
    ) {
        self.look = CallState::Idle;
        self.looked_at = now;
        let (pods, node, storage) = match seen {
            Ok(seen) => seen,
            Err(failure) => return self.call_failed(now, RefusedCall::Look, failure),
        };
        self.look_tries = 0;
        self.trouble = None;
        self.listed = true;
        let undisturbed = self.roster.turn == turn;
        self.roster.see_all(now, pods, PodSource::Store(turn), effects);
        self.node(now, &node, effects);
        // One that was asked for before the storage was known proves nothing.
        let guarded = storage.is_some() || !self.guard.is_there();
        if storage.is_some() {
            self.guard.take_view(Ok(storage));
        }
        self.follow_volumes(now, effects);
        let empty = !self.is_active() && self.volumes.is_over() && node.unschedulable;
        if !undisturbed || !empty || self.guard.holds() {
            self.empty_since = None;
            return;
        }
        if !self.guard.is_clear() {
            // Nothing is known of the storage yet: the next list proves it.
            self.empty_since.get_or_insert(now);
            return;
        }
        match self.empty_since {
            Some(first) if guarded && now.since(first) >= self.rules.proof_gap => {
                self.over = Some(Ok(DrainSuccess {
                    took: now.since(self.started),
                    evicted: self.evicted(),
                    recordons: self.recordons,
                    left: self.left(),
                }));
            }
            first => {
                let first = *self.empty_since.insert(first.unwrap_or(now));
                self.look = CallState::Due(now.max(first + self.rules.proof_gap));
            }
        }
    }

    /// A look or a cordon of ours has failed.
    fn call_failed(&mut self, now: Mono, call: RefusedCall, failure: CallFailure) {
        self.empty_since = None;
        let (reply, reason) = (failure.reply.clone(), failure.text.clone());
        self.trouble = Some(failure);
        if matches!(reply.class(), ReplyClass::Permanent | ReplyClass::Done) {
            // The node is not there, or the lists are not for us: nothing here can fix it.
            if let Reply::Permanent { by, .. } = reply {
                self.refused = Some(PermanentRefusal { call, by });
            }
            return self.fail(now, reason);
        }
        // Between two cordons at most 4 s, so that it is back within 5 s once it can be.
        let (state, tries, longest) = if call == RefusedCall::Cordon {
            (&mut self.cordon, &mut self.cordon_tries, 3)
        } else {
            (&mut self.look, &mut self.look_tries, u32::MAX)
        };
        *tries = tries.saturating_add(1);
        *state = CallState::Due(now + self.pace.pause((*tries).min(longest), reply.retry_after()));
    }

    /// The calls that the server refused for good.
    fn refused_calls(&mut self) -> Vec<PermanentRefusal> {
        let machines =
            self.machines.refused_by().map(|by| PermanentRefusal { call: RefusedCall::Machines, by });
        self.refused.take().into_iter().chain(machines).chain(self.roster.refused_calls()).collect()
    }

    fn fail(&mut self, now: Mono, reason: String) {
        if self.over.is_some() {
            return;
        }
        let volumes = self.volumes.attached().map(|it| (it.name.clone(), it.to_string())).into_map();
        let watched = WatchedBlockers {
            budgets: self.roster.spaces.known(),
            node: self.node,
            volumes,
            machines: WatchedMachines::new(self.rules.machines, self.machines.fates()),
            refused: self.refused_calls(),
            ..self.guard.watched()
        };
        let blockers = self.blockers(now);
        let watched = watched.with_pods(
            blockers.iter().filter_map(|it| Some(&self.roster.book.get(&PodUid::new(&*it.uid))?.facts)),
        );
        self.over = Some(Err(Box::new(AttemptFailure { reason, blockers, watched, marks: self.marks(now) })));
    }

    /// Waits for volumes when no pod is left, and not before.
    fn follow_volumes(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.is_active() {
            self.volumes.pause();
        } else {
            self.volumes.wait(now, self.roster.owed(), effects);
        }
        let alone = if self.machines.is_active() {
            self.machines.only_kept()
        } else {
            self.roster.book.only_kept() && (self.roster.book.is_active() || self.volumes.is_over())
        };
        let stays = |claim: &ClaimName| self.machines.stays_for(claim) || self.roster.stays_for(claim);
        if self.guard.wait(now, alone && self.listed, stays) {
            // Once its time is over, it keeps no machine up.
            self.machines.storage_changed(now);
        }
        let asked = self.guard.ask(now).into_iter();
        effects.extend(asked.map(|(volume, wanted)| Effect::AskCopy { volume, wanted }));
        self.roster.need(now, self.guard.needs(), effects);
        if self.is_active() || !self.volumes.is_over() || self.guard.holds() {
            self.empty_since = None;
        }
    }

    /// Whether the attempt has come to its end.
    fn judge(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        self.roster.enforce(now, effects);
        if self.machines.is_busy() {
            return;
        }
        let failure = self.machines.failure().or_else(|| self.roster.failure());
        if let Some(reason) = failure.or_else(|| self.guard.failure()) {
            self.fail(now, reason);
        }
        if now.since(self.started) >= self.rules.attempt {
            let (left, volumes) = (self.roster.left_names(), self.volumes.waited_for());
            let machines = self.machines.names();
            let what = if !machines.is_empty() {
                format!("virtual machines left: {}", listed(&machines, ", "))
            } else if !left.is_empty() {
                format!("left: {}", listed(&left, ", "))
            } else if !volumes.is_empty() {
                format!("still attached: {}", listed(&volumes, ", "))
            } else if !self.guard.is_clear() {
                self.guard.words()
            } else if let Some(trouble) = &self.trouble {
                format!("the node could not be proven empty: {}", trouble.text)
            } else {
                "the node could not be proven empty".to_owned()
            };
            self.fail(now, format!("not done within {} s, {what}", self.rules.attempt.as_secs()));
        }
    }

    /// Foresees the end again when counts or phase are others than before. How long volumes take nobody can tell.
    fn foresee(&mut self, now: Mono) {
        let (counts, phase) = (self.roster.book.counts, self.phase());
        if (self.estimated.0, self.estimated.1) != (counts, phase) {
            let grace = self.roster.book.last_grace();
            let at = estimate(now, self.began, counts, grace, self.rules.proof_gap);
            self.estimated = (counts, phase, at.filter(|_| phase != DrainPhase::Detaching));
        }
    }

    fn act(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.cordon.is_due(now) {
            self.cordon = CallState::Flying;
            effects.push(Effect::Cordon);
        }
        if self.machines.is_active() {
            self.machines.act(now, effects);
        } else {
            self.roster.ask_due(now, effects);
        }
        self.roster.inspect(now, effects);
        self.roster.runtime.ask(now, self.roster.doubtful(), effects);
        let nothing_left = !self.is_active()
            && self.volumes.is_over()
            && self.guard.is_clear()
            && self.cordon == CallState::Idle;
        if self.look == CallState::Idle && nothing_left {
            self.look =
                CallState::Due(self.empty_since.map_or(now, |first| now.max(first + self.rules.proof_gap)));
        } else if self.look == CallState::Idle
            && (self.roster.unsure || self.next_check().is_some_and(|at| at <= now))
        {
            self.look = CallState::Due(now);
        }
        if self.look.is_due(now) {
            self.look = CallState::Flying;
            // Of the two lists of the proof the last one reads it.
            let storage = nothing_left && self.empty_since.is_some() && self.guard.is_there();
            // The cordon as well, but for the first look: the write of it, or the watch of the node, has told.
            let node = self.listed && !(nothing_left && self.empty_since.is_none());
            effects.push(Effect::Look { turn: self.roster.turn, storage, node });
        }
    }

    /// When to look although pods are still leaving: one of them is overdue.
    fn next_check(&self) -> Option<Mono> {
        Some(self.roster.book.next_overdue()?.max(self.looked_at + LOOK_AGAIN))
    }

    /// Our node as it is now.
    fn node(&mut self, now: Mono, node: &NodeFacts, effects: &mut Vec<Effect>) {
        self.node = Some(NodeMark::from(node));
        self.node_gone = None;
        self.roster.hear_kubelet(now, node);
        if node.unschedulable {
            self.roster.returns_from.get_or_insert(now + PLACED_BEFORE);
        } else {
            self.roster.returns_from = None;
            self.empty_since = None;
            if self.cordon == CallState::Idle {
                self.roster.bump();
                self.cordon = CallState::Due(now.max(self.cordon_from));
                say!(effects, warn, "node was uncordoned in mid-drain, cordoning it again");
            }
        }
    }

    fn cordoned(&mut self, now: Mono, result: Result<bool, CallFailure>) {
        self.roster.bump();
        self.empty_since = None;
        self.cordon = CallState::Idle;
        match result {
            Ok(written) => {
                self.cordon_tries = 0;
                self.cordon_from = now + CORDON_AGAIN;
                self.recordons = self.recordons.saturating_add(u32::from(written));
                self.roster.returns_from = Some(now + PLACED_BEFORE);
                // What the watch said while the call was under way was not listened to.
                if self.look == CallState::Idle {
                    self.look = CallState::Due(now);
                }
            }
            Err(failure) => self.call_failed(now, RefusedCall::Cordon, failure),
        }
    }

    /// The object of our node was deleted: it has no cordon, and nothing is proved, before the kubelet has registered it
    /// again. Told at once, as pods that take long would hide it.
    fn node_is_gone(&mut self, failure: CallFailure) {
        self.roster.bump();
        self.empty_since = None;
        self.node_gone = Some(failure);
    }
}

impl Core for Engine {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        if let Some(outcome) = &self.over {
            return vec![Effect::End(outcome.clone())];
        }
        let mut effects = Vec::new();
        match event {
            Event::Pods(pods) => {
                self.trouble = None;
                self.listed = true;
                self.roster.see_all(now, pods, PodSource::Watch, &mut effects);
            }
            Event::Pod(facts) => {
                self.trouble = None;
                self.roster.see(now, facts, PodSource::Watch, &mut effects);
            }
            Event::PodGone(uid) => {
                self.trouble = None;
                self.roster.gone(&uid, &mut effects);
            }
            Event::Looked { turn, seen } => self.looked(now, turn, seen, &mut effects),
            Event::Evicted { uid, reply } => self.roster.answered(now, &uid, reply, &mut effects),
            Event::Unrequested { uid, why } => self.roster.unrequested(now, &uid, &why, &mut effects),
            Event::Surged { uid, answer } => self.roster.copy_answered(now, &uid, answer, &mut effects),
            Event::Budgets { namespace, budgets } => self.roster.budgets(now, &namespace, budgets),
            Event::Inspected { namespace, budget, found } => {
                self.trouble = None;
                let found = found.map_err(|failure| self.trouble = Some(failure)).ok();
                self.roster.spaces.inspected(&namespace, &budget, found);
            }
            Event::Volumes(attached) => {
                self.trouble = None;
                self.volumes.heard = Some(attached);
            }
            Event::CopyAsked { volume, result } => {
                if result.is_ok() {
                    say!(
                        effects,
                        warn,
                        "the last healthy copy of {volume} is here: another copy was asked for"
                    );
                }
                self.guard.asked(now, volume, result);
                self.machines.storage_changed(now);
            }
            Event::Storage(seen) => {
                self.guard.take_view(seen);
                self.machines.storage_changed(now);
            }
            Event::Machines(seen) => self.machines.seen(now, seen, &self.guard, &mut effects),
            Event::MachinesChanged(_) => self.machines.changed(now),
            Event::MachineAnswered { uid, action, reply } => {
                self.machines.answered(now, &uid, &action, reply);
            }
            Event::Containers(without) => self.roster.containers(now, &without, &mut effects),
            Event::Node(node) => self.node(now, &node, &mut effects),
            Event::NodeGone(failure) => self.node_is_gone(failure),
            Event::Cordoned(result) => self.cordoned(now, result),
            Event::Trouble(failure) => self.trouble = Some(failure),
            Event::Tick => {}
        }
        if self.listed {
            self.machines.begin(now, || self.roster.launchers(), &mut effects);
        }
        self.follow_volumes(now, &mut effects);
        if self.over.is_none() {
            self.judge(now, &mut effects);
        }
        match &self.over {
            Some(outcome) => effects.push(Effect::End(outcome.clone())),
            None => self.act(now, &mut effects),
        }
        self.foresee(now);
        self.now = now;
        effects
    }

    fn next_wake(&self) -> Option<Mono> {
        let check = self.next_check().filter(|_| self.look == CallState::Idle);
        let pods = self.roster.next_due(self.now, !self.machines.is_active());
        let volumes = self.volumes.next_due().into_iter().chain(self.guard.next_due(self.now)).min();
        let end = Some(self.started + self.rules.attempt).filter(|_| !self.machines.is_busy());
        let machines = self.machines.next_due();
        let runtime = self.roster.runtime.due(self.roster.doubtful());
        let estimate = self.estimate(self.now);
        let calls = [self.look.due(), self.cordon.due(), runtime];
        let all = [end, pods, volumes, check, machines, estimate].into_iter().chain(calls);
        all.flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// The moment at which the attempt would be done: the pods that wait go at the pace of those that went, the last
/// that is ending takes its whole grace period, and the proof follows. `None` while something is blocked, and
/// while pods wait and none has gone.
fn estimate(
    now: Mono,
    started: Mono,
    counts: PodCounts,
    last_grace: Option<Mono>,
    proof: Duration,
) -> Option<Mono> {
    let PodCounts { gone, going: _, waiting, blocked, total } = counts;
    if blocked > 0 || total == 0 || (waiting > 0 && gone == 0) {
        return None;
    }
    let pace = now.since(started) / gone.max(1);
    let asked = pace.saturating_mul(waiting);
    let ending = last_grace.map(|at| at.since(now)).unwrap_or_default();
    Some(now + asked.saturating_add(ending).saturating_add(proof))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(gone: u32, going: u32, waiting: u32, blocked: u32) -> PodCounts {
        PodCounts { total: gone + going + waiting + blocked, gone, going, waiting, blocked }
    }

    #[test]
    fn o1_pace_of_those_that_went_then_the_longest_grace_then_the_proof() {
        let at = |secs| Mono::from_start(Duration::from_secs(secs));
        let table = [
            (counts(0, 0, 0, 0), None, None, "nothing is known"),
            (counts(0, 0, 9, 0), None, None, "no pace is known"),
            (counts(5, 0, 4, 1), None, None, "somebody has to act"),
            (counts(5, 0, 10, 0), None, Some(at(100 + 20 + 1)), "10 s for 5 is 20 s for 10"),
            (counts(5, 2, 10, 0), Some(at(130)), Some(at(100 + 20 + 30 + 1)), "and 30 s of grace"),
            (counts(0, 2, 0, 0), Some(at(130)), Some(at(131)), "all are asked"),
            (counts(2, 1, 0, 0), Some(at(90)), Some(at(101)), "its grace is over"),
            (counts(3, 0, 0, 0), None, Some(at(101)), "only the proof"),
        ];
        for (counts, grace, expected, why) in table {
            assert_eq!(estimate(at(100), at(90), counts, grace, Duration::from_secs(1)), expected, "{why}");
        }
    }
}
