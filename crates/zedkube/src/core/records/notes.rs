//! Which steps of a drain and of a force file the history keeps: read off what the core says and does.
//!
//! Not here: how they are kept. Pure: no clock, no I/O, no task.

use step::Mono;
use topics::{DrainStatus, GoTime, StepWord};

use super::history::{History, whose};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::drain::Drain;
use crate::core::facts::{DrainLogEvent, Effect};

impl History {
    /// Keeps what this turn brings; says it when it is worth a write.
    pub(crate) fn keep(
        &mut self,
        now: Mono,
        turn: &[Effect],
        drain: &Drain,
        answers: &Answers,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        let at = node.wall(now);
        let released = turn.iter().any(|it| matches!(it, Effect::Say(DrainLogEvent::Forced(..))));
        let effect = (!released).then(|| answers.effect_of_force());
        self.audit(answers.force(), effect.as_deref(), (&node.boot_id, at));
        let mut end = None;
        for effect in turn {
            if let Effect::Say(said) = effect {
                end = self.note(at, said, drain, answers, node).or(end);
            } else if matches!(effect, Effect::Cordon(..)) {
                let after = [
                    StepWord::Taken,
                    StepWord::Restarted,
                    StepWord::CannotStart,
                    StepWord::Passed,
                    StepWord::WaitsForTurn,
                ];
                self.once(StepWord::ApiReached, &after, 0, at, "");
            }
        }
        if self.has_open() {
            if let Some((counts, blockers, sums)) = drain.facts(node) {
                self.facts(counts, &blockers, sums);
            }
            self.reached(drain.status(), &drain.all_left());
            if let Some(attempt) = drain.proving() {
                self.once(StepWord::Proving, &[StepWord::Attempt], attempt, at, "");
            }
            let silent_end = || self.newest().and_then(|record| drain.silent_end(record, answers));
            if let Some((step, status, text)) = end.or_else(silent_end) {
                self.end(step, status, at, &text);
            }
        }
        out.extend(self.take_new(node).map(|it| Effect::History(Box::new(it))));
    }

    /// Keeps one thing that is said; returns the end that it reports.
    fn note(
        &mut self,
        at: GoTime,
        said: &DrainLogEvent,
        drain: &Drain,
        answers: &Answers,
        node: &NodeContext,
    ) -> Option<(StepWord, DrainStatus, String)> {
        match said {
            DrainLogEvent::Taken(request) => {
                self.taken(request, &node.boot_id, at, drain.catches_up());
            }
            DrainLogEvent::CannotStart(why) => {
                let after = [StepWord::Taken, StepWord::Restarted, StepWord::ApiReached, StepWord::TurnLost];
                self.once(StepWord::CannotStart, &after, 0, at, why);
            }
            DrainLogEvent::Passed(what) => self.step(StepWord::Passed, 0, at, what),
            DrainLogEvent::OutsideWindow(why) | DrainLogEvent::Paused(why) => {
                let paused = matches!(said, DrainLogEvent::Paused(_));
                self.once(
                    if paused { StepWord::Paused } else { StepWord::OutsideWindow },
                    &[StepWord::Taken, StepWord::Restarted, StepWord::WaitsForTurn, StepWord::TurnLost],
                    0,
                    at,
                    why,
                );
            }
            DrainLogEvent::WindowPassed(by) => {
                let after = [StepWord::Taken, StepWord::Restarted, StepWord::OutsideWindow];
                self.once(StepWord::WindowPassed, &after, 0, at, by);
            }
            DrainLogEvent::WaitsForTurn(why) => {
                let after = [
                    StepWord::Taken,
                    StepWord::Restarted,
                    StepWord::CannotStart,
                    StepWord::Passed,
                    StepWord::ApiReached,
                    StepWord::TurnLost,
                ];
                self.once(StepWord::WaitsForTurn, &after, 0, at, why);
            }
            DrainLogEvent::HookFailed((tried, _), why) => self.step(StepWord::HookFailed, *tried, at, why),
            DrainLogEvent::TurnLost(why) => self.step(StepWord::TurnLost, 0, at, why),
            DrainLogEvent::Cordoned(owner) => self.step(StepWord::Cordoned, 0, at, whose(*owner)),
            DrainLogEvent::Attempt(attempt, _) => self.step(StepWord::Attempt, *attempt, at, ""),
            DrainLogEvent::AttemptFailed(attempt, why) => {
                self.step(StepWord::AttemptFailed, *attempt, at, why);
            }
            DrainLogEvent::Void(why) => self.void(at, why),
            DrainLogEvent::Forced(order, _) => {
                if let Some(request) = answers.request_of(order.requested_by) {
                    self.released(request.id(), &request.context, at);
                }
            }
            DrainLogEvent::Complete(_) => {
                return Some((StepWord::Complete, DrainStatus::Complete, String::new()));
            }
            DrainLogEvent::Skipped(why) => {
                return Some((StepWord::Skipped, DrainStatus::Complete, why.clone()));
            }
            DrainLogEvent::GivingUp(why) => {
                return Some((StepWord::Failed, DrainStatus::FailedDrain, why.clone()));
            }
            DrainLogEvent::Withdrawn => {
                let text = "all requests were withdrawn".to_owned();
                return Some((StepWord::Withdrawn, DrainStatus::NotRequested, text));
            }
            DrainLogEvent::Changing(..)
            | DrainLogEvent::Starting
            | DrainLogEvent::OutageAnswer(_)
            | DrainLogEvent::CordonFailed(..)
            | DrainLogEvent::BlockerChanged(_)
            | DrainLogEvent::PauseKept(..)
            | DrainLogEvent::NodeActivity(_)
            | DrainLogEvent::Left(_)
            | DrainLogEvent::HeldTooLong
            | DrainLogEvent::SkipWaits(_)
            | DrainLogEvent::SkipRefused(_)
            | DrainLogEvent::Gate(_)
            | DrainLogEvent::Repaired(_)
            | DrainLogEvent::Tainted(_)
            | DrainLogEvent::RepairsAgain(..)
            | DrainLogEvent::GateWarning(_)
            | DrainLogEvent::CordonRemoved
            | DrainLogEvent::LookFailed(_)
            | DrainLogEvent::Leftovers(_) => {}
        }
        None
    }
}
