//! Disruption budgets: their status, and whether an eviction is allowed.
//!
//! Pods with a claimed disruption count as not healthy until they terminate, are gone, or two minutes have
//! passed, as with Kubernetes' disruption controller. As there (`getPdbForPod`), a change of a pod makes only
//! one of its budgets count again, here the first by name; the others keep their numbers until they change
//! themselves or a claim's two minutes are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::selectors::spec_matches;
use crate::store::{ObjectName, ObjectStore, all, condition, is_true, stamp};
use crate::timers::{SimTimers, TimerKey};

const BUDGETS: &str = "policy/poddisruptionbudgets";
/// Time for a claimed pod to begin its termination.
const CLAIM_HOLDS: Duration = Duration::from_secs(120);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EvictionRefusal {
    /// This budget allows none: 429.
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

/// Updates the budgets that changes after a version affect.
pub(crate) fn update(store: &mut ObjectStore, after: u64) {
    let changes = store.since(after);
    let Some(changes) = changes else {
        for budget in all(store, BUDGETS) {
            count(store, &budget);
        }
        return;
    };
    let mut due: BTreeSet<ObjectName> = BTreeSet::new();
    for change in &changes {
        let (namespace, name) = change.place();
        match change.resource.as_str() {
            "pods" => {
                let Some(pod) = change.new.as_ref().or(change.old.as_ref()) else { continue };
                let first = store.list_in(BUDGETS, &namespace).find(|budget| guards(budget, pod));
                due.extend(first.map(|budget| (namespace.clone(), text(budget, "name").to_owned())));
            }
            BUDGETS => drop(due.insert((namespace, name))),
            _ => {}
        }
    }
    for (namespace, name) in due {
        if let Some(budget) = store.found(BUDGETS, &namespace, &name).map(Arc::clone) {
            count(store, &budget);
        }
    }
}

fn count(store: &mut ObjectStore, budget: &Value) {
    let namespace = text(budget, "namespace");
    let pods: Vec<&Value> = store.list_in("pods", namespace).filter(|pod| guards(budget, pod)).collect();
    let mut claimed = Map::new();
    for pod in pods.iter().filter(|pod| !is_terminating(pod)) {
        let since = budget["status"]["disruptedPods"].get(text(pod, "name"));
        if let Some(since) = since.filter(|since| age(since) < CLAIM_HOLDS) {
            claimed.insert(text(pod, "name").to_owned(), since.clone());
        }
    }
    let is_healthy = |pod: &&&Value| {
        is_true(pod, "Ready") && !is_terminating(pod) && !claimed.contains_key(text(pod, "name"))
    };
    let healthy = pods.iter().filter(is_healthy).count() as u64;
    // A number needs no owner's scale; guests have none.
    let is_number = budget["spec"]["minAvailable"].is_number();
    let of_guest = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachineInstance";
    let of_guests = pods.iter().any(of_guest);
    let expected = if is_number && of_guests { pods.len() as u64 } else { expected(store, &pods) };
    let desired = desired(&budget["spec"], expected);
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": if expected == 0 { 0 } else { healthy.saturating_sub(desired) },
        "observedGeneration": 1,
    });
    if of_guests && !is_number {
        let mut held = condition("DisruptionAllowed", false);
        held["reason"] = "SyncFailed".into();
        held["message"] =
            "virtualmachineinstances.kubevirt.io does not implement the scale subresource".into();
        held["lastTransitionTime"] = Value::Null;
        status["disruptionsAllowed"] = 0.into();
        status["conditions"] = json!([held]);
    }
    if !claimed.is_empty() {
        status["disruptedPods"] = claimed.into();
    }
    if budget["status"] != status {
        store.edit(BUDGETS, namespace, text(budget, "name"), |it| it["status"] = status);
    }
}

/// Age of a claim. An invalid time is very old, a future one is now.
fn age(since: &Value) -> Duration {
    let since = since.as_str().unwrap_or_default().parse::<Timestamp>();
    since.map_or(CLAIM_HOLDS, |since| {
        Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default()
    })
}

/// Drops claims of pods that have not begun to terminate in time.
pub(crate) fn forget(store: &mut ObjectStore, timers: &mut SimTimers, now: Instant, place: &ObjectName) {
    let Some(budget) = store.found(BUDGETS, &place.0, &place.1).map(Arc::clone) else { return };
    for (pod, since) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let left = CLAIM_HOLDS.saturating_sub(age(since));
        let since = since.as_str().unwrap_or_default();
        let what = TimerKey::Disrupted(place.clone(), pod.clone(), since.to_owned());
        if timers.is_due(what, now, left) {
            store.edit(BUDGETS, &place.0, &place.1, |it| {
                drop(it["status"]["disruptedPods"].as_object_mut().and_then(|all| all.remove(pod)));
            });
        }
    }
}

/// Replicas that the owners of these pods want.
fn expected(store: &ObjectStore, pods: &[&Value]) -> u64 {
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
pub(crate) fn admit(store: &mut ObjectStore, pod: &Value) -> Result<(), EvictionRefusal> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Pending" | "Succeeded" | "Failed") || is_terminating(pod) {
        return Ok(());
    }
    let guarding: Vec<Value> = store
        .list_in(BUDGETS, text(pod, "namespace"))
        .filter(|budget| guards(budget, pod))
        .cloned()
        .collect();
    let budget = match guarding.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => return Err(EvictionRefusal::Many),
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
        return Err(EvictionRefusal::NoRoom(text(budget, "name").to_owned(), why));
    }
    let left = number("disruptionsAllowed") - 1;
    store.edit(BUDGETS, text(budget, "namespace"), text(budget, "name"), |it| {
        it["status"]["disruptionsAllowed"] = left.into();
        it["status"]["disruptedPods"][text(pod, "name")] = stamp(0).into();
    });
    Ok(())
}
