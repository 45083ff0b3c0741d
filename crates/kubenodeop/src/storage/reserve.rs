//! Room on the disks of our node that Longhorn leaves to others, as the config wants it.
//!
//! Longhorn makes its object of a node again with 30 % reserved when the node rejoins: it is compared again and again, and
//! written only where it differs. Not here: when (zedkube). Source: spec/eve-rest.md 3.9.

use kube::api::{GetParams, Patch};
use kube::core::Request;
use kubeapi::names::NodeName;
use kubeapi::nodes::signed;
use kubeapi::slim::longhorn::{StorageNode, path};
use kubeapi::{ApiClient, Error, found};
use serde_json::{Map, Value, json};

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
