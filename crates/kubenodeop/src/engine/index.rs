//! The pods of an attempt with what each event asks about them: counts, and who is due when. Each change of a pod costs
//! the logarithm of their number; only what is rarely asked, and where pods are held, walks over all of them.
//!
//! Not here: what changes a pod (`pod_table`). Pure: no clock, no I/O, no task.
//!
//! The budgets of the namespaces whose pods are held: their numbers, and what keeps them from having room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeapi::names::PodUid;
use step::{Inserted as _, Mono, SmallSort as _};
use topics::PodCounts;

use super::track::{PodState, PodTrack, RemovalCall, SLACK};
use super::words::Effect;
use crate::calls::volumes::ClaimName;
use crate::plan::PodFacts;
use crate::plan::budget::{BudgetFacts, Budgets};
use crate::plan::held::{Inspected, UnhealthyPod};
use crate::plan::tier::Tier;

/// Order of asking within a tier: pods that were never refused, then by priority, then by UID.
type AskOrder = (Tier, u32, i32, PodUid);

/// The pods, and the indexes over them.
#[derive(Debug, Default)]
pub(super) struct PodIndex {
    pods: BTreeMap<PodUid, PodTrack>,
    /// By state; those that a rule lets stay do not count.
    pub(super) counts: PodCounts,
    /// Evictions that the server has accepted.
    pub(super) evicted: u32,
    /// Pods on the node by tier, refused ones included.
    tiers: BTreeMap<Tier, u32>,
    active: u32,
    pub(super) asking: usize,
    /// Namespaces in which a [`RemovalCall::Remove`] is under way.
    pub(super) removing: BTreeSet<String>,
    /// Pods to be asked at a time that is still ahead.
    due: BTreeSet<(Tier, Mono, PodUid)>,
    ripe: BTreeSet<AskOrder>,
    /// Ends of grace periods, with some slack.
    overdue: BTreeSet<(Mono, PodUid)>,
    /// Pods on the node by the time since when they are being asked to leave.
    asked: BTreeSet<(Mono, PodUid)>,
    /// Pods on the node that were never Ready, by the time since when they are being asked to leave.
    pub(super) never_ready: BTreeSet<(Mono, PodUid)>,
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
            self.due.insert((facts.tier, due, uid.clone()));
        }
        if let Some(at) = track.overdue_at() {
            self.overdue.insert((at, uid.clone()));
        }
        if let Some(asked) = track.asked.filter(|_| track.is_here()) {
            self.asked.insert((asked, uid.clone()));
            if facts.never_ready {
                self.never_ready.insert((asked, uid.clone()));
            }
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
        if let Some(due) = track.due() {
            self.due.remove(&(facts.tier, due, uid.clone()));
            self.ripe.remove(&(facts.tier, track.tries, facts.priority, uid.clone()));
        }
        if let Some(at) = track.overdue_at() {
            self.overdue.remove(&(at, uid.clone()));
        }
        if let Some(asked) = track.asked {
            self.asked.remove(&(asked, uid.clone()));
            self.never_ready.remove(&(asked, uid.clone()));
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

    /// Pods of the open tier whose time has come and that `may` be asked, in the order of asking; `most` at most.
    pub(super) fn ripe(
        &mut self,
        now: Mono,
        most: usize,
        may: impl Fn(&Self, &PodTrack) -> bool,
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

    /// The pods that have had their time to end.
    pub(super) fn overdue_by(&self, now: Mono) -> impl Iterator<Item = &PodUid> {
        self.overdue.iter().take_while(move |(at, _)| *at <= now).map(|(_, uid)| uid)
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

/// Not before any UID of the API, which are hexadecimal digits and dashes.
fn last_uid() -> PodUid {
    PodUid::new("\u{10ffff}")
}

/// How long a refusal is kept back while the numbers behind it are being read, so that its sentence changes no
/// more once it has been said.
const QUIET: Duration = Duration::from_millis(500);
/// Least time between two looks at what hinders one budget (it is known within 60 s).
const INSPECT_AGAIN: Duration = Duration::from_secs(30);
/// While nothing changes the time between looks doubles so many times.
const DOUBLINGS: u32 = 4;
/// The same for a budget that shares pods with others: nobody but us has it counted again when its numbers are
/// behind, and until then no pod leaves.
const SHARED_AGAIN: Duration = Duration::from_secs(2);
/// Up to 16 s.
const SHARED_DOUBLINGS: u32 = 3;

/// Namespaces in which a budget has held a pod.
#[derive(Debug, Default)]
pub(super) struct NamespaceBudgets {
    all: BTreeMap<String, Space>,
    /// When to look next at what hinders a budget.
    due: Option<Mono>,
    /// That may be another time by now: nobody walks over a thousand budgets at each event.
    look_now: bool,
}

#[derive(Debug)]
struct Space {
    followed: Mono,
    told: bool,
    /// `None` while they have not been heard of.
    budgets: Option<Budgets>,
    /// Budgets that hold a pod, or have held one, by name.
    holding: BTreeMap<String, Inspection>,
}

/// What is known of the pods that keep one budget from having room.
#[derive(Debug, Default)]
struct Inspection {
    /// Its numbers when they were read.
    numbers: Option<[i32; 4]>,
    asked: Mono,
    /// Looks in a row at the same numbers.
    looks: u32,
    flying: bool,
    answered: bool,
    /// The budget holds a pod now.
    wanted: bool,
    /// It has held a pod that other budgets guard too.
    shared: bool,
    found: Inspected,
}

impl Inspection {
    /// When to look, given the numbers of now.
    fn due(&self, numbers: [i32; 4]) -> Option<Mono> {
        let (again, most) =
            if self.shared { (SHARED_AGAIN, SHARED_DOUBLINGS) } else { (INSPECT_AGAIN, DOUBLINGS) };
        match self.numbers {
            _ if self.flying => None,
            None => Some(Mono::START),
            Some(before) if before != numbers => Some(self.asked + again),
            Some(_) => {
                let doublings = self.looks.saturating_sub(1).min(most);
                Some(self.asked + again.saturating_mul(1 << doublings))
            }
        }
    }
}

impl Space {
    /// Budgets that hold a pod and have no room, and when to look at what hinders them.
    fn to_inspect(&self) -> impl Iterator<Item = (&BudgetFacts, Mono)> {
        // Both are in the order of the names: with a thousand budgets a search for each would be felt at every event.
        let mut budgets = self.budgets.iter().flat_map(Budgets::all).peekable();
        self.holding.iter().filter_map(move |(name, inspection)| {
            while budgets.next_if(|budget| budget.name < *name).is_some() {}
            let budget = budgets.next_if(|budget| budget.name == *name)?;
            if !inspection.wanted || budget.has_room() {
                return None;
            }
            budget.selector.as_ref()?;
            Some((budget, inspection.due(numbers(budget))?))
        })
    }

    /// Whether all that can be said about its refusals is known.
    fn is_clear(&self) -> bool {
        let inspected = |(name, inspection): (&String, &Inspection)| {
            let budget = || self.budgets.as_ref()?.named(name);
            inspection.answered || !inspection.wanted || budget().is_none_or(BudgetFacts::has_room)
        };
        self.budgets.is_some() && self.holding.iter().all(inspected)
    }
}

fn numbers(budget: &BudgetFacts) -> [i32; 4] {
    [budget.allowed, budget.healthy, budget.desired, budget.expected]
}

impl NamespaceBudgets {
    /// A budget of this namespace holds a pod. Whether the namespace is new.
    pub(super) fn follow(&mut self, now: Mono, namespace: &str) -> bool {
        if self.all.contains_key(namespace) {
            return false;
        }
        let space = Space { followed: now, told: false, budgets: None, holding: BTreeMap::new() };
        self.all.insert(namespace.to_owned(), space);
        true
    }

    /// The known budgets that guard a pod.
    pub(super) fn guards(&self, facts: &PodFacts) -> Vec<&BudgetFacts> {
        let known = || self.all.get(&facts.pod.namespace)?.budgets.as_ref();
        known().map(|budgets| budgets.guards(&facts.labels)).unwrap_or_default()
    }

    /// All budgets, by namespace, as far as they are known.
    pub(super) fn known(&self) -> BTreeMap<String, Vec<BudgetFacts>> {
        let known = |(namespace, space): (&String, &Space)| {
            Some((namespace.clone(), space.budgets.as_ref()?.all().to_vec()))
        };
        self.all.iter().filter_map(known).into_map()
    }

    /// Takes the budgets of a namespace as they are now, and gives those of before, if they were known.
    pub(super) fn set(&mut self, now: Mono, namespace: &str, after: Vec<BudgetFacts>) -> Option<Budgets> {
        self.follow(now, namespace);
        self.look_now = true;
        self.all.get_mut(namespace)?.budgets.replace(Budgets::new(after))
    }

    /// These budgets of the namespace, and no others, hold a pod.
    pub(super) fn hold_only(&mut self, namespace: &str, names: &BTreeSet<String>) {
        if let Some(space) = self.all.get_mut(namespace) {
            for (name, inspection) in &mut space.holding {
                if !names.contains(name) {
                    self.look_now |= inspection.wanted;
                    inspection.wanted = false;
                    // What hindered it then may be over when it holds a pod again.
                    inspection.found = Inspected::default();
                }
            }
        }
        self.hold(namespace, names);
    }

    /// These budgets of the namespace hold a pod.
    pub(super) fn hold(&mut self, namespace: &str, names: &BTreeSet<String>) {
        if let Some(space) = self.all.get_mut(namespace) {
            for name in names {
                let inspection = space.holding.entry(name.clone()).or_default();
                self.look_now |= !std::mem::replace(&mut inspection.wanted, true);
            }
        }
    }

    /// These budgets of the namespace hold a pod that others of them guard too.
    pub(super) fn share(&mut self, namespace: &str, names: &BTreeSet<String>) {
        if let Some(space) = self.all.get_mut(namespace) {
            for name in names {
                let inspection = space.holding.entry(name.clone()).or_default();
                self.look_now |= !std::mem::replace(&mut inspection.shared, true);
            }
        }
    }

    /// Looks at what hinders budgets, where that is due.
    pub(super) fn inspect(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        if !self.look_now && self.due.is_none_or(|at| at > now) {
            return;
        }
        for (namespace, space) in &mut self.all {
            let due: Vec<BudgetFacts> =
                space.to_inspect().filter(|(_, at)| *at <= now).map(|(budget, _)| budget.clone()).collect();
            for budget in due {
                let numbers = Some(numbers(&budget));
                let Some(inspection) = space.holding.get_mut(&budget.name) else { continue };
                inspection.looks = if inspection.numbers == numbers { inspection.looks + 1 } else { 1 };
                inspection.numbers = numbers;
                inspection.asked = now;
                inspection.flying = true;
                let selector = budget.selector.unwrap_or_default();
                let (budget, shared) = (budget.name, inspection.shared);
                effects.push(Effect::Inspect { namespace: namespace.clone(), budget, selector, shared });
            }
        }
        self.due = self.all.values().flat_map(Space::to_inspect).map(|(_, at)| at).min();
        self.look_now = false;
    }

    /// The answer to [`Effect::Inspect`]; `None` when it came to nothing, which leaves what was known.
    pub(super) fn inspected(&mut self, namespace: &str, budget: &str, found: Option<Inspected>) {
        let space = self.all.get_mut(namespace);
        let inspection = space.and_then(|space| space.holding.get_mut(budget));
        if let Some(inspection) = inspection.filter(|inspection| inspection.flying) {
            inspection.flying = false;
            self.look_now = true;
            inspection.answered = true;
            if let Some(found) = found.filter(|_| inspection.wanted) {
                inspection.found = found;
            }
        }
    }

    /// What keeps this budget from having room, as far as it is known.
    pub(super) fn hindrances(&self, budget: &BudgetFacts) -> &[UnhealthyPod] {
        let space = self.all.get(&budget.namespace).filter(|_| !budget.has_room());
        let inspection = space.and_then(|space| space.holding.get(&budget.name));
        inspection.map_or(&[], |inspection| inspection.found.hindrances.as_slice())
    }

    /// How many pods of this budget are Ready, where it counts fewer.
    pub(super) fn ready(&self, budget: &BudgetFacts) -> Option<i32> {
        let space = self.all.get(&budget.namespace).filter(|_| !budget.has_room())?;
        space.holding.get(&budget.name)?.found.ready.filter(|ready| *ready > budget.healthy)
    }

    /// Whether refusals in this namespace may be told.
    pub(super) fn is_reportable(&self, namespace: &str) -> bool {
        self.all.get(namespace).is_none_or(|space| space.told)
    }

    /// Namespaces whose refusals may be told from now on.
    pub(super) fn release_refusals(&mut self, now: Mono) -> Vec<String> {
        let mut told = Vec::new();
        for (namespace, space) in self.all.iter_mut().filter(|(_, space)| !space.told) {
            if space.is_clear() || now.since(space.followed) >= QUIET {
                space.told = true;
                told.push(namespace.clone());
            }
        }
        told
    }

    /// When time alone changes something here.
    pub(super) fn next_due(&self) -> Option<Mono> {
        let quiet = self.all.values().filter(|space| !space.told).map(|space| space.followed + QUIET);
        quiet.chain(self.due).min()
    }
}
