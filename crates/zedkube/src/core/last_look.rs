//! What nodeagent asks before the machine goes down, and what it is answered: only a look that began after the question
//! says `go`, unless there is nothing to look at.
//!
//! Not here: the look itself (`outage`), and what nodeagent does without an answer. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::settings;
use nodestatus::Membership;
use outage::keeper::{Ask, TurnRequest};
use outage::turn::event::Unconfirmed;
use outage::turn::record::Op;
use step::{Mono, say};
use topics::{DrainStatus, OutageAnswer, OutageKind, OutageQuestion, OutageRole, OutageVerdict, Requester};

use super::answers::{Answers, is_drained};
use super::context::{NodeContext, Step};
use super::facts::Effect;

/// How long a machine that restarts whatever the record says waits for its entry there.
const EMERGENCY: Duration = Duration::from_secs(2);
/// Pause before a look for a question that stays is made again. The last question of a drained node is a new one each time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The question, and how far its answer is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LastLook {
    question: OutageQuestion,
    heard: Mono,
    /// The keeper was asked; when it is asked again, where that is so.
    asked: bool,
    again: Option<Mono>,
    /// What the last look has shown, unless that was `go`.
    refused: Option<OutageAnswer>,
    /// Since when no look has reached the API.
    unread_since: Option<Mono>,
    /// Whether our node is a control-plane node or a member of etcd.
    pub(super) server: Option<bool>,
    answer: OutageAnswer,
    /// As it is published.
    said: Option<OutageAnswer>,
}

/// What the question comes to, as things are now.
enum Ruling {
    /// Too little is known.
    Open,
    /// The keeper has to look.
    Look,
    Answer(OutageAnswer),
}

impl LastLook {
    /// After a start: what an earlier run in the same boot had answered.
    pub(crate) fn new(earlier: Option<OutageAnswer>) -> Self {
        Self { answer: earlier.clone().unwrap_or_default(), said: earlier, ..Self::default() }
    }

    fn is_answered(&self) -> bool {
        self.answer.number == self.question.number && self.answer.verdict == OutageVerdict::Go
    }

    /// The turn that nodeagent wants for a restart that nobody has asked a drain for.
    pub(super) fn own_wish(&self, answers: &Answers) -> Option<TurnRequest> {
        let question = &self.question;
        let (counter, emergency) = match question.kind {
            OutageKind::Turn => (question.number, false),
            OutageKind::Emergency => (question.number, true),
            OutageKind::LastLook if self.is_undrained(answers) => (0, false),
            OutageKind::None | OutageKind::LastLook => return None,
        };
        Some(TurnRequest { op: Op::Restart, counter, emergency, fit: true })
    }

    /// Nobody has asked for a drain, and nobody was answered one.
    fn is_undrained(&self, answers: &Answers) -> bool {
        let by = self.question.requested_by;
        let answered = || answers.given.iter().any(|it| it.requested_by == by);
        answers.knows_requests() && answers.request_of(by).is_none() && !answered()
    }

    /// Hears what nodeagent asks. The same number is the same question.
    pub(super) fn question(&mut self, now: Mono, question: OutageQuestion) {
        let before = std::mem::replace(&mut self.question, question);
        if (before.number, before.kind) == (self.question.number, self.question.kind) {
            return;
        }
        (self.heard, self.asked, self.again, self.refused) = (now, false, None, None);
        if self.question.kind != before.kind {
            self.unread_since = None;
        }
    }

    /// Hears what a look has shown.
    pub(super) fn looked(
        &mut self,
        number: u64,
        result: Result<(), Unconfirmed>,
        answers: &Answers,
        step: Step<'_>,
    ) {
        let Step { now, node, out } = step;
        let still = self.asked && self.question.number == number;
        if !still || self.is_answered() {
            return;
        }
        if !matches!(result, Err(Unconfirmed::Unreachable { .. })) {
            self.unread_since = None;
        }
        let stays = self.question.kind == OutageKind::Turn;
        self.again = stays.then_some(now + LOOK_AGAIN);
        let answer = match result {
            Ok(()) => go("this node still has its turn"),
            Err(Unconfirmed::Lost(why)) => turn_lost(&why),
            Err(Unconfirmed::Unknown(why)) => hold(
                format!("its turn cannot be confirmed now: {why}"),
                self.forced_by("zedkube is asked again every 30 s"),
            ),
            Err(Unconfirmed::NoMargin(why)) => hold(
                format!("etcd needs this node for its quorum: {why}"),
                self.forced_by("make all members of etcd healthy; zedkube is asked again every 30 s"),
            ),
            Err(Unconfirmed::Unreachable { why, margin }) => {
                self.unreachable(now, &why, margin, (answers, node))
            }
        };
        // What makes way for the look must still be so.
        if answer.verdict == OutageVerdict::Go {
            self.refused = None;
            let ruling = self.ruling(now, answers, node);
            self.asked = matches!(ruling, Ruling::Look);
            match ruling {
                Ruling::Open => {}
                Ruling::Look => self.give(answer, out),
                Ruling::Answer(other) => self.give(other, out),
            }
        } else {
            self.refused = Some(answer);
        }
    }

