//! `node-drain-policy`: which replicas a cordon evicts, and when an instance manager's budget is removed.

use serde_json::{Value, json};

use super::managers::{labels, name_of};
use super::{
    BUDGETS, ENGINES, MANAGERS, NAMESPACE, NODES, REPLICAS, VOLUMES, edit, is_cordoned, is_healthy,
    is_served, replicas_of, text,
};
use crate::store::{ObjectStore, all, is_true, name};

/// Sets or clears eviction requests of replicas.
pub(super) fn ask(store: &mut ObjectStore, policy: &str) {
    for node in all(store, NODES) {
        let (named, mut auto) = (name(&node), false);
        for replica in all(store, REPLICAS).into_iter().filter(|it| it["spec"]["nodeID"] == named.as_str()) {
            let leaves = is_cordoned(store, &named)
                && match policy {
                    "block-for-eviction" => true,
                    // Its node is checked every 30 s only: by then the copy has moved.
                    "block-for-eviction-if-contains-last-replica" => {
                        replica["spec"]["evictionRequested"] == true || !is_protected(store, &replica)
                    }
                    _ => false,
                };
            auto |= leaves;
            let by_hand =
                node["spec"]["evictionRequested"] == true && node["spec"]["allowScheduling"] != true;
            edit(store, REPLICAS, &name(&replica), |it| {
                it["spec"]["evictionRequested"] = (leaves || by_hand).into();
            });
        }
        edit(store, NODES, &named, |it| it["status"]["autoEvicting"] = auto.into());
    }
}

/// Whether another node that stays has a healthy replica of the same volume.
fn is_protected(store: &ObjectStore, replica: &Value) -> bool {
    replicas_of(store, text(replica, "/spec/volumeName")).iter().any(|other| {
        let node = text(other, "/spec/nodeID");
        is_healthy(other)
            && other["spec"]["nodeID"] != replica["spec"]["nodeID"]
            && !is_cordoned(store, node)
            && is_served(store, node)
            && store.get(BUDGETS, NAMESPACE, &name_of(node)).is_some()
    })
}

/// Whether the budget of a cordoned node's manager may be removed: no volume may be attached here.
fn may_go(store: &ObjectStore, policy: &str, node: &str) -> bool {
    let attached = |it: &Value| it["spec"]["nodeID"] == node && it["status"]["currentState"] == "running";
    if store.list(ENGINES).any(attached) {
        return false;
    }
    let stopped =
        |it: &Value| it["spec"]["desireState"] == "stopped" && it["status"]["currentState"] == "stopped";
    let unused = |it: &Value| text(it, "/spec/healthyAt").is_empty() && text(it, "/spec/failedAt").is_empty();
    let mut here = store.list(REPLICAS).filter(|it| it["spec"]["nodeID"] == node);
    match policy {
        "always-allow" => true,
        "block-for-eviction" => here.next().is_none(),
        "allow-if-replica-is-stopped" => here.all(|it| stopped(it) || unused(it) || is_protected(store, it)),
        _ => here.all(|it| unused(it) || is_protected(store, it)),
    }
}

/// The budgets of the instance managers and of the CSI parts.
pub(super) fn keep_budgets(store: &mut ObjectStore, policy: &str) {
    for manager in all(store, MANAGERS) {
        let (named, node) = (name(&manager), text(&manager, "/spec/nodeID"));
        // Not for a node whose own manager pod is down.
        let daemon = format!("longhorn-manager-{node}");
        let managed = store.get("apps/daemonsets", NAMESPACE, "longhorn-manager").is_none()
            || store.get("pods", NAMESPACE, &daemon).is_some_and(|it| is_true(it, "Ready"));
        if !managed || manager["status"]["currentState"] != "running" {
            continue;
        }
        if !is_cordoned(store, node) {
            keep(store, &named, &labels(node), true);
        } else if may_go(store, policy, node) {
            keep(store, &named, &labels(node), false);
        }
    }
    let used = store.list(VOLUMES).any(|it| it["status"]["state"] != "detached");
    for part in ["csi-attacher", "csi-provisioner"] {
        if store.get("apps/deployments", NAMESPACE, part).is_some() {
            keep(store, part, &json!({ "app": part }), used);
        }
    }
}

fn keep(store: &mut ObjectStore, budget: &str, labels: &Value, wanted: bool) {
    if !wanted {
        store.remove(BUDGETS, NAMESPACE, budget);
    } else if store.get(BUDGETS, NAMESPACE, budget).is_none() {
        store.put(
            BUDGETS,
            json!({
                "metadata": { "name": budget, "namespace": NAMESPACE },
                "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } }, "status": {},
            }),
        );
    }
}
