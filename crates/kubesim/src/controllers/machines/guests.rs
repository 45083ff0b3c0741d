//! Guests and their launcher pods: they run together, and end together.

use std::sync::Arc;

use serde_json::{Value, json};

use super::settings::{KubevirtSettings, SCHEDULABLE};
use super::{GUESTS, active, annotation, current, is_ending, is_over, owned_by, put_condition, tail, text};
use crate::node_state::is_reachable;
use crate::store::{ObjectStore, name, namespace, uid};

/// On each guest until its launcher is gone.
pub(crate) const FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// The phase in which a guest ends.
const ENDS: &str = "kubesim/ends";
const ON_NODE: &str = "kubevirt.io/nodeName";

pub(super) fn round(store: &mut ObjectStore, settings: &KubevirtSettings, guest: &Value) {
    let finalizers = guest["metadata"]["finalizers"].as_array();
    if !finalizers.is_some_and(|all| all.iter().any(|it| it == FINALIZER)) {
        return;
    }
    let (namespace, name) = (namespace(guest), name(guest));
    unplug(store, guest);
    if is_ending(guest) {
        let pods = store.owned("pods", &uid(guest));
        for pod in &pods {
            store.retire("pods", &namespace, &crate::store::name(pod), None);
        }
        if pods.is_empty() {
            store.remove(GUESTS, &namespace, &name);
        }
        return;
    }
    let pods = active(store, guest);
    let node = &guest["status"]["nodeName"];
    let own = pods.iter().find(|pod| node.is_null() || pod["spec"]["nodeName"] == *node);
    let phase = text(guest, "/status/phase");
    match own {
        None if phase == "Pending" => drop(store.put("pods", launcher(guest))),
        None if phase == "Running" => {
            let Some((end, reason)) = end(store, settings, guest) else {
                // Also if its node comes back before that is known.
                store.edit(GUESTS, &namespace, &name, |it| {
                    it["metadata"]["annotations"][ENDS] = "Failed".into();
                });
                return;
            };
            store.edit(GUESTS, &namespace, &name, |it| {
                it["status"]["phase"] = end.into();
                if !reason.is_empty() {
                    it["status"]["reason"] = reason.into();
                }
                put_condition(it, "Ready", Some((false, "PodNotExists", "")));
            });
        }
        Some(pod) if phase == "Pending" && pod["status"]["phase"] == "Running" => {
            let node = pod["spec"]["nodeName"].clone();
            store.edit(GUESTS, &namespace, &name, |it| {
                it["status"]["phase"] = "Running".into();
                put_node(it, &node);
            });
        }
        Some(_) | None => {}
    }
    if !is_over(guest) {
        report(store, settings, guest, own.map(AsRef::as_ref), &pods);
    }
}

/// Phase and reason of a guest whose launcher has gone; `None` while it is not known.
fn end(
    store: &ObjectStore,
    settings: &KubevirtSettings,
    guest: &Value,
) -> Option<(&'static str, &'static str)> {
    let node = store.get("nodes", "", text(guest, "/status/nodeName"));
    let Some(node) = node.filter(|it| !is_reachable(it)) else {
        // It shut down, or was destroyed after its grace.
        let failed = annotation(guest, ENDS) == "Failed";
        return Some((if failed { "Failed" } else { "Succeeded" }, ""));
    };
    let here = |pod: &Arc<Value>| pod["spec"]["nodeName"] == guest["status"]["nodeName"];
    let silent = node["metadata"]["labels"][SCHEDULABLE] == "false";
    match settings.minor {
        _ if store.owned("pods", &uid(guest)).iter().any(here) => None,
        ..2 => silent.then_some(("Failed", "NodeUnresponsive")),
        _ => Some(("Failed", "")),
    }
}

pub(super) fn put_node(guest: &mut Value, node: &Value) {
    guest["status"]["nodeName"] = node.clone();
    guest["metadata"]["labels"][ON_NODE] = node.clone();
}

/// What virt-handler and virt-controller report of a live guest.
fn report(
    store: &mut ObjectStore,
    settings: &KubevirtSettings,
    guest: &Value,
    own: Option<&Value>,
    pods: &[Arc<Value>],
) {
    let why = hindrance(store, guest);
    store.edit(GUESTS, &namespace(guest), &name(guest), |it| {
        let on_node = pods.iter().filter(|pod| !pod["spec"]["nodeName"].is_null());
        let nodes = on_node.map(|pod| (uid(pod), pod["spec"]["nodeName"].clone()));
        it["status"]["activePods"] = nodes.collect::<serde_json::Map<_, _>>().into();
        if it["status"]["phase"] == "Running" {
            let ready = match own.map(is_ending) {
                Some(true) => (false, "PodTerminating", "virt-launcher pod is terminating"),
                Some(false) | None => (true, "", ""),
            };
            put_condition(it, "Ready", Some(ready));
            let movable = why.as_ref().map_or((true, "", ""), |(reason, text)| (false, reason, text));
            put_condition(it, "LiveMigratable", Some(movable));
            it["status"]["migrationMethod"] =
                if why.is_none() && annotation(it, "kubesim/block").is_empty() {
                    "LiveMigration"
                } else {
                    "BlockMigration"
                }
                .into();
        }
        let marked = settings.minor >= 7 && !text(it, "/status/evacuationNodeName").is_empty();
        let asked = marked.then_some((true, "EvictionRequested", "VMI is marked for eviction"));
        put_condition(it, "EvictionRequested", asked);
    });
}

