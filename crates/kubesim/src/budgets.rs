//! Disruption budgets: their status, and whether an eviction fits.

use serde_json::{Value, json};

use crate::selectors::spec_matches;
use crate::store::{Store, is_true};

const BUDGETS: &str = "policy/poddisruptionbudgets";

/// Why an eviction is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The budget of this name has no room: 429.
    NoRoom(String, String),
    /// More than one budget selects the pod: 500.
    Many,
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

fn guards(budget: &Value, pod: &Value) -> bool {
    text(budget, "namespace") == text(pod, "namespace")
        && spec_matches(&budget["spec"]["selector"], &pod["metadata"]["labels"])
}

fn is_terminating(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Brings the status of every budget up to date.
pub(crate) fn update(store: &mut Store) {
    let budgets: Vec<Value> = store.list(BUDGETS).cloned().collect();
    for budget in budgets {
        let pods: Vec<&Value> = store.list("pods").filter(|pod| guards(&budget, pod)).collect();
        let healthy = pods.iter().filter(|pod| is_true(pod, "Ready") && !is_terminating(pod)).count() as u64;
        let expected = expected(store, &pods);
        let desired = desired(&budget["spec"], expected);
        let status = json!({
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": healthy.saturating_sub(desired),
            "observedGeneration": 1,
        });
        if budget["status"] != status {
            store
                .edit(BUDGETS, text(&budget, "namespace"), text(&budget, "name"), |it| it["status"] = status);
        }
    }
}

/// The pods that the owners of these pods want.
fn expected(store: &Store, pods: &[&Value]) -> u64 {
    let mut owners: Vec<(&str, &str, &str)> = Vec::new();
    let mut bare = 0;
    for pod in pods {
        match pod["metadata"]["ownerReferences"].as_array().and_then(|all| all.first()) {
            Some(owner) => {
                let key = (
                    owner["kind"].as_str().unwrap_or_default(),
                    text(pod, "namespace"),
                    owner["name"].as_str().unwrap_or_default(),
                );
                if !owners.contains(&key) {
                    owners.push(key);
                }
            }
            None => bare += 1,
        }
    }
    let wanted = |(kind, namespace, name): &(&str, &str, &str)| {
        let resource = if *kind == "StatefulSet" { "apps/statefulsets" } else { "apps/replicasets" };
        store
            .get(resource, namespace, name)
            .and_then(|it| it["spec"]["replicas"].as_u64())
            .unwrap_or_default()
    };
    owners.iter().map(wanted).sum::<u64>() + bare
}

fn desired(spec: &Value, expected: u64) -> u64 {
    let share = |value: &Value| match value {
        Value::Number(number) => number.as_u64(),
        Value::String(percent) => {
            let percent: u64 = percent.trim_end_matches('%').parse().ok()?;
            Some((expected * percent).div_ceil(100))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match (share(&spec["minAvailable"]), share(&spec["maxUnavailable"])) {
        (Some(least), _) => least,
        (None, Some(most)) => expected.saturating_sub(most),
        (None, None) => 0,
    }
}

/// Whether the pod may be evicted; if so, the budget has counted it.
pub(crate) fn admit(store: &mut Store, pod: &Value) -> Result<(), Refusal> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Pending" | "Succeeded" | "Failed") || is_terminating(pod) {
        return Ok(());
    }
    let guarding: Vec<Value> = store.list(BUDGETS).filter(|budget| guards(budget, pod)).cloned().collect();
    let budget = match guarding.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => return Err(Refusal::Many),
    };
    let number = |name: &str| budget["status"][name].as_u64().unwrap_or_default();
    if !is_true(pod, "Ready") {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0 {
            return Ok(());
        }
    }
    if number("disruptionsAllowed") == 0 {
        let why = format!(
            "The disruption budget {} needs {} healthy pods and has {} currently",
            text(budget, "name"),
            number("desiredHealthy"),
            number("currentHealthy")
        );
        return Err(Refusal::NoRoom(text(budget, "name").to_owned(), why));
    }
    Ok(())
}
