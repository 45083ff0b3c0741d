//! Which steps of a drain and of a force file the history keeps: by what the core says and does.
//!
//! Not here: how they are kept. Pure: no clock, no I/O, no task.

use step::Mono;
use topics::{DrainStatus, GoTime, StepWord};

use super::history::History;
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::drain::Drain;
use crate::core::facts::{DrainNote, Effect};

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
        let released = turn.iter().any(|it| matches!(it, Effect::Note(DrainNote::Released(_))));
        let effect = (!released).then(|| answers.effect_of_force());
        self.audit(answers.force(), effect.as_deref(), (&node.boot_id, at));
        let mut end = None;
        for effect in turn {
            if let Effect::Note(DrainNote::Taken(request)) = effect {
                self.taken(request, &node.boot_id, at, drain.catches_up());
            } else if let Effect::Note(DrainNote::Released(order)) = effect {
                if let Some(request) = answers.request_of(order.requested_by) {
                    self.released(request.id(), &request.context, at);
                }
            } else if let Effect::Note(DrainNote::Word(word, nth, text)) = effect {
                end = self.note(at, (*word, *nth, text)).or(end);
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

    /// Keeps one step; returns the end that it reports.
    fn note(
        &mut self,
        at: GoTime,
        (word, nth, text): (StepWord, u32, &str),
    ) -> Option<(StepWord, DrainStatus, String)> {
        use StepWord::{
            ApiReached, Attempt, AttemptFailed, CannotStart, Complete, Cordoned, Failed, ForceRefused,
            Forced, HookFailed, Interrupted, OutsideWindow, Passed, Paused, Proving, Restarted, Skipped,
            Taken, TurnLost, Void, WaitsForTurn, WindowPassed, Withdrawn,
        };
        // What happens once since one of these.
        let since: &[StepWord] = match word {
            CannotStart => &[Taken, Restarted, ApiReached, TurnLost],
            OutsideWindow | Paused => &[Taken, Restarted, WaitsForTurn, TurnLost],
            WindowPassed => &[Taken, Restarted, OutsideWindow],
            WaitsForTurn => &[Taken, Restarted, CannotStart, Passed, ApiReached, TurnLost],
            Void => {
                self.void(at, text);
                return None;
            }
            Complete | Skipped => {
                return Some((word, DrainStatus::Complete, text.to_owned()));
            }
            Failed => return Some((word, DrainStatus::FailedDrain, text.to_owned())),
            Withdrawn => return Some((word, DrainStatus::NotRequested, text.to_owned())),
            Taken | Restarted | ApiReached | Passed | TurnLost | HookFailed | Cordoned | Attempt
            | Proving | AttemptFailed | Forced | ForceRefused | Interrupted => {
                self.step(word, nth, at, text);
                return None;
            }
        };
        self.once(word, since, nth, at, text);
        None
    }
}
