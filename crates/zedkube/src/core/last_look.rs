//! What nodeagent asks before the machine goes down, and what it is answered: only a look that began after the question
//! says `go`, unless there is nothing to look at.
//!
//! Not here: the look itself (`outage`), and what nodeagent does without an answer. Sources: spec/cluster-lock.md 3.4,
//! 3.6; goals U1, U3, U8, U11. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings;
use nodestatus::Membership;
use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::Unconfirmed;
use outage::turn::record::Op;
use step::Mono;
use topics::{DrainStatus, OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict, Requester};

use super::answers::is_drained;
use super::facts::{DrainLogEvent, Effect};
use super::machine::Zedkube;

/// How long a machine that restarts whatever the record says waits for its entry there.
const EMERGENCY: Duration = Duration::from_secs(2);
/// Pause before a look for a question that stays is made again. The last question of a drained node is a new one each time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The question, and how far its answer is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LastLook {
    question: OutageQuestion,
    /// When it was heard.
    heard: Mono,
    /// The keeper was asked; when it is asked again, where that is so.
    asked: bool,
    again: Option<Mono>,
    /// What the last look has shown, unless that was `go`.
    refused: Option<OutageAnswer>,
    /// Since when no look has reached the API.
    unread_since: Option<Mono>,
    /// Whether our node is a server.
    server: Option<bool>,
    answer: OutageAnswer,
    /// As it is published.
    said: Option<OutageAnswer>,
}

impl LastLook {
    /// After a start: what an earlier run in the same boot had answered.
    pub(crate) fn new(earlier: Option<OutageAnswer>) -> Self {
        Self { answer: earlier.clone().unwrap_or_default(), said: earlier, ..Self::default() }
    }

    /// Hears whether our node is a server.
    pub(crate) fn hear_server(&mut self, server: bool) {
        self.server = Some(server);
    }

    fn is_answered(&self) -> bool {
        self.answer.number == self.question.number && self.answer.verdict == OutageVerdict::Go
    }

    /// Asks the keeper, unless it was asked.
    fn ask(&mut self, out: &mut Vec<Effect>) -> Option<OutageAnswer> {
        if !std::mem::replace(&mut self.asked, true) {
            out.push(Effect::Turn(Ask::LastLook(self.question.number)));
        }
        self.refused.clone()
    }
}

fn go(why: impl Into<String>) -> OutageAnswer {
    OutageAnswer {
        verdict: OutageVerdict::Go,
        why: why.into(),
        next_step: "nothing".to_owned(),
        ..OutageAnswer::default()
    }
}

fn hold(why: impl Into<String>, next_step: impl Into<String>) -> OutageAnswer {
    let (why, next_step) = (why.into(), next_step.into());
    OutageAnswer { verdict: OutageVerdict::Hold, why, next_step, ..OutageAnswer::default() }
}

impl Zedkube {
    /// The turn that nodeagent wants for a restart that nobody has asked a drain for.
    pub(super) fn own_wish(&self) -> Option<TurnRequest> {
        let question = &self.looks.question;
        let (counter, emergency) = match question.kind {
            OutageKind::Turn => (question.number, false),
            OutageKind::Emergency => (question.number, true),
            OutageKind::LastLook if self.is_undrained(question.requested_by) => (0, false),
            OutageKind::None | OutageKind::LastLook => return None,
        };
        Some(TurnRequest { op: Op::Restart, counter, emergency, fit: true })
    }

    /// Nobody has asked for a drain, and nobody was answered one.
    fn is_undrained(&self, by: Requester) -> bool {
        let answered = || self.answers.given().iter().any(|it| it.requested_by == by);
        self.answers.knows_requests() && self.answers.request_of(by).is_none() && !answered()
    }

    /// Hears what nodeagent asks. The same number is the same question.
    pub(super) fn question(&mut self, now: Mono, question: OutageQuestion) {
        let looks = &mut self.looks;
        let before = std::mem::replace(&mut looks.question, question);
        if (before.number, before.kind) == (looks.question.number, looks.question.kind) {
            return;
        }
        (looks.heard, looks.asked, looks.again, looks.refused) = (now, false, None, None);
        if looks.question.kind != before.kind {
            looks.unread_since = None;
        }
    }

