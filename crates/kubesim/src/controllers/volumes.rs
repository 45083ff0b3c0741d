//! Attaches volumes to the nodes of the pods that mount them, and detaches them after the last one has gone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::SimConfig;
use crate::node_state::{OUT_OF_SERVICE, has_taint, is_reachable};
use crate::store::{ObjectName, ObjectStore, all, name, namespace, uid};
use crate::timers::{SimTimers, TimerKey};

const ATTACHMENTS: &str = "storage/volumeattachments";
/// Attacher of volumes that name no driver.
pub(crate) const DRIVER: &str = "csi.kubesim";
/// On each attachment until the volume is off the node.
const FINALIZER: &str = "external-attacher/csi-kubesim";

/// The claims that a pod mounts; a generic ephemeral volume has one named after pod and volume.
pub(crate) fn claims(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |volume: &Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None if !volume["ephemeral"].is_null() => {
            Some(format!("{}-{}", name(pod), volume["name"].as_str().unwrap_or_default()))
        }
        None => None,
    };
    volumes.iter().filter_map(named).collect()
}

/// Volumes of a pod, each with its node.
fn pairs(store: &ObjectStore, pod: &Value) -> Vec<(String, String)> {
    let Some(node) = pod["spec"]["nodeName"].as_str() else { return Vec::new() };
    let volume = |claim: &String| {
        let claim = store.get("persistentvolumeclaims", &namespace(pod), claim)?;
        Some((claim["spec"]["volumeName"].as_str()?.to_owned(), node.to_owned()))
    };
    claims(pod).iter().filter_map(volume).collect()
}

/// Volume and node of an attachment.
fn pair(attachment: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &attachment["spec"];
    (text(&spec["source"]["persistentVolumeName"]), text(&spec["nodeName"]))
}

/// Whether the volumes of a pod are attached to its node: containers do not start before.
pub(crate) fn are_attached(store: &ObjectStore, pod: &Value) -> bool {
    pairs(store, pod).iter().all(|it| {
        store.get(ATTACHMENTS, "", &attachment_name(it)).is_some()
            || store.list(ATTACHMENTS).any(|held| pair(held) == *it)
    })
}

/// As the attach/detach controller: one that names no mode may be, too.
fn is_multi_attach_allowed(volume: &Value) -> bool {
    let modes = volume["accessModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|it| it == "ReadWriteMany" || it == "ReadOnlyMany")
}

/// `mounting` are all pods with claims.
pub(crate) fn round(
    store: &mut ObjectStore,
    config: SimConfig,
    timers: &mut SimTimers,
    now: Instant,
    mounting: &BTreeSet<ObjectName>,
) {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    for (namespace, pod) in mounting {
        let Some(pod) = store.get("pods", namespace, pod) else { continue };
        let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if !finished {
            wanted.extend(pairs(store, pod));
        }
    }
    let mut attached: BTreeSet<String> = BTreeSet::new();
    for held in all(store, ATTACHMENTS) {
        let pair = pair(&held);
        attached.insert(pair.0.clone());
        let is_ending = !held["metadata"]["deletionTimestamp"].is_null();
        let unmount = TimerKey::Unmount(name(&held), uid(&held));
        if wanted.remove(&pair) && !is_ending || name(&held) != attachment_name(&pair) {
            timers.cancel(&unmount);
            continue;
        }
        // It is not unmounted there, and no person has said that the node is off.
        let is_mounted = store
            .get("nodes", "", &pair.1)
            .is_some_and(|it| !is_reachable(it) && !has_taint(it, OUT_OF_SERVICE));
        // One that is detaching must be gone before it comes back.
        if !is_ending {
            if is_mounted && !timers.is_due(unmount, now, config.force_detach_after) {
                continue;
            }
            store.retire(ATTACHMENTS, "", &name(&held), None);
        }
        let is_held = finalizers(&held).contains(&FINALIZER.into());
        let what = TimerKey::Detach(name(&held), uid(&held));
        if !is_held || timers.is_due(what, now, config.detach_time) {
            detach(store, &name(&held));
        }
    }
    for pair in wanted {
        let name = attachment_name(&pair);
        let (volume, node) = pair;
        let held =
            store.get("persistentvolumes", "", &volume).map(|it| it["spec"].clone()).unwrap_or_default();
        let is_taken = !attached.insert(volume.clone()) && !is_multi_attach_allowed(&held);
        if is_taken || store.get(ATTACHMENTS, "", &name).is_some() {
            continue;
        }
        let driver = held["csi"]["driver"].as_str().unwrap_or(DRIVER);
        store.put(
            ATTACHMENTS,
            json!({
                "metadata": { "name": name, "finalizers": [FINALIZER] },
                "spec": { "attacher": driver, "nodeName": node, "source": { "persistentVolumeName": volume } },
                "status": { "attached": true },
            }),
        );
    }
}

/// Attachments with other names are foreign.
fn attachment_name((volume, node): &(String, String)) -> String {
    format!("csi-{volume}-{node}")
}

fn finalizers(object: &Value) -> Vec<Value> {
    object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
}

/// Removes our finalizer; without others the attachment goes.
fn detach(store: &mut ObjectStore, attachment: &str) {
    let mut others = Vec::new();
    store.edit(ATTACHMENTS, "", attachment, |it| {
        others = finalizers(it);
        others.retain(|it| *it != FINALIZER);
        it["metadata"]["finalizers"] = others.clone().into();
        it["status"]["attached"] = false.into();
    });
    if others.is_empty() {
        store.remove(ATTACHMENTS, "", attachment);
    }
}
