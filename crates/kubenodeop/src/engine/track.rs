//! One pod in an attempt: where it is on its way out. And workloads whose pods come back to this node: counted, and
//! called sticky at the limit.
//!
//! Not here: the other pods, the order of calls (`pod_table`), what is said about it (`telling`). Pure: no clock, no
//! I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeapi::pace::Pace;
use kubeapi::reply::{Reply, ReplyClass};
use step::{Inserted as _, Mono, SmallSort as _};

use crate::plan::PodFacts;
use crate::progress::BlockCode;

/// How long past its grace period a pod may take before it is named.
pub(super) const SLACK: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct PodTrack {
    pub(super) facts: PodFacts,
    pub(super) state: PodState,
    /// The turn of the engine in which this last changed; older lists do not speak about it.
    pub(super) turn: u64,
    /// The watch has named it. Until then a list of the watch may be older than the one that has shown it.
    pub(super) watched: bool,
    pub(super) tries: u32,
    /// The server has accepted to end this very pod.
    pub(super) accepted: Option<RemovalCall>,
    /// Since when it is asked to leave, or is ending.
    pub(super) asked: Option<Mono>,
    /// It is over the limit for a pod.
    pub(super) over: bool,
    /// By which rule it is to be deleted, whatever its budgets say.
    pub(super) delete_reason: Option<String>,
    /// No responder evicts it, or no longer.
    pub(super) direct: bool,
    /// How far a second copy elsewhere is.
    pub(super) copy: SecondCopy,
    /// When that was looked at last.
    pub(super) looked: Option<Mono>,
    /// How often giving it up was tried.
    pub(super) give_ups: u32,
    /// More than one budget guards it and one has no room: it is not asked until a budget changes.
    pub(super) on_hold: bool,
    /// It is not asked any more, as its workload comes back again and again.
    pub(super) sticky: bool,
    /// Since when it is not asked, as the storage needs it; `None` when it may be.
    pub(super) kept: Option<Mono>,
    /// Since when it is not asked, as a person has it kept, and until when.
    pub(super) held: Option<(Mono, Mono)>,
    /// Since when the container runtime has shown no container of it, answer by answer.
    pub(super) without: Option<Mono>,
    /// The container runtime has shown one.
    pub(super) lives: bool,
    /// The refusal that lasts may be reported.
    pub(super) told: bool,
    pub(super) refusal: Option<PodRefusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodState {
    /// To be asked once `due`; never before `not_before`, which the server set.
    Waiting {
        due: Mono,
        not_before: Mono,
    },
    /// The call is under way. `absent` when we have heard meanwhile that the pod is gone: the answer is waited
    /// for all the same, so that there is never a second call for it.
    Asking {
        way: RemovalCall,
        absent: bool,
    },
    Going {
        since: Mono,
    },
    /// The server refuses for good.
    Ended,
    /// It stays, because a rule says so.
    Left,
    /// No container of it lives, though its object is still there: it counts as gone.
    ObjectOnly,
    Gone,
}

/// By which call a pod is asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalCall {
    Evict,
    /// An EvictionRequest, which the pod's responders answer.
    Request,
    /// A claim on each of its budgets, then a deletion.
    Remove,
    /// A deletion, whatever its budgets say.
    Delete,
}

/// How far a second copy is for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum SecondCopy {
    #[default]
    Unknown,
    /// It is on its way, of this Deployment.
    Awaited(String),
    /// The pod is evicted: it is not needed, or there, or there is none for this reason.
    Settled(Option<String>),
}

/// Why the server did not end the pod.
#[derive(Debug, Clone)]
pub(super) struct PodRefusal {
    pub(super) reply: Reply,
    pub(super) code: BlockCode,
    pub(super) since: Mono,
    /// By which call it was asked.
    pub(super) way: RemovalCall,
}

impl PodTrack {
    pub(super) fn new(facts: PodFacts, now: Mono, turn: u64) -> Self {
        let state = if facts.terminating {
            PodState::Going { since: now }
        } else {
            PodState::Waiting { due: now, not_before: now }
        };
        Self {
            asked: facts.terminating.then_some(now),
            facts,
            state,
            turn,
            watched: false,
            tries: 0,
            accepted: None,
            over: false,
            delete_reason: None,
            direct: false,
            copy: SecondCopy::Unknown,
            looked: None,
            give_ups: 0,
            on_hold: false,
            sticky: false,
            kept: None,
            held: None,
            without: None,
            lives: false,
            told: true,
            refusal: None,
        }
    }

    /// On the node, and not because a rule lets it stay.
    pub(super) fn is_here(&self) -> bool {
        !matches!(self.state, PodState::Gone | PodState::ObjectOnly | PodState::Left)
    }

