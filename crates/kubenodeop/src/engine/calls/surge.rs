//! A second copy elsewhere before the only Ready pods of a Deployment are evicted: when it is asked for, waited for,
//! and given up.
//!
//! Not here: whether one is needed (`plan::surge`), the calls (`calls::surge`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use crate::calls::surge::{SurgeAnswer, SurgeOrder};
use crate::engine::pod_table::PodTable;
use crate::engine::track::{PodState, PodTrack, RemovalCall, SecondCopy};
use crate::engine::words::{CallFailure, Effect, PodAction, say_gone, say_held};
use crate::plan::surge::{SurgeRule, deployment_of};
use crate::plan::tier;
use crate::progress::BlockCode;
use kubeapi::names::PodUid;
use kubeapi::reply::{RefusedBy, Reply, ReplyClass};

/// Between two looks at how far it is. Its controller ends the pod without one.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Between two looks at whether it is still so, while a budget holds the pod.
const LOOK_SETTLED: Duration = Duration::from_secs(60);
/// Giving it up is tried so often before the pod is evicted all the same.
const GIVE_UPS: u32 = 5;
const RIGHT: &str = "the role pillar-rs-surge allows it: `zedbox role --with surge | kubectl apply -f -`";

impl PodTable {
    /// Whether something is to be asked about a second copy before the pod is.
    pub(in crate::engine) fn wants_copy(&self, now: Mono, track: &PodTrack) -> bool {
        let facts = &track.facts;
        let open = match track.copy {
            SecondCopy::Unknown | SecondCopy::Awaited(_) => true,
            SecondCopy::Settled(_) => {
                track.is_held_by_budget() && track.looked.is_none_or(|at| at + LOOK_SETTLED <= now)
            }
        };
        open && self.rules.surge != SurgeRule::Never
            && track.delete_reason.is_none()
            && !track.sticky
            && !facts.finished
            && !tier::is_machine(&facts.labels)
            && deployment_of(facts).is_some()
            // It is about to be deleted whatever is in the way.
            && !(track.over && self.rules.pod.then == PodAction::Delete)
    }

    /// Asks about it. The time of the pod's own limit begins with this call.
    pub(in crate::engine) fn ask_copy(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let (limit, facts) = (self.rules.surge_limit, &track.facts);
        let Some((replica_set, deployment)) = deployment_of(facts) else { return };
        let over = track.asked.filter(|asked| *asked + limit <= now).map(|_| limit);
        let asked = self.surged.contains(&format!("{}/{deployment}", facts.pod.namespace));
        effects.push(Effect::Surge(SurgeOrder {
            pod: facts.pod.clone(),
            replica_set: replica_set.to_owned(),
            deployment: deployment.to_owned(),
            claims: facts.claims.clone(),
            asked,
            over,
        }));
        self.book.change(uid, |track| {
            track.asked.get_or_insert(now);
            track.give_ups += u32::from(over.is_some());
            track.state = PodState::Asking { way: RemovalCall::Evict, absent: false };
        });
    }

    pub(in crate::engine) fn copy_answered(
        &mut self,
        now: Mono,
        uid: &PodUid,
        answer: Result<SurgeAnswer, CallFailure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(track) = self.book.get(uid) else { return };
        let PodState::Asking { absent, .. } = track.state else { return };
        let (pod, terminating) = (track.facts.pod.clone(), track.facts.terminating);
        if let Ok(SurgeAnswer::UnderWay { deployment, ours: true }) = &answer {
            self.surged.insert(deployment.clone());
        }
        self.turn += 1;
        let (turn, limit, pace) = (self.turn, self.rules.surge_limit, &mut self.pace);
        let without = self.book.change(uid, |track| {
            (track.turn, track.looked) = (turn, Some(now));
            track.state =
                if absent { PodState::Gone } else { PodState::Waiting { due: now, not_before: now } };
            let is_open = !matches!(track.copy, SecondCopy::Settled(_));
            if absent || terminating {
                (track.refusal, track.tries) = (None, 0);
                if is_open {
                    track.copy = SecondCopy::Settled(None);
                }
                if !absent {
                    track.going(now);
                }
                return None;
            }
            let copy = match answer {
                Ok(SurgeAnswer::NotNeeded) => SecondCopy::Settled(None),
                Ok(SurgeAnswer::Without(why)) => SecondCopy::Settled(Some(why)),
                Ok(SurgeAnswer::UnderWay { deployment, .. }) => {
                    let (until, again) = (track.asked.unwrap_or(now) + limit, now + LOOK_AGAIN);
                    let due = if until > now { until.min(again) } else { again };
                    track.state = PodState::Waiting { due, not_before: now };
                    SecondCopy::Awaited(deployment)
                }
                Err(failure) => match failure.reply.class() {
                    ReplyClass::Done => SecondCopy::Settled(None),
                    ReplyClass::Budget | ReplyClass::Throttle | ReplyClass::Transient
                        if track.give_ups < GIVE_UPS =>
                    {
                        let code = BlockCode::of(&failure.reply);
                        track.again(now, pace, failure.reply.retry_after());
                        track.refused(now, failure.reply, code, RemovalCall::Evict);
                        track.told = true;
                        return None;
                    }
                    ReplyClass::Permanent
                    | ReplyClass::Denied
                    | ReplyClass::Budget
                    | ReplyClass::Throttle
                    | ReplyClass::Transient => SecondCopy::Settled(Some(why_failed(track, &failure))),
                },
            };
            if is_open {
                (track.refusal, track.tries) = (None, 0);
            }
            track.copy = copy;
            if let SecondCopy::Settled(why) = &track.copy { why.clone() } else { None }
        });
        if absent {
            say_gone(&pod, effects);
            return;
        }
        if let Some(why) = without.flatten() {
            say_held(&pod, &format!("evicted without a second copy elsewhere: {why}"), effects);
        }
        self.settle(now, uid, effects);
    }
}

/// Why there is none when a call has failed for good, and what becomes of one that was asked for.
fn why_failed(track: &PodTrack, failure: &CallFailure) -> String {
    let by_role = matches!(failure.reply, Reply::Permanent { by: RefusedBy::Role, .. });
    let next = if by_role { RIGHT } else { &failure.next_step };
    let stays = if matches!(track.copy, SecondCopy::Awaited(_)) {
        "; what was asked for is withdrawn once the node is schedulable again"
    } else {
        ""
    };
    format!("{}; {next}{stays}", failure.text)
}
