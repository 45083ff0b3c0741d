//! The pods of an attempt with what is asked about them often: counts, and who is due when. Each change of a pod
//! costs the logarithm of their number, and no question walks over all of them.
//!
//! Not here: what changes a pod (`roster`).
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use step::Mono;

use super::track::{SLACK, State, Track, Way};
use super::words::Claim;
use crate::plan::tier::Tier;
use crate::progress::Counts;
use kubeapi::names::PodUid;

/// Order of asking within a tier: pods that were never refused, then by priority, then by UID.
type Turn = (Tier, u32, i32, PodUid);

/// The pods, and the indexes over them.
#[derive(Debug, Default)]
pub(super) struct Book {
    pods: BTreeMap<PodUid, Track>,
    /// By state; those that a rule lets stay do not count.
    pub(super) counts: Counts,
    /// Evictions that the server has accepted.
    pub(super) evicted: u32,
    /// Pods on the node by tier, refused ones included.
    tiers: BTreeMap<Tier, u32>,
    /// Pods to be waited for.
    active: u32,
    /// Calls under way.
    pub(super) asking: usize,
    /// Namespaces in which a [`Way::Remove`] is under way.
    pub(super) removing: BTreeSet<String>,
    /// Pods to be asked at a time that is still ahead.
    due: BTreeSet<(Tier, Mono, PodUid)>,
    /// Pods whose time has come.
    ripe: BTreeSet<Turn>,
    /// Ends of grace periods, with some slack.
    overdue: BTreeSet<(Mono, PodUid)>,
    /// Pods on the node by the time since when they are being asked to leave.
    asked: BTreeSet<(Mono, PodUid)>,
    /// The same, without those that are over a limit already.
    in_time: BTreeSet<(Mono, PodUid)>,
    /// Pods for which something is to be said.
    held: BTreeSet<PodUid>,
    /// Pods that a budget holds, by namespace and priority.
    by_budget: BTreeSet<(String, i32, PodUid)>,
    /// Pods that the server refuses for good.
    ended: BTreeMap<PodUid, Tier>,
    /// Pods that a rule lets stay.
    left: BTreeSet<PodUid>,
    /// Claims of pods that are gone.
    pub(super) claims: BTreeSet<Claim>,
}

impl Book {
    /// No pods yet; of those that have left before, these claims are known.
    pub(super) fn owing(claims: BTreeSet<Claim>) -> Self {
        Self { claims, ..Self::default() }
    }