    /// Nothing can be read, and whether etcd can spare this node is known otherwise.
    fn unreachable(
        &mut self,
        now: Mono,
        why: &str,
        margin: Result<(), String>,
        (answers, node): (&Answers, &NodeContext),
    ) -> OutageAnswer {
        let since = *self.unread_since.get_or_insert(now);
        let limit = node.properties.time(settings::DRAIN_SKIP);
        let worker = self.role(answers, node) == OutageRole::Worker || self.question.kind == OutageKind::Turn;
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
        match self.question.requested_by {
            Requester::Update | Requester::DeviceOp => {
                format!("{first}; at your own risk: `zedbox go --past drain --reason '...'`")
            }
            // It does not wait for ever.
            Requester::Unset
            | Requester::None
            | Requester::Operator
            | Requester::NodeMaintenance
            | Requester::K3sUpdate
            | Requester::Stranger(_) => first.to_owned(),
        }
    }

    /// What this node is to its cluster, as far as that is known.
    fn role(&self, answers: &Answers, node: &NodeContext) -> OutageRole {
        let earlier = self.answer.role;
        if !node.limits.take_turns || answers.forced_out() {
            return OutageRole::None;
        }
        match (node.member, self.server) {
            (Membership::Outside, _) => OutageRole::None,
            (Membership::Member | Membership::Leaving, Some(true)) => OutageRole::Server,
            (Membership::Member | Membership::Leaving, Some(false)) => OutageRole::Worker,
            (Membership::Member | Membership::Leaving, None) if earlier == OutageRole::None => {
                OutageRole::Unknown
            }
            (Membership::Undecided | Membership::Member | Membership::Leaving, _) => earlier,
        }
    }

    /// What can be answered, or has to be looked at first.
    fn ruling(&mut self, now: Mono, answers: &Answers, node: &NodeContext) -> Ruling {
        let kind = self.question.kind;
        if kind == OutageKind::None {
            return Ruling::Open;
        }
        if self.role(answers, node) == OutageRole::None {
            let why = if node.limits.take_turns {
                "this node is in no cluster"
            } else {
                "nodes take no turns here: take_turns is false"
            };
            return Ruling::Answer(go(why));
        }
        Ruling::Answer(match (kind, node.site.last_look(), node.member) {
            (OutageKind::LastLook, Some(Ok(what)), _) => {
                go(format!("{what}: the machine goes down with its pods"))
            }
            (OutageKind::LastLook, Some(Err(what)), _) => {
                hold(format!("{what} holds this node"), "`zedbox site status` shows how far it is")
            }
            (_, _, Membership::Undecided) => return Ruling::Open,
            (OutageKind::LastLook, _, Membership::Leaving) => hold(
                "this node is leaving its cluster, and goes down after that",
                "read NodeLeave: it says how far that is, and what blocks it",
            ),
            (OutageKind::LastLook, ..) if !self.is_undrained(answers) => {
                return self.ruling_for_drained(answers, node);
            }
            (OutageKind::Turn, ..) if let Some(pause) = node.window.paused() => {
                hold(pause.words(), pause.next_step())
            }
            (OutageKind::LastLook | OutageKind::Turn, ..) => {
                return self.ruling_for_own(now, answers, node);
            }
            (OutageKind::Emergency, ..) if node.turn.held().is_some() || node.turn.is_back() => {
                go("the Lease records an emergency restart of this node")
            }
            (OutageKind::Emergency, ..) if now >= self.heard + EMERGENCY => {
                let secs = EMERGENCY.as_secs();
                let why = format!("the Lease of turns could not be written within {secs} s");
                OutageAnswer { unread: true, ..go(why) }
            }
            (OutageKind::Emergency | OutageKind::None, ..) => return Ruling::Open,
        })
    }

