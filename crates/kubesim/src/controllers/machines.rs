//! Virtual machines: the small part of KubeVirt that a stop and a start take.
//!
//! A machine has a guest as its run strategy says, a guest has a launcher pod. Guests that no controller here has made are
//! let alone. Not here: migrations, evictions of launchers.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Shared;
use crate::api::Answer;
use crate::failure::Failure;
use crate::path::Target;
use crate::store::{Key, Store, name, namespace, uid};

pub(crate) const MACHINES: &str = "kubevirt/virtualmachines";
pub(crate) const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(crate) const SETS: &str = "kubevirt/virtualmachineinstancereplicasets";
/// Kept on each guest until its launcher is gone.
const FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// On a machine whose strategy has started it once.
const RAN: &str = "kubesim/ran";

/// Does what is missing for a machine, a guest or a replica set of guests.
pub(crate) fn round(store: &mut Store, key: &Key, object: &Value) {
    match key.0.as_str() {
        MACHINES => machine(store, object),
        GUESTS => guest(store, object),
        _ => set(store, object),
    }
}

fn is_over(guest: &Value) -> bool {
    matches!(guest["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_ending(guest: &Value) -> bool {
    !guest["metadata"]["deletionTimestamp"].is_null()
}

/// The run strategy, of both forms.
fn strategy(machine: &Value) -> &str {
    match (machine["spec"]["runStrategy"].as_str(), machine["spec"]["running"].as_bool()) {
        (Some(word), _) => word,
        (None, Some(true)) => "Always",
        (None, _) => "Halted",
    }
}

fn request(machine: &Value) -> Option<&str> {
    machine["status"]["stateChangeRequests"][0]["action"].as_str()
}

fn own_guest(store: &Store, machine: &Value) -> Option<Arc<Value>> {
    store.found(GUESTS, &namespace(machine), &name(machine)).cloned()
}

fn machine(store: &mut Store, machine: &Value) {
    let (place, guest) = ((namespace(machine), name(machine)), own_guest(store, machine));
    if is_ending(machine) {
        return;
    }
    let over = guest.as_deref().is_none_or(is_over);
    let ran = machine["metadata"]["annotations"][RAN] == "true";
    let failed = guest.as_deref().is_some_and(|it| it["status"]["phase"] == "Failed");
    let (wanted, asked) = match (request(machine), strategy(machine)) {
        (Some("Stop"), _) => (false, true),
        (Some(_), _) => (true, true),
        (None, "Always") => (true, false),
        (None, "RerunOnFailure") => (!over || !ran || failed, false),
        (None, "Once") => (!over || !ran, false),
        (None, "Halted") => (false, false),
        // A guest that is through stays.
        (None, _) => (guest.is_some(), false),
    };
    let halted = strategy(machine) == "Halted";
    match &guest {
        Some(it) if !wanted && !is_ending(it) && (halted || asked || !over) => {
            store.retire(GUESTS, &place.0, &place.1, None);
        }
        Some(it) if wanted && is_over(it) && (asked || strategy(machine) == "Always" || failed) => {
            store.retire(GUESTS, &place.0, &place.1, None);
        }
        None if wanted => {
            let name = name(machine);
            put_guest(store, machine, "VirtualMachine", &name);
        }
        Some(_) | None => {}
    }
    let done = asked && if wanted { !over } else { guest.is_none() };
    store.edit(MACHINES, &place.0, &place.1, |it| {
        it["status"]["created"] = guest.is_some().into();
        if done {
            it["status"]["stateChangeRequests"] = json!([]);
        }
        if guest.is_some() {
            it["metadata"]["annotations"][RAN] = "true".into();
        } else if halted {
            it["metadata"]["annotations"][RAN] = "false".into();
        }
    });
}

fn put_guest(store: &mut Store, owner: &Value, kind: &str, name: &str) {
    let reference = json!({
        "apiVersion": "kubevirt.io/v1", "kind": kind, "name": owner["metadata"]["name"], "uid": uid(owner),
        "controller": true,
    });
    store.put(
        GUESTS,
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name, "namespace": namespace(owner), "finalizers": [FINALIZER],
                "ownerReferences": [reference],
            },
            "spec": owner["spec"]["template"]["spec"], "status": { "phase": "Pending" },
        }),
    );
}

