//! The Node object: reading it, and cordoning with an owner.
//!
//! Not here: how often to try (the caller counts), what a cordon allows (`cordon`).

pub mod boot;
pub mod cordon;
pub mod gate;
pub mod leftovers;
#[cfg(test)]
mod tests;

pub use cordon::{CordonSeen, Cordoned, NodeFacts};

use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ObjectList;
use kubeapi::slim::{NodeObject, ready_of_node};
use serde_json::{Value, json};

use crate::storage::VolumesBefore;
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::{NodeName, OWNER_ANNOTATION, TIE_BREAKER_LABEL, VOLUMES_ANNOTATION};
use kubeapi::nodes::CordonAnnotation;
use kubeapi::nodes::{self, FIELD_MANAGER, api, signed};
use kubeapi::watch::WatchScope;
use step::Mono;
use topics::CordonOwner;

/// What a person types where the API does not answer.
pub const START_THE_API: &str = "check that the cluster software runs on this node: `systemctl status k3s`";
/// So often a node is read and written when others, as its kubelet, are faster each time.
const RACES: usize = 5;

/// Our own node by its name.
/// Errors: [`Error::WrongNode`] when the node carries another device's UUID, [`Error::OtherMachine`] when another machine has
/// reported it, and all of [`ApiClient`]'s.
pub async fn read(cluster: &ApiClient, name: &NodeName, device_uuid: &str) -> Result<NodeFacts, Error> {
    read_whole(cluster, name, device_uuid).await.map(|(_, facts)| facts)
}

/// [`read`] with the object itself.
pub(crate) async fn read_whole(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
) -> Result<(NodeObject, NodeFacts), Error> {
    let node = nodes::own(cluster, name, device_uuid).await?;
    let facts = facts(&node)?;
    Ok((node, facts))
}

/// The facts about a node that must be that of our device, on the machine that asks.
pub(crate) fn owned(cluster: &ApiClient, node: &NodeObject, device_uuid: &str) -> Result<NodeFacts, Error> {
    nodes::check_device(node, device_uuid, cluster.machine())?;
    facts(node)
}

/// All nodes but `own`.
pub async fn others(cluster: &ApiClient, own: &NodeName) -> Result<Vec<NodeFacts>, Error> {
    let list: ObjectList<NodeObject> = cluster.ask("list nodes", api().list(&ListParams::default())).await?;
    let all: Result<Vec<NodeFacts>, Error> = list.items.iter().map(facts).collect();
    Ok(all?.into_iter().filter(|node| node.name != *own).collect())
}

