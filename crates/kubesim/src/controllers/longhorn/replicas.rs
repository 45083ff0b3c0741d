//! Replicas of an attached volume: in use, being built, or to be removed.
//!
//! On a volume `kubesim/unschedulable: MESSAGE` lets no new replica find a disk, `kubesim/rebuild: fails` lets each
//! rebuild fail half way and `kubesim/rebuild: hangs` lets it stay there. To a disk with `storageAvailable: 0` nothing is
//! written.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    ENGINES, NAMESPACE, NODES, REPLICAS, VOLUMES, edit, engine_of, is_cordoned, is_healthy, is_ready,
    is_served, key, replicas_of, setting, text,
};
use crate::machines::put_condition;
use crate::store::{ObjectStore, name, stamp, uid};
use crate::timers::Tick;

/// Progress of a rebuild per step, in percent.
const PART: u32 = 25;

pub(super) fn stop(replica: &mut Value) {
    replica["spec"]["desireState"] = "stopped".into();
    replica["status"]["currentState"] = "stopped".into();
    replica["status"]["started"] = false.into();
}

pub(super) fn is_building(replica: &Value) -> bool {
    text(replica, "/spec/healthyAt").is_empty() && text(replica, "/spec/failedAt").is_empty()
}

fn address(replica: &Value) -> String {
    format!("{}:{}", text(replica, "/status/ip"), replica["status"]["port"])
}

/// Of a volume with a running engine.
pub(super) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>, volume: &Value) {
    let named = &name(volume);
    for replica in replicas_of(store, named) {
        let node = text(&replica, "/spec/nodeID");
        let runs = text(&replica, "/spec/failedAt").is_empty();
        let reached = is_ready(store, node) && is_served(store, node);
        edit(store, REPLICAS, &name(&replica), |it| {
            if runs && reached {
                it["spec"]["desireState"] = "running".into();
                it["status"]["currentState"] = "running".into();
                it["status"]["started"] = true.into();
            } else {
                stop(it);
            }
            if runs && !reached {
                for member in ["failedAt", "lastFailedAt"] {
                    it["spec"][member] = stamp(0).into();
                }
            }
        });
    }
    rebuild(store, tick, volume);
    let replicas = replicas_of(store, named);
    let healthy = replicas.iter().filter(|it| is_healthy(it)).count() as u64;
    let wanted = volume["spec"]["numberOfReplicas"].as_u64().unwrap_or(3);
    let robustness = match healthy {
        0 => "faulted",
        _ if healthy < wanted => "degraded",
        _ => "healthy",
    };
    edit(store, VOLUMES, named, |it| {
        if robustness == "degraded" && it["status"]["robustness"] != "degraded" {
            it["status"]["lastDegradedAt"] = stamp(0).into();
        }
        it["status"]["robustness"] = robustness.into();
    });
    let (mut modes, mut addresses) = (Map::new(), Map::new());
    for replica in replicas.iter().filter(|it| text(it, "/spec/failedAt").is_empty()) {
        modes.insert(name(replica), if is_building(replica) { "WO".into() } else { "RW".into() });
        addresses.insert(name(replica), address(replica).into());
    }
    edit(store, ENGINES, &engine_of(named), |it| {
        it["status"]["replicaModeMap"] = modes.into();
        it["status"]["currentReplicaAddressMap"] = addresses.into();
    });
}

