//! Network attachments `host-<interface>`, which give native applications an ethernet port of their node.
//!
//! One object serves all applications and nodes. A node that needs it has an annotation on it; the last one to remove
//! its annotation deletes the object (D-V7, D-V8). Foreign objects are left unchanged.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{Clock, Error};
use kube::api::{DeleteParams, GetParams, Patch, PostParams, Preconditions};
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::{FIELD_MANAGER, signed};
use kubeapi::objects::RawObject;
use kubeapi::pace::Pace;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, OwnNode, found};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::apps::AppRequirements;
use crate::seed;

const PREFIX: &str = "host-";
/// The label of objects that we may change and delete.
const MANAGED: &str = "app.kubernetes.io/managed-by";
/// Annotation prefix, followed by the UUID of a device that needs the object.
const NEEDED: &str = "pillar-rs/needed-by-";
/// Linux's limit for names of interfaces.
const INTERFACE_BYTES: usize = 15;

#[derive(Debug, Clone, PartialEq)]
enum AttachmentWrite {
    Create(Value),
    Patch(Value),
    /// Only with this version.
    Delete(String),
}

/// The object's name for an interface; `None` for an invalid name. It goes into a path.
fn name(interface: &str) -> Option<String> {
    let bytes = interface.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    let known = |it: &u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'.');
    let good = bytes.len() <= INTERFACE_BYTES
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(known)
        && !interface.contains("..");
    good.then(|| format!("{PREFIX}{interface}"))
}

fn config(interface: &str) -> Value {
    json!({ "cniVersion": "0.3.1", "plugins": [{ "type": "host-device", "device": interface }] })
}

/// The reference's text: keys in this order.
fn config_text(interface: &str) -> String {
    format!(r#"{{"cniVersion":"0.3.1","plugins":[{{"type":"host-device","device":"{interface}"}}]}}"#)
}

fn note(device: &str) -> String {
    format!("{NEEDED}{device}")
}

/// The change that makes the object of `interface` serve our node; `Err` says why it is left unchanged.
fn needed(
    found: Option<&RawObject>,
    interface: &str,
    (node, device): (&str, &str),
) -> Result<Option<AttachmentWrite>, &'static str> {
    let text = config_text(interface);
    let Some(found) = found else {
        return Ok(Some(AttachmentWrite::Create(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {
                "name": format!("{PREFIX}{interface}"), "namespace": APP_NAMESPACE,
                "labels": { MANAGED: FIELD_MANAGER }, "annotations": { note(device): node },
            },
            "spec": { "config": text },
        }))));
    };
    let held = found.spec["config"].as_str().unwrap_or_default();
    let same = serde_json::from_str::<Value>(held).is_ok_and(|it| it == config(interface));
    if !is_ours(found) {
        return if same { Ok(None) } else { Err("somebody else made it, with another config") };
    }
    if same && found.metadata.annotations.get(note(device)).is_some() {
        return Ok(None);
    }
    Ok(Some(AttachmentWrite::Patch(json!({
        "metadata": { "resourceVersion": version(found), "annotations": { note(device): node } },
        "spec": { "config": text },
    }))))
}

/// The change when our node does not need the object any more.
fn not_needed(found: &RawObject, device: &str) -> Option<AttachmentWrite> {
    let mine = note(device);
    if !is_ours(found) || found.metadata.annotations.get(&mine).is_none() {
        return None;
    }
    let version = version(found);
    let mut notes = found.metadata.annotations.as_object().into_iter().flatten();
    if notes.any(|(it, _)| it.starts_with(NEEDED) && *it != mine) {
        let meta = json!({ "resourceVersion": version, "annotations": { mine: null } });
        return Some(AttachmentWrite::Patch(json!({ "metadata": meta })));
    }
    Some(AttachmentWrite::Delete(version))
}

fn version(found: &RawObject) -> String {
    found.metadata.resource_version.clone().unwrap_or_default()
}

fn is_ours(found: &RawObject) -> bool {
    found.label(MANAGED) == FIELD_MANAGER
}

/// Between two looks: another client may have changed or deleted an object.
const LOOK: Duration = Duration::from_mins(10);
/// After a failed look: half to all of 8, 16, 32, 64, 120, 120, … s.
const FAILED_TIMES: u32 = 8;

/// Keeps them until the sender of `wanted` is gone. Without a wanted one since the start, makes no call.
/// Failed calls are retried. Dropping it loses nothing.
pub async fn run(
    cluster: ApiClient,
    clock: Clock,
    own_node: OwnNode,
    mut wanted: watch::Receiver<AppRequirements>,
) -> Result<(), Error> {
    let (node, device) = own_node.known().await;
    let mut keeper = NetworkKeeper { cluster, node: node.to_string(), device, swept: None };
    let (mut said, mut any) = (BTreeSet::new(), false);
    let (mut pace, mut tries) = (Pace::new(seed(clock)), 0_u32);
    loop {
        let ports = wanted.borrow_and_update().ports.clone();
        any |= ports.as_ref().is_some_and(|it| !it.is_empty());
        let mut pause = None;
        if let Some(ports) = ports.as_ref().filter(|_| any) {
            let (now, failed) = keeper.look(ports).await;
            tries = if failed { tries.saturating_add(1) } else { 0 };
            pause = Some(if failed { pace.pause(tries, None) * FAILED_TIMES } else { LOOK });
            for line in now.difference(&said) {
                warn!("network attachments: {line}");
            }
            said = now;
        }
        let due = pause.map(|it| clock.now() + it);
        tokio::select! {
            changed = wanted.wait_for(|it| it.ports != ports) => if changed.is_err() { return Ok(()) },
            () = clock.sleep_until(due) => {}
        }
    }
}

