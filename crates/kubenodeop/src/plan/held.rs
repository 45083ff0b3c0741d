//! What would hold a drain up; why a budget has no room, in names of pods; and what is said of a pod that its disruption budgets
//! hold: one code and one sentence, the same before a drain and in it.
//!
//! Not here: finding out (`engine`, `forecast`, `unhealthy_pods`). Sources: the disruption controller counts a pod as
//! healthy when its condition Ready is True and its deletion has not begun. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::fmt;

use kubeapi::names::PodRef;
use step::Mono;
use topics::Blocker;

use crate::plan::PodFacts;
use crate::plan::budget::BudgetFacts;
use crate::progress::{BlockCode, Subject, blocker};

/// So many pods that hinder a budget are named in one sentence.
const NAMED: usize = 3;

/// What would hold the drain up, and why; `since` is not set.
pub(super) fn foreseen(subject: &Subject, code: BlockCode, reason: String) -> Blocker {
    blocker(subject, code, reason, Mono::START)
}

/// Code and sentence for `pod`, which the budgets `guards`, at least one, hold. `hindrances` are those of the
/// budgets without room; what hinders several of them is named once.
pub fn by_budgets(
    facts: &PodFacts,
    guards: &[&BudgetFacts],
    hindrances: &[&UnhealthyPod],
    code: BlockCode,
) -> (BlockCode, String) {
    let pod = &facts.pod;
    let numbers = guards.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let mut seen = BTreeSet::new();
    let hindrances: Vec<&UnhealthyPod> = hindrances.iter().copied().filter(|it| seen.insert(*it)).collect();
    if let Some((other, sentence)) = hindrances.iter().find_map(|it| Some((&it.pod, unplaced(it)?))) {
        let reason = format!("pod {pod}: {numbers}; no other node can take pod {other} ({sentence})");
        return (BlockCode::NoOtherNode, reason);
    }
    let stuck = guards.iter().any(|budget| is_stuck(budget) && !budget.passes(facts.ready));
    let code = if stuck { BlockCode::BudgetStuck } else { code };
    let all = if guards.len() > 1 { " waits until all its budgets allow a disruption" } else { "" };
    let mut parts = vec![format!("pod {pod}{all}: {numbers}")];
    parts.extend(hindrances.iter().take(NAMED).map(ToString::to_string));
    if let Some(more) = hindrances.len().checked_sub(NAMED).filter(|more| *more > 0) {
        parts.push(format!("and {more} more"));
    }
    (code, parts.join("; "))
}

/// The same, with what opens a budget that is stuck: each form of one takes it.
pub fn advised(mut found: Blocker, facts: &PodFacts, guards: &[&BudgetFacts]) -> Blocker {
    let stuck =
        |it: &&&BudgetFacts| found.code == BlockCode::BudgetStuck && is_stuck(it) && !it.passes(facts.ready);
    if let Some(BudgetFacts { namespace, name, healthy, .. }) = guards.iter().find(stuck) {
        let spec = format!("{{\"minAvailable\":{},\"maxUnavailable\":null}}", (healthy - 1).max(0));
        let patch = format!("kubectl -n {namespace} patch pdb {name} --type merge -p '{{\"spec\":{spec}}}'");
        found.next_step = format!("waiting does not help; this lets one pod go: `{patch}`");
    }
    found
}

/// The sentence for a pod whose namespace is being deleted; `text` says so.
pub fn by_namespace(pod: &PodRef, text: &str) -> String {
    format!("pod {pod} waits for the end of its namespace: {text}")
}

/// Whether the budget cannot get room by itself: none of its pods is merely starting.
pub fn is_stuck(budget: &BudgetFacts) -> bool {
    let all_needed = budget.healthy <= budget.desired && budget.healthy == budget.expected;
    !budget.has_room() && (all_needed || !budget.uncounted.is_empty())
}

/// The scheduler's sentence about a pod that no node takes.
fn unplaced(hindrance: &UnhealthyPod) -> Option<&str> {
    match &hindrance.why {
        UnhealthyReason::Unplaced(sentence) if !sentence.is_empty() => Some(sentence),
        UnhealthyReason::Unplaced(_) | UnhealthyReason::NotReady | UnhealthyReason::Ending => None,
    }
}

/// What a look at the pods of a budget without room has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inspected {
    /// Pods that keep it from having room: at most 10, by name.
    pub hindrances: Vec<UnhealthyPod>,
    /// So many pods are Ready, which is more than the budget counts as healthy; Kubernetes was made to count again.
    pub ready: Option<i32>,
}

/// One pod that a budget selects and does not count as healthy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnhealthyPod {
    /// The pod, as `shop/web-1`.
    pub pod: String,
    /// Its node, or empty.
    pub node: String,
    /// Since when, as `14:03 UTC`, with the date when that is longer ago than a day; empty when the object does
    /// not say.
    pub since: String,
    pub why: UnhealthyReason,
}

/// What is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnhealthyReason {
    /// It runs, or is about to, and is not Ready.
    NotReady,
    /// No node takes it; the scheduler's own sentence, or empty.
    Unplaced(String),
    Ending,
}

