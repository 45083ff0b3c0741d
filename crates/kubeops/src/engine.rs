//! One attempt to empty a node, as data: facts in, calls out.
//!
//! Not here: making calls, watching, counting attempts (zedkube). Sources: goals D1 to D5, D16 (budget part), D18;
//! spec/agents.md 4.3 and 4.4.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use step::{Core, Mono};

use crate::budget::BudgetFacts;
use crate::cordon::NodeFacts;
use crate::names::{PodRef, PodUid};
use crate::pace::Pace;
use crate::plan::{Class, PodFacts};
use crate::progress::{BlockCode, Blocker, Counts, Outcome, Phase, Progress};
use crate::reply::{self, Reply};
use crate::track::{State, Track};

/// How long after its last look the engine looks again while a pod is overdue: the safety net under the watch.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The rules of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// After this the attempt has failed (`kubernetes.drain.timeout`).
    pub attempt: Duration,
    /// Evictions under way at the same time.
    pub at_once: usize,
    /// Least time between the two lists of the proof (goals D5).
    pub proof_gap: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { attempt: Duration::from_secs(24 * 3600), at_once: 32, proof_gap: Duration::from_secs(1) }
    }
}

/// A fact for the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The pods of the node as a watch lists them.
    Pods(Vec<PodFacts>),
    /// One pod as it is now.
    Pod(PodFacts),
    /// One pod is gone.
    PodGone(PodUid),
    /// The answer to [`Effect::Look`] of `turn`: all pods and the node, read from the store.
    Looked {
        /// Which look.
        turn: u64,
        /// What it saw, or why it saw nothing.
        seen: Result<(Vec<PodFacts>, NodeFacts), Reply>,
    },
    /// The answer to [`Effect::Evict`].
    Evicted {
        /// Of this pod.
        uid: PodUid,
        /// What the server said.
        reply: Reply,
    },
    /// The budgets of a namespace as they are now.
    Budgets {
        /// The namespace.
        namespace: String,
        /// All its budgets.
        budgets: Vec<BudgetFacts>,
    },
    /// Our node as it is now.
    Node(NodeFacts),
    /// The answer to [`Effect::Cordon`]: whether it had to be written.
    Cordoned(Result<bool, Reply>),
    /// A watch fails; it goes on by itself.
    Trouble(String),
    /// Time has passed.
    Tick,
}

/// Something to do for the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// List the pods and read the node; answer with [`Event::Looked`] of the same turn.
    Look {
        /// To be given back.
        turn: u64,
    },
    /// Evict this pod.
    Evict(PodRef),
    /// Cordon the node again.
    Cordon,
    /// Follow the budgets of this namespace.
    FollowBudgets(String),
    /// Write to the log.
    Say(Said),
    /// The attempt is over.
    End(Outcome),
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The server has accepted the eviction.
    Evicted(PodRef),
    /// The pod is gone.
    Gone(PodRef),
    /// The pod is held, for a reason that is not the one of last time.
    Held(PodRef, String),
    /// The node was found schedulable.
    Uncordoned,
}

/// A call of which there is at most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Idle,
    Due(Mono),
    Flying,
}

/// One attempt.
#[derive(Debug)]
pub struct Engine {
    rules: Rules,
    pace: Pace,
    started: Mono,
    pods: BTreeMap<PodUid, Track>,
    budgets: BTreeMap<String, Option<Vec<BudgetFacts>>>,
    /// Rises with each change of a pod or the cordon; a list is compared with what changed since it was asked for.
    turn: u64,
    look: Call,
    look_tries: u32,
    /// When the last look was answered.
    looked_at: Mono,
    /// When the first list of the proof was answered, as long as nothing has spoilt it.
    empty_since: Option<Mono>,
    cordon: Call,
    cordon_tries: u32,
    recordons: u32,
    trouble: String,
    over: Option<Outcome>,
}

impl Engine {
    /// An attempt that starts `now`. The first tick asks for the first list.
    #[must_use]
    pub fn new(rules: Rules, now: Mono, seed: u64) -> Self {
        Self {
            rules,
            pace: Pace::new(seed),
            started: now,
            pods: BTreeMap::new(),
            budgets: BTreeMap::new(),
            turn: 0,
            look: Call::Due(now),
            look_tries: 0,
            looked_at: now,
            empty_since: None,
            cordon: Call::Idle,
            cordon_tries: 0,
            recordons: 0,
            trouble: String::new(),
            over: None,
        }
    }

