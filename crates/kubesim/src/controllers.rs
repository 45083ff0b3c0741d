//! Small controllers: scheduling, replica sets, stateful sets, daemon sets, kubelets, taints of cordoned nodes.
//!
//! Each round looks at what is and does what is missing; a round follows every change and every time that is due.

use std::collections::BTreeMap;
use std::sync::Weak;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::store::{Store, condition, is_true};
use crate::{Shared, SimConfig};

const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// When something is due, by the UID that it is about.
#[derive(Default)]
struct Due {
    start: BTreeMap<String, Instant>,
    stop: BTreeMap<String, Instant>,
}

/// Runs all controllers as long as the cluster exists.
pub(crate) async fn run(shared: Weak<Shared>) {
    let mut due = Due::default();
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let version = shared.store().version();
            let config = shared.config;
            shared.write(|store| round(store, config, &mut due));
            if shared.store().version() != version {
                continue;
            }
            let next = due.start.values().chain(due.stop.values()).min().copied();
            tokio::select! {
                () = &mut changed => continue,
                // The cluster may go while nothing happens: it is let go of now and then.
                () = sleep_until(soon()) => {}
                () = wait(next) => {}
            }
            next
        };
        if next.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "kubelets of the simulation keep time by tokio's clock")]
fn soon() -> Instant {
    Instant::now() + std::time::Duration::from_secs(3600)
}

#[expect(clippy::disallowed_methods, reason = "kubelets of the simulation keep time by tokio's clock")]
fn now() -> Instant {
    Instant::now()
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn round(store: &mut Store, config: SimConfig, due: &mut Due) {
    taint(store);
    workloads(store);
    schedule(store);
    kubelets(store, config, due);
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn namespace(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn all(store: &Store, resource: &str) -> Vec<Value> {
    store.list(resource).cloned().collect()
}

fn owned_by(store: &Store, owner: &Value) -> Vec<Value> {
    let owner = uid(owner);
    let is_owned = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == owner.as_str();
    store.list("pods").filter(is_owned).cloned().collect()
}

/// A cordoned node carries the taint, another one does not.
fn taint(store: &mut Store) {
    for node in all(store, "nodes") {
        let cordoned = node["spec"]["unschedulable"] == true;
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let tainted = taints.iter().any(|it| it["key"] == CORDON_TAINT);
        if cordoned != tainted {
            let mut taints: Vec<Value> = taints.into_iter().filter(|it| it["key"] != CORDON_TAINT).collect();
            if cordoned {
                taints.push(json!({ "key": CORDON_TAINT, "effect": "NoSchedule" }));
            }
            store.edit("nodes", "", &name(&node), |it| it["spec"]["taints"] = taints.into());
        }
    }
}

fn pod_of(owner: &Value, kind: &str, pod_name: String) -> Value {
    let mut pod = owner["spec"]["template"].clone();
    pod["metadata"]["name"] = pod_name.into();
    pod["metadata"]["namespace"] = namespace(owner).into();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": name(owner), "uid": uid(owner), "controller": true,
        "blockOwnerDeletion": true,
    }]);
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

fn workloads(store: &mut Store) {
    for set in all(store, "apps/replicasets") {
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
        let pods = owned_by(store, &set);
        let alive = pods.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null()).count() as u64;
        for _ in alive..wanted {
            let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
            store.put("pods", pod_of(&set, "ReplicaSet", format!("{}-{tail}", name(&set))));
        }
    }
    for set in all(store, "apps/statefulsets") {
        for ordinal in 0..set["spec"]["replicas"].as_u64().unwrap_or(1) {
            let pod = format!("{}-{ordinal}", name(&set));
            match store.get("pods", &namespace(&set), &pod) {
                // One at a time, in order.
                Some(pod) if !is_true(pod, "Ready") => break,
                Some(_) => {}
                None => {
                    store.put("pods", pod_of(&set, "StatefulSet", pod));
                    break;
                }
            }
        }
    }
    for set in all(store, "apps/daemonsets") {
        for node in all(store, "nodes") {
            let pod = format!("{}-{}", name(&set), name(&node));
            if store.get("pods", &namespace(&set), &pod).is_none() {
                let mut pod = pod_of(&set, "DaemonSet", pod);
                pod["spec"]["nodeName"] = name(&node).into();
                store.put("pods", pod);
            }
        }
    }
}

/// Pods without a node go to the Ready, schedulable node with the fewest pods.
fn schedule(store: &mut Store) {
    for pod in all(store, "pods") {
        if !pod["spec"]["nodeName"].is_null() || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let load = |node: &str| store.list("pods").filter(|it| it["spec"]["nodeName"] == node).count();
        let fits = |node: &&Value| {
            let pinned = pod["spec"]["nodeSelector"]["kubernetes.io/hostname"].as_str();
            is_true(node, "Ready")
                && node["spec"]["unschedulable"] != true
                && pinned.is_none_or(|pinned| pinned == name(node))
        };
        let best = store.list("nodes").filter(fits).map(|node| (load(&name(node)), name(node))).min();
        if let Some((_, node)) = best {
            store.edit("pods", &namespace(&pod), &name(&pod), |it| it["spec"]["nodeName"] = node.into());
        }
    }
}

/// Starts and ends containers on nodes that have power.
fn kubelets(store: &mut Store, config: SimConfig, due: &mut Due) {
    let now = now();
    let powered = |store: &Store, node: &str| {
        store.get("nodes", "", node).is_some_and(|it| it["metadata"]["annotations"]["kubesim/power"] != "off")
    };
    let mut seen = Vec::new();
    for node in all(store, "nodes") {
        let (id, node) = (uid(&node), node);
        let off = node["metadata"]["annotations"]["kubesim/power"] == "off";
        if off {
            due.start.remove(&id);
            if is_true(&node, "Ready") {
                set_ready(store, "nodes", &node, false);
            }
        } else if !is_true(&node, "Ready") && is_due(&mut due.start, &id, now + config.start_time, now) {
            set_ready(store, "nodes", &node, true);
        }
        seen.push(id);
    }
    for pod in all(store, "pods") {
        let id = uid(&pod);
        let on = pod["spec"]["nodeName"].as_str().is_some_and(|node| powered(store, node));
        let ending = !pod["metadata"]["deletionTimestamp"].is_null();
        seen.push(id.clone());
        if !on {
            due.start.remove(&id);
            due.stop.remove(&id);
        } else if ending {
            due.start.remove(&id);
            if is_due(&mut due.stop, &id, now + config.stop_time, now) {
                store.remove("pods", &namespace(&pod), &name(&pod));
            }
        } else if pod["status"]["phase"] == "Pending"
            && is_due(&mut due.start, &id, now + config.start_time, now)
        {
            store.edit("pods", &namespace(&pod), &name(&pod), |it| it["status"]["phase"] = "Running".into());
            if pod["metadata"]["annotations"]["kubesim/never-ready"].is_null() {
                set_ready(store, "pods", &pod, true);
            }
        }
    }
    due.start.retain(|id, _| seen.contains(id));
    due.stop.retain(|id, _| seen.contains(id));
}

/// Notes when something is due; true once it is, and it is forgotten then.
fn is_due(all: &mut BTreeMap<String, Instant>, id: &str, at: Instant, now: Instant) -> bool {
    let due = *all.entry(id.to_owned()).or_insert(at) <= now;
    if due {
        all.remove(id);
    }
    due
}

fn set_ready(store: &mut Store, resource: &str, object: &Value, ready: bool) {
    store.edit(resource, &namespace(object), &name(object), |it| {
        it["status"]["conditions"] = json!([condition("Ready", ready)]);
    });
}