/// Reads and writes at once again as long as somebody else has written in between, [`RACES`] times at most.
async fn raced<T, F: Future<Output = Result<T, Error>>>(step: impl Fn() -> F) -> Result<T, Error> {
    for _ in 1..RACES {
        match step().await {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
    }
    step().await
}

/// Makes the node unschedulable in the name of `owner`, by one patch of flag and annotation that names the
/// resource version. A foreign cordon is left as it is; a mark of ours that is left on it is taken off. A lost race is run
/// again at once.
/// Errors: as [`read`]; the caller counts its tries.
pub async fn cordon(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
    owner: &CordonAnnotation,
) -> Result<Cordoned, Error> {
    cordon_from(cluster, (name, device_uuid), owner, &LastSeen::default()).await
}

/// The same, first from what was `seen` of the node, which has it as the cordon made it then.
/// Errors: as [`read`]; the caller counts its tries.
pub async fn cordon_from(
    cluster: &ApiClient,
    (name, device_uuid): (&NodeName, &str),
    owner: &CordonAnnotation,
    seen: &LastSeen,
) -> Result<Cordoned, Error> {
    let known = seen.get().filter(|it| it.name == *name && it.cordoned_by(owner) == Cordoned::Written);
    if let Some(node) = known {
        match write_cordon(cluster, &node, owner, seen).await {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
    }
    raced(|| cordon_once(cluster, name, device_uuid, owner, seen)).await
}

async fn cordon_once(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
    owner: &CordonAnnotation,
    seen: &LastSeen,
) -> Result<Cordoned, Error> {
    let node = read(cluster, name, device_uuid).await?;
    let step = node.cordoned_by(owner);
    if step == Cordoned::Written {
        return write_cordon(cluster, &node, owner, seen).await;
    }
    if step == Cordoned::Foreign && node.annotation.is_some() {
        unmark(cluster, &node).await?;
    }
    Ok(step)
}

async fn write_cordon(
    cluster: &ApiClient,
    node: &NodeFacts,
    owner: &CordonAnnotation,
    seen: &LastSeen,
) -> Result<Cordoned, Error> {
    let what = format!("cordon node {}", node.name);
    let owner =
        owner.text().map_err(|source| Error::Unaskable { what: what.clone(), source: source.into() })?;
    let body = json!({
        "metadata": { "resourceVersion": node.resource_version, "annotations": { OWNER_ANNOTATION: owner } },
        "spec": { "unschedulable": true },
    });
    let request = api().patch(node.name.as_str(), &signed(), &Patch::Merge(body));
    match cluster.ask::<NodeObject>(&what, request).await {
        Ok(object) => seen.set(facts(&object).ok()),
        // It was carried out, whatever the answer looks like.
        Err(Error::Garbled { .. }) => seen.set(None),
        Err(error) => return Err(error),
    }
    Ok(Cordoned::Written)
}

/// Our node as a watch or a write of ours has shown it last: a write, which names its version, and a watch may begin there.
#[derive(Debug, Clone, Default)]
pub struct LastSeen(Arc<Mutex<Option<NodeFacts>>>);

impl LastSeen {
    pub fn get(&self) -> Option<NodeFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, facts: Option<NodeFacts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = facts;
    }
}

/// Makes the node schedulable again if the cordon is ours, by one patch that removes flag and annotation and
/// names the resource version. An annotation that somebody's uncordon left behind is removed too. What a drain before
/// this boot has recorded of volumes stays for as long as the boot lasts. A lost race is run again at once. Returns whether
/// there was something of ours.
pub async fn uncordon_own(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
    boot: (&str, Mono),
) -> Result<bool, Error> {
    raced(|| uncordon_once(cluster, name, device_uuid, boot)).await
}

async fn uncordon_once(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
    (boot_id, now): (&str, Mono),
) -> Result<bool, Error> {
    let (object, node) = read_whole(cluster, name, device_uuid).await?;
    let ours = match node.cordon {
        CordonOwner::Ours => true,
        CordonOwner::None => node.annotation.is_some(),
        CordonOwner::Foreign => false,
    };
    let of_this_boot = node.annotation.as_ref().is_none_or(|it| it.boot_id == boot_id);
    let record = recorded_volumes(&object).filter(|it| !of_this_boot && it.is_before(boot_id));
    if !ours {
        if node.annotation.is_some() {
            unmark(cluster, &node).await?;
        }
        return Ok(false);
    }
    let body = json!({
        "metadata": {
            "resourceVersion": node.resource_version,
            "annotations": {
                OWNER_ANNOTATION: null,
                VOLUMES_ANNOTATION: record.map(|it| json!(it.opened(boot_id, now)).to_string()),
            },
        },
        "spec": { "unschedulable": null },
    });
    patch(cluster, &format!("uncordon node {name}"), name, body).await.map(|()| true)
}

/// Takes our annotation off a node whose cordon is not ours (any more), by one patch that names the resource
/// version of `node`. Left there, it would make somebody else's next cordon look like ours.
pub async fn unmark(cluster: &ApiClient, node: &NodeFacts) -> Result<(), Error> {
    let body = json!({
        "metadata": {
            "resourceVersion": node.resource_version,
            "annotations": { OWNER_ANNOTATION: null, VOLUMES_ANNOTATION: null },
        },
    });
    patch(cluster, &format!("take our mark off node {}", node.name), &node.name, body).await
}

/// Records on our node which volumes have a copy there, for the gate after the boot.
pub(crate) async fn record_volumes(
    cluster: &ApiClient,
    name: &NodeName,
    before: &VolumesBefore,
) -> Result<(), Error> {
    let body = json!({ "metadata": { "annotations": { VOLUMES_ANNOTATION: json!(before).to_string() } } });
    patch(cluster, &format!("record the volumes of node {name}"), name, body).await
}

/// What is recorded there; a record that cannot be read is none.
pub(crate) fn recorded_volumes(node: &NodeObject) -> Option<VolumesBefore> {
    let text = node.metadata.annotations.as_ref()?.get(VOLUMES_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

pub(crate) async fn patch(
    cluster: &ApiClient,
    what: &str,
    name: &NodeName,
    body: Value,
) -> Result<(), Error> {
    cluster.order(what, api().patch(name.as_str(), &signed(), &Patch::Merge(body))).await
}

/// A patch of the node that changes nothing, as a dry run: whether we may.
pub(crate) async fn rehearse_patch(cluster: &ApiClient, name: &NodeName) -> Result<(), Error> {
    let how = PatchParams { dry_run: true, ..PatchParams::default() };
    let request = api().patch(name.as_str(), &how, &Patch::Merge(json!({})));
    cluster.order(&format!("patch node {name} as a dry run"), request).await
}

/// One node as a thing to follow.
pub(crate) fn scope(name: &NodeName) -> WatchScope {
    WatchScope::one(format!("node {name}"), NodeObject::url_path(None), name.as_str())
}

/// Condition Ready is True.
pub(crate) fn is_ready(node: &NodeObject) -> bool {
    ready_of_node(node).is_some_and(|it| it.status == "True")
}

/// What condition Ready says, or nothing when it is True.
pub(crate) fn not_ready(node: &NodeObject) -> String {
    match ready_of_node(node) {
        None => "it has no condition Ready yet".to_owned(),
        Some(ready) if ready.status == "True" => String::new(),
        Some(ready) => {
            let said = [ready.reason.as_deref(), ready.message.as_deref()];
            let said: Vec<&str> = said.into_iter().flatten().filter(|it| !it.is_empty()).collect();
            format!("Ready is {} {}", ready.status, said.join(": ")).trim_end().to_owned()
        }
    }
}

pub(crate) fn facts(node: &NodeObject) -> Result<NodeFacts, Error> {
    let name = NodeName::parse(node.metadata.name.as_deref().unwrap_or_default())?;
    let spec = node.spec.as_ref();
    let unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(OWNER_ANNOTATION));
    let owner = annotation.and_then(|text| CordonAnnotation::parse(text));
    let tie_breaker = node.metadata.labels.as_ref().and_then(|all| all.get(TIE_BREAKER_LABEL));
    Ok(NodeFacts {
        name,
        ready: is_ready(node),
        silent: if ready_of_node(node).is_some_and(|it| it.status == "Unknown") {
            not_ready(node)
        } else {
            String::new()
        },
        unschedulable,
        cordon: match &owner {
            _ if !unschedulable => CordonOwner::None,
            Some(_) if !written_by_others(node) => CordonOwner::Ours,
            Some(_) | None => CordonOwner::Foreign,
        },
        annotation: owner,
        tie_breaker: tie_breaker.is_some_and(|value| value == "true"),
        resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
    })
}

/// Whether the server remembers that somebody else wrote the flag, or insists on it beside us. Who uncordons and
/// cordons by hand does, while our annotation stays. Where the server remembers nothing, the annotation decides.
/// Source: the Kubernetes page "Server-Side Apply", field management.
fn written_by_others(node: &NodeObject) -> bool {
    let entries = node.metadata.managed_fields.iter().flatten();
    let of_flag = entries.filter(|entry| {
        entry.fields_v1.as_ref().is_some_and(|it| it.0.pointer("/f:spec/f:unschedulable").is_some())
    });
    of_flag.into_iter().any(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER))
}
