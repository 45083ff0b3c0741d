//! What zedkube is asked before the machine goes down, and what follows from its answer or its silence.
//!
//! | Asked | by | Without an answer |
//! |---|---|---|
//! | last look | an operation that the node was drained for, right before the device is asked | asked again; after `look_limit_ms` a worker goes, a server waits for a person |
//! | turn | a restart on our own account, before it begins and right before the device is asked | after `look_limit_ms` it goes as an emergency |
//! | emergency | the same, once its turn has not come in time | it goes after `emergency_ms` |
//!
//! Beside a zedkube that answers no questions nothing is asked. Sources: goals U1, U3, U11; spec/cluster-lock.md 3.4, 3.6.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::device::MachineOperation;
use step::Mono;
use topics::{OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict, Requester};

use super::phase::OrderPhase;
use super::{Effect, MachineOrder, NodeAgent, NodeLogEvent};
use crate::limits::{ANSWER_LIMIT, EMERGENCY, LOOK_LIMIT};

/// Behind the reason of a restart that waited for its turn in vain.
const LATE: &str = "without its turn, which did not come in time";

/// What is asked, and what was answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Talk {
    question: OutageQuestion,
    /// As it is published.
    said: OutageQuestion,
    /// The newest answer, to whatever question; `None` beside a zedkube that gives none.
    answer: Option<OutageAnswer>,
    /// Since when questions about a drained node stay without an answer.
    silent_since: Option<Mono>,
    own: OwnTurn,
    /// What is to be noted beside the reason of a restart on our own account.
    note: String,
}

/// How far the turn for a restart on our own account is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum OwnTurn {
    /// Not asked for, or granted.
    #[default]
    None,
    /// Waited for.
    Waits {
        /// Since when nothing has moved before us.
        since: Mono,
        /// The place in the queue.
        place: u32,
        /// When it is waited for no longer.
        until: Mono,
    },
    /// The others are to hear of it.
    Emergency { until: Mono },
    /// It waits for nobody any more.
    Waived,
}

impl Talk {
    /// After a start: `earlier` is what was asked last.
    pub(super) fn new(earlier: OutageQuestion) -> Self {
        let question = OutageQuestion { number: earlier.number, ..OutageQuestion::default() };
        Self { question, said: earlier, ..Self::default() }
    }

    /// What this node is to its cluster.
    pub(super) fn role(&self) -> OutageRole {
        self.answer.as_ref().map(|it| it.role).unwrap_or_default()
    }

    /// Asks, with a number of its own.
    pub(super) fn ask(
        &mut self,
        now: Mono,
        kind: OutageKind,
        operation: MachineOperation,
        by: Option<Requester>,
    ) {
        let clock = u64::try_from(now.since_start().as_micros()).unwrap_or_default();
        let question = &mut self.question;
        question.number = clock.max(question.number + 1);
        (question.kind, question.op) = (kind, operation.word().to_owned());
        question.requested_by = by.unwrap_or_default();
    }

    /// The answer to what is asked now.
    fn answer(&self) -> Option<&OutageAnswer> {
        self.answer
            .as_ref()
            .filter(|it| it.number == self.question.number && it.verdict != OutageVerdict::Unknown)
    }

    /// Says why the machine is not down yet.
    fn hold(&mut self, why: String, next_step: String, out: &mut Vec<Effect>) {
        if self.question.held != why {
            let op = if self.own == OwnTurn::None { "last look" } else { "restart" };
            out.push(Effect::Say(NodeLogEvent::NotNow {
                op,
                why: why.clone(),
                next_step: next_step.clone(),
            }));
        }
        (self.question.held, self.question.next_step) = (why, next_step);
    }

    /// Nothing holds it back any more.
    pub(super) fn free(&mut self) {
        (self.question.held, self.question.next_step) = (String::new(), String::new());
    }

    /// A restart on our own account is no longer called for.
    pub(super) fn withdraw(&mut self) {
        if std::mem::take(&mut self.own) != OwnTurn::None {
            self.question.kind = OutageKind::None;
            self.note.clear();
            self.free();
        }
    }

    /// Whether a restart on our own account waits.
    pub(super) fn waits(&self) -> bool {
        matches!(self.own, OwnTurn::Waits { .. } | OwnTurn::Emergency { .. })
    }

    /// When that is to be looked at again.
    pub(super) fn due(&self) -> Option<Mono> {
        match self.own {
            OwnTurn::Waits { until, .. } | OwnTurn::Emergency { until } => Some(until),
            OwnTurn::None | OwnTurn::Waived => None,
        }
    }

    /// What goes behind the reason of that restart.
    pub(super) fn take_note(&mut self) -> String {
        std::mem::take(&mut self.note)
    }

    /// Publishes what differs from what is published.
    pub(super) fn publish_question(&mut self, out: &mut Vec<Effect>) {
        if self.said != self.question {
            self.said = self.question.clone();
            out.push(Effect::Question(Box::new(self.question.clone())));
        }
    }
}

