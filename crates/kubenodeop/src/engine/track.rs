//! One pod in an attempt: where it is on its way out. All of them with what each event asks about them: counts, and who is
//! due when; each change of a pod costs the logarithm of their number; only what is rarely asked, and where pods are
//! held or wait to be asked again, walks over them. And workloads whose pods come back here: counted, sticky at the limit.
//!
//! Not here: what changes a pod (`pod_table`), what is said about it (`telling`). Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeapi::names::PodUid;
use kubeapi::pace::Pace;
use kubeapi::reply::{Reply, ReplyClass};
use step::{Inserted as _, LiteMap, Mono, SmallSort as _};
use topics::PodCounts;

use crate::calls::remove::RemovalCall;
use crate::calls::surge::SurgeAnswer;
use crate::calls::volumes::ClaimName;
use crate::plan::PodFacts;
use crate::plan::tier::Tier;
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
    /// What was said last of a second copy elsewhere.
    pub(super) copy: Option<SurgeAnswer>,
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
            copy: None,
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

    /// Its place among those that are to be asked.
    fn order(&self) -> AskOrder {
        (self.facts.tier, self.tries, self.facts.priority, self.facts.pod.uid.clone())
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

    /// Its call has come to nothing: it is to be asked again at once, unless it has gone or is ending meanwhile.
    pub(super) fn freed(&mut self, now: Mono, absent: bool) -> bool {
        let is_open = !absent && !self.facts.terminating;
        if is_open {
            self.state = PodState::Waiting { due: now, not_before: now };
        } else if absent {
            self.state = PodState::Gone;
        } else {
            self.going(now);
        }
        is_open
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

/// Order of asking within a tier: pods that were never refused, then by priority, then by UID.
type AskOrder = (Tier, u32, i32, PodUid);

/// The pods, and the indexes over them.
#[derive(Debug, Default)]
pub(super) struct PodIndex {
    pods: LiteMap<PodUid, PodTrack>,
    /// By state; those that a rule lets stay do not count.
    pub(super) counts: PodCounts,
    /// Evictions that the server has accepted.
    pub(super) evicted: u32,
    /// Pods on the node by tier, refused ones included.
    tiers: LiteMap<Tier, u32>,
    active: u32,
    pub(super) asking: usize,
    /// Namespaces in which a [`RemovalCall::Remove`] is under way.
    pub(super) removing: BTreeSet<String>,
    /// Pods that are to be asked, each with when.
    to_ask: BTreeMap<AskOrder, Mono>,
    /// Ends of grace periods, with some slack.
    overdue: BTreeSet<(Mono, PodUid)>,
    /// Pods on the node by the time since when they are being asked to leave.
    pub(super) asked: BTreeSet<(Mono, PodUid)>,
    /// Pods that the server refuses for good.
    refused: u32,
    /// Pods that are not asked, as the storage needs them.
    kept: u32,
    /// Claims of pods that are gone.
    pub(super) claims: BTreeSet<ClaimName>,
}

impl PodIndex {
    /// No pods yet; of those that have left before, these claims are known.
    pub(super) fn owing(claims: BTreeSet<ClaimName>) -> Self {
        Self { claims, ..Self::default() }
    }

    /// The claims of pods that are gone and of those that are to go.
    pub(super) fn all_claims(&self) -> BTreeSet<String> {
        let gone = self.claims.iter().map(|(namespace, claim)| format!("{namespace}/{claim}"));
        let here = self.pods.values().flat_map(|track| {
            let namespace = &track.facts.pod.namespace;
            track.facts.claims.iter().map(move |claim| format!("{namespace}/{claim}"))
        });
        gone.chain(here).into_set()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&PodTrack> {
        self.pods.get(uid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&PodUid, &PodTrack)> {
        self.pods.iter()
    }

    pub(super) fn insert(&mut self, track: PodTrack) {
        let uid = track.facts.pod.uid.clone();
        self.enter(&uid, &track);
        self.pods.insert(uid, track);
    }

    pub(super) fn remove(&mut self, uid: &PodUid) {
        if let Some(track) = self.pods.remove(uid) {
            self.leave(uid, &track);
        }
    }

    /// Changes a pod; the only way to do so.
    pub(super) fn change<T>(&mut self, uid: &PodUid, change: impl FnOnce(&mut PodTrack) -> T) -> Option<T> {
        let mut track = self.pods.remove(uid)?;
        self.leave(uid, &track);
        let outcome = change(&mut track);
        if matches!(track.state, PodState::Gone | PodState::ObjectOnly) {
            // A pod that has gone stays in the list for its count alone.
            let namespace = &track.facts.pod.namespace;
            self.claims.extend(track.facts.claims.drain(..).map(|claim| (namespace.clone(), claim)));
            track.facts.labels.clear();
        }
        self.enter(uid, &track);
        self.pods.insert(uid.clone(), track);
        Some(outcome)
    }

    fn enter(&mut self, uid: &PodUid, track: &PodTrack) {
        self.count(track, u32::saturating_add);
        let facts = &track.facts;
        if let Some(due) = track.due() {
            self.to_ask.insert(track.order(), due);
        }
        if let Some(at) = track.overdue_at() {
            self.overdue.insert((at, uid.clone()));
        }
        if let Some(asked) = track.asked.filter(|_| track.is_here()) {
            self.asked.insert((asked, uid.clone()));
        }
        if let PodState::Asking { way, .. } = track.state {
            self.asking += 1;
            if way == RemovalCall::Remove {
                self.removing.insert(facts.pod.namespace.clone());
            }
        }
    }

    fn leave(&mut self, uid: &PodUid, track: &PodTrack) {
        self.count(track, u32::saturating_sub);
        let facts = &track.facts;
        self.to_ask.remove(&track.order());
        if let Some(at) = track.overdue_at() {
            self.overdue.remove(&(at, uid.clone()));
        }
        if let Some(asked) = track.asked {
            self.asked.remove(&(asked, uid.clone()));
        }
        if let PodState::Asking { way, .. } = track.state {
            self.asking -= 1;
            if way == RemovalCall::Remove {
                self.removing.remove(&facts.pod.namespace);
            }
        }
    }

    fn count(&mut self, track: &PodTrack, add: fn(u32, u32) -> u32) {
        let evicted = matches!(track.accepted, Some(RemovalCall::Evict | RemovalCall::Remove));
        self.evicted = add(self.evicted, u32::from(evicted));
        self.active = add(self.active, u32::from(track.is_active()));
        self.kept = add(self.kept, u32::from(track.is_active() && track.kept.is_some()));
        self.refused = add(self.refused, u32::from(track.state == PodState::Ended));
        if track.is_here() {
            let here = self.tiers.entry(track.facts.tier).or_default();
            *here = add(*here, 1);
            if *here == 0 {
                self.tiers.remove(&track.facts.tier);
            }
        }
        let counts = &mut self.counts;
        let count = match track.state {
            PodState::Left => return,
            PodState::Gone | PodState::ObjectOnly => &mut counts.gone,
            PodState::Going { .. } => &mut counts.going,
            PodState::Ended => &mut counts.blocked,
            PodState::Waiting { .. } | PodState::Asking { .. } if track.is_blocked() => &mut counts.blocked,
            PodState::Waiting { .. } | PodState::Asking { .. } => &mut counts.waiting,
        };
        *count = add(*count, 1);
        counts.total = add(counts.total, 1);
    }

    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Whether all that are to be waited for are kept for the storage.
    pub(super) fn only_kept(&self) -> bool {
        self.active == self.kept
    }

    /// The tier that leaves: the first of which a pod is on the node.
    pub(super) fn open_tier(&self) -> Option<Tier> {
        self.tiers.keys().next().copied()
    }

    /// Pods of the open tier in the order of asking, each with when.
    fn in_turn(&self) -> impl Iterator<Item = (&PodUid, Mono)> {
        let open = self.open_tier();
        let of_tier = self.to_ask.iter().take_while(move |((tier, ..), _)| Some(*tier) == open);
        of_tier.map(|((.., uid), at)| (uid, *at))
    }

    /// Those of them whose time has come and that `may` be asked; `most` at most.
    pub(super) fn ripe(&self, now: Mono, most: usize, may: impl Fn(&PodTrack) -> bool) -> Vec<PodUid> {
        let ripe = self.in_turn().filter(|(_, at)| *at <= now).map(|(uid, _)| uid);
        ripe.filter(|uid| self.get(uid).is_some_and(&may)).take(most).cloned().collect()
    }

    /// When the time of the next of them comes.
    pub(super) fn next_due(&self, now: Mono) -> Option<Mono> {
        self.in_turn().map(|(_, at)| at).filter(|at| *at > now).min()
    }

    /// When the first pod has had its time to end.
    pub(super) fn next_overdue(&self) -> Option<Mono> {
        self.overdue.first().map(|(at, _)| *at)
    }

    /// The pods that have had their time to end.
    pub(super) fn overdue_by(&self, now: Mono) -> impl Iterator<Item = &PodUid> {
        self.overdue.iter().take_while(move |(at, _)| *at <= now).map(|(_, uid)| uid)
    }

    /// When the last grace period that is running ends.
    pub(super) fn last_grace(&self) -> Option<Mono> {
        let (at, _) = self.overdue.last()?;
        Some(Mono::from_start(at.since_start().saturating_sub(SLACK)))
    }

    /// Pods on the node that were never Ready, with since when they are being asked to leave.
    pub(super) fn never_ready(&self) -> impl Iterator<Item = &(Mono, PodUid)> {
        self.asked.iter().filter(|(_, uid)| self.get(uid).is_some_and(|it| it.facts.never_ready))
    }

    /// The pod that is asked for longest and not over a limit yet, and since when.
    pub(super) fn first_in_time(&self) -> Option<&(Mono, PodUid)> {
        let in_time = |uid| self.pods.get(uid).is_some_and(|it| !it.over && !it.sticky);
        self.asked.iter().find(|(_, uid)| in_time(uid))
    }

    /// Pods of a namespace that a budget holds, lower priorities first.
    pub(super) fn held_in(&self, namespace: &str) -> Vec<PodUid> {
        let held = |it: &PodTrack| it.facts.pod.namespace == namespace && it.is_held_by_budget();
        let mut held: Vec<_> = self.pods.iter().filter(|(_, it)| held(it)).collect();
        held.order_by_key(|(_, it)| it.facts.priority);
        held.into_iter().map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether of the open tier only pods are left that the server refuses for good.
    pub(super) fn only_refused(&self) -> bool {
        let Some(open) = self.open_tier().filter(|_| self.refused > 0) else { return false };
        self.pods
            .values()
            .filter(|it| it.facts.tier == open && it.is_here())
            .all(|it| it.state == PodState::Ended)
    }

    /// Pods that are in this state.
    pub(super) fn in_state(&self, state: &PodState) -> impl Iterator<Item = &PodTrack> {
        self.pods.values().filter(move |it| it.state == *state)
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
