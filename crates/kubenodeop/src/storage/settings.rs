//! Longhorn's policy for drained nodes, its recurring snapshot and the room on the disks of our node that it leaves to
//! others, as the config wants them.
//!
//! They are compared again and again, as Longhorn may be installed again, makes its object of a node again with 30 %
//! reserved when the node rejoins, and people change them; written only where they differ (D-V26). Not here: when, and
//! who writes (zedkube).

use kube::api::{DeleteParams, GetParams, Patch, PostParams, Preconditions};
use kube::core::Request;
use kubeapi::names::{NodeName, STORAGE_NAMESPACE};
use kubeapi::nodes::{FIELD_MANAGER, signed};
use kubeapi::objects::{Meta, RawObject};
use kubeapi::slim::longhorn::{StorageNode, path};
use kubeapi::{ApiClient, Error, found};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const JOB: &str = "default-eve-kube-app-snapshot";

/// What a look has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingWrite {
    /// Longhorn is not there, or not so far.
    Absent,
    Equal,
    /// It was another one, and was written.
    Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LonghornSetting {
    metadata: Meta,
    value: String,
}

/// Keeps Longhorn's setting `name`, as `node-drain-policy`, at `value`.
/// Errors: those of [`ApiClient`]; a lost race is [`Error::is_conflict`].
pub async fn keep_setting(cluster: &ApiClient, name: &str, value: &str) -> Result<SettingWrite, Error> {
    let request = || Request::new(path("settings"));
    let read = request().get(name, &GetParams::default());
    let now = found(cluster.ask::<LonghornSetting>(&format!("read Longhorn's setting {name}"), read).await)?;
    let Some(now) = now else { return Ok(SettingWrite::Absent) };
    if now.value == value {
        return Ok(SettingWrite::Equal);
    }
    let body = json!({ "metadata": { "resourceVersion": now.metadata.resource_version }, "value": value });
    let what = format!("write Longhorn's setting {name}");
    cluster.order(&what, request().patch(name, &signed(), &Patch::Merge(body))).await?;
    Ok(SettingWrite::Written)
}

/// Has Longhorn make a snapshot of its volumes by `cron`, and keep three; with an empty one the job is deleted.
/// Errors: those of [`ApiClient`]; a lost race is [`Error::is_conflict`].
pub async fn keep_snapshot_job(cluster: &ApiClient, cron: &str) -> Result<SettingWrite, Error> {
    let request = || Request::new(path("recurringjobs"));
    let read = request().get(JOB, &GetParams::default());
    let now = match cluster.ask::<RawObject>(&format!("read Longhorn's recurring job {JOB}"), read).await {
        Err(error) if error.is_unknown_kind() => return Ok(SettingWrite::Absent),
        now => found(now)?,
    };
    let spec =
        json!({ "task": "snapshot", "groups": ["default"], "cron": cron, "retain": 3, "concurrency": 1 });
    let Some(now) = now else {
        if cron.is_empty() {
            return Ok(SettingWrite::Equal);
        }
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "RecurringJob",
            "metadata": { "name": JOB, "namespace": STORAGE_NAMESPACE }, "spec": spec,
        });
        let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let what = format!("create Longhorn's recurring job {JOB}");
        let create = request().create(&how, object.to_string().into_bytes());
        // Not found: the namespace is not there, or the kind.
        return Ok(match found(cluster.order(&what, create).await)? {
            Some(()) => SettingWrite::Written,
            None => SettingWrite::Absent,
        });
    };
    let version = now.metadata.resource_version;
    if cron.is_empty() {
        let exactly = Preconditions { resource_version: version, uid: None };
        let how = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        cluster.order(&format!("delete Longhorn's recurring job {JOB}"), request().delete(JOB, &how)).await?;
        return Ok(SettingWrite::Written);
    }
    let differs = |(name, value): (&String, &Value)| now.spec[name] != *value;
    if !spec.as_object().is_some_and(|it| it.iter().any(differs)) {
        return Ok(SettingWrite::Equal);
    }
    let body = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
    let what = format!("change Longhorn's recurring job {JOB}");
    cluster.order(&what, request().patch(JOB, &signed(), &Patch::Merge(body))).await?;
    Ok(SettingWrite::Written)
}

/// Has `bytes` reserved on each disk of our node: which disks had another reserve. `None` where Longhorn does not know the
/// node, or is not there.
/// Errors: those of [`ApiClient`]; a lost race is [`Error::is_conflict`].
pub async fn reserve(cluster: &ApiClient, node: &NodeName, bytes: i64) -> Result<Option<Vec<String>>, Error> {
    let request = || Request::new(path("nodes"));
    let read = request().get(node.as_str(), &GetParams::default());
    let now = found(cluster.ask::<StorageNode>(&format!("read the disks of node {node}"), read).await)?;
    let Some(now) = now else { return Ok(None) };
    let other = now.spec.disks.iter().filter(|(_, disk)| disk.storage_reserved != bytes);
    let other: Vec<String> = other.map(|(name, _)| name.clone()).collect();
    if other.is_empty() {
        return Ok(Some(other));
    }
    let disks: Map<String, Value> =
        other.iter().map(|name| (name.clone(), json!({ "storageReserved": bytes }))).collect();
    let body = json!({
        "metadata": { "resourceVersion": now.metadata.resource_version },
        "spec": { "disks": disks },
    });
    let what = format!("reserve room on the disks of node {node}");
    cluster.order(&what, request().patch(node.as_str(), &signed(), &Patch::Merge(body))).await?;
    Ok(Some(other))
}
