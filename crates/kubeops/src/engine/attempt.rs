//! One attempt: evict until nothing is left, keep the node cordoned, prove it, or say why not.
//!
//! Not here: the way of a single pod (`roster`, `track`), making calls, counting attempts (zedkube). Sources:
//! goals D5, D18; spec/agents.md 4.3 and 4.4.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Core, Mono};

use super::roster::{Roster, Source};
use super::words::{Effect, Event, Failure, Rules, Said};
use crate::cordon::NodeFacts;
use crate::pace::Pace;
use crate::plan::PodFacts;
use crate::progress::{Outcome, Phase, Progress};
use crate::reply::Class;

/// How long after its last look the engine looks again while a pod is overdue: the safety net under the watch.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Least time between two cordons, should somebody undo each of ours at once (goals D18: back within 5 s).
const CORDON_AGAIN: Duration = Duration::from_secs(2);

/// A call of which there is at most one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Idle,
    Due(Mono),
    Flying,
}

impl Call {
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
#[derive(Debug)]
pub struct Engine {
    rules: Rules,
    pace: Pace,
    started: Mono,
    roster: Roster,
    look: Call,
    /// Looks in a row that failed.
    look_tries: u32,
    /// When the last look was answered.
    looked_at: Mono,
    /// When the first list of the proof was answered, as long as nothing has spoilt it.
    empty_since: Option<Mono>,
    cordon: Call,
    /// Cordons in a row that failed.
    cordon_tries: u32,
    /// No cordon before this.
    cordon_from: Mono,
    /// Cordons that had to be written.
    recordons: u32,
    trouble: String,
    over: Option<Outcome>,
}

impl Engine {
    /// An attempt that starts `now`. `seed` is for jitter.
    #[must_use]
    pub fn new(rules: Rules, now: Mono, seed: u64) -> Self {
        Self {
            rules,
            pace: Pace::new(seed),
            started: now,
            roster: Roster::new(Pace::new(!seed)),
            look: Call::Due(now),
            look_tries: 0,
            looked_at: now,
            empty_since: None,
            cordon: Call::Idle,
            cordon_tries: 0,
            cordon_from: now,
            recordons: 0,
            trouble: String::new(),
            over: None,
        }
    }

    /// The attempt as it stands.
    #[must_use]
    pub fn progress(&self, now: Mono) -> Progress {
        let (counts, evicted) = self.roster.counts();
        Progress {
            phase: if self.empty_since.is_some() { Phase::Proving } else { Phase::Draining },
            counts,
            blockers: self.roster.blockers(now),
            evicted,
            recordons: self.recordons,
            trouble: self.trouble.clone(),
            ..Progress::default()
        }
    }

    /// The answer to the look of `turn`.
    fn looked(
        &mut self,
        now: Mono,
        turn: u64,
        seen: Result<(Vec<PodFacts>, NodeFacts), Failure>,
        effects: &mut Vec<Effect>,
    ) {
        self.look = Call::Idle;
        self.looked_at = now;
        let (pods, node) = match seen {
            Ok(seen) => seen,
            Err(failure) => return self.look_failed(now, failure),
        };
        self.look_tries = 0;
        self.trouble.clear();
        let undisturbed = self.roster.turn() == turn;
        self.roster.see_all(now, pods, Source::Store(turn), effects);
        self.node(now, &node, effects);
        if !undisturbed || self.roster.is_active() || !node.unschedulable {
            self.empty_since = None;
            return;
        }
        match self.empty_since {
            Some(first) if now.since(first) >= self.rules.proof_gap => {
                let (_, evicted) = self.roster.counts();
                let took = now.since(self.started);
                self.over =
                    Some(Outcome::Drained { took, evicted, recordons: self.recordons, left: Vec::new() });
            }
            first => {
                let first = first.unwrap_or(now);
                self.empty_since = Some(first);
                self.look = Call::Due(first + self.rules.proof_gap);
            }
        }
    }

    fn look_failed(&mut self, now: Mono, Failure { reply, text }: Failure) {
        self.empty_since = None;
        self.trouble.clone_from(&text);
        match reply.class() {
            // The node is not there, or the lists are not for us: nothing here can mend it.
            Class::Permanent | Class::Done => self.fail(now, text),
            Class::Budget | Class::Throttle | Class::Transient => {
                self.look_tries = self.look_tries.saturating_add(1);
                self.look = Call::Due(now + self.pace.pause(self.look_tries, reply.retry_after()));
            }
        }
    }