/// Builds missing replicas one at a time, and removes evicted ones.
fn rebuild(store: &mut ObjectStore, tick: &mut Tick<'_>, volume: &Value) {
    let named = &name(volume);
    let replicas = replicas_of(store, named);
    // Neither an eviction nor a rebuild during a migration; without a healthy replica nothing is copied.
    let healthy: Vec<&Arc<Value>> = replicas.iter().filter(|it| is_healthy(it)).collect();
    if !text(volume, "/spec/migrationNodeID").is_empty() || healthy.is_empty() {
        return;
    }
    if let Some(building) = replicas.iter().find(|it| is_building(it)) {
        return proceed(store, tick, volume, building);
    }
    let wanted = volume["spec"]["numberOfReplicas"].as_u64().unwrap_or(3);
    let (leaving, staying): (Vec<_>, Vec<_>) =
        healthy.into_iter().partition(|it| it["spec"]["evictionRequested"] == true);
    if staying.len() as u64 >= wanted {
        // Later: the ticket of the eviction holds the volume meanwhile.
        if let Some(gone) = leaving.first()
            && tick.is_time(&key(volume), &format!("{} leaves", uid(gone)), tick.config.rebuild_time)
        {
            store.remove(REPLICAS, NAMESPACE, &name(gone));
        }
        return edit(store, VOLUMES, named, |it| put_condition(it, "Scheduled", Some((true, "", ""))));
    }
    if setting(store, "concurrent-replica-rebuild-per-node-limit", 5) == 0 {
        return;
    }
    let failed: Vec<_> = replicas.iter().filter(|it| !text(it, "/spec/failedAt").is_empty()).collect();
    let back = |it: &&&Arc<Value>| {
        let node = text(it, "/spec/nodeID");
        is_ready(store, node) && is_served(store, node) && it["spec"]["evictionRequested"] != true
    };
    if let Some(old) = failed.iter().find(back) {
        let again = !old["status"]["conditions"].is_null();
        if again && !tick.is_time(&key(volume), &format!("{} again", uid(old)), tick.config.rebuild_time) {
            return;
        }
        return edit(store, REPLICAS, &name(old), |it| {
            it["spec"]["failedAt"] = "".into();
            it["spec"]["healthyAt"] = "".into();
        });
    }
    let wait = Duration::from_secs(setting(store, "replica-replenishment-wait-interval", 600));
    // The data of an absent one may come back.
    let away = leaving.is_empty() && !failed.is_empty() && !has_waited(volume);
    if away {
        if tick.is_time(&key(volume), &format!("{} replenishes", uid(volume)), wait) {
            edit(store, VOLUMES, named, |it| it["metadata"]["annotations"][WAITED] = "true".into());
        }
        return;
    }
    let Some(node) = place(store, volume) else {
        let why = (false, "ReplicaSchedulingFailure", blocked(volume).unwrap_or("nodes are unavailable"));
        return edit(store, VOLUMES, named, |it| put_condition(it, "Scheduled", Some(why)));
    };
    store.put(REPLICAS, new(volume, &node, replicas.len(), ""));
    record_volume_event(store, volume, "Normal", "Rebuilding", "Start rebuilding replica");
    edit(store, VOLUMES, named, |it| {
        put_condition(it, "Scheduled", Some((true, "", "")));
        if let Some(all) = it["metadata"]["annotations"].as_object_mut() {
            all.remove(WAITED);
        }
    });
}

/// Whether an evicted replica's copy exists, is being made or has a place.
pub(super) fn can_evict(store: &ObjectStore, volume: &Value) -> bool {
    let replicas = replicas_of(store, &name(volume));
    let leaves = |it: &Arc<Value>| it["spec"]["evictionRequested"] == true && is_healthy(it);
    let staying = replicas.iter().filter(|it| is_healthy(it) && !leaves(it)).count() as u64;
    replicas.iter().any(leaves)
        && (place(store, volume).is_some()
            || replicas.iter().any(|it| is_building(it))
            || staying >= volume["spec"]["numberOfReplicas"].as_u64().unwrap_or(3))
}

/// On a volume: the wait for its failed replica is over.
const WAITED: &str = "kubesim/replenished";

fn has_waited(volume: &Value) -> bool {
    volume["metadata"]["annotations"][WAITED] == "true"
}

fn blocked(volume: &Value) -> Option<&str> {
    volume["metadata"]["annotations"]["kubesim/unschedulable"].as_str()
}

/// A node for one more replica of a volume: one without a live one.
pub(super) fn place(store: &ObjectStore, volume: &Value) -> Option<String> {
    // The only copy of such a volume stays on the node of its user.
    if blocked(volume).is_some() || volume["spec"]["dataLocality"] == "strict-local" {
        return None;
    }
    let replicas = replicas_of(store, &name(volume));
    let taken = |node: &str| {
        replicas.iter().any(|it| it["spec"]["nodeID"] == node && text(it, "/spec/failedAt").is_empty())
    };
    let fits = |it: &&Value| {
        let node = &name(it);
        it["spec"]["allowScheduling"] == true
            && is_ready(store, node)
            && !is_cordoned(store, node)
            && is_served(store, node)
            && !taken(node)
    };
    store.list(NODES).find(fits).map(name)
}

