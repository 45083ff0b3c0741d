//! Disruption budgets: which pods one guards, and whether it has room.
//!
//! Not here: reading them. Source: `PodDisruptionBudget` of policy/v1 (an empty selector selects every pod of
//! the namespace, an absent one none).
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use topics::number;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{Expression, Selector, SelectorExt as _};
use kubeapi::names::{PodRef, listed};
use step::{LiteMap, SmallSort as _};

/// So long Kubernetes counts a pod as disrupted whose eviction it has accepted and that is not ending (the disruption
/// controller's `DeletionTimeout`).
const COUNTED: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetFacts {
    pub namespace: String,
    pub name: String,
    /// What it selects, `None` for nothing.
    pub selector: Option<Selector>,
    /// Pods that may be disrupted now.
    pub allowed: i32,
    pub healthy: i32,
    pub desired: i32,
    pub expected: i32,
    /// Why Kubernetes cannot count its pods, so that it never gets room; empty when it can.
    pub uncounted: String,
    /// Pods that are counted as disrupted although they may be Ready, and until when; empty where none are.
    pub granted: String,
    /// It lets each pod pass that is not Ready (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub lenient: bool,
}

/// A pod, and what budgets judge it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedPod {
    pub pod: PodRef,
    pub labels: BTreeMap<String, String>,
    /// Its condition Ready is True.
    pub ready: bool,
}

/// Pods that a budget counts as disrupted since these times, and until when: `w-5, w-9 until 11:14:02 UTC`.
pub(crate) fn granted(claims: Option<&BTreeMap<String, Time>>) -> String {
    let Some(last) = claims.into_iter().flatten().map(|(_, at)| at.0).max() else { return String::new() };
    let names: Vec<String> = claims.into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let until = last.checked_add(COUNTED).unwrap_or(last);
    format!("{} until {}", listed(&names, ", "), until.strftime("%H:%M:%S UTC"))
}

impl BudgetFacts {
    /// Whether the budget guards a pod with these labels.
    pub fn guards(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether a pod may go now.
    pub fn has_room(&self) -> bool {
        self.allowed > 0
    }

    /// Whether it lets a pod go without a disruption of its own: one that is not Ready, where its policy says so, or where
    /// the others are enough (kubernetes `pkg/registry/core/pod/storage/eviction.go`).
    pub fn passes(&self, ready: bool) -> bool {
        !ready && (self.lenient || (self.desired > 0 && self.healthy >= self.desired))
    }

    /// Whether a pod may go now, Ready or not.
    pub fn admits(&self, ready: bool) -> bool {
        self.has_room() || self.passes(ready)
    }
}

/// The budgets of one namespace in the order of their names, found by the labels of a pod: so with as many
/// budgets as pods not each budget is compared with each pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budgets {
    all: Vec<BudgetFacts>,
    /// Places of those that select by a label, by one such label and its value.
    by_label: LiteMap<String, LiteMap<String, Vec<usize>>>,
    /// Places of the others that select something.
    by_more: Vec<usize>,
}

impl Budgets {
    pub(crate) fn new(mut all: Vec<BudgetFacts>) -> Self {
        all.order_by(|one, other| one.name.cmp(&other.name));
        let (mut by_label, mut by_more) = (LiteMap::<_, LiteMap<_, Vec<_>>>::new(), Vec::new());
        for (at, budget) in all.iter().enumerate() {
            let Some(selector) = budget.selector.clone() else { continue };
            match selector.into_iter().filter_map(by_one_label).next_back() {
                Some((label, value)) => {
                    let places = by_label.entry(label).or_default();
                    places.entry(value).or_default().push(at);
                }
                None => by_more.push(at),
            }
        }
        Self { all, by_label, by_more }
    }

    pub(crate) fn all(&self) -> &[BudgetFacts] {
        &self.all
    }

    pub(crate) fn named(&self, name: &str) -> Option<&BudgetFacts> {
        let at = self.all.binary_search_by(|budget| budget.name.as_str().cmp(name)).ok()?;
        self.all.get(at)
    }

    /// Those that guard a pod with these labels.
    pub(crate) fn guards(&self, labels: &BTreeMap<String, String>) -> Vec<&BudgetFacts> {
        let by_label = labels.iter().filter_map(|(label, value)| self.by_label.get(label)?.get(value));
        let mut places: Vec<usize> = by_label.flatten().chain(&self.by_more).copied().collect();
        places.order();
        let found = places.into_iter().filter_map(|at| self.all.get(at));
        found.filter(|budget| budget.guards(labels)).collect()
    }
}

