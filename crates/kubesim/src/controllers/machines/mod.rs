//! Virtual machines: the part of KubeVirt that affects a drain.
//!
//! A machine has a guest as its run strategy says (`owners`), a guest has a launcher pod (`guests`).
//! Evictions of launchers are answered as KubeVirt's webhook answers them (`eviction`), under its budgets up
//! to 1.5 (`budgets`); marked guests and those on a tainted node are moved (`evacuation`, `migrations`).
//! `calls` are the subresources, `settings` what the KubeVirt object says. Guests not made by these
//! controllers are left unchanged.

mod budgets;
mod calls;
mod evacuation;
pub(crate) mod eviction;
mod guests;
pub(crate) mod migrations;
mod owners;
mod seed;
mod settings;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::store::{ObjectKey, ObjectStore, condition, name, namespace, stamp, uid};
use crate::timers::Tick;

pub(crate) use calls::answer;
pub(crate) use guests::{FINALIZER, launcher};
pub(crate) use settings::KUBEVIRTS;
use settings::KubevirtSettings;

pub(crate) const MACHINES: &str = "kubevirt/virtualmachines";
pub(crate) const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(crate) const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";
pub(crate) const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";
const BUDGETS: &str = "policy/poddisruptionbudgets";

const CONTROLLER: &str = "virt-controller";

pub(crate) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>, key: &ObjectKey, object: &Value) {
    match key.0.as_str() {
        MACHINES => owners::machine(store, object),
        SETS => owners::set(store, object),
        MIGRATIONS => migrations::round(store, tick, key, object),
        GUESTS => {
            let settings = KubevirtSettings::read(store);
            guests::round(store, &settings, object);
            // As it is after that.
            let Some(guest) = store.found(&key.0, &key.1, &key.2).cloned() else { return };
            budgets::keep(store, &settings, &guest);
            for job in migrations::of(store, &guest).filter(|it| !is_final(it)) {
                let job_key = (MIGRATIONS.to_owned(), namespace(&job), name(&job));
                migrations::round(store, tick, &job_key, &job);
            }
            evacuation::round(store, tick, &settings, key, &guest);
        }
        _ => settings::handler(store, tick, key, object),
    }
}

/// Other objects affected by a change: the guests on a node, the guest of a migration, all of a cluster.
pub(crate) fn wakes(store: &ObjectStore, resource: &str, object: &Value) -> Vec<ObjectKey> {
    let key = |kind: &str, it: &Value| (kind.to_owned(), namespace(it), name(it));
    match resource {
        MIGRATIONS => {
            let guest = object["spec"]["vmiName"].as_str().unwrap_or_default().to_owned();
            vec![key(MIGRATIONS, object), (GUESTS.to_owned(), namespace(object), guest)]
        }
        "nodes" => {
            let here = |it: &&Value| it["status"]["nodeName"] == object["metadata"]["name"];
            let guests = store.list(GUESTS).filter(here).map(|it| key(GUESTS, it));
            let handled = store.list(KUBEVIRTS).next().map(|_| key("nodes", object));
            guests.chain(handled).collect()
        }
        KUBEVIRTS => {
            let guests = store.list(GUESTS).map(|it| key(GUESTS, it));
            guests.chain(store.list("nodes").map(|it| key("nodes", it))).collect()
        }
        _ => Vec::new(),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

fn is_over(guest: &Value) -> bool {
    matches!(guest["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_final(job: &Value) -> bool {
    is_over(job)
}

fn is_ending(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn active(store: &ObjectStore, guest: &Value) -> Vec<Arc<Value>> {
    store.owned("pods", &uid(guest)).into_iter().filter(|pod| !is_over(pod)).collect()
}

fn current(store: &ObjectStore, guest: &Value) -> Option<Arc<Value>> {
    active(store, guest).into_iter().find(|pod| pod["spec"]["nodeName"] == guest["status"]["nodeName"])
}

/// The random suffix of a generated name.
fn tail() -> String {
    uuid::Uuid::new_v4().to_string().chars().take(5).collect()
}

fn owned_by(owner: &Value, kind: &str) -> Value {
    if kind.is_empty() {
        return json!([]);
    }
    json!([{
        "apiVersion": "kubevirt.io/v1", "kind": kind, "name": name(owner), "uid": uid(owner), "controller": true,
    }])
}

/// Sets or removes a condition; an equal one stays.
pub(crate) fn put_condition(object: &mut Value, kind: &str, wanted: Option<(bool, &str, &str)>) {
    let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let held = all.iter().position(|it| it["type"] == kind);
    let new = wanted.map(|(status, reason, message)| {
        let mut new = condition(kind, status);
        for (member, text) in
            [("reason", reason), ("message", message)].into_iter().filter(|it| !it.1.is_empty())
        {
            new[member] = text.into();
        }
        new
    });
    let same = |at: usize, new: &Value| {
        ["status", "reason", "message"].iter().all(|it| all[at].get(it) == new.get(it))
    };
    match (held, new) {
        (Some(at), Some(new)) if same(at, &new) => return,
        (Some(at), Some(new)) => all[at] = new,
        (Some(at), None) => drop(all.remove(at)),
        (None, Some(new)) => all.push(new),
        (None, None) => return,
    }
    object["status"]["conditions"] = all.into();
}

pub(crate) fn record_event(
    store: &mut ObjectStore,
    by: &str,
    about: &Value,
    kind: &str,
    reason: &str,
    message: &str,
) {
    let at = stamp(0);
    store.put(
        "events",
        json!({
            "metadata": { "name": format!("{}.{}", name(about), uuid::Uuid::new_v4()), "namespace": namespace(about) },
            "involvedObject": {
                "apiVersion": about["apiVersion"], "kind": about["kind"], "name": name(about),
                "namespace": namespace(about), "uid": uid(about),
            },
            "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": at,
            "lastTimestamp": at, "source": { "component": by },
        }),
    );
}
