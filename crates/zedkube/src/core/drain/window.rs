//! The windows in the life of a drain: outside of them none starts, and what has started ends as ever.
//!
//! A drain has started once it is on its way to the cordon. One that waits for its turn when the window closes leaves the
//! queue. A person's own drain, a force file and a whole-site operation are a person's word already and wait for no window.
//! A person's pause is a window that is closed to all who ask for a drain, until a person opens it.
//! Not here: when a window is open (`window`); time comes in as that fact, so that a clock that jumps changes nothing but
//! it. Source: goals U9. Pure: no clock, no I/O, no task.

use step::say;
use topics::{DrainPhase, DrainStatus, GoTime, NodeDrainRequest, Requester, StepWord};

use super::life::{Drain, DrainStepOutcome};
use super::run::DrainRun;
use super::words::{StateWords, words};
use crate::core::answers::Answers;
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, Pass};

impl Drain {
    /// Why it may not start now.
    fn shut_out(&self, node: &NodeContext) -> Option<(StepWord, String)> {
        // REQUESTED says that it had not started when this agent restarted.
        if self.resume.is_some() || self.floor.is_some_and(|it| it != DrainStatus::Requested) {
            return None;
        }
        if let Some(pause) = node.window.paused() {
            return Some((StepWord::Paused, pause.words()));
        }
        let closed = node.window.closed.as_ref()?;
        let passes = self.serves.as_ref().is_some_and(|it| may_always(it, node));
        (!passes).then(|| (StepWord::OutsideWindow, closed.why.clone()))
    }

    /// Until it has started, the drain of a closed window works in the name of somebody who still asks, and of one who may
    /// start now before all others.
    pub(crate) fn settle_name(&mut self, answers: &Answers, node: &NodeContext) {
        if node.window.closed.is_none() || !self.awaits_start() {
            return;
        }
        let is_served =
            |it: &&NodeDrainRequest| self.serves.as_ref().is_some_and(|ours| ours.id() == it.id());
        let may_start = || answers.open().filter(|it| may_always(it, node));
        let chosen = may_start().find(is_served).or_else(|| may_start().next());
        let chosen = chosen.or_else(|| answers.open().find(is_served)).or_else(|| answers.open().next());
        if let Some(chosen) = chosen.cloned() {
            self.serves = Some(chosen);
        }
    }

    fn awaits_start(&self) -> bool {
        matches!(self.run, DrainRun::OutsideWindow | DrainRun::Probing { .. } | DrainRun::Waiting { .. })
    }

    /// Sends a drain that has not started back before the window. Whether it has to wait there.
    pub(super) fn settle_window(&mut self, node: &NodeContext, out: &mut Vec<Effect>) -> bool {
        let Some(closed) = self.shut_out(node).filter(|_| self.awaits_start()) else { return false };
        self.close(closed, out);
        true
    }

    /// The same for one that is about to start, which says so when a person lets it.
    pub(super) fn may_start(&mut self, node: &NodeContext, out: &mut Vec<Effect>) -> bool {
        if let Some(closed) = self.shut_out(node) {
            self.close(closed, out);
            return false;
        }
        if let Some(pass) = self.window_pass(node) {
            say!(out, warn, "the drain starts outside of its windows by a person's word: {}", pass.by);
        }
        true
    }

    /// The person's word by which it starts outside of the windows.
    pub(super) fn window_pass<'a>(&self, node: &'a NodeContext) -> Option<&'a Pass> {
        let ours = self.serves.as_ref().and_then(|it| pass_of(it, node));
        ours.filter(|_| node.window.closed.is_some())
    }

    fn close(&mut self, (word, why): (StepWord, String), out: &mut Vec<Effect>) {
        if self.run != DrainRun::OutsideWindow {
            if word == StepWord::Paused {
                say!(out, warn, "the drain waits until a person ends the pause: {why}");
            } else {
                say!(out, info, "the drain waits for a window: {why}");
            }
            self.run = DrainRun::OutsideWindow;
        }
    }

    /// It waits for a window: nothing that an earlier run of this agent was in is continued, and whoever comes to wait
    /// leaves no cordon behind, as that of a COMPLETE that is void.
    pub(super) fn let_go(&mut self, waited: bool) -> Option<DrainStepOutcome> {
        let continued = self.floor.take().is_some();
        (continued || !waited).then_some(DrainStepOutcome::TurnRefused)
    }

    /// It waits for a window, and nothing of it has begun.
    pub(crate) fn is_outside_window(&self) -> bool {
        self.run == DrainRun::OutsideWindow
    }

    /// When the window opens, for a reader.
    pub(super) fn opens(&self, node: &NodeContext) -> Option<GoTime> {
        let opens = self.run == DrainRun::OutsideWindow && node.window.paused().is_none();
        let closed = node.window.closed.as_ref().filter(|_| opens);
        closed.and_then(|it| it.opens)
    }

    pub(super) fn window_words(node: &NodeContext) -> StateWords {
        if let Some(pause) = node.window.paused() {
            return words(DrainPhase::Paused, pause.words(), pause.next_step());
        }
        let why = node.window.closed.as_ref().map_or("the window is opening", |it| &it.why);
        let step = "wait; to start it now all the same: `zedbox drain start-now --reason '...'`";
        words(DrainPhase::OutsideWindow, why, step)
    }
}

/// Whether windows do not keep this request waiting.
fn may_always(request: &NodeDrainRequest, node: &NodeContext) -> bool {
    request.requested_by == Requester::Operator || pass_of(request, node).is_some()
}

fn pass_of<'a>(request: &NodeDrainRequest, node: &'a NodeContext) -> Option<&'a Pass> {
    node.window.pass.as_ref().filter(|it| it.of == request.id())
}
