//! The part of Longhorn that affects a drain and a boot. Its objects are plain ones; these are its rules.
//!
//! Instance managers with their pods on each node (`managers`), volumes that are attached while an attachment
//! or a ticket asks for it (`volumes`), replicas that are built, fail and are built again (`replicas`), shards (`shards`), and
//! what `node-drain-policy` evicts and releases (`policy`). Only in a cluster with the mark of
//! [`Sim::add_longhorn`] (`seed`): objects of other tests are left unchanged.
//!
//! [`Sim::add_longhorn`]: crate::Sim::add_longhorn

mod managers;
mod policy;
mod replicas;
mod seed;
mod shards;
mod volumes;

use std::sync::Arc;

use serde_json::Value;

use crate::store::{Changed, ObjectKey, ObjectStore, all, is_true, name, namespace};
use crate::timers::Tick;
use crate::volumes::claims;

const NAMESPACE: &str = "longhorn-system";
const VOLUMES: &str = "longhorn/volumes";
const ENGINES: &str = "longhorn/engines";
const REPLICAS: &str = "longhorn/replicas";
const SHARDS: &str = "longhorn/shards";
const GROUPS: &str = "longhorn/shardgroups";
const NODES: &str = "longhorn/nodes";
const MANAGERS: &str = "longhorn/instancemanagers";
const TICKETS: &str = "longhorn/volumeattachments";
const SETTINGS: &str = "longhorn/settings";
const BUDGETS: &str = "policy/poddisruptionbudgets";
const DRIVER: &str = "driver.longhorn.io";
/// On a setting: Longhorn runs here.
const RUNS: &str = "kubesim/longhorn";

pub(crate) fn concerns(change: &Changed) -> bool {
    let inside = |it: &Value| namespace(it) == NAMESPACE;
    match change.resource.as_str() {
        "nodes" | "storage/volumeattachments" | "persistentvolumes" => true,
        "pods" => change.forms().any(|it| inside(it) || !claims(it).is_empty()),
        resource => resource.starts_with("longhorn/") || change.forms().any(inside),
    }
}

pub(crate) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>) {
    let setting = store.get(SETTINGS, NAMESPACE, "node-drain-policy").cloned().unwrap_or_default();
    if setting["metadata"]["annotations"][RUNS].is_null() {
        return;
    }
    let word = setting["value"].as_str().unwrap_or_default();
    for node in all(store, "nodes") {
        managers::node(store, &node);
    }
    for volume in all(store, VOLUMES) {
        volumes::round(store, tick, word, &volume);
    }
    managers::count_instances(store);
    policy::ask(store, word);
    policy::keep_budgets(store, word);
}

fn setting(store: &ObjectStore, name: &str, default: u64) -> u64 {
    let held = store.get(SETTINGS, NAMESPACE, name).and_then(|it| it["value"].as_str());
    held.and_then(|it| it.parse().ok()).unwrap_or(default)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn key(volume: &Value) -> ObjectKey {
    (VOLUMES.to_owned(), NAMESPACE.to_owned(), name(volume))
}

fn engine_of(volume: &str) -> String {
    format!("{volume}-e-0")
}

fn edit(store: &mut ObjectStore, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
    store.edit(resource, NAMESPACE, name, change);
}

fn is_ready(store: &ObjectStore, node: &str) -> bool {
    store.get("nodes", "", node).is_some_and(|it| is_true(it, "Ready"))
}

fn is_cordoned(store: &ObjectStore, node: &str) -> bool {
    store.get("nodes", "", node).is_none_or(|it| it["spec"]["unschedulable"] == true)
}

fn is_served(store: &ObjectStore, node: &str) -> bool {
    let manager = store.get(MANAGERS, NAMESPACE, &managers::name_of(node));
    manager.is_some_and(|it| it["status"]["currentState"] == "running")
}

fn replicas_of(store: &ObjectStore, volume: &str) -> Vec<Arc<Value>> {
    all(store, REPLICAS).into_iter().filter(|it| it["spec"]["volumeName"] == volume).collect()
}

/// Was healthy once and has not failed since.
fn is_healthy(replica: &Value) -> bool {
    !text(replica, "/spec/healthyAt").is_empty() && text(replica, "/spec/failedAt").is_empty()
}
