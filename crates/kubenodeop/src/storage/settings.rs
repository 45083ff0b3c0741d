//! Longhorn's policy for drained nodes and its recurring snapshot, as the config wants them.
//!
//! Both are of the whole cluster. They are compared again and again, as Longhorn may be installed again and people change
//! them, and written only where they differ (D-V26). Not here: when, and who writes (zedkube). Source: spec/eve-rest.md
//! 3.9, spec/agents.md 4.13.

use kube::api::{DeleteParams, GetParams, Patch, PostParams, Preconditions};
use kube::core::Request;
use kubeapi::names::STORAGE_NAMESPACE;
use kubeapi::nodes::{FIELD_MANAGER, signed};
use kubeapi::objects::{Meta, RawObject};
use kubeapi::slim::longhorn::path;
use kubeapi::{ApiClient, Error, found};
use serde::Deserialize;
use serde_json::json;

const POLICY: &str = "node-drain-policy";
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

/// Has Longhorn follow `policy` on drained nodes.
/// Errors: those of [`ApiClient`]; a lost race is [`Error::is_conflict`].
pub async fn keep_drain_policy(cluster: &ApiClient, policy: &str) -> Result<SettingWrite, Error> {
    let request = || Request::new(path("settings"));
    let read = request().get(POLICY, &GetParams::default());
    let now =
        found(cluster.ask::<LonghornSetting>(&format!("read Longhorn's setting {POLICY}"), read).await)?;
    let Some(now) = now else { return Ok(SettingWrite::Absent) };
    if now.value == policy {
        return Ok(SettingWrite::Equal);
    }
    let body = json!({ "metadata": { "resourceVersion": now.metadata.resource_version }, "value": policy });
    let what = format!("write Longhorn's setting {POLICY}");
    cluster.order(&what, request().patch(POLICY, &signed(), &Patch::Merge(body))).await?;
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
    let differs = |(name, value): (&String, &serde_json::Value)| now.spec[name] != *value;
    if !spec.as_object().is_some_and(|it| it.iter().any(differs)) {
        return Ok(SettingWrite::Equal);
    }
    let body = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
    let what = format!("change Longhorn's recurring job {JOB}");
    cluster.order(&what, request().patch(JOB, &signed(), &Patch::Merge(body))).await?;
    Ok(SettingWrite::Written)
}
