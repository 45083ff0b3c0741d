//! Volumes: attached where a ticket wants it, detached without tickets.

use serde_json::{Map, Value, json};

use super::{
    DRIVER, ENGINES, NAMESPACE, REPLICAS, TICKETS, VOLUMES, edit, engine_of, is_healthy, is_ready, is_served,
    key, replicas, replicas_of, shards, text,
};
use crate::store::{ObjectStore, all, name, stamp};
use crate::timers::Tick;
use crate::volumes::claims;

pub(super) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>, policy: &str, volume: &Value) {
    let named = &name(volume);
    note_workloads(store, volume);
    let tickets = tickets(store, tick, volume);
    let here = text(volume, "/status/currentNodeID");
    let wanted = match tickets.iter().find(|it| *it == here).or(tickets.first()) {
        Some(node) => node.clone(),
        None => String::new(),
    };
    let state = text(volume, "/status/state");
    let sharded = shards::round(store, tick, policy, volume);
    let usable = sharded.unwrap_or_else(|| replicas_of(store, named).iter().any(|it| is_healthy(it)));
    if matches!(state, "attached" | "detaching") && is_ready(store, here) && !is_served(store, here) {
        return crash(store, volume);
    }
    match state {
        "attached" if wanted.is_empty() => put(store, named, "detaching", here),
        "detaching" if !wanted.is_empty() => put(store, named, "attached", &wanted),
        "detaching" if tick.is_time(&key(volume), "detaching", tick.config.phase_time) => {
            detach(store, volume);
        }
        "detaching" => {}
        // The engine starts on the other node when the first attachment goes.
        "attached" if !is_ready(store, here) && wanted == here => {
            edit(store, VOLUMES, named, |it| it["status"]["robustness"] = "unknown".into());
        }
        "attached" => {
            put(store, named, "attached", &wanted);
            if sharded.is_none() {
                replicas::round(store, tick, volume);
            }
        }
        _ if !wanted.is_empty() && usable && is_served(store, &wanted) => {
            put(store, named, "attached", &wanted);
        }
        _ => {}
    }
}

fn put(store: &mut ObjectStore, volume: &str, state: &str, node: &str) {
    edit(store, VOLUMES, volume, |it| {
        it["spec"]["nodeID"] = if state == "attached" { node.into() } else { "".into() };
        it["status"]["state"] = state.into();
        it["status"]["currentNodeID"] = node.into();
        if state == "attached" {
            it["status"]["ownerID"] = node.into();
        }
    });
    edit(store, ENGINES, &engine_of(volume), |it| {
        it["spec"]["nodeID"] = node.into();
        it["spec"]["desireState"] = if state == "attached" { "running".into() } else { "stopped".into() };
        it["status"]["currentState"] = if node.is_empty() { "stopped".into() } else { "running".into() };
    });
}

fn detach(store: &mut ObjectStore, volume: &Value) {
    let named = &name(volume);
    put(store, named, "detached", "");
    edit(store, VOLUMES, named, |it| it["status"]["robustness"] = "unknown".into());
    edit(store, ENGINES, &engine_of(named), |it| {
        for member in ["replicaModeMap", "currentReplicaAddressMap", "rebuildStatus"] {
            it["status"][member] = Value::Null;
        }
    });
    for replica in replicas_of(store, named) {
        edit(store, REPLICAS, &name(&replica), replicas::stop);
    }
}

/// The engine's process died: no writes, and no healthy replica.
fn crash(store: &mut ObjectStore, volume: &Value) {
    for replica in replicas_of(store, &name(volume)) {
        edit(store, REPLICAS, &name(&replica), |it| it["spec"]["failedAt"] = stamp(0).into());
    }
    detach(store, volume);
    edit(store, VOLUMES, &name(volume), |it| it["status"]["robustness"] = "faulted".into());
    replicas::record_volume_event(
        store,
        volume,
        "Warning",
        "DetachedUnexpectedly",
        "Engine of volume dead unexpectedly",
    );
    replicas::record_volume_event(store, volume, "Warning", "Faulted", "volume became faulted");
}