impl NodeAgent {
    /// Hears what zedkube has answered.
    pub(super) fn answered(&mut self, now: Mono, answer: OutageAnswer, out: &mut Vec<Effect>) {
        self.talk.answer = Some(answer);
        let Some(answer) = self.talk.answer().cloned() else { return };
        let goes = answer.verdict == OutageVerdict::Go;
        if let OrderPhase::Held { again_at, .. } = &mut self.phase
            && goes
        {
            *again_at = now;
        }
        // What comes too late may be old by now.
        let OrderPhase::Looking { order, until } = &self.phase else { return };
        if now >= *until {
            return;
        }
        let order = order.clone();
        self.talk.silent_since = None;
        self.phase = if goes {
            if answer.unread {
                out.push(Effect::Mark { order: order.clone(), why: answer.why });
            }
            self.operate(now, order, out)
        } else {
            self.talk.hold(answer.why, answer.next_step, out);
            OrderPhase::Held { order, again_at: now + self.limits.refused_pause() }
        };
    }

    /// zedkube has not answered in time whether the machine may go down.
    pub(super) fn unanswered(&mut self, now: Mono, order: MachineOrder, out: &mut Vec<Effect>) -> OrderPhase {
        let asked = Mono::from_start(now.since_start().saturating_sub(ANSWER_LIMIT));
        let since = *self.talk.silent_since.get_or_insert(asked);
        let limit = LOOK_LIMIT;
        let worker = self.talk.role() == OutageRole::Worker;
        if worker && now.since(since) >= limit {
            let unasked = format!(
                "zedkube did not answer for {} s, so the Lease of turns could not be read",
                limit.as_secs()
            );
            // It was waited for: what it says of the drain may be another by now.
            out.push(Effect::Check);
            return OrderPhase::Checking { order, unasked };
        }
        let whom = if order.drained_for() == Some(Requester::Update) { "update" } else { "reboot" };
        let then = if worker {
            format!("it goes down all the same once that has lasted for {} s", limit.as_secs())
        } else {
            format!("at your own risk: `zedbox drain force complete --for {whom} --reason '...'`")
        };
        let why = "zedkube does not answer whether this node may go down now".to_owned();
        self.talk.hold(why, format!("check that zedkube runs: `zedbox drain status`; {then}"), out);
        OrderPhase::Held { order, again_at: now + self.limits.refused_pause() }
    }

    /// Whether a restart on our own account needs a turn, and has not waived it.
    pub(super) fn needs_turn(&self) -> bool {
        let asks = self.talk.answer.is_some() && self.talk.role() != OutageRole::None;
        self.has_drain() && asks && self.talk.own != OwnTurn::Waived
    }

    /// Whether a restart on our own account may happen now: it is its turn, or that is waited for no longer. `limit` is
    /// for each node that goes before, and for this one, from when the last of them went.
    pub(super) fn may_restart(&mut self, now: Mono, limit: Duration, out: &mut Vec<Effect>) -> bool {
        if !self.needs_turn() {
            return true;
        }
        let look_limit = LOOK_LIMIT;
        let answer = self.talk.answer().cloned();
        let talk = &mut self.talk;
        match talk.own {
            OwnTurn::None => {
                talk.ask(now, OutageKind::Turn, MachineOperation::Reboot, None);
                talk.own = OwnTurn::Waits { since: now, place: 0, until: now + look_limit };
                false
            }
            OwnTurn::Waits { since, place, until } => {
                let until = match answer {
                    Some(answer) if answer.verdict == OutageVerdict::Go => {
                        if answer.unread {
                            talk.note = format!("; {}", answer.why);
                        }
                        talk.own = OwnTurn::None;
                        talk.free();
                        return true;
                    }
                    Some(answer) => {
                        let (before, place) = (place, if answer.place > 0 { answer.place } else { place });
                        let moved = place < before || (before == 0 && place > 0);
                        let since = if moved { now } else { since };
                        let until = since + limit.saturating_mul(place.max(1));
                        talk.own = OwnTurn::Waits { since, place, until };
                        let mins = limit.as_secs() / 60;
                        let then = format!(
                            "it restarts without its turn after {mins} min for each node before it and itself"
                        );
                        talk.hold(answer.why, format!("{}; {then}", answer.next_step), out);
                        until
                    }
                    None => until,
                };
                if now >= until {
                    talk.ask(now, OutageKind::Emergency, MachineOperation::Reboot, None);
                    talk.own = OwnTurn::Emergency { until: now + EMERGENCY };
                }
                false
            }
            OwnTurn::Emergency { until } => {
                let goes = answer.is_some_and(|it| it.verdict == OutageVerdict::Go);
                if goes || now >= until {
                    talk.own = OwnTurn::Waived;
                    talk.note = format!("; {LATE}");
                    talk.free();
                }
                goes || now >= until
            }
            OwnTurn::Waived => true,
        }
    }
}