fn guest(store: &mut Store, guest: &Value) {
    let finalizers = guest["metadata"]["finalizers"].as_array();
    if !finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER)) {
        return;
    }
    let (namespace, name) = (namespace(guest), name(guest));
    let pods = store.owned("pods", &uid(guest));
    if is_ending(guest) {
        for pod in &pods {
            store.retire("pods", &namespace, &crate::store::name(pod), None);
        }
        if pods.is_empty() {
            store.remove(GUESTS, &namespace, &name);
        }
        return;
    }
    match pods.first() {
        None if guest["status"]["phase"] == "Pending" => {
            let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
            let reference = json!([{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": uid(guest),
                "controller": true,
            }]);
            store.put(
                "pods",
                json!({
                    "metadata": {
                        "name": format!("virt-launcher-{name}-{tail}"), "namespace": namespace,
                        "labels": { "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid(guest) },
                        "annotations": { "kubevirt.io/domain": name }, "ownerReferences": reference,
                    },
                    "spec": { "containers": [{ "name": "compute" }], "terminationGracePeriodSeconds": 60 },
                    "status": { "phase": "Pending" },
                }),
            );
        }
        // Its launcher has gone: the guest shut itself down.
        None if guest["status"]["phase"] == "Running" => say(store, guest, "Succeeded"),
        Some(pod) if pod["status"]["phase"] == "Running" && guest["status"]["phase"] == "Pending" => {
            let node = pod["spec"]["nodeName"].clone();
            store.edit(GUESTS, &namespace, &name, |it| it["status"]["nodeName"] = node);
            say(store, guest, "Running");
        }
        Some(_) | None => {}
    }
}

fn say(store: &mut Store, guest: &Value, phase: &str) {
    store.edit(GUESTS, &namespace(guest), &name(guest), |it| it["status"]["phase"] = phase.into());
}

fn set(store: &mut Store, set: &Value) {
    let guests = store.owned(GUESTS, &uid(set));
    for guest in guests.iter().filter(|it| is_over(it) && !is_ending(it)) {
        store.retire(GUESTS, &namespace(guest), &name(guest), None);
    }
    let alive: Vec<_> = guests.iter().filter(|it| !is_over(it) && !is_ending(it)).collect();
    let wanted = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
    for _ in alive.len()..wanted {
        let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
        put_guest(store, set, "VirtualMachineInstanceReplicaSet", &format!("{}{tail}", name(set)));
    }
    for guest in alive.iter().skip(wanted) {
        store.retire(GUESTS, &namespace(guest), &name(guest), None);
    }
}

/// Answers `stop` and `start` of a machine.
pub(crate) fn answer(shared: &Arc<Shared>, target: &Target, asked: &str) -> Result<Answer, Failure> {
    let (place, named) = (target.namespace.clone(), target.name.clone().unwrap_or_default());
    shared.write(|store| {
        let held = store.get(MACHINES, &place, &named).cloned();
        let held = held.ok_or_else(|| Failure::not_found(target, &named))?;
        let alive = own_guest(store, &held).is_some_and(|it| !is_over(&it));
        let older = held["metadata"]["annotations"]["kubesim/stop-halts"] == "true";
        let refused = |why: &str| Err(Failure::conflict(target, &named, why));
        let (word, running) = match (asked, strategy(&held)) {
            ("stop", _) if !alive => return refused("VM is not running"),
            ("stop", "Halted") => {
                return refused("Halted only supports manual stop requests with a shorter graceperiod");
            }
            ("stop", "Always" | "Once") => (Some("Halted"), false),
            ("stop", "RerunOnFailure") if older => (Some("Halted"), false),
            ("start", _) if alive => return refused("VM is already running"),
            ("start", word @ ("Always" | "Once")) => {
                return refused(&format!("{word} does not support manual start requests"));
            }
            ("start", "Halted") => (Some("Always"), true),
            (_, _) => (None, false),
        };
        store.edit(MACHINES, &place, &named, |it| match word {
            Some(_) if !it["spec"]["running"].is_null() => it["spec"]["running"] = running.into(),
            Some(word) => it["spec"]["runStrategy"] = word.into(),
            None => {
                let action = if asked == "stop" { "Stop" } else { "Start" };
                it["status"]["stateChangeRequests"] = json!([{ "action": action }]);
            }
        });
        Ok(Answer::Json(202, json!({})))
    })
}