/// The label and its value where it selects by them.
fn by_one_label(asked: Expression) -> Option<(String, String)> {
    if let Expression::Equal(label, value) = asked { Some((label, value)) } else { None }
}

/// For a person: name and numbers.
impl fmt::Display for BudgetFacts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            name,
            allowed,
            healthy,
            desired,
            expected,
            uncounted,
            granted,
            selector: _,
            lenient: _,
        } = self;
        write!(out, "PodDisruptionBudget {namespace}/{name} allows ")?;
        match allowed {
            ..=0 => write!(out, "no disruption")?,
            more => out.write_str(&number(*more, "disruption"))?,
        }
        write!(out, ": {healthy} of {} healthy, {desired} required", number(*expected, "pod"))?;
        if *allowed <= 0 && !granted.is_empty() {
            write!(out, "; a disruption that was granted and not used is counted for {granted}")?;
        }
        if uncounted.is_empty() { Ok(()) } else { write!(out, "; its pods cannot be counted: {uncounted}") }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn t13_a_disruption_that_was_granted_and_not_used_explains_a_budget_without_room_though_all_are_ready() {
        let at = |time: &str| Time(time.parse().unwrap());
        let claims =
            [("w-5".to_owned(), at("2026-03-14T11:12:02Z")), ("w-9".to_owned(), at("2026-03-14T11:11:00Z"))];
        let facts = BudgetFacts { granted: granted(Some(&claims.into())), ..budget("w", [0, 10, 10, 12]) };
        assert_eq!(
            facts.to_string(),
            "PodDisruptionBudget shop/w allows no disruption: 10 of 12 pods healthy, 10 required; a disruption that was \
             granted and not used is counted for w-5, w-9 until 11:14:02 UTC"
        );
        assert_eq!(granted(Some(&BTreeMap::new())), "");
        let roomy = BudgetFacts { allowed: 1, ..facts };
        assert!(!roomy.to_string().contains("granted"), "{roomy}");
    }

    /// A budget of the shop with these numbers, which selects all pods.
    pub(crate) fn budget(name: &str, [allowed, healthy, desired, expected]: [i32; 4]) -> BudgetFacts {
        BudgetFacts {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            selector: Some(Selector::default()),
            allowed,
            healthy,
            desired,
            expected,
            uncounted: String::new(),
            lenient: false,
            granted: String::new(),
        }
    }

    #[test]
    fn a_budget_without_selector_guards_nothing() {
        let mut budget = BudgetFacts { selector: None, ..budget("web", [0, 2, 2, 3]) };
        assert!(!budget.guards(&labels(&[])));
        budget.selector = Some(Selector::default());
        assert!(budget.guards(&labels(&[])));
        assert_eq!(
            budget.to_string(),
            "PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required"
        );
    }

    #[test]
    fn budgets_found_by_labels_are_those_that_say_so_themselves_in_the_order_of_their_names() {
        let select = |pairs: &[(&str, &str)]| Some(labels(pairs).into_iter().collect());
        let selectors = [
            None,
            select(&[]),
            select(&[("app", "web")]),
            select(&[("app", "db")]),
            select(&[("app", "web"), ("tier", "1")]),
            Some(Expression::DoesNotExist("app".to_owned()).into()),
            select(&[("tier", "1")]),
        ];
        let named = |(at, selector): (usize, &Option<Selector>)| BudgetFacts {
            name: format!("b{}", 9 - at),
            selector: selector.clone(),
            ..budget("", [0; 4])
        };
        let budgets = Budgets::new(selectors.iter().enumerate().map(named).collect());
        assert!(budgets.all().is_sorted_by_key(|it| &it.name));
        assert_eq!(budgets.named("b5"), budgets.all().iter().find(|it| it.name == "b5"));
        for pod in
            [&[][..], &[("app", "web")], &[("app", "web"), ("tier", "1")], &[("tier", "1"), ("x", "web")]]
        {
            let (pod, guards) = (labels(pod), |it: &&BudgetFacts| it.guards(&labels(pod)));
            assert_eq!(
                budgets.guards(&pod),
                budgets.all().iter().filter(guards).collect::<Vec<_>>(),
                "{pod:?}"
            );
        }
    }
}
