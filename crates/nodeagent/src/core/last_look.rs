//! What zedkube is asked before the machine goes down, and what follows from its answer or its silence.
//!
//! | Asked | by | Without an answer |
//! |---|---|---|
//! | last look | an operation that the node was drained for, right before the device is asked | asked again; after `look_limit_ms` a worker goes, a server waits for a person |
//! | turn | a restart on our own account, before it begins and right before the device is asked | after `look_limit_ms` it goes as an emergency |
//! | emergency | the same, once its turn has not come in time | it goes after `emergency_ms` |
//!
//! Beside a zedkube that answers no questions nothing is asked. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::device::MachineOperation;
use step::Mono;
use topics::{OutageAnswer, OutageKind, OutageRole, OutageVerdict};

use super::phase::{LatchedOrder, OrderPhase};
use super::talk::OwnTurn;
use super::{Effect, NodeAgent};
use crate::limits::{ANSWER_LIMIT, EMERGENCY, LOOK_LIMIT};

/// Behind the reason of a restart that waited for its turn in vain.
const LATE: &str = "without its turn, which did not come in time";

impl NodeAgent {
    /// Hears what zedkube has answered.
    pub(super) fn answered(&mut self, now: Mono, answer: OutageAnswer, out: &mut Vec<Effect>) {
        self.talk.answer = Some(answer);
        let Some(answer) = self.talk.answer().cloned() else { return };
        let goes = answer.verdict == OutageVerdict::Go;
        if goes && matches!(self.phase(), Some(OrderPhase::Held { .. })) {
            self.enter(OrderPhase::Held { again_at: now });
        }
        let Some(LatchedOrder { order, phase: OrderPhase::Looking { until } }) = self.latched.clone() else {
            return;
        };
        // What comes too late may be old by now.
        if now >= until {
            return;
        }
        self.talk.silent_since = None;
        let next = if goes {
            if answer.unread {
                out.push(Effect::Mark { order: order.clone(), why: answer.why });
            }
            self.operate(now, order, out)
        } else {
            self.talk.hold(answer.why, answer.next_step, out);
            OrderPhase::Held { again_at: now + self.limits.refused_retry() }
        };
        self.enter(next);
    }

    /// zedkube has not answered in time whether the machine may go down.
    pub(super) fn unanswered(&mut self, now: Mono, out: &mut Vec<Effect>) -> OrderPhase {
        let asked = Mono::from_start(now.since_start().saturating_sub(ANSWER_LIMIT));
        let since = *self.talk.silent_since.get_or_insert(asked);
        let limit = LOOK_LIMIT.as_secs();
        let worker = self.talk.role() == OutageRole::Worker;
        if worker && now.since(since) >= LOOK_LIMIT {
            let unasked =
                format!("zedkube did not answer for {limit} s, so the Lease of turns could not be read");
            // It was waited for: what it says of the drain may be another by now.
            out.push(Effect::Check);
            return OrderPhase::Checking { unasked };
        }
        let then = if worker {
            format!("it goes down all the same once that has lasted for {limit} s")
        } else {
            "at your own risk: `zedbox go --past drain --reason '...'`".to_owned()
        };
        let why = "zedkube does not answer whether this node may go down now".to_owned();
        self.talk.hold(why, format!("check that zedkube runs: `zedbox status`; {then}"), out);
        OrderPhase::Held { again_at: now + self.limits.refused_retry() }
    }

    /// Whether a restart on our own account needs a turn, and has not waived it.
    pub(super) fn needs_turn(&self) -> bool {
        let asks = self.talk.answer.is_some() && self.talk.role() != OutageRole::None;
        self.has_drain() && asks && self.talk.own != OwnTurn::Waived
    }

    /// Whether a restart on our own account may happen now: it is its turn, or that is waited for no longer. `limit` is
    /// for each node that goes before, and for this one, from when the last of them went.
    pub(super) fn may_restart(&mut self, now: Mono, limit: Duration, out: &mut Vec<Effect>) -> bool {
        if !self.needs_turn() {
            return true;
        }
        let answer = self.talk.answer().cloned();
        let talk = &mut self.talk;
        match talk.own {
            OwnTurn::None => {
                talk.ask(now, OutageKind::Turn, MachineOperation::Reboot, None);
                talk.own = OwnTurn::Waits { since: now, place: 0, until: now + LOOK_LIMIT };
                false
            }
            OwnTurn::Waits { since, place, until } => {
                let until = match answer {
                    Some(answer) if answer.verdict == OutageVerdict::Go => {
                        if answer.unread {
                            talk.note = format!("; {}", answer.why);
                        }
                        talk.own = OwnTurn::None;
                        talk.free();
                        return true;
                    }
                    Some(answer) => {
                        let (before, place) = (place, if answer.place > 0 { answer.place } else { place });
                        let moved = place < before || (before == 0 && place > 0);
                        let since = if moved { now } else { since };
                        let until = since + limit.saturating_mul(place.max(1));
                        talk.own = OwnTurn::Waits { since, place, until };
                        let mins = limit.as_secs() / 60;
                        let then = format!(
                            "it restarts without its turn after {mins} min for each node before it and itself"
                        );
                        talk.hold(answer.why, format!("{}; {then}", answer.next_step), out);
                        until
                    }
                    None => until,
                };
                if now >= until {
                    talk.ask(now, OutageKind::Emergency, MachineOperation::Reboot, None);
                    talk.own = OwnTurn::Emergency { until: now + EMERGENCY };
                }
                false
            }
            OwnTurn::Emergency { until } => {
                let goes = answer.is_some_and(|it| it.verdict == OutageVerdict::Go);
                if goes || now >= until {
                    talk.own = OwnTurn::Waived;
                    talk.note = format!("; {LATE}");
                    talk.free();
                }
                goes || now >= until
            }
            OwnTurn::Waived => true,
        }
    }
}
