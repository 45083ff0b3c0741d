//! Which steps of a drain and of a force file the history keeps: read off what the core says and does.
//!
//! Not here: how they are kept. Pure: no clock, no I/O, no task.

use step::Mono;
use topics::{DrainStatus, GoTime, StepWord};

use super::history::{History, whose};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::drain::Drain;
use crate::core::facts::{Effect, LogEvent};

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
        let released = turn.iter().any(|it| matches!(it, Effect::Say(LogEvent::Forced(..))));
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
                    StepWord::Hindered,
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
        said: &LogEvent,
        drain: &Drain,
        answers: &Answers,
        node: &NodeContext,
    ) -> Option<(StepWord, DrainStatus, String)> {
        match said {
            LogEvent::Taken(request) => {
                self.taken(request, &node.boot_id, at, drain.catches_up());
            }
            LogEvent::Hindered(why) => {
                let after = [StepWord::Taken, StepWord::Restarted, StepWord::ApiReached, StepWord::TurnLost];
                self.once(StepWord::Hindered, &after, 0, at, why);
            }
            LogEvent::Passed(what) => self.step(StepWord::Passed, 0, at, what),
            LogEvent::OutsideWindow(why) | LogEvent::Paused(why) => {
                let paused = matches!(said, LogEvent::Paused(_));
                self.once(
                    if paused { StepWord::Paused } else { StepWord::OutsideWindow },
                    &[StepWord::Taken, StepWord::Restarted, StepWord::WaitsForTurn, StepWord::TurnLost],
                    0,
                    at,
                    why,
                );
            }
            LogEvent::WindowPassed(by) => {
                let after = [StepWord::Taken, StepWord::Restarted, StepWord::OutsideWindow];
                self.once(StepWord::WindowPassed, &after, 0, at, by);
            }
            LogEvent::WaitsForTurn(why) => {
                let after = [
                    StepWord::Taken,
                    StepWord::Restarted,
                    StepWord::Hindered,
                    StepWord::Passed,
                    StepWord::ApiReached,
                    StepWord::TurnLost,
                ];
                self.once(StepWord::WaitsForTurn, &after, 0, at, why);
            }
            LogEvent::HookFailed((tried, _), why) => self.step(StepWord::HookFailed, *tried, at, why),
            LogEvent::TurnLost(why) => self.step(StepWord::TurnLost, 0, at, why),
            LogEvent::Cordoned(owner) => self.step(StepWord::Cordoned, 0, at, whose(*owner)),
            LogEvent::Attempt(attempt, _) => self.step(StepWord::Attempt, *attempt, at, ""),
            LogEvent::AttemptFailed(attempt, why) => {
                self.step(StepWord::AttemptFailed, *attempt, at, why);
            }
            LogEvent::Void(why) => self.void(at, why),
            LogEvent::Forced(order, _) => {
                if let Some(request) = answers.request_of(order.requested_by) {
                    self.released(request.id(), &request.context, at);
                }
            }
            LogEvent::Complete(_) => return Some((StepWord::Complete, DrainStatus::Complete, String::new())),
            LogEvent::Skipped(why) => return Some((StepWord::Skipped, DrainStatus::Complete, why.clone())),
            LogEvent::GivingUp(why) => {
                return Some((StepWord::Failed, DrainStatus::FailedDrain, why.clone()));
            }
            LogEvent::Withdrawn => {
                let text = "all requests were withdrawn".to_owned();
                return Some((StepWord::Withdrawn, DrainStatus::NotRequested, text));
            }
            LogEvent::Changing(..)
            | LogEvent::Starting
            | LogEvent::OutageAnswer(_)
            | LogEvent::CordonFailed(..)
            | LogEvent::BlockerChanged(_)
            | LogEvent::PauseKept(..)
            | LogEvent::NodeActivity(_)
            | LogEvent::Left(_)
            | LogEvent::HeldTooLong
            | LogEvent::SkipWaits(_)
            | LogEvent::SkipRefused(_)
            | LogEvent::Gate(_)
            | LogEvent::Repaired(_)
            | LogEvent::Tainted(_)
            | LogEvent::RepairsAgain(..)
            | LogEvent::GateWarning(_)
            | LogEvent::GivenBack
            | LogEvent::LookFailed(_)
            | LogEvent::Leftovers(_) => {}
        }
        None
    }
}
