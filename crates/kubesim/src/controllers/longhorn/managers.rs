//! Longhorn's nodes, and the instance manager of each with its pod.

use serde_json::{Map, Value, json};

use super::{ENGINES, MANAGERS, NAMESPACE, NODES, REPLICAS, edit, is_cordoned, is_ready, text};
use crate::machines::put_condition;
use crate::store::{ObjectStore, all, is_true, name};

/// Of the manager, its pod and its budget.
pub(super) fn name_of(node: &str) -> String {
    format!("instance-manager-{node}")
}

/// Labels of the manager's pod, by which its budget finds it.
pub(super) fn labels(node: &str) -> Value {
    json!({
        "longhorn.io/managed-by": "longhorn-manager", "longhorn.io/component": "instance-manager",
        "longhorn.io/instance-manager-type": "aio", "longhorn.io/node": node,
        "longhorn.io/instance-manager-image": "imi-kubesim", "longhorn.io/data-engine": "v1",
    })
}

pub(super) fn node(store: &mut ObjectStore, node: &Value) {
    let node = &name(node);
    let (ready, cordoned, manager) = (is_ready(store, node), is_cordoned(store, node), name_of(node));
    if store.get(NODES, NAMESPACE, node).is_none() {
        let disk = json!({
            "path": "/var/lib/longhorn", "diskType": "filesystem", "allowScheduling": true,
            "evictionRequested": false, "storageReserved": 0, "tags": [],
        });
        store.put(
            NODES,
            json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Node",
                "metadata": { "name": node, "namespace": NAMESPACE },
                "spec": {
                    "name": node, "allowScheduling": true, "evictionRequested": false, "disks": { "default": disk },
                },
                "status": { "autoEvicting": false },
            }),
        );
        store.put(
            MANAGERS,
            json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager",
                "metadata": { "name": manager, "namespace": NAMESPACE, "labels": labels(node) },
                "spec": { "nodeID": node, "type": "aio", "dataEngine": "v1", "image": "kubesim" },
                "status": { "currentState": "starting" },
            }),
        );
    }
    let here = |it: &&Value| it["spec"]["nodeID"] == node.as_str();
    let scheduled: Map<String, Value> =
        store.list(REPLICAS).filter(here).map(|it| (name(it), (1_u64 << 30).into())).collect();
    edit(store, NODES, node, |it| {
        let disk = &mut it["status"]["diskStatus"]["default"];
        disk["scheduledReplica"] = scheduled.into();
        if disk["storageMaximum"].is_null() {
            disk["storageMaximum"] = (100_u64 << 30).into();
            disk["storageAvailable"] = (50_u64 << 30).into();
        }
        let not_ready = if ready { "" } else { "KubernetesNodeNotReady" };
        put_condition(it, "Ready", Some((ready, not_ready, "")));
        let why = if cordoned { "KubernetesNodeCordoned" } else { "" };
        put_condition(it, "Schedulable", Some((!cordoned, why, "")));
    });
    let pod = store.get("pods", NAMESPACE, &manager);
    let ending = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
    let state = match pod {
        _ if !ready => "unknown",
        None => "stopped",
        Some(pod) if ending(pod) => "error",
        Some(pod) if is_true(pod, "Ready") => "running",
        Some(_) => "starting",
    };
    // A cordon does not stop a pod that names its node, but Longhorn makes none meanwhile.
    if pod.is_none() && ready && !cordoned {
        store.put(
            "pods",
            json!({
                "metadata": {
                    "name": manager, "namespace": NAMESPACE, "labels": labels(node),
                    "ownerReferences": [{
                        "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager", "name": manager,
                        "uid": store.get(MANAGERS, NAMESPACE, &manager).map(|it| it["metadata"]["uid"].clone()),
                        "controller": true,
                    }],
                },
                "spec": {
                    "nodeName": node, "containers": [{ "name": "instance-manager" }],
                    "tolerations": [{ "operator": "Exists" }],
                },
                "status": { "phase": "Pending" },
            }),
        );
    }
    edit(store, MANAGERS, &manager, |it| it["status"]["currentState"] = state.into());
}

pub(super) fn count_instances(store: &mut ObjectStore) {
    for manager in all(store, MANAGERS) {
        let node = text(&manager, "/spec/nodeID");
        let running = |resource: &str| -> Value {
            let here =
                |it: &&Value| it["spec"]["nodeID"] == node && it["status"]["currentState"] == "running";
            let found = store.list(resource).filter(here);
            found
                .map(|it| (name(it), json!({ "status": { "state": "running" } })))
                .collect::<Map<_, _>>()
                .into()
        };
        let (engines, replicas) = (running(ENGINES), running(REPLICAS));
        edit(store, MANAGERS, &name(&manager), |it| {
            it["status"]["instanceEngines"] = engines;
            it["status"]["instanceReplicas"] = replicas;
        });
    }
}
