//! What is looked at before a turn is asked for, or, where nodes take none, before the cordon: a node whose drain cannot
//! start would hold the turn of the cluster for nothing. It is looked at again until nothing is found, for as long as the tries to cordon, or to drain, would have
//! taken; then the drain fails as it would have with them.
//!
//! Only a node that waits for a turn, or has yet to cordon, looks; one that has its turn, or continues what it was in,
//! drains. Not here: the look (`zedkube::preflight`), and that the queue is not entered before (`outage`). Sources: spec/cluster-lock.md 3.4;
//! goals U6. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubenodeop::Progress;
use outage::keeper::Ask;
use step::{Mono, say};
use topics::{Blocker, DrainStatus};

use super::life::{Drain, DrainStepOutcome};
use super::run::{DrainEnd, DrainRun, PreflightState};
use crate::core::context::NodeContext;
use crate::core::facts::{CordonFailure, Effect, StartObstacle, say_given_up};
use crate::limits::PROBE_PAUSE;

/// Pause before it is looked again at what was found of pods; the node is looked at as often as it is tried to cordon it.
const AGAIN: Duration = Duration::from_secs(30);

impl Drain {
    /// Nothing is known that would keep it from starting.
    pub(crate) fn is_fit(&self, node: &NodeContext) -> bool {
        let waits = matches!(self.run, DrainRun::Waiting { .. } | DrainRun::Probing { .. });
        let looks = node.limits.preflight && !self.turn_alone;
        // Whatever continues what it was in is not kept from it.
        let continues = self.resume.is_some() || self.floor.is_some();
        !waits || !looks || continues || self.preflight == PreflightState::Clean
    }

    /// What keeps it from starting, while it waits for that.
    pub(super) fn obstacle(&self) -> Option<(&StartObstacle, &[Blocker])> {
        match &self.preflight {
            PreflightState::Found { what, blockers, .. } if matches!(self.run, DrainRun::Waiting { .. }) => {
                Some((what, blockers))
            }
            PreflightState::Due
            | PreflightState::Looking
            | PreflightState::Clean
            | PreflightState::Found { .. } => None,
        }
    }

    /// When it is looked again, or given up.
    pub(super) fn preflight_due(&self) -> Option<Mono> {
        match (&self.preflight, &self.run) {
            (PreflightState::Found { again, until, .. }, DrainRun::Waiting { .. }) => {
                again.iter().chain(until).min().copied()
            }
            _ => None,
        }
    }

    /// Looks when that is due; gives the drain up when it could not start for too long.
    pub(crate) fn settle_preflight(
        &mut self,
        now: Mono,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) -> Option<DrainStepOutcome> {
        if !matches!(self.run, DrainRun::Waiting { .. } | DrainRun::Probing { .. }) {
            self.preflight = PreflightState::Due;
            return None;
        }
        let has_turn = node.limits.take_turns && node.grant().is_some();
        let looks = !self.is_fit(node) && !has_turn;
        if !looks || !matches!(self.run, DrainRun::Waiting { .. }) {
            // What was found counts no more: nothing of it is due.
            if matches!(
                (&self.preflight, &self.run),
                (PreflightState::Found { .. }, DrainRun::Waiting { .. })
            ) {
                self.preflight = PreflightState::Due;
                if !node.limits.take_turns {
                    self.probe(now, out);
                }
            }
            return None;
        }
        let due = match &mut self.preflight {
            PreflightState::Found { what, blockers, until, .. } if until.is_some_and(|at| now >= at) => {
                let (reason, blockers) = (what.why.clone(), std::mem::take(blockers));
                let next_step = what.next_step.clone();
                let of_node = what.of_node;
                self.preflight = PreflightState::Due;
                if of_node {
                    return Some(self.fail(
                        DrainStatus::FailedCordon,
                        DrainEnd::FailedCordon(CordonFailure { why: reason, next_step }),
                    ));
                }
                say_given_up(&reason, out);
                let last = Box::new(Progress { blockers, ..Progress::default() });
                return Some(
                    self.fail(DrainStatus::FailedDrain, DrainEnd::FailedDrain { attempt: 0, reason, last }),
                );
            }
            PreflightState::Found { again, .. } => again.take_if(|at| now >= *at).is_some(),
            PreflightState::Due => {
                self.preflight = PreflightState::Looking;
                true
            }
            PreflightState::Looking | PreflightState::Clean => false,
        };
        if due {
            out.push(Effect::Preflight(self.run_id));
        }
        None
    }

    /// Hears what a look has found.
    pub(crate) fn preflighted(
        &mut self,
        now: Mono,
        found: Result<Vec<Blocker>, StartObstacle>,
        node: &NodeContext,
        out: &mut Vec<Effect>,
    ) {
        let before = match &self.preflight {
            PreflightState::Looking => None,
            PreflightState::Found { what, again: None, until, .. } => Some((what.clone(), *until)),
            PreflightState::Due | PreflightState::Clean | PreflightState::Found { .. } => return,
        };
        let (what, blockers) = match found {
            Ok(blockers) => match blockers.first() {
                None => {
                    self.preflight = PreflightState::Clean;
                    if !node.limits.take_turns {
                        self.probe(now, out);
                    }
                    return;
                }
                Some(first) => {
                    let next_step = format!("{}: {}", first.pod, first.next_step);
                    let why = first.reason.clone();
                    let what = StartObstacle { why, next_step, away: false, of_node: false };
                    (what, blockers)
                }
            },
            Err(what) => (what, Vec::new()),
        };
        if before.as_ref().is_none_or(|(it, _)| it.why != what.why) {
            say!(out, warn, "the drain cannot start yet: {}", what.why);
        }
        if what.away {
            // Whether the drain is skipped is decided by what the keeper of the turn meets, or the probe.
            if node.limits.take_turns {
                out.push(Effect::Turn(Ask::Look));
            } else {
                self.probe(now, out);
            }
        }
        let limits = &node.limits;
        let (pause, limit) = if what.away {
            (PROBE_PAUSE, Duration::ZERO)
        } else if what.of_node {
            (limits.cordon_retry(), limits.cordon_retry() * limits.cordon_tries.saturating_sub(1))
        } else {
            (AGAIN, limits.drain_retry() * limits.drain_tries.saturating_sub(1))
        };
        let same = before.filter(|(it, _)| (it.of_node, it.away) == (what.of_node, what.away));
        let until = same.map_or_else(|| (!what.away).then_some(now + limit), |(_, until)| until);
        self.preflight = PreflightState::Found { what, blockers, again: Some(now + pause), until };
    }
}