    /// Hears what a look has shown.
    pub(super) fn looked_last(
        &mut self,
        now: Mono,
        number: u64,
        result: Result<(), Unconfirmed>,
        out: &mut Vec<Effect>,
    ) {
        let still = self.looks.asked && self.looks.question.number == number;
        if !still || self.looks.is_answered() {
            return;
        }
        let looks = &mut self.looks;
        if !matches!(result, Err(Unconfirmed::Unreachable { .. })) {
            looks.unread_since = None;
        }
        let stays = looks.question.kind == OutageKind::Turn;
        looks.again = stays.then_some(now + LOOK_AGAIN);
        let answer = match result {
            Ok(()) => go("this node still has its turn"),
            Err(Unconfirmed::Lost(why)) => hold(
                format!("its turn to be down is no longer its own: {why}"),
                "nothing: it waits for another turn by itself; `zedbox lock status` shows who holds one",
            ),
            Err(Unconfirmed::Unknown(why)) => hold(
                format!("its turn cannot be confirmed now: {why}"),
                self.forced_by("zedkube is asked again every 30 s"),
            ),
            Err(Unconfirmed::NoMargin(why)) => hold(
                format!("etcd needs this node for its quorum: {why}"),
                self.forced_by("make all members of etcd healthy; zedkube is asked again every 30 s"),
            ),
            Err(Unconfirmed::Unreachable { why, margin }) => self.unreachable(now, &why, margin),
        };
        // What makes way for the look must still be so.
        if answer.verdict == OutageVerdict::Go {
            (self.looks.asked, self.looks.refused) = (false, None);
            let mut asks = Vec::new();
            let other = self.ruling(now, &mut asks);
            self.looks.asked = !asks.is_empty();
            if self.looks.asked {
                self.give(answer, out);
            } else if let Some(other) = other {
                self.give(other, out);
            }
        } else {
            self.looks.refused = Some(answer);
        }
    }

    /// Nothing can be read, and whether etcd can spare this node is known otherwise.
    fn unreachable(&mut self, now: Mono, why: &str, margin: Result<(), String>) -> OutageAnswer {
        let since = *self.looks.unread_since.get_or_insert(now);
        let limit = self.drain.properties.time(settings::DRAIN_SKIP);
        let worker = self.role() == OutageRole::Worker || self.looks.question.kind == OutageKind::Turn;
        match margin {
            Err(margin) if !worker => hold(
                format!(
                    "the Kubernetes API cannot be reached ({why}), and etcd may need this node: {margin}"
                ),
                self.forced_by(
                    "start the other servers and check the network between them; zedkube is asked again every 30 s",
                ),
            ),
            _ if now.since(since) < limit => hold(
                format!("the Lease of turns cannot be read: {why}"),
                self.forced_by(&format!(
                    "it goes down all the same once that has lasted for {} s",
                    limit.as_secs()
                )),
            ),
            _ => {
                let secs = limit.as_secs();
                OutageAnswer {
                    unread: true,
                    ..go(format!("the Lease could not be read for {secs} s: {why}"))
                }
            }
        }
    }

    /// A next step, with the command that a person may use.
    fn forced_by(&self, first: &str) -> String {
        let whom = match self.looks.question.requested_by {
            Requester::Update => "update",
            Requester::DeviceOp => "reboot",
            // It does not wait for ever.
            Requester::Unset
            | Requester::None
            | Requester::Operator
            | Requester::K3sUpdate
            | Requester::Stranger(_) => {
                return first.to_owned();
            }
        };
        format!("{first}; at your own risk: `zedbox drain force complete --for {whom} --reason '...'`")
    }

    /// What this node is to its cluster, as far as that is known.
    fn role(&self) -> OutageRole {
        let earlier = self.looks.answer.role;
        if !self.node.limits.take_turns || self.answers.forced_out() {
            return OutageRole::None;
        }
        match (self.node.member, self.looks.server) {
            (Membership::Outside, _) => OutageRole::None,
            (Membership::Member | Membership::Leaving, Some(true)) => OutageRole::Server,
            (Membership::Member | Membership::Leaving, Some(false)) => OutageRole::Worker,
            (Membership::Member | Membership::Leaving, None) if earlier == OutageRole::None => {
                OutageRole::Unknown
            }
            (Membership::Undecided | Membership::Member | Membership::Leaving, _) => earlier,
        }
    }

    /// What can be answered; `None` while a look is under way, or too little is known.
    fn ruling(&mut self, now: Mono, out: &mut Vec<Effect>) -> Option<OutageAnswer> {
        let kind = self.looks.question.kind;
        if kind == OutageKind::None {
            return None;
        }
        if self.role() == OutageRole::None {
            let why = if self.node.limits.take_turns {
                "this node is in no cluster"
            } else {
                "nodes take no turns here: take_turns is false"
            };
            return Some(go(why));
        }
        match (kind, self.node.site.last_look()) {
            (OutageKind::LastLook, Some(Ok(what))) => {
                return Some(go(format!("{what}: the machine goes down with its pods")));
            }
            (OutageKind::LastLook, Some(Err(what))) => {
                return Some(hold(
                    format!("{what} holds this node"),
                    "`zedbox site status` shows how far it is",
                ));
            }
            _ => {}
        }
        match (kind, self.node.member) {
            (_, Membership::Undecided) => None,
            (OutageKind::LastLook, Membership::Leaving) => Some(hold(
                "this node is leaving its cluster, and goes down after that",
                "read NodeLeave: it says how far that is, and what blocks it",
            )),
            (OutageKind::LastLook, _) if !self.is_undrained(self.looks.question.requested_by) => {
                self.ruling_for_drained(out)
            }
            (OutageKind::Turn, _) if let Some(pause) = self.node.window.paused() => {
                Some(hold(pause.words(), pause.next_step()))
            }
            (OutageKind::LastLook | OutageKind::Turn, _) => self.ruling_for_own(now, out),
            (OutageKind::Emergency, _) if self.node.turn.held().is_some() || self.node.turn.is_back() => {
                Some(go("the Lease records an emergency restart of this node"))
            }
            (OutageKind::Emergency, _) if now >= self.looks.heard + EMERGENCY => Some(OutageAnswer {
                unread: true,
                ..go(format!("the Lease of turns could not be written within {} s", EMERGENCY.as_secs()))
            }),
            (OutageKind::Emergency | OutageKind::None, _) => None,
        }
    }