/// For a person: `pod shop/web-1 on node n2 is not Ready since 14:03 UTC`.
impl fmt::Display for UnhealthyPod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, node, since, why } = self;
        write!(out, "pod {pod}")?;
        if !node.is_empty() {
            write!(out, " on node {node}")?;
        }
        out.write_str(match why {
            UnhealthyReason::NotReady => " is not Ready",
            UnhealthyReason::Unplaced(_) => " has no node",
            UnhealthyReason::Ending => " is ending",
        })?;
        if !since.is_empty() {
            write!(out, " since {since}")?;
        }
        match why {
            UnhealthyReason::Unplaced(sentence) if !sentence.is_empty() => write!(out, " ({sentence})"),
            UnhealthyReason::NotReady | UnhealthyReason::Unplaced(_) | UnhealthyReason::Ending => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::budget::tests::budget;
    use crate::plan::tier::tests::pod;

    fn hindrance(name: &str, why: UnhealthyReason) -> UnhealthyPod {
        UnhealthyPod { pod: format!("shop/{name}"), node: String::new(), since: String::new(), why }
    }

    #[test]
    fn o2_d6_d7_what_is_said_has_the_names_and_numbers_of_all() {
        let (full, other, stuck) =
            (budget("web", [0, 2, 2, 3]), budget("all", [1, 9, 8, 9]), budget("web", [0, 3, 3, 3]));
        let sick: Vec<UnhealthyPod> =
            ["a", "b", "c", "d"].iter().map(|name| hindrance(name, UnhealthyReason::NotReady)).collect();
        let homeless = [
            hindrance("a", UnhealthyReason::NotReady),
            hindrance("b", UnhealthyReason::Unplaced("0/2 nodes".to_owned())),
        ];
        let none = BudgetFacts { uncounted: "no scale".to_owned(), ..budget("vm", [0, 1, 0, 0]) };
        let (budget_web, all) = (
            "PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required",
            "PodDisruptionBudget shop/all allows 1 disruption: 9 of 9 pods healthy, 8 required",
        );
        let many = " waits until all its budgets allow a disruption";
        let (one, two) = ("pod shop/a is not Ready", "pod shop/b is not Ready");
        let said = |all: &[&str]| format!("pod shop/x{}", all.concat());
        let uncounted = "PodDisruptionBudget shop/vm allows no disruption: 1 of 0 pods healthy, 0 required; its pods cannot be \
                         counted: no scale";
        let full_one = "PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required";
        let twice = vec![&sick[0], &sick[1], &sick[0], &sick[1]];
        let three = [": ", budget_web, "; ", one, "; ", two, "; pod shop/c is not Ready; and 1 more"];
        let placeless = "; no other node can take pod shop/b (0/2 nodes)";
        let table = [
            (vec![&none], vec![], BlockCode::BudgetStuck, said(&[": ", uncounted])),
            (vec![&full], vec![], BlockCode::Budget, said(&[": ", budget_web])),
            (vec![&stuck], vec![], BlockCode::BudgetStuck, said(&[": ", full_one])),
            (
                vec![&other, &full],
                vec![&sick[0]],
                BlockCode::ManyBudgets,
                said(&[many, ": ", all, "; ", budget_web, "; ", one]),
            ),
            (
                vec![&full, &full],
                twice,
                BlockCode::ManyBudgets,
                said(&[many, ": ", budget_web, "; ", budget_web, "; ", one, "; ", two]),
            ),
            (vec![&full], sick.iter().collect(), BlockCode::Budget, said(&three)),
            (
                vec![&full],
                homeless.iter().collect(),
                BlockCode::NoOtherNode,
                said(&[": ", budget_web, placeless]),
            ),
        ];
        for (guards, hindrances, code, sentence) in table {
            let given = if guards.len() > 1 { BlockCode::ManyBudgets } else { BlockCode::Budget };
            let said = by_budgets(&pod("x"), &guards, &hindrances, given);
            assert_eq!(said, (code, sentence));
        }
    }

    #[test]
    fn o2_a_hindrance_is_one_clause_with_names_and_times() {
        let why = |why| match why {
            "ready" => UnhealthyReason::NotReady,
            "ending" => UnhealthyReason::Ending,
            sentence => UnhealthyReason::Unplaced(sentence.to_owned()),
        };
        let sentence = "0/2 nodes are available";
        let table = [
            ("n2", "14:03 UTC", "ready", " on node n2 is not Ready since 14:03 UTC"),
            ("n2", "", "ready", " on node n2 is not Ready"),
            ("", "14:03 UTC", sentence, " has no node since 14:03 UTC (0/2 nodes are available)"),
            ("", "", "", " has no node"),
            ("n2", "2025-11-20 14:03 UTC", "ending", " on node n2 is ending since 2025-11-20 14:03 UTC"),
        ];
        for (node, since, reason, expected) in table {
            let (pod, node, since) = ("shop/web-1".to_owned(), node.to_owned(), since.to_owned());
            let shown = UnhealthyPod { pod, node, since, why: why(reason) }.to_string();
            assert_eq!(shown, format!("pod shop/web-1{expected}"));
        }
    }
}
