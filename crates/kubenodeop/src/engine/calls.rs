//! The calls of an attempt: whom to ask next and how, and what an answer leads to.
//!
//! Not here: which pods leave (`pod_table`). Pure: no clock, no I/O, no task.

pub(super) mod surge;

use std::collections::{BTreeMap, BTreeSet};

use step::{Mono, say};

use super::index::PodIndex;
use super::pod_table::PodTable;
use super::track::{PodState, PodTrack, RemovalCall};
use super::words::{Effect, say_gone, say_held};
use crate::plan::budget::BudgetFacts;
use crate::plan::tier;
use crate::progress::BlockCode;
use kubeapi::names::PodUid;
use kubeapi::reply::Reply;

/// A call of which there is at most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    Idle,
    Due(Mono),
    Flying,
}

impl CallState {
    pub(super) fn due(self) -> Option<Mono> {
        match self {
            Self::Due(at) => Some(at),
            Self::Idle | Self::Flying => None,
        }
    }

    pub(super) fn is_due(self, now: Mono) -> bool {
        self.due().is_some_and(|at| at <= now)
    }
}

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
            if absent {
                track.state = PodState::Gone;
            } else if track.facts.terminating {
                track.going(now);
            } else {
                track.state = PodState::Waiting { due: now, not_before: now };
            }
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
        let full: BTreeSet<String> = shut.map(|it| it.name.clone()).collect();
        let many = track.facts.has_many(&guards);
        self.spaces.hold(&namespace, &full);
        if many {
            self.spaces.share(&namespace, &full);
        }
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
        let (mut taken, mut holding) = (BTreeMap::<String, i32>::new(), BTreeSet::new());
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
        self.spaces.hold_only(namespace, &holding);
        self.spaces.share(namespace, &shared);
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
            let mut book = std::mem::take(&mut self.book);
            let may = |book: &PodIndex, track: &PodTrack| {
                self.way(track) != Some(RemovalCall::Remove)
                    || !book.removing.contains(&track.facts.pod.namespace)
            };
            let ripe = book.ripe(now, free, may);
            self.book = book;
            let mut asked = false;
            for uid in ripe {
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
        if self.wants_copy(now, track) {
            self.ask_copy(now, uid, effects);
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
        effects.push(match way {
            RemovalCall::Evict => Effect::Evict(pod),
            RemovalCall::Request => Effect::Request(pod),
            RemovalCall::Remove => Effect::Remove(track.facts.guarded()),
            RemovalCall::Delete => Effect::Delete(pod),
        });
        self.book.change(uid, |track| {
            track.asked.get_or_insert(now);
            track.state = PodState::Asking { way, absent: false };
        });
        true
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
