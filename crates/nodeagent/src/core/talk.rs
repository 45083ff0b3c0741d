//! The question to zedkube before the machine goes down, and its newest answer. Pure: no clock, no I/O, no task.

use agent::device::MachineOperation;
use step::{Mono, say};
use topics::{OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict, Requester};

use super::Effect;

/// What is asked, and what was answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Talk {
    pub(super) question: OutageQuestion,
    /// As it is published.
    said: OutageQuestion,
    /// The newest answer, to whatever question; `None` beside a zedkube that gives none.
    pub(super) answer: Option<OutageAnswer>,
    /// Since when questions about a drained node stay without an answer.
    pub(super) silent_since: Option<Mono>,
    pub(super) own: OwnTurn,
    /// What is to be noted beside the reason of a restart on our own account.
    pub(super) note: String,
}

/// How far the turn for a restart on our own account is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OwnTurn {
    /// Not asked for, or granted.
    #[default]
    None,
    Waits {
        /// Since when nothing has moved before us.
        since: Mono,
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
    pub(super) fn answer(&self) -> Option<&OutageAnswer> {
        self.answer
            .as_ref()
            .filter(|it| it.number == self.question.number && it.verdict != OutageVerdict::Unknown)
    }

    /// Says why the machine is not down yet.
    pub(super) fn hold(&mut self, why: String, next_step: String, out: &mut Vec<Effect>) {
        if self.question.held != why {
            let op = if self.own == OwnTurn::None { "last look" } else { "restart" };
            say!(out, warn, "{op} held back before the machine goes down: {why}; {next_step}");
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

    pub(super) fn publish_question(&mut self, out: &mut Vec<Effect>) {
        if self.said != self.question {
            self.said = self.question.clone();
            out.push(Effect::Question(Box::new(self.question.clone())));
        }
    }
}
