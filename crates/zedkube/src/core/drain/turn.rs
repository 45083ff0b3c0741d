//! The turn to be down in the life of a drain: waited for before the cordon, looked at after it, lost.
//!
//! Not here: whose turn it is (`outage`), what its keeper is asked (`core::turn`). Sources: design.md section 12; goals U1,
//! U12. Pure: no clock, no I/O, no task.

use outage::keeper::Ask;
use outage::turn::record::Phase;
use step::{Mono, say};
use topics::Skip;

use super::life::{Drain, DrainStepOutcome};
use super::run::{DrainEnd, DrainRun};
use crate::core::context::NodeContext;
use crate::core::facts::{Effect, say_waits_for_turn};
use crate::core::k3s::TURN_ALONE;
use crate::limits::PROBE_PAUSE;

impl Drain {
    /// What the standing of our turn means for the drain.
    pub(crate) fn turn(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        let active = self.run.is_under_turn();
        let under_it = active || matches!(self.run, DrainRun::Ended(DrainEnd::Drained { .. }));
        // Whoever has to wait for somebody else does not hold it, however that came.
        let refused = node.turn.waiting().filter(|_| under_it && node.turn.is_refused());
        if let Some(why) = node.turn.lost().or(refused.map(|it| it.why.as_str())) {
            let why = why.to_owned();
            if active {
                say!(
                    out,
                    warn,
                    "the turn to be down is no longer ours: the drain ends, our cordon goes, and it queues again: {why}"
                );
                self.end(None, out);
            }
            return Some(DrainStepOutcome::TurnLost(why));
        }
        let DrainRun::Waiting { tried, again } = self.run else { return None };
        if node.grant().is_some() {
            return self.begin_cordon(now, node, out);
        }
        if node.turn.is_unreachable() {
            if again.is_some() {
                return None;
            }
            out.push(Effect::Probe(self.run_id));
            self.run = DrainRun::probing(now, tried);
        } else if let Some(waiting) = node.turn.waiting().filter(|_| node.turn.is_refused()) {
            self.run = DrainRun::Waiting { tried: 0, again: None };
            say_waits_for_turn(&waiting.why, out);
            if self.resume.take().is_some() | self.floor.take().is_some() {
                return Some(DrainStepOutcome::TurnRefused);
            }
        }
        None
    }

    /// The API answers. As long as it does not about the turn, because it throttles, refuses, or lists no such node, the
    /// drain waits for that as for the API itself: nothing has been tried, and the keeper of the turn asks again.
    pub(super) fn reached(
        &mut self,
        now: Mono,
        tried: u32,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        if !node.limits.take_turns && !self.is_fit(node) {
            // The API was away when it was looked.
            self.run = DrainRun::Waiting { tried: 0, again: None };
            return None;
        }
        if node.grant().is_some() {
            return self.begin_cordon(now, node, out);
        }
        let trouble = node.turn.waiting().filter(|_| node.turn.is_unreachable()).map(|it| it.why.clone());
        let Some(trouble) = trouble else {
            self.run = DrainRun::Waiting { tried: 0, again: None };
            return self.turn(now, node, out);
        };
        if tried == 0 {
            say_waits_for_turn(&trouble, out);
        }
        out.push(Effect::Turn(Ask::Look));
        let again = Some(now + node.limits.cordon_retry());
        self.run = DrainRun::Waiting { tried: tried.saturating_add(1), again };
        None
    }

    /// Hears whether the turn is still ours, after the cordon or before another try of it. That it is not is heard as its
    /// standing, too.
    pub(crate) fn turn_confirmed(
        &mut self,
        now: Mono,
        ours: bool,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        if let DrainRun::Confirming { again } | DrainRun::Entering { again } = &mut self.run
            && !ours
        {
            *again = now + PROBE_PAUSE;
        } else if let DrainRun::Confirming { .. } = self.run {
            self.first_attempt(now, node, out);
        } else if let DrainRun::Entering { .. } = self.run {
            self.run = DrainRun::Ended(DrainEnd::Skipped(Skip::other(TURN_ALONE)));
            return Some(DrainStepOutcome::TurnAlone);
        } else if let DrainRun::Cordoning { again, .. } = &mut self.run
            && ours
            && again.take().is_some()
        {
            return self.send_cordon(node, out);
        }
        None
    }

    /// Whether a turn is needed as the drain is, or kept if there is one.
    pub(crate) fn wants_turn(&self, node: &NodeContext) -> bool {
        let waits = matches!(self.run, DrainRun::Probing { .. } | DrainRun::Waiting { .. });
        let keeps = matches!(self.run, DrainRun::Taken { .. }) && node.turn.held().is_some();
        waits || keeps || self.run.is_under_turn()
    }

    /// It was taken, or waits for its turn, and the node is not cordoned for it.
    pub(crate) fn waits_in_service(&self, node: &NodeContext) -> bool {
        let waits =
            matches!(self.run, DrainRun::Taken { .. } | DrainRun::Probing { .. } | DrainRun::Waiting { .. });
        waits && !self.keeps_cordon(node)
    }

    /// How far it is, for others who wait for their turn.
    pub(crate) fn turn_phase(&self) -> Option<Phase> {
        let drained =
            matches!(self.run, DrainRun::Holding { .. } | DrainRun::Ended(DrainEnd::Drained { .. }));
        drained.then_some(Phase::Drained)
    }
}
