//! Chooses a node for a pod, and reports a pod that fits nowhere.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::node_state::CORDON_TAINT;
use crate::selectors::spec_matches;
use crate::store::{ObjectName, ObjectStore, condition, is_true, name, namespace};

/// Assigns the suitable node with the fewest pods; returns whether there is one.
pub(crate) fn place(store: &mut ObjectStore, pod: &ObjectName) -> bool {
    let (namespace, pod_name) = pod;
    let Some(pod) = store.found("pods", namespace, pod_name).cloned() else { return true };
    if !pod["spec"]["nodeName"].is_null() || !pod["metadata"]["deletionTimestamp"].is_null() {
        return true;
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(usize, String)> = None;
    for node in store.list("nodes") {
        if let Some(reason) = hindrance(store, &pod, node) {
            *reasons.entry(reason).or_default() += 1;
            continue;
        }
        let found = (store.pods_on(&name(node)).len(), name(node));
        best = Some(best.map_or(found.clone(), |best| best.min(found)));
    }
    let Some((_, node)) = best else {
        unplaced(store, namespace, pod_name, &reasons);
        return false;
    };
    store.edit("pods", namespace, pod_name, |it| {
        it["spec"]["nodeName"] = node.into();
        if let Some(conditions) = it["status"]["conditions"].as_array_mut() {
            conditions.retain(|it| it["type"] != "PodScheduled");
        }
    });
    true
}

/// Why a node cannot take a pod, in the scheduler's words.
fn hindrance(store: &ObjectStore, pod: &Value, node: &Value) -> Option<String> {
    let untolerated = |key: &str, value: &str| format!("node(s) had untolerated taint {{{key}: {value}}}");
    let cordon = json!({ "key": CORDON_TAINT, "effect": "NoSchedule" });
    if node["spec"]["unschedulable"] == true && !tolerates(pod, &cordon) {
        return Some("node(s) were unschedulable".to_owned());
    }
    if !is_true(node, "Ready") {
        return Some(untolerated("node.kubernetes.io/not-ready", ""));
    }
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let keeps_away = |taint: &&Value| {
        matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")) && !tolerates(pod, taint)
    };
    if let Some(taint) = taints.iter().find(keeps_away) {
        let text = |member: &str| taint[member].as_str().unwrap_or_default();
        return Some(untolerated(text("key"), text("value")));
    }
    let wanted = pod["spec"]["nodeSelector"].as_object();
    let labels = &node["metadata"]["labels"];
    let fits = wanted.is_none_or(|all| all.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let affinity = &pod["spec"]["affinity"];
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = affinity["nodeAffinity"][required]["nodeSelectorTerms"].as_array();
    if !fits || terms.is_some_and(|all| !all.iter().any(|term| spec_matches(term, labels))) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let taken = |place: &ObjectName| {
        let other = store.get("pods", &place.0, &place.1).filter(|it| !is_over(it));
        other.is_some_and(|it| host_ports(it).any(|port| host_ports(pod).any(|it| it == port)))
    };
    if store.pods_on(&name(node)).any(taken) {
        return Some("node(s) didn't have free ports for the requested pod ports".to_owned());
    }
    if let Some(resource) = ["cpu", "memory"].into_iter().find(|it| lacks(store, pod, node, it)) {
        return Some(format!("Insufficient {resource}"));
    }
    let apart = affinity["podAntiAffinity"][required].as_array().map(Vec::as_slice).unwrap_or_default();
    let meets = |place: &ObjectName| {
        let other =
            store.get("pods", &place.0, &place.1).filter(|it| place.0 == namespace(pod) && !is_over(it));
        other.is_some_and(|it| {
            apart.iter().any(|term| spec_matches(&term["labelSelector"], &it["metadata"]["labels"]))
        })
    };
    store.pods_on(&name(node)).any(meets).then(|| "node(s) didn't match pod anti-affinity rules".to_owned())
}

/// With their protocols.
fn host_ports(pod: &Value) -> impl Iterator<Item = (u64, &str)> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|it| it["ports"].as_array().into_iter().flatten());
    ports.filter_map(|it| Some((it["hostPort"].as_u64()?, it["protocol"].as_str().unwrap_or("TCP"))))
}

pub(crate) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether the requests of the pods on a node leave too little of a resource; ignores resources that it does
/// not offer.
fn lacks(store: &ObjectStore, pod: &Value, node: &Value, resource: &str) -> bool {
    let Some(offered) = amount(&node["status"]["allocatable"][resource]) else { return false };
    let node = name(node);
    let there = store.pods_on(&node).filter_map(|it| store.get("pods", &it.0, &it.1));
    let taken: u64 = there.filter(|it| !is_over(it)).map(|it| requested(it, resource)).sum();
    taken + requested(pod, resource) > offered
}

fn requested(pod: &Value, resource: &str) -> u64 {
    let all = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|it| amount(&it["resources"]["requests"][resource])).sum()
}

/// `2Gi`, `64Mi`, `250m` or a bare number, in thousandths.
fn amount(text: &Value) -> Option<u64> {
    let text = text.as_str()?;
    let units = [("Gi", 1000 << 30), ("Mi", 1000 << 20), ("m", 1)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(end, unit)| Some((text.strip_suffix(end)?, unit)))
        .unwrap_or((text, 1000));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    toleration(pod, taint).is_some()
}

pub(crate) fn toleration<'a>(pod: &'a Value, taint: &Value) -> Option<&'a Value> {
    let all = pod["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|it| {
        let text = |of: &Value, member: &str| of[member].as_str().unwrap_or_default().to_owned();
        let effect = text(it, "effect");
        let key = text(it, "key");
        let exists = text(it, "operator") == "Exists";
        (effect.is_empty() || effect == text(taint, "effect"))
            && (key == text(taint, "key") || key.is_empty() && exists)
            && (exists || text(it, "value") == text(taint, "value"))
    })
}

fn unplaced(store: &mut ObjectStore, namespace: &str, pod: &str, reasons: &BTreeMap<String, usize>) {
    let count: usize = reasons.values().sum();
    let mut listed: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    listed.sort();
    let none = format!("0/{count} nodes are available");
    let message = if count == 0 {
        "no nodes available to schedule pods".to_owned()
    } else {
        format!(
            "{none}: {}. preemption: {none}: {count} Preemption is not helpful for scheduling.",
            listed.join(", ")
        )
    };
    store.edit("pods", namespace, pod, |it| {
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let (held, mut others): (Vec<Value>, Vec<Value>) =
            conditions.into_iter().partition(|it| it["type"] == "PodScheduled");
        // An unchanged condition stays, with its time.
        let mut told = held.into_iter().next().unwrap_or_else(|| condition("PodScheduled", false));
        told["reason"] = "Unschedulable".into();
        told["message"] = message.into();
        others.push(told);
        it["status"]["conditions"] = others.into();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_read_as_the_scheduler_reads_them() {
        let taint = json!({ "key": "disk", "value": "old", "effect": "NoSchedule" });
        for (toleration, expected) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "disk", "operator": "Exists" }), true),
            (json!({ "key": "disk", "operator": "Equal", "value": "old" }), true),
            (json!({ "key": "disk", "value": "old", "effect": "NoSchedule" }), true),
            (json!({ "key": "disk", "value": "new" }), false),
            (json!({ "key": "disk", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "value": "old" }), false),
        ] {
            let pod = json!({ "spec": { "tolerations": [toleration] } });
            assert_eq!(tolerates(&pod, &taint), expected, "{toleration}");
        }
        assert!(!tolerates(&json!({}), &taint));
    }
}
