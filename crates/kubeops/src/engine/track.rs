//! One pod in an attempt: where it is on its way out, and what holds it.
//!
//! Not here: the other pods, the order of calls (`engine`). Source: goals D1 to D3, O2.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use crate::budget::BudgetFacts;
use crate::pace::Pace;
use crate::plan::PodFacts;
use crate::progress::{BlockCode, Blocker};
use crate::reply::Reply;

/// How long past its grace period a pod may take before it is named.
pub(super) const SLACK: Duration = Duration::from_secs(30);

/// A pod that leaves.
#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) facts: PodFacts,
    pub(super) state: State,
    /// The turn of the engine in which this last changed; older lists do not speak about it.
    pub(super) turn: u64,
    /// Refusals in a row.
    pub(super) tries: u32,
    /// The server has accepted an eviction of this very pod.
    pub(super) accepted: bool,
    /// The standing refusal and since when its code holds.
    refusal: Option<(Reply, BlockCode, Mono)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// To be evicted once `due`; never before `not_before`, which the server set.
    Waiting { due: Mono, not_before: Mono },
    /// The call is under way. `absent` when we have heard meanwhile that the pod is gone: the answer is waited
    /// for all the same, so that there is never a second call for it.
    Asking { absent: bool },
    /// Its end has begun.
    Going { since: Mono },
    /// The server refuses for good.
    Ended,
    /// No longer there.
    Gone,
}

impl Track {
    pub(super) fn new(facts: PodFacts, now: Mono, turn: u64) -> Self {
        let state = if facts.terminating {
            State::Going { since: now }
        } else {
            State::Waiting { due: now, not_before: now }
        };
        Self { facts, state, turn, tries: 0, accepted: false, refusal: None }
    }

    /// Still to be waited for.
    pub(super) fn is_active(&self) -> bool {
        match self.state {
            State::Waiting { .. } | State::Asking { .. } | State::Going { .. } => true,
            State::Ended | State::Gone => false,
        }
    }

    pub(super) fn due(&self) -> Option<Mono> {
        match self.state {
            State::Waiting { due, .. } => Some(due),
            State::Asking { .. } | State::Going { .. } | State::Ended | State::Gone => None,
        }
    }

    /// When a pod that is ending has had its time.
    pub(super) fn overdue_at(&self) -> Option<Mono> {
        match self.state {
            State::Going { since } => Some(since + self.facts.grace + SLACK),
            State::Waiting { .. } | State::Asking { .. } | State::Ended | State::Gone => None,
        }
    }

    pub(super) fn going(&mut self, now: Mono) {
        self.refusal = None;
        if !matches!(self.state, State::Going { .. }) {
            self.state = State::Going { since: now };
        }
    }

    /// To be asked (again) after a pause of its own.
    pub(super) fn again(&mut self, now: Mono, pace: &mut Pace, retry_after: Option<Duration>) {
        self.tries = self.tries.saturating_add(1);
        let due = now + pace.pause(self.tries, retry_after);
        self.state = State::Waiting { due, not_before: now + retry_after.unwrap_or_default() };
    }

    /// The answer to an eviction.
    pub(super) fn answered(&mut self, now: Mono, pace: &mut Pace, reply: Reply) {
        let retry_after = reply.retry_after();
        let code = match &reply {
            Reply::Done => {
                self.accepted = true;
                self.going(now);
                return;
            }
            Reply::NotFound { .. } | Reply::UidChanged => {
                self.tries = self.tries.saturating_add(1);
                self.refusal = None;
                self.state = State::Gone;
                return;
            }
            Reply::Budget { .. } => BlockCode::Budget,
            Reply::ManyBudgets { .. } => BlockCode::ManyBudgets,
            Reply::NamespaceEnding { .. } => BlockCode::NamespaceEnding,
            Reply::Throttle { .. } => BlockCode::Throttled,
            Reply::Conflict { .. } | Reply::Expired | Reply::Transient { .. } => BlockCode::ApiTrouble,
            Reply::Permanent { .. } => BlockCode::Refused,
        };
        let since = match &self.refusal {
            Some((_, held, since)) if *held == code => *since,
            Some(_) | None => now,
        };
        self.refusal = Some((reply, code, since));
        if self.facts.terminating {
            // Somebody else ended it while we asked.
            self.going(now);
        } else if code == BlockCode::Refused {
            self.state = State::Ended;
        } else {
            self.again(now, pace, retry_after);
        }
    }

    /// Held by a budget right now.
    pub(super) fn is_held_by_budget(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
            && matches!(self.refusal, Some((_, BlockCode::Budget | BlockCode::ManyBudgets, _)))
    }

    /// Asks at once, but not before the server's own time.
    pub(super) fn hurry(&mut self, now: Mono) {
        if let State::Waiting { due, not_before } = &mut self.state {
            *due = now.max(*not_before).min(*due);
        }
    }

    /// Held by something that does not pass by itself within seconds.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self.code(), Some(BlockCode::Budget | BlockCode::ManyBudgets | BlockCode::NamespaceEnding))
    }

    /// Why the server refused last time.
    pub(super) fn code(&self) -> Option<BlockCode> {
        self.refusal.as_ref().map(|(_, code, _)| *code)
    }

    /// What holds the pod, when something does. `budgets` are those that guard it.
    pub(super) fn blocker(&self, now: Mono, budgets: &[&BudgetFacts]) -> Option<Blocker> {
        let named = |code, reason, since| Blocker { pod: self.facts.pod.clone(), code, reason, since };
        match (&self.state, &self.refusal) {
            (State::Waiting { .. } | State::Asking { .. } | State::Ended, Some((reply, code, since))) => {
                Some(named(*code, self.sentence(reply, *code, budgets), *since))
            }
            (State::Going { since }, _) if self.overdue_at().is_some_and(|at| at <= now) => {
                let grace = self.facts.grace.as_secs();
                let reason =
                    format!("pod {} was asked to end and is still there after its {grace} s", self.facts.pod);
                Some(named(BlockCode::SlowToEnd, reason, *since))
            }
            (
                State::Waiting { .. }
                | State::Asking { .. }
                | State::Going { .. }
                | State::Ended
                | State::Gone,
                _,
            ) => None,
        }
    }

    fn sentence(&self, reply: &Reply, code: BlockCode, budgets: &[&BudgetFacts]) -> String {
        let (pod, text) = (&self.facts.pod, reply.text());
        let names = || budgets.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        match code {
            BlockCode::Budget if budgets.is_empty() => {
                format!("pod {pod} is held by a disruption budget: {text}")
            }
            BlockCode::Budget => format!("pod {pod} is held: {}", names()),
            BlockCode::ManyBudgets if budgets.is_empty() => {
                format!("pod {pod} has more than one budget: {text}")
            }
            BlockCode::ManyBudgets => {
                format!("pod {pod} has more than one budget, which the server does not evict: {}", names())
            }
            BlockCode::NamespaceEnding => format!("pod {pod} waits for the end of its namespace: {text}"),
            BlockCode::Throttled => format!("pod {pod} waits as the API server has too much to do: {text}"),
            BlockCode::ApiTrouble => format!("pod {pod} waits as its eviction failed in passing: {text}"),
            BlockCode::Refused => format!("pod {pod} cannot be evicted: {text}"),
            BlockCode::SlowToEnd => format!("pod {pod} is slow to end: {text}"),
            BlockCode::BudgetStuck | BlockCode::Sticky | BlockCode::OverTime | BlockCode::NoOtherNode => {
                format!("pod {pod} is held ({}): {text}", code.text())
            }
        }
    }
}