    /// The node was drained for it: by its answer, and by its turn.
    fn ruling_for_drained(&mut self, out: &mut Vec<Effect>) -> Option<OutageAnswer> {
        if !self.answers.knows_requests() {
            return None;
        }
        let by = self.looks.question.requested_by;
        let Some(answer) = self.answers.given().iter().find(|it| it.requested_by == by) else {
            return Some(hold("the drain for it has not begun", "wait"));
        };
        if answer.status != DrainStatus::Complete {
            return Some(hold(
                format!("the drain for it is not complete: {}", answer.status.text()),
                "see `zedbox drain status`",
            ));
        }
        if !is_drained(answer) {
            return Some(go(format!("the node was not drained: {}", answer.skip)));
        }
        let turn = &self.node.turn;
        if let Some(why) = turn
            .lost()
            .map(str::to_owned)
            .or(turn.waiting().filter(|_| turn.is_refused()).map(|it| it.why.clone()))
        {
            return Some(hold(
                format!("its turn to be down is no longer its own: {why}"),
                "nothing: it waits for another turn by itself; `zedbox lock status` shows who holds one",
            ));
        }
        if turn.held().is_some() || turn.is_unreachable() { self.looks.ask(out) } else { None }
    }

    /// Nobody has asked for a drain, as for a restart on nodeagent's own account: with a turn.
    fn ruling_for_own(&mut self, now: Mono, out: &mut Vec<Effect>) -> Option<OutageAnswer> {
        let turn = &self.node.turn;
        if turn.held().is_some() || turn.is_back() {
            return self.looks.ask(out);
        }
        let waiting = turn.waiting()?.clone();
        if turn.is_unreachable() {
            return Some(self.unreachable(now, &waiting.why, Ok(())));
        }
        self.looks.unread_since = None;
        (self.looks.asked, self.looks.refused) = (false, None);
        let place = waiting.place.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
        let next = format!("wait, or look who is before it: `zedbox lock status`; `{}`", waiting.next);
        Some(OutageAnswer { place, ..hold(format!("waits for its turn to be down: {}", waiting.why), next) })
    }

    /// `go` for a drained node holds only while that drain is complete and its turn is our own: nodeagent may not have
    /// read it yet.
    fn can_be_withdrawn(&self) -> bool {
        let question = &self.looks.question;
        question.kind == OutageKind::LastLook && !self.is_undrained(question.requested_by)
    }

    /// Answers what can be answered, and says what this node is to its cluster.
    pub(super) fn settle_look(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.looks.again.is_some_and(|at| now >= at) {
            (self.looks.again, self.looks.asked) = (None, false);
        }
        let answered = self.looks.is_answered();
        if (!answered || self.can_be_withdrawn())
            && let Some(answer) = self.ruling(now, out)
            && !(answered && answer.verdict == OutageVerdict::Go)
        {
            if answered {
                (self.looks.asked, self.looks.refused) = (false, None);
            }
            self.give(answer, out);
        }
        self.looks.answer.role = self.role();
        if self.looks.said.as_ref() != Some(&self.looks.answer) {
            self.looks.said = Some(self.looks.answer.clone());
            out.push(Effect::OutageAnswer(Box::new(self.looks.answer.clone())));
        }
    }

    fn give(&mut self, answer: OutageAnswer, out: &mut Vec<Effect>) {
        let answer =
            OutageAnswer { number: self.looks.question.number, role: self.looks.answer.role, ..answer };
        if answer != self.looks.answer {
            out.push(Effect::Say(DrainLogEvent::OutageAnswer(answer.clone())));
            self.looks.answer = answer;
        }
    }

    /// When time alone changes the answer.
    pub(super) fn look_due(&self) -> Option<Mono> {
        let looks = &self.looks;
        if looks.is_answered() {
            return None;
        }
        let silent = self.node.turn.is_unreachable();
        let then = match looks.question.kind {
            OutageKind::Emergency => Some(looks.heard + EMERGENCY),
            OutageKind::Turn if silent => {
                looks.unread_since.map(|it| it + self.drain.properties.time(settings::DRAIN_SKIP))
            }
            OutageKind::None | OutageKind::LastLook | OutageKind::Turn => None,
        };
        [looks.again, then].into_iter().flatten().min()
    }
}