    /// A container of it may be on the node, also because a rule lets it stay.
    pub(super) fn is_on_node(&self) -> bool {
        !matches!(self.state, PodState::Gone | PodState::ObjectOnly)
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_here() && self.state != PodState::Ended
    }

    /// When to ask it, unless something else than time decides that.
    pub(super) fn due(&self) -> Option<Mono> {
        let PodState::Waiting { due, .. } = self.state else { return None };
        (!self.on_hold && !self.sticky && self.kept.is_none() && self.held.is_none()).then_some(due)
    }

    /// When a pod that is ending has had its time.
    pub(super) fn overdue_at(&self) -> Option<Mono> {
        let PodState::Going { since } = self.state else { return None };
        Some(since + self.facts.grace + SLACK)
    }

    pub(super) fn going(&mut self, now: Mono) {
        self.refusal = None;
        self.asked.get_or_insert(now);
        if !matches!(self.state, PodState::Going { .. }) {
            self.state = PodState::Going { since: now };
            (self.without, self.lives) = (None, false);
        }
    }

    /// To be asked (again) after a pause of its own.
    pub(super) fn again(&mut self, now: Mono, pace: &mut Pace, retry_after: Option<Duration>) {
        self.tries = self.tries.saturating_add(1);
        let due = now + pace.pause(self.tries, retry_after);
        self.state = PodState::Waiting { due, not_before: now + retry_after.unwrap_or_default() };
    }

    /// The answer to the call that is under way.
    pub(super) fn answered(&mut self, now: Mono, pace: &mut Pace, reply: Reply) {
        let retry_after = reply.retry_after();
        // Budgets may have shut while we asked; whether they hold it is judged by this answer.
        self.on_hold = false;
        let way = if let PodState::Asking { way, .. } = self.state { way } else { RemovalCall::Evict };
        if reply == Reply::Done {
            self.accepted = Some(way);
            self.going(now);
            return;
        }
        if matches!(reply, Reply::NotFound { .. } | Reply::UidChanged) {
            self.tries = self.tries.saturating_add(1);
            self.refusal = None;
            self.state = PodState::Gone;
            return;
        }
        let code = if way == RemovalCall::Remove && matches!(reply, Reply::Budget { .. }) {
            BlockCode::ManyBudgets
        } else {
            BlockCode::of(&reply)
        };
        let for_good = reply.class() == ReplyClass::Permanent;
        self.refused(now, reply, code, way);
        if self.facts.terminating {
            // Somebody else ended it while we asked.
            self.going(now);
        } else if for_good {
            self.state = PodState::Ended;
        } else {
            self.again(now, pace, retry_after);
        }
    }

    pub(super) fn refused(&mut self, now: Mono, reply: Reply, code: BlockCode, way: RemovalCall) {
        let since = match &self.refusal {
            Some(held) if held.code == code => held.since,
            Some(_) | None => now,
        };
        self.refusal = Some(PodRefusal { reply, code, since, way });
    }

    /// Held by one budget or more.
    pub(super) fn is_held_by_budget(&self) -> bool {
        matches!(self.state, PodState::Waiting { .. } | PodState::Asking { .. })
            && matches!(self.code(), Some(BlockCode::Budget | BlockCode::ManyBudgets))
    }

    /// Asks at once, but not before the server's own time.
    pub(super) fn hurry(&mut self, now: Mono) {
        if let PodState::Waiting { due, not_before } = &mut self.state {
            *due = now.max(*not_before).min(*due);
        }
    }

    /// To be deleted by this rule, now.
    pub(super) fn delete_by_rule(&mut self, now: Mono, why: String) {
        if !matches!(self.state, PodState::Waiting { .. }) {
            self.state = PodState::Waiting { due: now, not_before: now };
        }
        self.on_hold = false;
        self.delete_reason = Some(why);
        self.hurry(now);
    }

    /// Whether its responders evict it. Over its limit they have had their time.
    pub(super) fn has_responders(&self) -> bool {
        self.facts.responders && !self.facts.finished && !self.direct && !self.over
    }

    /// Whether a rule may have it deleted: it neither ends nor is being asked.
    pub(super) fn may_be_deleted(&self) -> bool {
        matches!(self.state, PodState::Waiting { .. } | PodState::Ended)
            && self.delete_reason.is_none()
            && !self.sticky
    }

    /// Held by something that does not pass by itself within seconds, and reported as that.
    pub(super) fn is_blocked(&self) -> bool {
        self.sticky
            || self.kept.is_some()
            || self.held.is_some()
            || (self.told
                && matches!(
                    self.code(),
                    Some(
                        BlockCode::Budget
                            | BlockCode::ManyBudgets
                            | BlockCode::NamespaceEnding
                            | BlockCode::Webhook
                            | BlockCode::Responder
                            | BlockCode::Admission
                    )
                ))
    }