    /// The attempt as it stands.
    #[must_use]
    pub fn progress(&self, now: Mono) -> Progress {
        let mut counts = Counts::default();
        let mut evicted = 0;
        for track in self.pods.values() {
            counts.total += 1;
            evicted += u32::from(track.accepted);
            let count = match (&track.state, track.code()) {
                (State::Gone, _) => &mut counts.gone,
                (State::Going { .. }, _) => &mut counts.going,
                (State::Ended, _)
                | (
                    State::Waiting { .. } | State::Asking,
                    Some(BlockCode::Budget | BlockCode::ManyBudgets | BlockCode::NamespaceEnding),
                ) => &mut counts.blocked,
                (
                    State::Waiting { .. } | State::Asking,
                    None
                    | Some(
                        BlockCode::Throttled
                        | BlockCode::ApiTrouble
                        | BlockCode::Refused
                        | BlockCode::SlowToEnd,
                    ),
                ) => &mut counts.waiting,
            };
            *count += 1;
        }
        let proving = !self.pods.values().any(Track::is_active) && self.look_tries == 0;
        Progress {
            phase: if proving { Phase::Proving } else { Phase::Draining },
            counts,
            blockers: self.blockers(now),
            evicted,
            recordons: self.recordons,
            trouble: self.trouble.clone(),
        }
    }

    fn blockers(&self, now: Mono) -> Vec<Blocker> {
        let mut all: Vec<Blocker> =
            self.pods.values().filter_map(|track| track.blocker(now, &self.guards(track))).collect();
        all.sort_by(|one, other| one.pod.cmp(&other.pod));
        all
    }

    /// The known budgets that guard the pod.
    fn guards(&self, track: &Track) -> Vec<&BudgetFacts> {
        let known = self.budgets.get(&track.facts.pod.namespace).and_then(Option::as_ref);
        known.into_iter().flatten().filter(|budget| budget.guards(&track.facts.labels)).collect()
    }

    /// A pod as a watch or a list shows it. `look` is the turn of the list when it was read from the store.
    fn see(&mut self, now: Mono, facts: PodFacts, look: Option<u64>) {
        let class = facts.class();
        let uid = facts.pod.uid.clone();
        let Some(track) = self.pods.get_mut(&uid) else {
            match class {
                Class::Keep(_) => {}
                Class::Leave | Class::Await => {
                    self.turn += 1;
                    self.pods.insert(uid, Track::new(facts, now, self.turn));
                }
            }
            return;
        };
        if look.is_some_and(|look| track.turn > look) {
            return;
        }
        let terminating = facts.terminating;
        // What a list from the store has found out about the DaemonSet, a watch does not know.
        let owner = if look.is_some() { facts.owner } else { track.facts.owner };
        track.facts = PodFacts { owner, ..facts };
        let before = track.state.clone();
        match (&before, terminating) {
            (State::Asking, _) | (State::Waiting { .. }, false) | (State::Ended, false) => {}
            (_, true) => track.going(now),
            // A watch may lag behind our own eviction; only a list from the store takes it back.
            (State::Going { .. }, false) if look.is_none() => {}
            (State::Gone, false) if look.is_none() && track.accepted => track.going(now),
            (State::Going { .. } | State::Gone, false) => track.again(now, &mut self.pace, None),
        }
        if track.state != before {
            self.turn += 1;
            track.turn = self.turn;
        }
    }

    fn gone(&mut self, uid: &PodUid, said: &mut Vec<Effect>) {
        if let Some(track) = self.pods.get_mut(uid)
            && track.state != State::Gone
        {
            track.state = State::Gone;
            self.turn += 1;
            track.turn = self.turn;
            said.push(Effect::Say(Said::Gone(track.facts.pod.clone())));
        }
    }

