//! Deployments: one replica set per template, and rollouts.
//!
//! Source: the deployment controller of Kubernetes (`pkg/controller/deployment`: rolling, recreate, sync). Not here: pods
//! (`workloads`); revisions and `minReadySeconds`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::store::{ObjectStore, name, namespace, uid};
use crate::workloads::{count, reference, replica_set_name, say, wanted};

const SETS: &str = "apps/replicasets";

pub(crate) fn deployment(store: &mut ObjectStore, deployment: &Value) {
    let sets = store.owned(SETS, &uid(deployment));
    let same = |set: &&Arc<Value>| template(set) == template(deployment);
    let Some(new) = sets.iter().find(same).or(sets.first().filter(|_| is_paused(deployment))).cloned() else {
        return make(store, deployment, sets.is_empty());
    };
    let old: Vec<Arc<Value>> = sets.into_iter().filter(|it| uid(it) != uid(&new)).collect();
    let all: u64 = old.iter().map(|it| wanted(it)).sum();
    match deployment["spec"]["strategy"]["type"].as_str() {
        _ if all == 0 || is_paused(deployment) => scale(store, &new, wanted(deployment)),
        Some("Recreate") => {
            for set in &old {
                scale(store, set, 0);
            }
            if old.iter().all(|it| store.owned("pods", &uid(it)).is_empty()) {
                scale(store, &new, wanted(deployment));
            }
        }
        _ => roll(store, deployment, &new, &old),
    }
    let (mut alive, mut ready) = (0, 0);
    for set in old.iter().chain([&new]) {
        let (of_set, ready_of_set) = count(&store.owned("pods", &uid(set)));
        (alive, ready) = (alive + of_set, ready + ready_of_set);
    }
    let (updated, _) = count(&store.owned("pods", &uid(&new)));
    let status = json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": alive, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready,
    });
    say(store, "apps/deployments", deployment, &status);
}

/// Missing annotations equal empty ones.
fn template(of: &Value) -> Value {
    let mut template = of["spec"]["template"].clone();
    let meta = template["metadata"].as_object_mut();
    if let Some(meta) = meta.filter(|it| it.get("annotations").is_some_and(|it| *it == json!({}))) {
        meta.remove("annotations");
    }
    template
}

fn is_paused(deployment: &Value) -> bool {
    deployment["spec"]["paused"] == true
}

/// A replica set for the template; a later one starts without pods.
fn make(store: &mut ObjectStore, deployment: &Value, is_first: bool) {
    let mut hasher = DefaultHasher::new();
    template(deployment).to_string().hash(&mut hasher);
    let next = format!("{}-{:x}", name(deployment), hasher.finish() % 0x1000_0000);
    let mut spec = deployment["spec"].clone();
    if !is_first {
        spec["replicas"] = 0.into();
    }
    let meta = json!({
        "name": if is_first { replica_set_name(&name(deployment)) } else { next },
        "namespace": namespace(deployment), "labels": deployment["metadata"]["labels"],
        "ownerReferences": reference(deployment, "Deployment"),
    });
    store.put(SETS, json!({ "metadata": meta, "spec": spec }));
}

fn scale(store: &mut ObjectStore, set: &Value, replicas: u64) {
    if wanted(set) != replicas {
        store.edit(SETS, &namespace(set), &name(set), |it| it["spec"]["replicas"] = replicas.into());
    }
}

/// A number, or a percentage of `whole`.
fn part(value: &Value, whole: u64, up: bool) -> u64 {
    let percent = value.as_str().and_then(|it| it.strip_suffix('%')?.parse::<u64>().ok());
    match (percent, value.as_u64()) {
        (Some(percent), _) if up => (percent * whole).div_ceil(100),
        (Some(percent), _) => percent * whole / 100,
        (None, Some(number)) => number,
        (None, None) => part(&"25%".into(), whole, up),
    }
}

/// One step of a rolling update: as many new pods as allowed, as many old ones less as can be spared.
fn roll(store: &mut ObjectStore, deployment: &Value, new: &Value, old: &[Arc<Value>]) {
    let (rules, whole) = (&deployment["spec"]["strategy"]["rollingUpdate"], wanted(deployment));
    let surge = part(&rules["maxSurge"], whole, true);
    let unavailable = part(&rules["maxUnavailable"], whole, false);
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    let total = wanted(new) + old.iter().map(|it| wanted(it)).sum::<u64>();
    let more = (whole + surge).saturating_sub(total).min(whole.saturating_sub(wanted(new)));
    if more > 0 || wanted(new) > whole {
        scale(store, new, wanted(new).min(whole) + more);
        return;
    }
    let available = |set: &Value| u64::try_from(count(&store.owned("pods", &uid(set))).1).unwrap_or_default();
    let least = whole.saturating_sub(unavailable);
    let new_missing = wanted(new).saturating_sub(available(new));
    let mut spare = total.saturating_sub(least + new_missing);
    let mut healthy =
        (available(new) + old.iter().map(|it| available(it)).sum::<u64>()).saturating_sub(least);
    let mut steps = Vec::new();
    for set in old {
        let broken = wanted(set).saturating_sub(available(set)).min(spare);
        let sound = available(set).min(healthy).min(spare - broken);
        (spare, healthy) = (spare - broken - sound, healthy - sound);
        steps.push((set, wanted(set) - broken - sound));
    }
    for (set, replicas) in steps {
        scale(store, set, replicas);
    }
}
