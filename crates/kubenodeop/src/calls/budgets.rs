//! Budgets as the server has them, turned into facts.
//!
//! Not here: what follows from them (`plan`, `engine`). Source: `PodDisruptionBudget` of policy/v1.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector};

use crate::plan::budget::{BudgetFacts, granted};
use kubeapi::slim::PodDisruptionBudget;
use kubeapi::watch::WatchScope;

/// The budgets of `namespace` as a thing to follow.
pub(crate) fn scope(namespace: &str) -> WatchScope {
    let path = PodDisruptionBudget::url_path(Some(namespace));
    WatchScope::all(format!("disruption budgets of namespace {namespace}"), path)
}

pub(crate) fn facts(budget: &PodDisruptionBudget) -> BudgetFacts {
    let status = budget.status.as_ref();
    let (healthy, expected) = (
        status.and_then(|status| status.current_healthy).unwrap_or(0),
        status.and_then(|status| status.expected_pods).unwrap_or(0),
    );
    BudgetFacts {
        namespace: budget.metadata.namespace.clone().unwrap_or_default(),
        name: budget.metadata.name.clone().unwrap_or_default(),
        selector: budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(selector),
        allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        healthy,
        desired: status.and_then(|status| status.desired_healthy).unwrap_or(0),
        expected,
        uncounted: uncounted(budget, healthy, expected),
        granted: granted(status.and_then(|it| it.disrupted_pods.as_ref())),
        lenient: budget.spec.as_ref().and_then(|it| it.unhealthy_pod_eviction_policy.as_deref())
            == Some("AlwaysAllow"),
    }
}

/// Why the disruption controller cannot count the pods of a budget. It says so by a condition; of pods without a
/// controller it counts none, and says nothing.
fn uncounted(budget: &PodDisruptionBudget, healthy: i32, expected: i32) -> String {
    let conditions = budget.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut failed = conditions.filter(|it| {
        it.type_ == "DisruptionAllowed" && it.status == "False" && it.reason.as_deref() == Some("SyncFailed")
    });
    if let Some(failed) = failed.next() {
        failed.message.clone().unwrap_or_default()
    } else if healthy > 0 && expected == 0 {
        "they have no controller, and the budget is no number in minAvailable".to_owned()
    } else {
        String::new()
    }
}

/// A condition with an operator that we do not know is left out, so that a budget is rather shown than missed.
pub(crate) fn selector(of: &LabelSelector) -> Selector {
    let labels = of.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| Expression::Equal(key.clone(), value.clone()));
    let asked = |it: &LabelSelectorRequirement| {
        let values = Some(it.values.clone().unwrap_or_default());
        Expression::try_from(LabelSelectorRequirement { values, ..it.clone() }).ok()
    };
    labels.chain(of.match_expressions.iter().flatten().filter_map(asked)).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_facts_of_a_budget_follow_its_object() {
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["x"]},
                    {"key": "b", "operator": "NotIn", "values": ["x"]},
                    {"key": "c", "operator": "Exists"},
                    {"key": "d", "operator": "DoesNotExist"},
                    {"key": "e", "operator": "Gt", "values": ["1"]},
                ],
            }},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 4},
        });
        let found = facts(&serde_json::from_value(budget).unwrap());
        assert_eq!(
            found.to_string(),
            "PodDisruptionBudget shop/web allows 1 disruption: 3 of 4 pods healthy, 2 required"
        );
        let selector = found.selector.unwrap();
        assert_eq!(selector.to_string(), "app=web,a in (x),b notin (x),c,!d");
        let matches = |labels: Value| selector.matches(&serde_json::from_value(labels).unwrap());
        for (labels, expected) in [
            (json!({ "app": "web", "a": "x", "c": "" }), true),
            (json!({ "app": "web", "a": "x", "b": "y", "c": "" }), true),
            (json!({ "app": "db", "a": "x", "c": "" }), false),
            (json!({ "a": "x", "c": "" }), false),
            (json!({ "app": "web", "c": "" }), false),
            (json!({ "app": "web", "a": "z", "c": "" }), false),
            (json!({ "app": "web", "a": "x", "b": "x", "c": "" }), false),
            (json!({ "app": "web", "a": "x" }), false),
            (json!({ "app": "web", "a": "x", "c": "", "d": "" }), false),
        ] {
            assert_eq!(matches(labels.clone()), expected, "{labels}");
        }
        let none = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
        let none = super::selector(&serde_json::from_value(none).unwrap());
        assert!(!none.matches(&[("a".to_owned(), String::new())].into()), "no value is one of none");
        let of = |status: Value| {
            facts(&serde_json::from_value(json!({ "metadata": { "name": "b" }, "status": status })).unwrap())
                .uncounted
        };
        let said = |status: &str, reason: &str, message: &str| {
            json!([{ "type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
                     "lastTransitionTime": "2026-03-14T09:30:00Z" }])
        };
        // As kube-apiserver 1.36 has them: pods without a controller behind maxUnavailable, then an integer in
        // minAvailable; a controller that cannot be scaled.
        let counts = json!({ "currentHealthy": 1, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
                             "conditions": said("False", "InsufficientPods", "") });
        assert!(of(counts).starts_with("they have no controller"));
        let counts = json!({ "currentHealthy": 1, "desiredHealthy": 0, "disruptionsAllowed": 1, "expectedPods": 1,
                             "conditions": said("True", "SufficientPods", "") });
        assert_eq!(of(counts), "");
        let why = "vmis.kubevirt.io does not implement the scale subresource";
        let failed =
            json!({ "currentHealthy": 0, "expectedPods": 0, "conditions": said("False", "SyncFailed", why) });
        assert_eq!(of(failed), why);
        // An application with no pods at all is counted.
        assert_eq!(of(json!({ "currentHealthy": 0, "expectedPods": 0 })), "");
        let bare = facts(&PodDisruptionBudget::default());
        assert_eq!((bare.selector, bare.allowed), (None, 0), "a budget that was never counted has no room");
    }
}
