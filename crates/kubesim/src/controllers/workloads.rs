//! Replica sets, stateful sets and daemon sets: their pods and their status.
//!
//! Not here: Deployments and their replica sets (`rollouts`).

use std::sync::Arc;

use serde_json::{Value, json};

use crate::node_state::CORDON_TAINT;
use crate::store::{ObjectKey, ObjectStore, all, is_true, name, namespace, uid};
use crate::{machines, node_failure};

pub(crate) fn owner(object: &Value) -> Option<ObjectKey> {
    let owner = &object["metadata"]["ownerReferences"][0];
    let named = owner["name"].as_str()?;
    // A pod that holds a disk belongs to the guest of its launcher.
    let guest = named.strip_prefix("virt-launcher-").and_then(|it| it.rsplit_once('-'));
    let resource = match owner["kind"].as_str()? {
        "Deployment" => "apps/deployments",
        "ReplicaSet" => "apps/replicasets",
        "StatefulSet" => "apps/statefulsets",
        "DaemonSet" => "apps/daemonsets",
        "VirtualMachine" => machines::MACHINES,
        "VirtualMachineInstance" => machines::GUESTS,
        "Pod" => return Some((machines::GUESTS.to_owned(), namespace(object), guest?.0.to_owned())),
        "VirtualMachineInstanceReplicaSet" => machines::SETS,
        _ => return None,
    };
    Some((resource.to_owned(), namespace(object), named.to_owned()))
}

pub(crate) fn replica_set_name(deployment: &str) -> String {
    format!("{deployment}-5f7d")
}

/// Deletes what a workload owns, as the garbage collector does.
pub(crate) fn retire_owned(store: &mut ObjectStore, owner: &Value) {
    for resource in ["apps/replicasets", "pods"] {
        for owned in store.owned(resource, &uid(owner)) {
            retire_owned(store, &owned);
            store.retire(resource, &namespace(&owned), &name(&owned), None);
        }
    }
}

fn is_alive(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn wanted(set: &Value) -> u64 {
    set["spec"]["replicas"].as_u64().unwrap_or(1)
}

pub(crate) fn reference(owner: &Value, kind: &str) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": name(owner), "uid": uid(owner), "controller": true,
        "blockOwnerDeletion": true,
    }])
}

fn pod_of(owner: &Value, kind: &str, pod_name: String) -> Value {
    let mut pod = owner["spec"]["template"].clone();
    pod["metadata"]["name"] = pod_name.into();
    pod["metadata"]["namespace"] = namespace(owner).into();
    pod["metadata"]["ownerReferences"] = reference(owner, kind);
    pod["status"] = json!({ "phase": "Pending" });
    let of_deployment = owner["metadata"]["ownerReferences"][0]["kind"] == "Deployment";
    if let Some((_, hash)) = name(owner).rsplit_once('-').filter(|_| of_deployment) {
        pod["metadata"]["labels"]["pod-template-hash"] = hash.into();
    }
    pod
}

/// Live pods, and Ready ones among them.
pub(crate) fn count(pods: &[Arc<Value>]) -> (usize, usize) {
    let ready = pods.iter().filter(|it| is_alive(it) && is_true(it, "Ready")).count();
    (pods.iter().filter(|it| is_alive(it)).count(), ready)
}

pub(crate) fn say(store: &mut ObjectStore, resource: &str, set: &Value, status: &Value) {
    store.edit(resource, &namespace(set), &name(set), |it| {
        for (member, value) in status.as_object().into_iter().flatten() {
            it["status"][member] = value.clone();
        }
    });
}

pub(super) fn replica_set(store: &mut ObjectStore, set: &Value) {
    let mut pods: Vec<Arc<Value>> =
        store.owned("pods", &uid(set)).into_iter().filter(|it| is_alive(it)).collect();
    let wanted = usize::try_from(wanted(set)).unwrap_or(usize::MAX);
    for _ in pods.len()..wanted {
        let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
        store.put("pods", pod_of(set, "ReplicaSet", format!("{}-{tail}", name(set))));
    }
    let surplus = pods.len().saturating_sub(wanted);
    // Not Ready ones go first, then the youngest.
    let made = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    if surplus > 0 {
        pods.sort_by_key(|pod| (!is_true(pod, "Ready"), made(pod), name(pod)));
    }
    for pod in pods.iter().rev().take(surplus) {
        store.retire("pods", &namespace(pod), &name(pod), None);
    }
    let (alive, ready) = count(&store.owned("pods", &uid(set)));
    let status = json!({ "replicas": alive, "readyReplicas": ready, "availableReplicas": ready });
    say(store, "apps/replicasets", set, &status);
}

pub(super) fn stateful_set(store: &mut ObjectStore, set: &Value) {
    let wanted = wanted(set);
    let pod_name = |ordinal: u64| format!("{}-{ordinal}", name(set));
    for ordinal in 0..wanted {
        match store.get("pods", &namespace(set), &pod_name(ordinal)) {
            // One at a time, in order.
            Some(pod) if !is_true(pod, "Ready") => break,
            Some(_) => {}
            None => {
                store.put("pods", pod_of(set, "StatefulSet", pod_name(ordinal)));
                break;
            }
        }
    }
    let pods = store.owned("pods", &uid(set));
    let ordinal = |pod: &Value| name(pod).rsplit('-').next().and_then(|it| it.parse::<u64>().ok());
    let last = pods.iter().filter_map(|it| ordinal(it)).max().unwrap_or_default();
    if last >= wanted && !pods.is_empty() {
        store.retire("pods", &namespace(set), &pod_name(last), None);
    }
    let (alive, ready) = count(&store.owned("pods", &uid(set)));
    let status = json!({
        "replicas": alive, "currentReplicas": alive, "updatedReplicas": alive, "readyReplicas": ready,
        "availableReplicas": ready,
    });
    say(store, "apps/statefulsets", set, &status);
}

pub(super) fn daemon_set(store: &mut ObjectStore, set: &Value) {
    let nodes = all(store, "nodes");
    for node in &nodes {
        let pod = format!("{}-{}", name(set), name(node));
        let repelled = node_failure::repels(node, &set["spec"]["template"]);
        if store.get("pods", &namespace(set), &pod).is_none() && !repelled {
            let mut pod = pod_of(set, "DaemonSet", pod);
            pod["spec"]["nodeName"] = name(node).into();
            let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            tolerations.push(json!({ "key": CORDON_TAINT, "operator": "Exists", "effect": "NoSchedule" }));
            pod["spec"]["tolerations"] = tolerations.into();
            store.put("pods", pod);
        }
    }
    let (alive, ready) = count(&store.owned("pods", &uid(set)));
    let status = json!({
        "desiredNumberScheduled": nodes.len(), "currentNumberScheduled": alive, "updatedNumberScheduled": alive,
        "numberReady": ready, "numberAvailable": ready, "numberMisscheduled": 0,
    });
    say(store, "apps/daemonsets", set, &status);
}