    /// The claims of pods that are gone and of those that are to go.
    pub(super) fn all_claims(&self) -> BTreeSet<Claim> {
        let of = |track: &Track| {
            let namespace = track.facts.pod.namespace.clone();
            let claims = track.facts.claims.clone();
            claims.into_iter().map(move |claim| (namespace.clone(), claim))
        };
        self.claims.iter().cloned().chain(self.pods.values().flat_map(of)).collect()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&Track> {
        self.pods.get(uid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&PodUid, &Track)> {
        self.pods.iter()
    }

    pub(super) fn insert(&mut self, track: Track) {
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
    pub(super) fn change<T>(&mut self, uid: &PodUid, change: impl FnOnce(&mut Track) -> T) -> Option<T> {
        let mut track = self.pods.remove(uid)?;
        self.leave(uid, &track);
        let outcome = change(&mut track);
        if track.state == State::Gone {
            // A pod that has gone stays in the list for its count alone.
            let namespace = &track.facts.pod.namespace;
            self.claims.extend(track.facts.claims.drain(..).map(|claim| (namespace.clone(), claim)));
            track.facts.labels.clear();
        }
        self.enter(uid, &track);
        self.pods.insert(uid.clone(), track);
        Some(outcome)
    }

    fn enter(&mut self, uid: &PodUid, track: &Track) {
        self.count(track, u32::saturating_add);
        let facts = &track.facts;
        if let Some(due) = track.due() {
            self.due.insert((facts.tier, due, uid.clone()));
        }
        if let Some(at) = track.overdue_at() {
            self.overdue.insert((at, uid.clone()));
        }
        if let Some(asked) = track.asked.filter(|_| track.is_here()) {
            self.asked.insert((asked, uid.clone()));
            if track.over.is_none() && !track.sticky {
                self.in_time.insert((asked, uid.clone()));
            }
        }
        if track.is_here() && (track.refusal.is_some() || track.sticky || track.over.is_some()) {
            self.held.insert(uid.clone());
        }
        if track.is_held_by_budget() {
            self.by_budget.insert((facts.pod.namespace.clone(), facts.priority, uid.clone()));
        }
        match track.state {
            State::Asking { way, .. } => {
                self.asking += 1;
                if way == Way::Remove {
                    self.removing.insert(facts.pod.namespace.clone());
                }
            }
            State::Ended => drop(self.ended.insert(uid.clone(), facts.tier)),
            State::Left => drop(self.left.insert(uid.clone())),
            State::Waiting { .. } | State::Going { .. } | State::Gone => {}
        }
    }

    fn leave(&mut self, uid: &PodUid, track: &Track) {
        self.count(track, u32::saturating_sub);
        let facts = &track.facts;
        if let Some(due) = track.due() {
            self.due.remove(&(facts.tier, due, uid.clone()));
            self.ripe.remove(&(facts.tier, track.tries, facts.priority, uid.clone()));
        }
        if let Some(at) = track.overdue_at() {
            self.overdue.remove(&(at, uid.clone()));
        }
        if let Some(asked) = track.asked {
            self.asked.remove(&(asked, uid.clone()));
            self.in_time.remove(&(asked, uid.clone()));
        }
        self.held.remove(uid);
        if track.is_held_by_budget() {
            self.by_budget.remove(&(facts.pod.namespace.clone(), facts.priority, uid.clone()));
        }
        match track.state {
            State::Asking { way, .. } => {
                self.asking -= 1;
                if way == Way::Remove {
                    self.removing.remove(&facts.pod.namespace);
                }
            }
            State::Ended => drop(self.ended.remove(uid)),
            State::Left => drop(self.left.remove(uid)),
            State::Waiting { .. } | State::Going { .. } | State::Gone => {}
        }
    }

    fn count(&mut self, track: &Track, add: fn(u32, u32) -> u32) {
        let evicted = matches!(track.accepted, Some(Way::Evict | Way::Remove));
        self.evicted = add(self.evicted, u32::from(evicted));
        self.active = add(self.active, u32::from(track.is_active()));
        if track.is_here() {
            let here = self.tiers.entry(track.facts.tier).or_default();
            *here = add(*here, 1);
            if *here == 0 {
                self.tiers.remove(&track.facts.tier);
            }
        }
        let counts = &mut self.counts;
        let count = match track.state {
            State::Left => return,
            State::Gone => &mut counts.gone,
            State::Going { .. } => &mut counts.going,
            State::Ended => &mut counts.blocked,
            State::Waiting { .. } | State::Asking { .. } if track.is_blocked() => &mut counts.blocked,
            State::Waiting { .. } | State::Asking { .. } => &mut counts.waiting,
        };
        *count = add(*count, 1);
        counts.total = add(counts.total, 1);
    }

    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// The tier that leaves: the first of which a pod is on the node.
    pub(super) fn open_tier(&self) -> Option<Tier> {
        self.tiers.keys().next().copied()
    }

    /// Pods of the open tier whose time has come and that `may` be asked, in the order of asking; `most` at most.
    pub(super) fn ripe(
        &mut self,
        now: Mono,
        most: usize,
        may: impl Fn(&Self, &Track) -> bool,
    ) -> Vec<PodUid> {
        let Some(open) = self.open_tier() else { return Vec::new() };
        while let Some((tier, at, uid)) = self.due.first().cloned() {
            if tier != open || at > now {
                break;
            }
            if let Some(track) = self.pods.get(&uid) {
                self.ripe.insert((tier, track.tries, track.facts.priority, uid.clone()));
            }
            self.due.remove(&(tier, at, uid));
        }
        let of_tier = self.ripe.iter().take_while(|(tier, ..)| *tier == open).map(|(.., uid)| uid);
        of_tier.filter(|uid| self.get(uid).is_some_and(|it| may(self, it))).take(most).cloned().collect()
    }

    /// When the next pod of the open tier is due.
    pub(super) fn next_due(&self) -> Option<Mono> {
        let open = self.open_tier()?;
        self.due.first().filter(|(tier, ..)| *tier == open).map(|(_, at, _)| *at)
    }

    /// When the first pod has had its time to end.
    pub(super) fn next_overdue(&self) -> Option<Mono> {
        self.overdue.first().map(|(at, _)| *at)
    }

    /// When the last grace period that is running ends.
    pub(super) fn last_grace(&self) -> Option<Mono> {
        let (at, _) = self.overdue.last()?;
        Some(Mono::from_start(at.since_start().saturating_sub(SLACK)))
    }

    /// Pods that are asked to leave since before `at`, the earliest first.
    pub(super) fn asked_before(&self, at: Mono) -> impl Iterator<Item = &(Mono, PodUid)> {
        self.asked.iter().take_while(move |(asked, _)| *asked <= at)
    }

    /// When the first pod after `now` will have been asked for so long.
    pub(super) fn next_asked_for(&self, now: Mono, time: Duration) -> Option<Mono> {
        let from = Mono::from_start(now.since_start().saturating_sub(time));
        let later = (std::ops::Bound::Excluded((from, last_uid())), std::ops::Bound::Unbounded);
        self.asked.range(later).next().map(|(asked, _)| *asked + time)
    }

    /// The pod that is asked for longest and not over a limit yet.
    pub(super) fn first_in_time(&self) -> Option<&(Mono, PodUid)> {
        self.in_time.first()
    }

    /// Pods for which something is to be said at `now`.
    pub(super) fn to_tell(&self, now: Mono) -> impl Iterator<Item = &Track> {
        let late = self.overdue.iter().take_while(move |(at, _)| *at <= now).map(|(_, uid)| uid);
        let uids: BTreeSet<&PodUid> = self.held.iter().chain(late).collect();
        uids.into_iter().filter_map(|uid| self.pods.get(uid))
    }

    /// Pods of a namespace that a budget holds, lower priorities first.
    pub(super) fn held_in(&self, namespace: &str) -> Vec<PodUid> {
        let from = (namespace.to_owned(), i32::MIN, PodUid::new(""));
        let in_namespace = self.by_budget.range(from..).take_while(|(of, ..)| of == namespace);
        in_namespace.map(|(.., uid)| uid.clone()).collect()
    }

    /// Whether of the open tier only pods are left that the server refuses for good.
    pub(super) fn only_refused(&self) -> bool {
        let Some(open) = self.open_tier() else { return false };
        let refused = self.ended.values().filter(|tier| **tier == open).count();
        self.tiers.get(&open).is_some_and(|here| u32::try_from(refused) == Ok(*here))
    }

    /// Pods that the server refuses for good.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Track> {
        self.ended.keys().filter_map(|uid| self.pods.get(uid))
    }

    /// Pods that a rule lets stay.
    pub(super) fn left(&self) -> impl Iterator<Item = &Track> {
        self.left.iter().filter_map(|uid| self.pods.get(uid))
    }
}

/// Not before any UID of the API, which are hexadecimal digits and dashes.
fn last_uid() -> PodUid {
    PodUid::new("\u{10ffff}")
}
