//! The pods of one attempt: which leave, how far each is, whom to ask next.
//!
//! Not here: the proof, the cordon, the end of the attempt (`attempt`). Sources: goals D1 to D4, D16 (budget
//! part).
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use step::Mono;

use super::track::{State, Track};
use super::words::{Effect, Said};
use crate::budget::BudgetFacts;
use crate::names::PodUid;
use crate::pace::Pace;
use crate::plan::{Class, Owner, PodFacts};
use crate::progress::{BlockCode, Blocker, Counts};
use crate::reply::Reply;

/// Where a pod was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// By a watch, which may lag behind our own calls.
    Watch,
    /// In a list read from the store that was asked for in this turn.
    Store(u64),
}

/// All pods that leave or have left.
#[derive(Debug)]
pub(super) struct Roster {
    pods: BTreeMap<PodUid, Track>,
    /// Budgets by namespace; `None` while they have not been heard of.
    budgets: BTreeMap<String, Option<Vec<BudgetFacts>>>,
    /// Rises with each change. A list does not speak about what changed after it was asked for.
    turn: u64,
    pace: Pace,
}

impl Roster {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pods: BTreeMap::new(), budgets: BTreeMap::new(), turn: 0, pace }
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
        self.pods.values().any(Track::is_active)
    }

    /// One pod as it is now.
    pub(super) fn see(&mut self, now: Mono, mut facts: PodFacts, source: Source) {
        let uid = facts.pod.uid.clone();
        let Some(track) = self.pods.get_mut(&uid) else {
            match facts.class() {
                Class::Keep(_) => {}
                Class::Leave | Class::Await => {
                    self.turn += 1;
                    self.pods.insert(uid, Track::new(facts, now, self.turn));
                }
            }
            return;
        };
        match source {
            Source::Store(turn) if track.turn > turn => return,
            // A list found out that the DaemonSet is gone; a watch does not look.
            Source::Watch if track.facts.owner == Owner::VanishedDaemonSet => facts.owner = track.facts.owner,
            Source::Store(_) | Source::Watch => {}
        }
        if matches!(facts.class(), Class::Keep(_)) {
            self.turn += 1;
            self.pods.remove(&uid);
            return;
        }
        let terminating = facts.terminating;
        let before = track.state.clone();
        track.facts = facts;
        match (&before, source) {
            (State::Asking { .. }, _) => track.state = State::Asking { absent: false },
            (_, _) if terminating => track.going(now),
            // Only a list takes back an eviction that the server has accepted.
            (State::Waiting { .. } | State::Ended, _) | (State::Going { .. }, Source::Watch) => {}
            (State::Gone, Source::Watch) if track.accepted => track.going(now),
            (State::Going { .. } | State::Gone, Source::Watch | Source::Store(_)) => {
                track.again(now, &mut self.pace, None);
            }
        }
        if track.state != before {
            self.turn += 1;
            track.turn = self.turn;
        }
    }

    /// All pods that are there: those that were there before and are not among them are gone.
    pub(super) fn see_all(
        &mut self,
        now: Mono,
        pods: Vec<PodFacts>,
        source: Source,
        effects: &mut Vec<Effect>,
    ) {
        let speaks_of = |track: &Track| match source {
            Source::Watch => true,
            Source::Store(turn) => track.turn <= turn,
        };
        let absent: Vec<PodUid> = self
            .pods
            .iter()
            .filter(|(uid, track)| speaks_of(track) && !pods.iter().any(|facts| facts.pod.uid == **uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in absent {
            self.gone(&uid, effects);
        }
        for facts in pods {
            self.see(now, facts, source);
        }
    }

    pub(super) fn gone(&mut self, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.pods.get_mut(uid) else { return };
        match track.state {
            State::Gone => return,
            State::Asking { .. } => track.state = State::Asking { absent: true },
            State::Waiting { .. } | State::Going { .. } | State::Ended => {
                track.state = State::Gone;
                effects.push(Effect::Say(Said::Gone(track.facts.pod.clone())));
            }
        }
        self.turn += 1;
        track.turn = self.turn;
    }

    /// The answer to an eviction.
    pub(super) fn evicted(&mut self, now: Mono, uid: &PodUid, reply: Reply, effects: &mut Vec<Effect>) {
        let Some(track) = self.pods.get_mut(uid) else { return };
        let (before, text) = (track.code(), reply.text().to_owned());
        let absent = track.state == State::Asking { absent: true };
        track.answered(now, &mut self.pace, reply);
        if absent {
            track.state = State::Gone;
        }
        self.turn += 1;
        track.turn = self.turn;
        let (pod, code) = (track.facts.pod.clone(), track.code());
        match track.state {
            State::Going { .. } => effects.push(Effect::Say(Said::Evicted(pod))),
            State::Gone => effects.push(Effect::Say(Said::Gone(pod))),
            State::Waiting { .. } | State::Asking { .. } | State::Ended => {
                let by_budget = matches!(code, Some(BlockCode::Budget | BlockCode::ManyBudgets));
                if by_budget && !self.budgets.contains_key(&pod.namespace) {
                    self.budgets.insert(pod.namespace.clone(), None);
                    effects.push(Effect::FollowBudgets(pod.namespace.clone()));
                }
                if code != before {
                    effects.push(Effect::Say(Said::Held(pod, text)));
                }
            }
        }
    }

    /// The budgets of a namespace as they are now. Pods that a budget held are due at once when their budgets are
    /// others than before and all have room. A budget that says the same again wakes nobody, so that the server
    /// is not asked in a circle.
    pub(super) fn budgets(&mut self, now: Mono, namespace: &str, after: Vec<BudgetFacts>) {
        let before = self.budgets.get(namespace).cloned().flatten();
        let in_namespace = |track: &&mut Track| track.facts.pod.namespace == namespace;
        for track in self.pods.values_mut().filter(in_namespace).filter(|track| track.is_held_by_budget()) {
            let holding = guards(&after, track);
            let changed = before.as_deref().is_none_or(|before| guards(before, track) != holding);
            if changed && holding.iter().all(|budget| budget.has_room()) {
                track.hurry(now);
            }
        }
        self.budgets.insert(namespace.to_owned(), Some(after));
    }

    /// Starts evictions up to `at_once` under way, pods that were never refused first.
    pub(super) fn ask_due(&mut self, now: Mono, at_once: usize, effects: &mut Vec<Effect>) {
        let mut due: Vec<(u32, Mono, PodUid)> = self
            .pods
            .iter()
            .filter_map(|(uid, track)| Some((track.tries, track.due().filter(|at| *at <= now)?, uid.clone())))
            .collect();
        due.sort_unstable();
        for (_, _, uid) in due.into_iter().take(at_once.saturating_sub(self.under_way())) {
            if let Some(track) = self.pods.get_mut(&uid) {
                track.state = State::Asking { absent: false };
                effects.push(Effect::Evict(track.facts.pod.clone()));
            }
        }
    }

    /// When [`Roster::ask_due`] has something to do, as far as time decides it.
    pub(super) fn next_due(&self, at_once: usize) -> Option<Mono> {
        self.pods.values().filter_map(Track::due).min().filter(|_| self.under_way() < at_once)
    }

    /// When the first pod has had its time to end.
    pub(super) fn next_overdue(&self) -> Option<Mono> {
        self.pods.values().filter_map(Track::overdue_at).min()
    }

    fn under_way(&self) -> usize {
        self.pods.values().filter(|track| matches!(track.state, State::Asking { .. })).count()
    }

    /// The pods by state, and how many evictions were accepted.
    pub(super) fn counts(&self) -> (Counts, u32) {
        let (mut counts, mut evicted) = (Counts::default(), 0);
        for track in self.pods.values() {
            counts.total += 1;
            evicted += u32::from(track.accepted);
            match track.state {
                State::Gone => counts.gone += 1,
                State::Going { .. } => counts.going += 1,
                State::Ended => counts.blocked += 1,
                State::Waiting { .. } | State::Asking { .. } if track.is_blocked() => counts.blocked += 1,
                State::Waiting { .. } | State::Asking { .. } => counts.waiting += 1,
            }
        }
        (counts, evicted)
    }

    /// What holds the pods, by their names.
    pub(super) fn blockers(&self, now: Mono) -> Vec<Blocker> {
        let of = |track: &Track| {
            let known = self.budgets.get(&track.facts.pod.namespace).and_then(Option::as_deref);
            track.blocker(now, &guards(known.unwrap_or_default(), track))
        };
        let mut all: Vec<Blocker> = self.pods.values().filter_map(of).collect();
        all.sort_by(|one, other| one.pod.cmp(&other.pod));
        all
    }

    /// Names of the pods that the server refuses to evict.
    pub(super) fn refused(&self) -> Vec<String> {
        self.names(|track| track.state == State::Ended)
    }

    /// Names of the pods that are not gone.
    pub(super) fn left(&self) -> Vec<String> {
        self.names(|track| track.state != State::Gone)
    }

    fn names(&self, which: impl Fn(&Track) -> bool) -> Vec<String> {
        let mut names: Vec<String> = self
            .pods
            .values()
            .filter(|track| which(track))
            .map(|track| track.facts.pod.to_string())
            .collect();
        names.sort_unstable();
        names
    }
}

/// Those of `budgets` that guard the pod.
fn guards<'a>(budgets: &'a [BudgetFacts], track: &Track) -> Vec<&'a BudgetFacts> {
    budgets.iter().filter(|budget| budget.guards(&track.facts.labels)).collect()
}
