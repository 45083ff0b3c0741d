//! Machines and replica sets of guests: which guest they want, by run strategy or by number.

use std::sync::Arc;

use serde_json::{Value, json};

use super::settings::KubevirtSettings;
use super::{FINALIZER, GUESTS, MACHINES, is_ending, is_over, owned_by, tail, text};
use crate::store::{ObjectStore, name, namespace, uid};

/// On a machine: its strategy has started it once.
const RAN: &str = "kubesim/ran";

pub(super) fn strategy(machine: &Value) -> &str {
    match (machine["spec"]["runStrategy"].as_str(), machine["spec"]["running"].as_bool()) {
        (Some(word), _) => word,
        (None, Some(true)) => "Always",
        (None, _) => "Halted",
    }
}

fn request(machine: &Value) -> Option<&str> {
    machine["status"]["stateChangeRequests"][0]["action"].as_str()
}

pub(super) fn own_guest(store: &ObjectStore, machine: &Value) -> Option<Arc<Value>> {
    store.found(GUESTS, &namespace(machine), &name(machine)).cloned()
}

pub(super) fn machine(store: &mut ObjectStore, machine: &Value) {
    let (place, guest) = ((namespace(machine), name(machine)), own_guest(store, machine));
    if is_ending(machine) {
        return;
    }
    let over = guest.as_deref().is_none_or(is_over);
    let ran = machine["metadata"]["annotations"][RAN] == "true";
    let failed = strategy(machine) == "RerunOnFailure"
        && guest.as_deref().is_some_and(|it| it["status"]["phase"] == "Failed");
    let (wanted, asked) = match (request(machine), strategy(machine)) {
        (Some("Stop"), _) => (false, true),
        (Some(_), _) => (true, true),
        (None, "Always") => (true, false),
        (None, "RerunOnFailure") => (!over || !ran || failed, false),
        (None, "Once") => (!over || !ran, false),
        (None, "Halted") => (false, false),
        // A finished guest stays.
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
        it["status"]["printableStatus"] = printable(guest.as_deref()).into();
        if done {
            it["status"]["stateChangeRequests"] = json!([]);
        }
        if !over {
            it["metadata"]["annotations"][RAN] = "true".into();
        } else if halted || failed {
            it["metadata"]["annotations"][RAN] = "false".into();
        }
    });
}

pub(crate) fn put_guest(store: &mut ObjectStore, owner: &Value, kind: &str, name: &str) -> Value {
    let template = &owner["spec"]["template"];
    let mut spec = template["spec"].clone();
    if spec["evictionStrategy"].is_null() {
        spec["evictionStrategy"] = KubevirtSettings::read(store).strategy().into();
    }
    store.put(
        GUESTS,
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name, "namespace": namespace(owner), "finalizers": [FINALIZER],
                "ownerReferences": owned_by(owner, kind), "labels": template["metadata"]["labels"],
                "annotations": template["metadata"]["annotations"],
            },
            "spec": spec, "status": { "phase": "Pending" },
        }),
    )
}

/// `printableStatus`.
fn printable(guest: Option<&Value>) -> &'static str {
    let Some(guest) = guest else { return "Stopped" };
    let moved = &guest["status"]["migrationState"];
    match text(guest, "/status/phase") {
        _ if is_ending(guest) => "Stopping",
        "Running" if !moved["startTimestamp"].is_null() && moved["endTimestamp"].is_null() => "Migrating",
        "Running" => "Running",
        "Succeeded" | "Failed" => "Stopped",
        _ => "Starting",
    }
}

pub(super) fn set(store: &mut ObjectStore, set: &Value) {
    let guests = store.owned(GUESTS, &uid(set));
    for guest in guests.iter().filter(|it| is_over(it) && !is_ending(it)) {
        store.retire(GUESTS, &namespace(guest), &name(guest), None);
    }
    // A guest with a terminating launcher counts as gone, while it still shuts down.
    let leaves = |guest: &Value| {
        let conditions = guest["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["reason"] == "PodTerminating"))
    };
    let alive: Vec<_> = guests.iter().filter(|it| !is_over(it) && !is_ending(it) && !leaves(it)).collect();
    let wanted = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
    for _ in alive.len()..wanted {
        put_guest(store, set, "VirtualMachineInstanceReplicaSet", &format!("{}{}", name(set), tail()));
    }
    for guest in alive.iter().skip(wanted) {
        store.retire(GUESTS, &namespace(guest), &name(guest), None);
    }
}
