//! A second copy elsewhere before the only Ready pods of a Deployment are evicted: when it is asked for, waited for, and
//! given up (goals D20).
//!
//! Not here: whether one is needed (`plan::surge`), the calls (`calls::surge`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;

use crate::calls::surge::{SurgeAnswer, SurgeOrder};
use crate::engine::pod_table::PodTable;
use crate::engine::track::{RemovalCall, State, Track};
use crate::engine::words::{Effect, Failure, LogEvent};
use crate::plan::surge::SurgeRule;
use crate::plan::tier;
use crate::progress::Left;
use kubeapi::names::PodUid;
use kubeapi::reply::Class;

/// Between two looks at how far it is. Its controller ends the pod without one.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// How far a second copy is for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::engine) enum SecondCopy {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// It is on its way, of this Deployment.
    Awaited(String),
    /// It is not needed, there, or given up: the pod is evicted.
    Settled,
}

impl PodTable {
    /// Whether something is to be asked about a second copy before the pod is.
    pub(in crate::engine) fn wants_copy(&self, track: &Track) -> bool {
        let facts = &track.facts;
        self.rules.surge != SurgeRule::Never
            && track.copy != SecondCopy::Settled
            && track.doomed.is_none()
            && !track.sticky
            && !facts.finished
            && !tier::is_machine(&facts.labels)
            && facts.workload.starts_with("ReplicaSet/")
    }

    /// Asks about it. The time of the pod's own limit begins with this call.
    pub(in crate::engine) fn ask_copy(&mut self, now: Mono, uid: &PodUid, effects: &mut Vec<Effect>) {
        let Some(track) = self.book.get(uid) else { return };
        let limit = self.rules.surge_limit;
        let facts = &track.facts;
        effects.push(Effect::Surge(SurgeOrder {
            pod: facts.pod.clone(),
            replica_set: facts.workload.trim_start_matches("ReplicaSet/").to_owned(),
            labels: facts.labels.clone(),
            claims: facts.claims.clone(),
            over: track.asked.filter(|asked| *asked + limit <= now).map(|_| limit),
        }));
        self.book.change(uid, |track| {
            track.asked.get_or_insert(now);
            track.state = State::Asking { way: RemovalCall::Evict, absent: false };
        });
    }

    /// The answer to that.
    pub(in crate::engine) fn copy_answered(
        &mut self,
        now: Mono,
        uid: &PodUid,
        answer: Result<SurgeAnswer, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(track) = self.book.get(uid) else { return };
        let State::Asking { absent, .. } = track.state else { return };
        let (pod, tries) = (track.facts.pod.clone(), track.tries);
        let until = track.asked.unwrap_or(now) + self.rules.surge_limit;
        let terminating = track.facts.terminating;
        let (copy, due, without) = match answer {
            Ok(SurgeAnswer::NotNeeded) => (SecondCopy::Settled, now, None),
            Ok(SurgeAnswer::Without(why)) => (SecondCopy::Settled, now, Some(why)),
            Ok(SurgeAnswer::UnderWay(deployment)) => {
                let due = if until > now { until.min(now + LOOK_AGAIN) } else { now + LOOK_AGAIN };
                (SecondCopy::Awaited(deployment), due, None)
            }
            Err(failure) => match failure.reply.class() {
                Class::Permanent | Class::Done => {
                    (SecondCopy::Settled, now, Some(format!("{}; {}", failure.text, RIGHT)))
                }
                Class::Budget | Class::Throttle | Class::Transient if until <= now => {
                    (SecondCopy::Settled, now, Some(failure.text))
                }
                Class::Budget | Class::Throttle | Class::Transient => {
                    let pause = self.pace.pause(tries.saturating_add(1), failure.reply.retry_after());
                    (track.copy.clone(), now + pause, None)
                }
            },
        };
        self.turn += 1;
        let turn = self.turn;
        self.book.change(uid, |track| {
            track.copy = copy;
            track.turn = turn;
            track.state = if absent { State::Gone } else { State::Waiting { due, not_before: now } };
            if !absent && terminating {
                track.going(now);
            }
        });
        if absent {
            effects.push(Effect::Say(LogEvent::Gone(pod)));
            return;
        }
        if let Some(why) = without.filter(|_| !terminating) {
            let why = format!("evicted without a second copy elsewhere: {why}");
            effects.push(Effect::Say(LogEvent::Held(pod.clone(), why.clone())));
            self.deleted.push(Left { what: pod.to_string(), why });
        }
        self.settle(now, uid, effects);
    }
}

/// What a refusal comes from, as a rule.
const RIGHT: &str = "the role pillar-rs-surge allows it: `kubectl apply -f docs/reference/role.yaml -f \
                     docs/reference/role-bindings-surge.yaml`";