/// Why a guest cannot be migrated: reason and message.
fn hindrance(store: &ObjectStore, guest: &Value) -> Option<(String, String)> {
    let told = |reason: &str, text: String| Some((reason.to_owned(), text));
    let scripted = annotation(guest, "kubesim/not-migratable");
    if !scripted.is_empty() {
        let (reason, text) = scripted.split_once(": ").unwrap_or((scripted, ""));
        return told(reason, text.to_owned());
    }
    let devices = guest.pointer("/spec/domain/devices/hostDevices").and_then(Value::as_array);
    if devices.is_some_and(|all| !all.is_empty()) {
        return told(
            "HostDeviceNotLiveMigratable",
            "VMI specifies non-migratable generic PCI host device".to_owned(),
        );
    }
    let shared = |claim: &str| {
        let claim = store.get("persistentvolumeclaims", &namespace(guest), claim);
        let modes = claim.and_then(|it| it["spec"]["accessModes"].as_array());
        modes.is_some_and(|all| all.iter().any(|it| it == "ReadWriteMany"))
    };
    let claim = claims(guest).find(|it| !shared(it))?;
    told(
        "DisksNotLiveMigratable",
        format!(
            "cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared \
             (using ReadWriteMany access mode)"
        ),
    )
}

fn claims(guest: &Value) -> impl Iterator<Item = &str> {
    let disks = guest["spec"]["volumes"].as_array().into_iter().flatten();
    disks.filter_map(|it| {
        it["persistentVolumeClaim"]["claimName"].as_str().or(it["dataVolume"]["name"].as_str())
    })
}

pub(crate) fn launcher(guest: &Value) -> Value {
    let spec = &guest["spec"];
    let grace = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(30) + 30;
    let disks: Vec<Value> = claims(guest)
        .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }))
        .chain([json!({ "name": "private", "emptyDir": {} })])
        .collect();
    let mut pod = json!({
        "metadata": {
            "name": format!("virt-launcher-{}-{}", name(guest), tail()), "namespace": namespace(guest),
            "labels": {
                "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid(guest),
                "vm.kubevirt.io/name": name(guest),
            },
            "annotations": { "kubevirt.io/domain": name(guest) },
            "ownerReferences": owned_by(guest, "VirtualMachineInstance"),
        },
        "spec": {
            "containers": [{ "name": "compute" }], "terminationGracePeriodSeconds": grace, "volumes": disks,
        },
        "status": { "phase": "Pending" },
    });
    let memory = &spec["domain"]["memory"]["guest"];
    if !memory.is_null() {
        pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": memory } });
    }
    for member in ["nodeSelector", "affinity", "tolerations"] {
        if !spec[member].is_null() {
            pod["spec"][member] = spec[member].clone();
        }
    }
    pod
}

/// Hotplugged disks: their pods go with the launcher; a guest that loses one earlier is paused.
fn unplug(store: &mut ObjectStore, guest: &Value) {
    let Some(disks) = guest["status"]["volumeStatus"].as_array() else { return };
    let place = namespace(guest);
    for disk in disks {
        let Some(name) = disk["hotplugVolume"]["attachPodName"].as_str() else { continue };
        let Some(pod) = store.found("pods", &place, name).cloned() else {
            if !is_over(guest) && !is_ending(guest) {
                let paused = (true, "PausedIOError", "VMI was paused, low-level IO error detected");
                store.edit(GUESTS, &place, &crate::store::name(guest), |it| {
                    put_condition(it, "Paused", Some(paused));
                });
            }
            continue;
        };
        let owner = text(&pod, "/metadata/ownerReferences/0/name");
        let leaves = store.get("pods", &place, owner).is_none_or(|it| is_over(it) || is_ending(it));
        if leaves && (is_over(guest) || is_ending(guest)) {
            store.retire("pods", &place, name, None);
        } else if leaves && let Some(next) = current(store, guest).filter(|it| !is_ending(it)) {
            plug(store, guest, &next, text(disk, "/name"));
            store.retire("pods", &place, name, None);
        }
    }
}

/// A pod that holds a disk for a launcher, on its node.
pub(super) fn plug(store: &mut ObjectStore, guest: &Value, launcher: &Value, disk: &str) -> Value {
    let pod = format!("hp-volume-{}", tail());
    let mut owner = owned_by(launcher, "Pod");
    owner[0]["apiVersion"] = "v1".into();
    let held = store.put(
        "pods",
        json!({
            "metadata": {
                "name": pod, "namespace": namespace(guest), "labels": { "kubevirt.io": "hotplug-disk" },
                "ownerReferences": owner,
            },
            "spec": {
                "nodeName": launcher["spec"]["nodeName"], "containers": [{ "name": "hotplug-disk" }],
                "volumes": [{ "name": disk, "persistentVolumeClaim": { "claimName": disk } }],
            },
            "status": { "phase": "Pending" },
        }),
    );
    store.edit(GUESTS, &namespace(guest), &name(guest), |it| {
        let mut all = it["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        all.retain(|it| it["name"] != disk);
        all.push(json!({ "name": disk, "phase": "Ready", "hotplugVolume": { "attachPodName": pod } }));
        it["status"]["volumeStatus"] = all.into();
    });
    held
}
