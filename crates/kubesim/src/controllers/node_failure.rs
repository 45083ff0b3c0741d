//! Pods of a failed node: the taint-eviction controller marks them, pod GC deletes them.
//!
//! `README.md` has the table of the real components and their versions. Not here: volumes (`volumes`)
//! and virtual machines (`machines`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::SimConfig;
use crate::node_state::{AWAY_TAINT, OUT_OF_SERVICE, has_taint};
use crate::scheduler::{is_over, toleration};
use crate::store::{ObjectStore, is_held_back, is_true, name, namespace, place, uid};
use crate::timers::{Tick, TimerKey};

/// Whether the taint out-of-service keeps a DaemonSet's pod away.
pub(super) fn repels(node: &Value, pod: &Value) -> bool {
    taint(node, OUT_OF_SERVICE).is_some_and(|it| toleration(pod, it).is_none())
}

/// The node of a pod, if it may end for the node's taints.
pub(super) fn concerned(store: &ObjectStore, pod: &Value) -> Option<String> {
    let node = store.get("nodes", "", pod["spec"]["nodeName"].as_str()?)?;
    (has_taint(node, OUT_OF_SERVICE) || has_taint(node, AWAY_TAINT)).then(|| name(node))
}

pub(super) fn node(store: &mut ObjectStore, tick: &mut Tick<'_>, named: &str) {
    let Some(node) = store.found("nodes", "", named).cloned() else { return };
    if !has_taint(&node, OUT_OF_SERVICE) && tick.config.unreachable_toleration.is_zero() {
        return;
    }
    let here = store.pods_on(named).filter_map(|it| store.found("pods", &it.0, &it.1).cloned());
    let (ending, staying): (Vec<Arc<Value>>, Vec<_>) =
        here.partition(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
    for pod in staying {
        let what = TimerKey::Evict(named.to_owned(), uid(&pod));
        match patience(tick.config, &node, &pod) {
            Some(time) if tick.timers.is_due(what.clone(), tick.now, time) => {
                let (namespace, name) = place(&pod);
                let why = "Taint manager: deleting due to NoExecute taint";
                store.mark_disrupted(&namespace, &name, "DeletionByTaintManager", why);
                store.retire("pods", &namespace, &name, None);
            }
            Some(_) => {}
            None => tick.timers.cancel(&what),
        }
    }
    // One that is held by finalizers only has been collected.
    let lost = |pod: &&Arc<Value>| {
        !is_held_back(pod) || !is_over(pod) || pod["metadata"]["deletionGracePeriodSeconds"] != 0
    };
    let lost: Vec<&Arc<Value>> = ending.iter().filter(lost).collect();
    let what = TimerKey::Collect(named.to_owned(), uid(&node));
    let is_lost = has_taint(&node, OUT_OF_SERVICE) && !is_true(&node, "Ready");
    if is_lost && !lost.is_empty() && tick.timers.is_due(what, tick.now, tick.config.pod_gc_every) {
        for pod in lost {
            let (namespace, name) = (namespace(pod), name(pod));
            if !is_over(pod) {
                store.edit("pods", &namespace, &name, |it| it["status"]["phase"] = "Failed".into());
            }
            store.retire("pods", &namespace, &name, Some(0));
        }
    }
}

fn taint<'a>(node: &'a Value, key: &str) -> Option<&'a Value> {
    let taints = node["spec"]["taints"].as_array()?;
    taints.iter().find(|it| it["key"] == key && it["effect"] == "NoExecute")
}

/// How long a pod stays on a node with its taints; `None` for ever.
fn patience(config: SimConfig, node: &Value, pod: &Value) -> Option<Duration> {
    let after = |it: i64| Duration::from_secs(it.try_into().unwrap_or_default());
    let stays = |key: &str, otherwise: Duration| match toleration(pod, taint(node, key)?) {
        Some(it) => it["tolerationSeconds"].as_i64().map(after),
        None => Some(otherwise),
    };
    let gone = stays(OUT_OF_SERVICE, Duration::ZERO);
    // A DaemonSet's pods tolerate it, others get a time from the admission.
    let of_daemon = pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
    let time = config.unreachable_toleration;
    let away = stays(AWAY_TAINT, time).filter(|_| !time.is_zero() && !of_daemon);
    gone.into_iter().chain(away).min()
}
