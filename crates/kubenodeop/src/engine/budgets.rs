//! The budgets of the namespaces whose pods are held: their numbers, and what keeps them from having room.
//!
//! Not here: what follows for a pod (`pod_table`). Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use step::{Inserted as _, LiteMap, Mono};

use super::words::Effect;
use crate::plan::PodFacts;
use crate::plan::budget::{BudgetFacts, Budgets};
use crate::plan::held::{Inspected, UnhealthyPod};

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
    all: LiteMap<String, Space>,
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
    holding: LiteMap<String, Inspection>,
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
        let space = Space { followed: now, told: false, budgets: None, holding: LiteMap::new() };
        self.all.insert(namespace.to_owned(), space);
        true
    }

    /// The known budgets that guard a pod.
    pub(super) fn guards(&self, facts: &PodFacts) -> Vec<&BudgetFacts> {
        let known = || self.all.get(&facts.pod.namespace)?.budgets.as_ref();
        known().map(|budgets| budgets.guards(&facts.labels)).unwrap_or_default()
    }

    /// All budgets, by namespace, as far as they are known.
    pub(super) fn known(&self) -> LiteMap<String, Vec<BudgetFacts>> {
        let known = |(namespace, space): (&String, &Space)| {
            Some((namespace.clone(), space.budgets.as_ref()?.all().to_vec()))
        };
        self.all.iter().filter_map(known).into_lite()
    }

    /// Takes the budgets of a namespace as they are now, and gives those of before, if they were known.
    pub(super) fn set(&mut self, now: Mono, namespace: &str, after: Vec<BudgetFacts>) -> Option<Budgets> {
        self.follow(now, namespace);
        self.look_now = true;
        self.all.get_mut(namespace)?.budgets.replace(Budgets::new(after))
    }

    /// These budgets of the namespace, and no others, hold a pod; those that are `shared` one that others of them guard too.
    pub(super) fn hold_only(&mut self, namespace: &str, names: &BTreeSet<String>, shared: &BTreeSet<String>) {
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
        self.hold(namespace, names, shared);
    }

    /// These budgets of the namespace hold a pod, whatever others do.
    pub(super) fn hold(&mut self, namespace: &str, names: &BTreeSet<String>, shared: &BTreeSet<String>) {
        if let Some(space) = self.all.get_mut(namespace) {
            for name in names {
                let inspection = space.holding.entry(name.clone()).or_default();
                let before = (inspection.wanted, inspection.shared);
                (inspection.wanted, inspection.shared) = (true, before.1 || shared.contains(name));
                self.look_now |= before != (inspection.wanted, inspection.shared);
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
