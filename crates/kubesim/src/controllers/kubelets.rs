//! Kubelets: containers start and end on nodes that have power, leases are renewed; the taints of a cordon and of a
//! node that is away.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::SimConfig;
use crate::node_state::{
    AWAY_TAINT, CORDON_TAINT, has_power, has_taint, is_left_behind, is_reachable, loses,
};
use crate::store::{ObjectName, ObjectStore, condition, is_held_back, is_true, name, namespace, uid};
use crate::timers::{SimTimers, TimerKey};
use crate::volumes::are_attached;

pub(crate) const LEASES: &str = "coordination/leases";
const LEASE_NAMESPACE: &str = "kube-node-lease";

pub(crate) fn is_lost(store: &ObjectStore, node: &str, what: &str) -> bool {
    store.get("nodes", "", node).is_some_and(|it| loses(it, what))
}

/// A node becomes Ready some time after power on.
pub(crate) fn node(
    store: &mut ObjectStore,
    config: SimConfig,
    timers: &mut SimTimers,
    now: Instant,
    node: &str,
) {
    taint(store, node);
    let Some(node) = store.found("nodes", "", node).cloned() else { return };
    let what = TimerKey::Node(name(&node), uid(&node));
    let renewal = TimerKey::Renewal(name(&node), uid(&node));
    let lost = TimerKey::Lost(name(&node), uid(&node));
    let silent = TimerKey::Silent(name(&node), uid(&node));
    let is_ready = is_true(&node, "Ready");
    if !has_power(&node) {
        store.strays.remove(&name(&node));
    }
    if !is_reachable(&node) {
        timers.cancel(&what);
        timers.cancel(&renewal);
        let after = config.not_ready_after;
        if is_ready && (after.is_zero() || timers.is_due(silent, now, after)) {
            set_ready(store, "nodes", &node, false);
        }
        if !has_taint(&node, AWAY_TAINT) && timers.is_due(lost, now, config.unreachable_after) {
            set_taints(store, &node, AWAY_TAINT, &["NoSchedule", "NoExecute"]);
        }
        return;
    }
    timers.cancel(&lost);
    timers.cancel(&silent);
    let boot = &node["metadata"]["annotations"]["kubesim/boot"];
    if boot.is_string() && *boot != node["status"]["nodeInfo"]["bootID"] {
        store.edit("nodes", "", &name(&node), |it| it["status"]["nodeInfo"]["bootID"] = boot.clone());
    }
    if timers.is_due(renewal.clone(), now, config.renew_every) {
        renew(store, &name(&node));
        timers.is_due(renewal, now, config.renew_every);
    }
    let starts = !is_ready && timers.is_due(what, now, config.start_time);
    if is_ready || starts {
        store.strays.remove(&name(&node));
        store.ended.remove(&name(&node));
    }
    if starts {
        set_ready(store, "nodes", &node, true);
    } else if is_ready && has_taint(&node, AWAY_TAINT) && !config.stale_taints {
        set_taints(store, &node, AWAY_TAINT, &[]);
    }
}

/// Each differs from the one before.
pub(crate) fn renewed() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn renew(store: &mut ObjectStore, node: &str) {
    let renewed = renewed();
    if !store.edit(LEASES, LEASE_NAMESPACE, node, |it| it["spec"]["renewTime"] = renewed.clone().into()) {
        store.put(
            LEASES,
            json!({
                "metadata": { "name": node, "namespace": LEASE_NAMESPACE },
                "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed },
            }),
        );
    }
}

/// A cordoned node has the taint of a cordon.
fn taint(store: &mut ObjectStore, node: &str) {
    let Some(node) = store.found("nodes", "", node).cloned() else { return };
    let cordoned = node["spec"]["unschedulable"] == true;
    if cordoned != has_taint(&node, CORDON_TAINT) {
        set_taints(store, &node, CORDON_TAINT, if cordoned { &["NoSchedule"] } else { &[] });
    }
}

/// The node's taints with this key have these effects.
fn set_taints(store: &mut ObjectStore, node: &Value, key: &str, effects: &[&str]) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|it| it["key"] != key);
    taints.extend(effects.iter().map(|it| json!({ "key": key, "effect": it })));
    store.edit("nodes", "", &name(node), |it| it["spec"]["taints"] = taints.into());
}

/// Starts and ends the containers of a pod; returns whether it waits for volumes.
pub(crate) fn pod(
    store: &mut ObjectStore,
    config: SimConfig,
    timers: &mut SimTimers,
    now: Instant,
    place: &ObjectName,
) -> bool {
    let Some(pod) = store.found("pods", &place.0, &place.1).cloned() else { return false };
    let start = TimerKey::Start(place.clone(), uid(&pod));
    let stop = TimerKey::Stop(place.clone(), uid(&pod));
    let node = pod["spec"]["nodeName"].as_str();
    if is_left_behind(&pod) {
        timers.cancel(&start);
        timers.cancel(&stop);
        return false;
    }
    if !node.is_some_and(|node| store.get("nodes", "", node).is_some_and(is_reachable)) {
        timers.cancel(&start);
        timers.cancel(&stop);
    } else if !pod["metadata"]["deletionTimestamp"].is_null() {
        timers.cancel(&start);
        // Its containers are gone, and a finalizer remains.
        let waits = is_held_back(&pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
        if !waits && timers.is_due(stop, now, config.stop_time) {
            store.retire("pods", &namespace(&pod), &name(&pod), Some(0));
        }
    } else if pod["status"]["phase"] == "Pending" && !are_attached(store, &pod) {
        timers.cancel(&start);
        return true;
    } else if pod["status"]["phase"] == "Pending" && timers.is_due(start, now, config.start_time) {
        store.edit("pods", &namespace(&pod), &name(&pod), |it| it["status"]["phase"] = "Running".into());
        set_ready(store, "pods", &pod, pod["metadata"]["annotations"]["kubesim/never-ready"].is_null());
    }
    false
}

fn set_ready(store: &mut ObjectStore, resource: &str, object: &Value, ready: bool) {
    let is_lost = resource == "nodes" && !ready;
    store.edit(resource, &namespace(object), &name(object), |it| {
        let mut conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|it| it["type"] != "Ready");
        conditions.insert(0, condition("Ready", ready));
        if is_lost {
            // Its kubelet is away.
            conditions[0]["status"] = "Unknown".into();
            conditions[0]["reason"] = "NodeStatusUnknown".into();
            conditions[0]["message"] = "Kubelet stopped posting node status.".into();
        }
        it["status"]["conditions"] = conditions.into();
    });
}