    /// The node was drained for it: by its answer, and by its turn.
    fn ruling_for_drained(&self, answers: &Answers, node: &NodeContext) -> Ruling {
        if !answers.knows_requests() {
            return Ruling::Open;
        }
        let by = self.question.requested_by;
        let turn = &node.turn;
        let refused = || turn.waiting().filter(|_| turn.is_refused()).map(|it| it.why.as_str());
        Ruling::Answer(match answers.given.iter().find(|it| it.requested_by == by) {
            None => hold("the drain for it has not begun", "wait"),
            Some(it) if it.status != DrainStatus::Complete => {
                let why = format!("the drain for it is not complete: {}", it.status.text());
                hold(why, "see `zedbox status`")
            }
            Some(it) if !is_drained(it) => go(format!("the node was not drained: {}", it.skip)),
            Some(_) if let Some(why) = turn.lost().or_else(refused) => turn_lost(why),
            Some(_) if turn.held().is_some() || turn.is_unreachable() => return Ruling::Look,
            Some(_) => return Ruling::Open,
        })
    }

    /// Nobody has asked for a drain, as for a restart on nodeagent's own account: with a turn.
    fn ruling_for_own(&mut self, now: Mono, answers: &Answers, node: &NodeContext) -> Ruling {
        let turn = &node.turn;
        if turn.held().is_some() || turn.is_back() {
            return Ruling::Look;
        }
        let Some(waiting) = turn.waiting() else { return Ruling::Open };
        if turn.is_unreachable() {
            return Ruling::Answer(self.unreachable(now, &waiting.why, Ok(()), (answers, node)));
        }
        self.unread_since = None;
        (self.asked, self.refused) = (false, None);
        let place = waiting.place.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
        let why = format!("waits for its turn to be down: {}", waiting.why);
        Ruling::Answer(OutageAnswer { place, ..hold(why, waiting.next_step()) })
    }

    /// Answers what can be answered, and says what this node is to its cluster.
    pub(super) fn settle(&mut self, answers: &Answers, step: Step<'_>) {
        let Step { now, node, out } = step;
        if self.again.is_some_and(|at| now >= at) {
            (self.again, self.asked) = (None, false);
        }
        // `go` for a drained node holds only while that drain is complete and its turn is our own: nodeagent may not have
        // read it yet.
        let answered = self.is_answered();
        let can_be_withdrawn = self.question.kind == OutageKind::LastLook && !self.is_undrained(answers);
        let ruling =
            if !answered || can_be_withdrawn { self.ruling(now, answers, node) } else { Ruling::Open };
        let answer = match ruling {
            Ruling::Open => None,
            Ruling::Look => {
                if !std::mem::replace(&mut self.asked, true) {
                    out.push(Effect::Turn(Ask::LastLook(self.question.number)));
                }
                self.refused.clone()
            }
            Ruling::Answer(answer) => Some(answer),
        };
        if let Some(answer) = answer.filter(|it| !answered || it.verdict != OutageVerdict::Go) {
            if answered {
                (self.asked, self.refused) = (false, None);
            }
            self.give(answer, out);
        }
        self.answer.role = self.role(answers, node);
        if self.said.as_ref() != Some(&self.answer) {
            self.said = Some(self.answer.clone());
            out.push(Effect::OutageAnswer(Box::new(self.answer.clone())));
        }
    }

    fn give(&mut self, answer: OutageAnswer, out: &mut Vec<Effect>) {
        let answer = OutageAnswer { number: self.question.number, role: self.answer.role, ..answer };
        if answer != self.answer {
            let OutageAnswer { why, next_step, .. } = &answer;
            if answer.verdict != OutageVerdict::Go {
                say!(out, warn, "nodeagent may not take the machine down now: {why}; {next_step}");
            } else if answer.unread {
                say!(
                    out,
                    warn,
                    "nodeagent may take the machine down without a word of the Lease of turns: {why}"
                );
            } else {
                say!(out, info, "nodeagent may take the machine down: {why}");
            }
            self.answer = answer;
        }
    }

    /// When time alone changes the answer.
    pub(super) fn due(&self, node: &NodeContext) -> Option<Mono> {
        if self.is_answered() {
            return None;
        }
        let then = match self.question.kind {
            OutageKind::Emergency => Some(self.heard + EMERGENCY),
            OutageKind::Turn if node.turn.is_unreachable() => {
                self.unread_since.map(|it| it + node.properties.time(settings::DRAIN_SKIP))
            }
            OutageKind::None | OutageKind::LastLook | OutageKind::Turn => None,
        };
        [self.again, then].into_iter().flatten().min()
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

fn turn_lost(why: &str) -> OutageAnswer {
    hold(
        format!("its turn to be down is no longer its own: {why}"),
        "`zedbox lock status` shows who holds one; it waits for another turn by itself",
    )
}
