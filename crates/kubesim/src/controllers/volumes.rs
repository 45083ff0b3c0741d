//! Attaches volumes to the nodes of the pods that mount them, and detaches them after the last one has gone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::SimConfig;
use crate::store::{ObjectName, ObjectStore, all, name, uid};
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
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| !finished) else { continue };
        for claim in claims(pod) {
            let claim = store.get("persistentvolumeclaims", namespace, &claim);
            if let Some(volume) = claim.and_then(|it| it["spec"]["volumeName"].as_str()) {
                wanted.insert((volume.to_owned(), node.to_owned()));
            }
        }
    }
    for held in all(store, ATTACHMENTS) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pair = (text(&held["spec"]["source"]["persistentVolumeName"]), text(&held["spec"]["nodeName"]));
        let is_ending = !held["metadata"]["deletionTimestamp"].is_null();
        if wanted.remove(&pair) && !is_ending || name(&held) != attachment_name(&pair) {
            continue;
        }
        // One that is detaching must be gone before it comes back.
        if !is_ending {
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
        if store.get(ATTACHMENTS, "", &name).is_some() {
            continue;
        }
        let (volume, node) = pair;
        let driver =
            store.get("persistentvolumes", "", &volume).and_then(|it| it["spec"]["csi"]["driver"].as_str());
        let driver = driver.unwrap_or(DRIVER).to_owned();
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