    /// Why the server refused last time.
    pub(super) fn code(&self) -> Option<BlockCode> {
        self.refusal.as_ref().map(|refusal| refusal.code)
    }
}

/// The controller, as `shop/ReplicaSet/web`.
type WorkloadKey = String;

/// Returns to this node that make a workload sticky.
pub const STICKY_RETURNS: u32 = 3;
/// As many counts are kept for the next attempt.
const KEPT: usize = 64;

/// How often pods of each workload have come back after one of them was sent away.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Workloads of which this attempt has sent a pod away.
    sent: BTreeSet<WorkloadKey>,
    counts: BTreeMap<WorkloadKey, u32>,
}

impl Returns {
    /// `counts` are those of earlier attempts.
    pub(super) fn new(counts: BTreeMap<WorkloadKey, u32>) -> Self {
        Self { sent: BTreeSet::new(), counts }
    }

    /// The server has accepted to end this pod.
    pub(super) fn sent(&mut self, facts: &PodFacts) {
        self.sent.extend(workload(facts));
    }

    /// A pod that was not known before is here. Whether this is the return that makes its workload sticky.
    pub(super) fn came(&mut self, facts: &PodFacts) -> bool {
        let Some(workload) = workload(facts).filter(|it| self.sent.contains(it)) else { return false };
        let count = self.counts.entry(workload).or_default();
        *count = count.saturating_add(1);
        *count == STICKY_RETURNS
    }

    /// Whether the pod's workload is sticky.
    pub(super) fn is_sticky(&self, facts: &PodFacts) -> bool {
        !self.counts.is_empty() && self.count(facts) >= STICKY_RETURNS
    }

    /// How often pods of this one's workload have come back.
    pub(super) fn count(&self, facts: &PodFacts) -> u32 {
        workload(facts).and_then(|it| self.counts.get(&it).copied()).unwrap_or(0)
    }

    /// The counts for the next attempt; the highest, when there are too many.
    pub(super) fn marks(&self) -> BTreeMap<WorkloadKey, u32> {
        if self.counts.len() <= KEPT {
            return self.counts.clone();
        }
        let mut all: Vec<(&WorkloadKey, &u32)> = self.counts.iter().collect();
        all.order_by_key(|(workload, count)| (std::cmp::Reverse(**count), *workload));
        all.into_iter().take(KEPT).map(|(workload, count)| (workload.clone(), *count)).into_map()
    }
}

/// A pod without a controller has none: nobody brings it back.
fn workload(facts: &PodFacts) -> Option<WorkloadKey> {
    let named = !facts.workload.is_empty();
    named.then(|| format!("{}/{}", facts.pod.namespace, facts.workload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tier::tests::pod;

    fn of(name: &str, workload: &str) -> PodFacts {
        PodFacts { workload: workload.to_owned(), ..pod(name) }
    }

    #[test]
    fn d10_the_third_return_makes_a_workload_sticky_and_only_returns_count() {
        let mut returns = Returns::new(BTreeMap::new());
        let web = of("web", "ReplicaSet/web");
        assert!(!returns.came(&web), "nothing was sent away yet");
        returns.sent(&web);
        assert!(!returns.came(&of("db", "StatefulSet/db")), "another workload");
        let mut other = web.clone();
        other.pod.namespace = "tools".to_owned();
        assert!(!returns.came(&other), "another namespace");
        let told: Vec<bool> = (0..4).map(|_| returns.came(&web)).collect();
        assert_eq!(told, [false, false, true, false]);
        assert!(returns.is_sticky(&web) && !returns.is_sticky(&other));
    }

    #[test]
    fn a_pod_without_a_controller_never_comes_back() {
        let mut returns = Returns::new(BTreeMap::new());
        let bare = of("bare", "");
        returns.sent(&bare);
        assert!(!returns.came(&bare) && !returns.is_sticky(&bare));
    }

    #[test]
    fn d10_counts_go_on_in_the_next_attempt_and_at_most_64_do() {
        let web = of("web", "ReplicaSet/web");
        let mut earlier: BTreeMap<WorkloadKey, u32> =
            (0..100).map(|number| (format!("shop/Job/{number}"), 1)).collect();
        earlier.insert("shop/ReplicaSet/web".to_owned(), 2);
        let mut returns = Returns::new(earlier);
        returns.sent(&web);
        assert!(returns.came(&web));
        let marks = returns.marks();
        assert_eq!(marks.len(), 64);
        assert_eq!(marks.get("shop/ReplicaSet/web"), Some(&3));
    }
}