pub(super) fn new(volume: &Value, node: &str, number: usize, healthy_at: &str) -> Value {
    let named = name(volume);
    let tail: String = uuid::Uuid::new_v4().to_string().chars().take(8).collect();
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
        "metadata": {
            "name": format!("{named}-r-{tail}"), "namespace": NAMESPACE,
            "labels": { "longhornvolume": named, "longhornnode": node, "longhorndiskuuid": format!("{node}-disk") },
        },
        "spec": {
            "volumeName": named, "nodeID": node, "diskID": format!("{node}-disk"), "engineName": engine_of(&named),
            "desireState": "stopped", "healthyAt": healthy_at, "failedAt": "", "lastHealthyAt": healthy_at,
            "lastFailedAt": "", "evictionRequested": false,
            "hardNodeAffinity": if volume["spec"]["dataLocality"] == "strict-local" { node } else { "" },
        },
        "status": {
            "currentState": "stopped", "started": false, "ip": format!("replica-of-{node}"),
            "port": 10_000 + 10 * number,
        },
    })
}

fn is_full(store: &ObjectStore, node: &str) -> bool {
    let disk = store.get(NODES, NAMESPACE, node).map(|it| it["status"]["diskStatus"]["default"].clone());
    disk.is_some_and(|it| it["storageAvailable"] == 0)
}

/// Advances a rebuild.
fn proceed(store: &mut ObjectStore, tick: &mut Tick<'_>, volume: &Value, replica: &Value) {
    let engine = engine_of(&name(volume));
    let at = format!("tcp://{}", address(replica));
    let held = store.get(ENGINES, NAMESPACE, &engine).map(|it| it["status"]["rebuildStatus"][&at].clone());
    let held = held.filter(|it| it["isRebuilding"] == true);
    let progress = held.as_ref().and_then(|it| it["progress"].as_u64()).unwrap_or_default();
    let step = format!("{} {progress}", uid(replica));
    let script = text(volume, "/metadata/annotations/kubesim~1rebuild");
    let due = held.is_some()
        && !is_full(store, text(replica, "/spec/nodeID"))
        && tick.is_time(&key(volume), &step, tick.config.rebuild_time * PART / 100);
    let fails = script == "fails" && progress >= 50;
    let next = if due && !(fails || script == "hangs" && progress >= 50) {
        progress + u64::from(PART)
    } else {
        progress
    };
    let state = match next {
        _ if due && fails => "error",
        100.. => "complete",
        _ => "in_progress",
    };
    let error = if state == "error" { "scripted failure" } else { "" };
    edit(store, ENGINES, &engine, |it| {
        it["status"]["rebuildStatus"][&at] = json!({
            "isRebuilding": state == "in_progress", "progress": next, "state": state, "error": error,
        });
    });
    match state {
        "error" => {
            edit(store, REPLICAS, &name(replica), |it| {
                it["spec"]["failedAt"] = stamp(0).into();
                put_condition(it, "RebuildFailed", Some((true, "General", "scripted failure")));
            });
            record_volume_event(store, volume, "Warning", "FailedRebuilding", "Failed rebuilding replica");
        }
        "complete" => {
            edit(store, REPLICAS, &name(replica), |it| {
                it["spec"]["healthyAt"] = stamp(0).into();
                it["spec"]["lastHealthyAt"] = stamp(0).into();
                put_condition(it, "RebuildFailed", None);
            });
            record_volume_event(store, volume, "Normal", "Rebuilt", "Replica has been rebuilt");
        }
        _ => {}
    }
}

pub(super) fn record_volume_event(
    store: &mut ObjectStore,
    volume: &Value,
    kind: &str,
    reason: &str,
    message: &str,
) {
    crate::machines::record_event(store, "longhorn-volume-controller", volume, kind, reason, message);
}