    /// Everything that is there, as a watch (`look` is `None`) or a list from the store shows it.
    fn see_all(&mut self, now: Mono, pods: Vec<PodFacts>, look: Option<u64>, said: &mut Vec<Effect>) {
        let absent: Vec<PodUid> = self
            .pods
            .iter()
            .filter(|(uid, track)| {
                look.is_none_or(|look| track.turn <= look) && !pods.iter().any(|facts| facts.pod.uid == **uid)
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in absent {
            self.gone(&uid, said);
        }
        for facts in pods {
            self.see(now, facts, look);
        }
    }

    fn looked(
        &mut self,
        now: Mono,
        turn: u64,
        seen: Result<(Vec<PodFacts>, NodeFacts), Reply>,
        said: &mut Vec<Effect>,
    ) {
        self.look = Call::Idle;
        self.looked_at = now;
        let (pods, node) = match seen {
            Ok(seen) => seen,
            Err(reply) => return self.look_failed(now, &reply),
        };
        self.look_tries = 0;
        self.trouble.clear();
        self.see_all(now, pods, Some(turn), said);
        self.node(now, &node, said);
        if self.turn != turn || self.pods.values().any(Track::is_active) || !node.unschedulable {
            self.empty_since = None;
            return;
        }
        match self.empty_since {
            Some(first) if now.since(first) >= self.rules.proof_gap => self.proven(now),
            Some(first) => self.look = Call::Due(first + self.rules.proof_gap),
            None => {
                self.empty_since = Some(now);
                self.look = Call::Due(now + self.rules.proof_gap);
            }
        }
    }

    fn look_failed(&mut self, now: Mono, reply: &Reply) {
        self.empty_since = None;
        self.trouble = reply.text().to_owned();
        match reply.class() {
            // A list that is "not found", or a node that is: nothing here can mend it.
            reply::Class::Permanent | reply::Class::Done => self.fail(now, reply.text().to_owned()),
            reply::Class::Budget | reply::Class::Throttle | reply::Class::Transient => {
                self.look_tries = self.look_tries.saturating_add(1);
                self.look = Call::Due(now + self.pace.pause(self.look_tries, reply.retry_after()));
            }
        }
    }

    fn node(&mut self, now: Mono, node: &NodeFacts, said: &mut Vec<Effect>) {
        if node.unschedulable {
            return;
        }
        self.empty_since = None;
        if self.cordon == Call::Idle {
            self.turn += 1;
            self.cordon = Call::Due(now);
            said.push(Effect::Say(Said::Uncordoned));
        }
    }

    fn cordoned(&mut self, now: Mono, result: Result<bool, Reply>) {
        self.turn += 1;
        self.empty_since = None;
        self.cordon = Call::Idle;
        match result {
            Ok(written) => {
                self.cordon_tries = 0;
                self.recordons = self.recordons.saturating_add(u32::from(written));
            }
            Err(reply) => match reply.class() {
                reply::Class::Permanent | reply::Class::Done => self.fail(now, reply.text().to_owned()),
                reply::Class::Budget | reply::Class::Throttle | reply::Class::Transient => {
                    self.trouble = reply.text().to_owned();
                    self.cordon_tries = self.cordon_tries.saturating_add(1);
                    // At most 4 s, so that the cordon is back within the 5 s of goals D18 once it can be.
                    let pause = self.pace.pause(self.cordon_tries.min(3), reply.retry_after());
                    self.cordon = Call::Due(now + pause);
                }
            },
        }
    }

    fn evicted(&mut self, now: Mono, uid: &PodUid, reply: Reply, said: &mut Vec<Effect>) {
        let Some(track) = self.pods.get_mut(uid) else { return };
        if track.state == State::Gone {
            track.accepted |= reply == Reply::Done;
            return;
        }
        let (before, text) = (track.code(), reply.text().to_owned());
        track.answered(now, &mut self.pace, reply);
        self.turn += 1;
        track.turn = self.turn;
        let pod = track.facts.pod.clone();
        match (&track.state, track.code()) {
            (State::Going { .. }, _) => said.push(Effect::Say(Said::Evicted(pod))),
            (State::Gone, _) => said.push(Effect::Say(Said::Gone(pod))),
            (_, code) => {
                let by_budget = matches!(code, Some(BlockCode::Budget | BlockCode::ManyBudgets));
                if by_budget && !self.budgets.contains_key(&pod.namespace) {
                    self.budgets.insert(pod.namespace.clone(), None);
                    said.push(Effect::FollowBudgets(pod.namespace.clone()));
                }
                if code != before {
                    said.push(Effect::Say(Said::Held(pod, text)));
                }
            }
        }
    }

    /// Pods that a budget held are asked for at once when their budgets are others than before and all have
    /// room. A budget that only says the same again wakes nobody, so the server is not asked in a circle.
    fn budgets(&mut self, now: Mono, namespace: &str, budgets: Vec<BudgetFacts>) {
        let before = self.budgets.insert(namespace.to_owned(), Some(budgets)).flatten();
        let after =
            self.budgets.get(namespace).and_then(Option::as_ref).map(Vec::as_slice).unwrap_or_default();
        for track in self.pods.values_mut().filter(|it| it.facts.pod.namespace == namespace) {
            if !track.is_held_by_budget() {
                continue;
            }
            let of = |all: &'_ [BudgetFacts]| -> Vec<BudgetFacts> {
                all.iter().filter(|budget| budget.guards(&track.facts.labels)).cloned().collect()
            };
            let held_by = of(after);
            let changed = before.as_deref().is_none_or(|before| of(before) != held_by);
            if changed && held_by.iter().all(BudgetFacts::has_room) {
                track.hurry(now);
            }
        }
    }

    fn proven(&mut self, now: Mono) {
        let refused: Vec<&Track> = self.pods.values().filter(|track| track.state == State::Ended).collect();
        if refused.is_empty() {
            let Progress { evicted, recordons, .. } = self.progress(now);
            self.over = Some(Outcome::Drained { took: now.since(self.started), evicted, recordons });
        }
    }

    fn fail(&mut self, now: Mono, reason: String) {
        self.over.get_or_insert(Outcome::Failed { reason, blockers: self.blockers(now) });
    }

    /// Names of the pods for which `which` holds.
    fn names(&self, which: impl Fn(&Track) -> bool) -> String {
        let mut names: Vec<String> = self
            .pods
            .values()
            .filter(|track| which(track))
            .map(|track| track.facts.pod.to_string())
            .collect();
        names.sort_unstable();
        names.join(", ")
    }

    /// What is due now.
    fn act(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let active = self.pods.values().any(Track::is_active);
        let refused = self.pods.values().any(|track| track.state == State::Ended);
        if active {
            self.empty_since = None;
        } else if refused {
            let names = self.names(|track| track.state == State::Ended);
            self.fail(now, format!("the API server refuses to evict {names}"));
        }
        if self.over.is_none() && now.since(self.started) >= self.rules.attempt {
            let left = self.names(|track| track.is_active() || track.state == State::Ended);
            let left =
                if left.is_empty() { format!("proof of the empty node: {}", self.trouble) } else { left };
            self.fail(now, format!("not done within {} s, left: {left}", self.rules.attempt.as_secs()));
        }
        if let Some(outcome) = &self.over {
            effects.push(Effect::End(outcome.clone()));
            return;
        }
        if matches!(self.cordon, Call::Due(at) if at <= now) {
            self.cordon = Call::Flying;
            effects.push(Effect::Cordon);
        }
        self.evict_due(now, effects);
        if self.look == Call::Idle && !active {
            self.look = Call::Due(now);
        } else if self.look == Call::Idle && self.next_check().is_some_and(|at| at <= now) {
            self.look = Call::Due(now);
        }
        if matches!(self.look, Call::Due(at) if at <= now) {
            self.look = Call::Flying;
            effects.push(Effect::Look { turn: self.turn });
        }
    }

    /// Starts evictions as far as the bound allows, pods that were never refused first.
    fn evict_due(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        let under_way = self.pods.values().filter(|track| track.state == State::Asking).count();
        let mut due: Vec<(u32, Mono, PodUid)> = self
            .pods
            .iter()
            .filter_map(|(uid, track)| Some((track.tries, track.due().filter(|at| *at <= now)?, uid.clone())))
            .collect();
        due.sort_unstable();
        for (_, _, uid) in due.into_iter().take(self.rules.at_once.saturating_sub(under_way)) {
            if let Some(track) = self.pods.get_mut(&uid) {
                track.state = State::Asking;
                effects.push(Effect::Evict(track.facts.pod.clone()));
            }
        }
    }

    /// When to look although pods are still leaving: one of them is overdue.
    fn next_check(&self) -> Option<Mono> {
        let overdue = self.pods.values().filter_map(Track::overdue_at).min()?;
        Some(overdue.max(self.looked_at + LOOK_AGAIN))
    }
}

impl Core for Engine {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Pods(pods) => self.see_all(now, pods, None, &mut effects),
            Event::Pod(facts) => self.see(now, facts, None),
            Event::PodGone(uid) => self.gone(&uid, &mut effects),
            Event::Looked { turn, seen } => self.looked(now, turn, seen, &mut effects),
            Event::Evicted { uid, reply } => self.evicted(now, &uid, reply, &mut effects),
            Event::Budgets { namespace, budgets } => self.budgets(now, &namespace, budgets),
            Event::Node(node) => self.node(now, &node, &mut effects),
            Event::Cordoned(result) => self.cordoned(now, result),
            Event::Trouble(text) => self.trouble = text,
            Event::Tick => {}
        }
        self.act(now, &mut effects);
        effects
    }

    fn next_wake(&self) -> Option<Mono> {
        let call = |call: Call| match call {
            Call::Due(at) => Some(at),
            Call::Idle | Call::Flying => None,
        };
        let under_way = self.pods.values().filter(|track| track.state == State::Asking).count();
        let room = under_way < self.rules.at_once;
        let evictions = self.pods.values().filter_map(Track::due).min().filter(|_| room);
        let check = if self.look == Call::Idle { self.next_check() } else { None };
        [Some(self.started + self.rules.attempt), call(self.look), call(self.cordon), evictions, check]
            .into_iter()
            .flatten()
            .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