/// The nodes of tickets, after those of the CSI driver were updated.
fn tickets(store: &mut ObjectStore, tick: &mut Tick<'_>, volume: &Value) -> Vec<String> {
    let named = &name(volume);
    let held = store.get(TICKETS, NAMESPACE, named).cloned().unwrap_or_default();
    let mut all_tickets = held["spec"]["attachmentTickets"].as_object().cloned().unwrap_or_default();
    all_tickets.retain(|_, it| it["type"] != "csi-attacher");
    for attachment in all(store, "storage/volumeattachments") {
        let source = text(&attachment, "/spec/source/persistentVolumeName");
        let source = store.get("persistentvolumes", "", source).map(|it| it["spec"]["csi"].clone());
        if source.is_some_and(|it| it["driver"] == DRIVER && it["volumeHandle"] == named.as_str()) {
            let (id, node) = (name(&attachment), attachment["spec"]["nodeName"].clone());
            all_tickets.insert(id.clone(), json!({ "id": id, "type": "csi-attacher", "nodeID": node }));
        }
    }
    let id = format!("volume-eviction-controller-{named}");
    // Its maker checks every 30 s only: it stays for a while after the copy has moved.
    if all_tickets.contains_key(&id)
        && !replicas::can_evict(store, volume)
        && tick.is_time(&key(volume), "ticket", tick.config.rebuild_time)
    {
        all_tickets.remove(&id);
    }
    // An attached volume is held there until the eviction's copy is made, if that has a place: this ticket
    // has the highest priority. A detached one is attached for it.
    if replicas::can_evict(store, volume) {
        let here = text(volume, "/status/currentNodeID");
        let node = if here.is_empty() { text(volume, "/status/ownerID") } else { here };
        let ticket = json!({ "id": id, "type": "volume-eviction-controller", "nodeID": node });
        all_tickets.insert(id, ticket);
    }
    let here = volume["status"]["currentNodeID"].clone();
    let satisfied = all_tickets
        .iter()
        .map(|(id, it)| (id.clone(), json!({ "id": id, "satisfied": it["nodeID"] == here })));
    let satisfied: Map<String, Value> = satisfied.collect();
    let nodes = all_tickets.values().map(|it| text(it, "/nodeID").to_owned()).collect();
    store.put(
        TICKETS,
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "VolumeAttachment",
            "metadata": { "name": named, "namespace": NAMESPACE },
            "spec": { "volume": named, "attachmentTickets": all_tickets },
            "status": { "attachmentTicketStatuses": satisfied },
        }),
    );
    nodes
}

/// The pods that use a volume, in its status.
fn note_workloads(store: &mut ObjectStore, volume: &Value) {
    let status = &volume["status"]["kubernetesStatus"];
    let (namespace, claim) = (text(status, "/namespace"), text(status, "/pvcName"));
    if claim.is_empty() {
        return;
    }
    let users = store.list_in("pods", namespace).filter(|pod| claims(pod).iter().any(|it| it == claim));
    let users: Vec<Value> = users
        .map(|pod| {
            let owner = &pod["metadata"]["ownerReferences"][0];
            json!({
                "podName": name(pod), "podStatus": pod["status"]["phase"],
                "workloadName": owner["name"].as_str().unwrap_or_default(),
                "workloadType": owner["kind"].as_str().unwrap_or_default(),
            })
        })
        .collect();
    edit(store, VOLUMES, &name(volume), |it| {
        // The last ones stay named after they have gone, with the time.
        if !users.is_empty() {
            it["status"]["kubernetesStatus"]["workloadsStatus"] = users.into();
            it["status"]["kubernetesStatus"]["lastPodRefAt"] = "".into();
        } else if it["status"]["kubernetesStatus"]["lastPodRefAt"] == "" {
            it["status"]["kubernetesStatus"]["lastPodRefAt"] = stamp(0).into();
        }
    });
}
