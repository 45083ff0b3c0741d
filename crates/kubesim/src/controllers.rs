//! Small controllers: scheduling, kubelets, taints of cordoned nodes; those of workloads are in `workloads`.
//!
//! Each round looks at what is and does what is missing; a round follows every change and every time that is due.

use std::collections::BTreeMap;
use std::sync::Weak;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::store::{Store, all, condition, is_held_back, is_true, name, namespace, uid};
use crate::{Shared, SimConfig, workloads};

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
    workloads::round(store);
    schedule(store);
    kubelets(store, config, due);
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
            // Its containers are gone and others have still to agree.
            let waits = is_held_back(&pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
            if !waits && is_due(&mut due.stop, &id, now + config.stop_time, now) {
                store.retire("pods", &namespace(&pod), &name(&pod), Some(0));
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
        let mut conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|it| it["type"] != "Ready");
        conditions.insert(0, condition("Ready", ready));
        it["status"]["conditions"] = conditions.into();
    });
}
