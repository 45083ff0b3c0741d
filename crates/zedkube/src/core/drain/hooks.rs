//! Hooks in the life of a drain: called in the turn of the node and before its cordon, tried again as a drain is, undone
//! when the drain ends without a boot.
//!
//! That there are any is known once the first is called: whoever is to cordon the node calls them first, and says so. With
//! none, nothing of this happens. After them the turn is looked at again, as they may have taken long. Not here: the
//! programs, and which of them ran (`hooks`). Source: goals U9. Pure: no clock, no I/O, no task.

use kubenodeop::Progress;
use step::{Mono, say};
use topics::{DrainPhase, DrainStatus};

use super::life::{Drain, DrainStepOutcome};
use super::run::{DrainEnd, DrainRun};
use super::words::{StateWords, words};
use crate::core::context::NodeContext;
use crate::core::facts::{CordonFailure, Effect, say_given_up};

impl Drain {
    /// Hears that a hook is being called.
    pub(crate) fn hooking(&mut self, name: String) {
        if let DrainRun::Cordoning { again: None, .. } | DrainRun::Hooks { .. } = self.run {
            self.run = DrainRun::Hooks { running: name, again: None, trouble: String::new() };
        }
    }

    /// Hears that all were called, or why that has to stop here.
    pub(crate) fn hooked(
        &mut self,
        now: Mono,
        result: Result<(), String>,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let DrainRun::Hooks { .. } = self.run else { return None };
        let Err(trouble) = result else {
            self.go_to_cordon(now);
            return None;
        };
        self.hook_tries += 1;
        let tries = (self.hook_tries, node.limits.drain_tries);
        say!(out, warn, "the hooks before the drain have failed, try {} of {}: {trouble}", tries.0, tries.1);
        if tries.0 < tries.1 {
            let again = Some(now + node.limits.drain_retry());
            self.run = DrainRun::Hooks { running: String::new(), again, trouble };
            return None;
        }
        say_given_up(&trouble, out);
        let last = Box::new(Progress::default());
        Some(self.fail(DrainStatus::FailedDrain, DrainEnd::FailedDrain { attempt: 0, reason: trouble, last }))
    }

    /// The next step is the cordon, after another look at the turn: what came before has taken its time.
    pub(super) fn go_to_cordon(&mut self, now: Mono) {
        self.run = DrainRun::Cordoning { tried: 0, again: Some(now), failure: CordonFailure::default() };
    }

    pub(super) fn hook_words(&self, running: &str, trouble: &str, node: &NodeContext) -> StateWords {
        if trouble.is_empty() {
            return words(DrainPhase::RunningHooks, running, "");
        }
        words(
            DrainPhase::RunningHooks,
            format!(
                "try {} of {} of the hooks before the drain failed: {trouble}",
                self.hook_tries, node.limits.drain_tries
            ),
            "fix its cause, or remove that hook; they are tried again at Deadline, those that have run are not",
        )
    }
}