struct NetworkKeeper {
    cluster: ApiClient,
    node: String,
    device: String,
    /// The interfaces at the last clean sweep: objects are listed only where these have changed.
    swept: Option<BTreeSet<String>>,
}

const PATH: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/eve-kube-app/network-attachment-definitions";

fn request() -> Request {
    Request::new(PATH)
}

impl NetworkKeeper {
    /// Differences from the wanted state, in words; and whether a call has failed: other lines are for a person.
    async fn look(&mut self, ports: &BTreeSet<String>) -> (BTreeSet<String>, bool) {
        let (mut lines, mut failed) = (BTreeSet::new(), false);
        let mut names = BTreeSet::new();
        for port in ports {
            let Some(name) = name(port) else {
                lines.insert(format!(
                    "{port:?} names no interface that an object can be named after; it is left out"
                ));
                continue;
            };
            match self.serve(port, &name).await {
                Ok(left) => lines.extend(left),
                Err(error) => {
                    failed = true;
                    lines.insert(error.advice());
                }
            }
            names.insert(name);
        }
        if self.swept.as_ref() != Some(ports) {
            match self.sweep(&names).await {
                Ok(()) => self.swept = Some(ports.clone()),
                Err(error) => {
                    failed = true;
                    lines.insert(error.advice());
                }
            }
        }
        (lines, failed)
    }

    /// Why the object is left unchanged, if it is.
    async fn serve(&self, port: &str, name: &str) -> Result<Option<String>, kubeapi::Error> {
        let what = format!("read network attachment {APP_NAMESPACE}/{name}");
        let read = self.cluster.ask::<RawObject>(&what, request().get(name, &GetParams::default())).await;
        match needed(found(read)?.as_ref(), port, (&self.node, &self.device)) {
            Ok(None) => Ok(None),
            Ok(Some(write)) => self.write(name, write).await.map(|()| None),
            Err(why) => Ok(Some(format!(
                "{APP_NAMESPACE}/{name} is left as it is: {why}; delete it, and it is made again: \
                 `kubectl -n {APP_NAMESPACE} delete network-attachment-definitions {name}`"
            ))),
        }
    }

    /// Removes objects of ours that no application of this node needs.
    async fn sweep(&self, needed: &BTreeSet<String>) -> Result<(), kubeapi::Error> {
        let scope = WatchScope {
            what: "network attachments".to_owned(),
            path: PATH.to_owned(),
            fields: None,
            labels: Some(format!("{MANAGED}={FIELD_MANAGER}")),
        };
        let Some(all) = found(scope.list_all::<RawObject>(&self.cluster).await)? else { return Ok(()) };
        for one in &all.items {
            let Some(name) = one.metadata.name.as_ref().filter(|it| !needed.contains(*it)) else { continue };
            if let Some(write) = not_needed(one, &self.device) {
                self.write(name, write).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, name: &str, write: AttachmentWrite) -> Result<(), kubeapi::Error> {
        let (verb, request) = match write {
            AttachmentWrite::Create(object) => {
                let how =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                ("create", request().create(&how, object.to_string().into_bytes()))
            }
            AttachmentWrite::Patch(body) => ("change", request().patch(name, &signed(), &Patch::Merge(body))),
            AttachmentWrite::Delete(version) => {
                let exactly = Preconditions { resource_version: Some(version), uid: None };
                let how = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
                ("delete", request().delete(name, &how))
            }
        };
        let what = format!("{verb} network attachment {APP_NAMESPACE}/{name}");
        match self.cluster.order(&what, request).await {
            Ok(()) => info!(name, "{verb} network attachment"),
            Err(error) if error.is_not_found() && verb == "delete" => {
                debug!(name, error = error.line(), "{verb} network attachment");
            }
            // Also when another node has changed it: the next look, soon, finds it.
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_v9_only_what_names_an_interface_and_an_object_is_taken() {
        for good in ["eth1", "enp3s0", "0", "eth1.100", "wan-1"] {
            assert_eq!(name(good), Some(format!("host-{good}")));
        }
        for bad in [
            "",
            "Eth1",
            "eth_1",
            "../nodes",
            "eth1/..",
            "a..b",
            "-a",
            "a-",
            "eth 1",
            "a\"b",
            "eth0123456789abc",
            "é",
        ] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }
}
