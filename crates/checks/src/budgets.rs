//! PodDisruptionBudgets that allow no disruption and so will hold a drain up.
//!
//! Source: kubernetes.io, "Specifying a Disruption Budget for your Application".
//! Pure: no clock, no I/O, no task.

use kubeapi::names::listed;
use kubeapi::objects::{items, named, text};
use serde_json::Value;

use crate::workloads::is_system;
use crate::{Finding, Severity};

/// Finding, which budgets, how each is shown, and the next step.
type BudgetRule<'a> = (&'a str, &'a dyn Fn(&Value) -> bool, &'a dyn Fn(&Value) -> String, &'a str);

/// Budgets that allow no disruption although all pods run, and those with too few running pods; code
/// `budgets`. Those kept by a controller, such as KubeVirt's and Longhorn's, allow none by design: a drain
/// handles them.
pub fn shut(all: &[Value]) -> Vec<Finding> {
    let count = |it: &Value, name: &str| it["status"][name].as_u64().unwrap_or(0);
    let is_kept = |it: &Value| is_system(it) || !items(&it["metadata"]["ownerReferences"]).is_empty();
    let closed: Vec<&Value> = all
        .iter()
        .filter(|it| count(it, "disruptionsAllowed") == 0 && count(it, "expectedPods") > 0)
        .collect();
    let lacks = |it: &Value| count(it, "currentHealthy") < count(it, "desiredHealthy");
    let whole = |it: &Value| count(it, "currentHealthy") >= count(it, "expectedPods");
    let rows: [BudgetRule<'_>; 2] = [
        (
            "PodDisruptionBudgets that allow no disruption although all pods run; a drain waits for them until its time limit",
            &|it| whole(it) && !lacks(it) && !is_kept(it),
            &|it| {
                format!(
                    "{} (needs {} of {})",
                    named(it),
                    count(it, "desiredHealthy"),
                    count(it, "expectedPods")
                )
            },
            "add a replica, or require one pod less (minAvailable, maxUnavailable)",
        ),
        (
            "PodDisruptionBudgets that allow no disruption because too few pods are Ready",
            &lacks,
            &|it| {
                format!(
                    "{} ({} Ready, needs {})",
                    named(it),
                    count(it, "currentHealthy"),
                    count(it, "desiredHealthy")
                )
            },
            "repair its pods first: layers applications and system name them",
        ),
    ];
    let of = |(what, holds, shown, next): BudgetRule<'_>| {
        let some: Vec<&Value> = closed.iter().copied().filter(|it| holds(it)).collect();
        let meta = &some.first()?["metadata"];
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let next = format!("kubectl -n {namespace} describe pdb {name}; {next}");
        let text = format!("{what}: {}", listed(&some.into_iter().map(shown).collect::<Vec<_>>(), ", "));
        Some(Finding::new("budgets", text, next).with(Severity::Warns))
    };
    rows.into_iter().filter_map(of).collect()
}