    /// Our node as it is now.
    fn node(&mut self, now: Mono, node: &NodeFacts, effects: &mut Vec<Effect>) {
        if !node.unschedulable {
            self.empty_since = None;
            if self.cordon == Call::Idle {
                self.roster.bump();
                self.cordon = Call::Due(now.max(self.cordon_from));
                effects.push(Effect::Say(Said::Uncordoned));
            }
        }
    }

    fn cordoned(&mut self, now: Mono, result: Result<bool, Failure>) {
        self.roster.bump();
        self.empty_since = None;
        self.cordon = Call::Idle;
        match result {
            Ok(written) => {
                self.cordon_tries = 0;
                self.cordon_from = now + CORDON_AGAIN;
                self.recordons = self.recordons.saturating_add(u32::from(written));
                // What the watch said while the call was under way was not listened to.
                if self.look == Call::Idle {
                    self.look = Call::Due(now);
                }
            }
            Err(Failure { reply, text }) => match reply.class() {
                Class::Permanent | Class::Done => self.fail(now, text),
                Class::Budget | Class::Throttle | Class::Transient => {
                    self.trouble = text;
                    self.cordon_tries = self.cordon_tries.saturating_add(1);
                    // At most 4 s, so that the cordon is back within 5 s once it can be.
                    let pause = self.pace.pause(self.cordon_tries.min(3), reply.retry_after());
                    self.cordon = Call::Due(now + pause);
                }
            },
        }
    }

    fn fail(&mut self, now: Mono, reason: String) {
        let blockers = self.roster.blockers(now);
        self.over.get_or_insert(Outcome::Failed { reason, blockers });
    }

    /// Whether the attempt has come to its end.
    fn judge(&mut self, now: Mono) {
        let refused = self.roster.refused();
        if !self.roster.is_active() && !refused.is_empty() {
            self.fail(now, format!("the API server refuses to evict {}", refused.join(", ")));
        }
        if now.since(self.started) >= self.rules.attempt {
            let left = self.roster.left();
            let what = match (left.is_empty(), self.trouble.is_empty()) {
                (false, _) => format!("left: {}", left.join(", ")),
                (true, false) => format!("the node could not be proven empty: {}", self.trouble),
                (true, true) => "the node could not be proven empty".to_owned(),
            };
            self.fail(now, format!("not done within {} s, {what}", self.rules.attempt.as_secs()));
        }
    }

    /// Starts what is due.
    fn act(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if self.cordon.is_due(now) {
            self.cordon = Call::Flying;
            effects.push(Effect::Cordon);
        }
        self.roster.ask_due(now, self.rules.at_once, effects);
        let nothing_left = !self.roster.is_active() && self.cordon == Call::Idle;
        if self.look == Call::Idle && (nothing_left || self.next_check().is_some_and(|at| at <= now)) {
            self.look = Call::Due(now);
        }
        if self.look.is_due(now) {
            self.look = Call::Flying;
            effects.push(Effect::Look { turn: self.roster.turn() });
        }
    }

    /// When to look although pods are still leaving: one of them is overdue.
    fn next_check(&self) -> Option<Mono> {
        Some(self.roster.next_overdue()?.max(self.looked_at + LOOK_AGAIN))
    }
}

impl Core for Engine {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Pods(pods) => {
                self.trouble.clear();
                self.roster.see_all(now, pods, Source::Watch, &mut effects);
            }
            Event::Pod(facts) => {
                self.trouble.clear();
                self.roster.see(now, facts, Source::Watch);
            }
            Event::PodGone(uid) => {
                self.trouble.clear();
                self.roster.gone(&uid, &mut effects);
            }
            Event::Looked { turn, seen } => self.looked(now, turn, seen, &mut effects),
            Event::Evicted { uid, reply } => self.roster.evicted(now, &uid, reply, &mut effects),
            Event::Budgets { namespace, budgets } => self.roster.budgets(now, &namespace, budgets),
            Event::Node(node) => self.node(now, &node, &mut effects),
            Event::Cordoned(result) => self.cordoned(now, result),
            Event::Trouble(text) => self.trouble = text,
            Event::Tick => {}
        }
        if self.roster.is_active() {
            self.empty_since = None;
        }
        if self.over.is_none() {
            self.judge(now);
        }
        match &self.over {
            Some(outcome) => effects.push(Effect::End(outcome.clone())),
            None => self.act(now, &mut effects),
        }
        effects
    }

    fn next_wake(&self) -> Option<Mono> {
        let check = self.next_check().filter(|_| self.look == Call::Idle);
        let evictions = self.roster.next_due(self.rules.at_once);
        let end = self.started + self.rules.attempt;
        [Some(end), self.look.due(), self.cordon.due(), evictions, check].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
