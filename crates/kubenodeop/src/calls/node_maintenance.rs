//! NodeMaintenance objects of one node. Source: medik8s/node-maintenance-operator 3a54cd15,
//! `api/v1beta1/nodemaintenance_types.go`.

use kube::api::Patch;
use kube::core::Request;
use kubeapi::nodes::signed;
use kubeapi::objects::{named, text};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, NodeName};
use serde_json::{Value, json};

const PATH: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
/// The Deployment of the operator that serves them, in whatever namespace.
const OPERATOR: &str = "node-maintenance-operator-controller-manager";

/// The oldest one of `node` that was not deleted.
pub async fn oldest(cluster: &ApiClient, node: &NodeName) -> Result<Option<Value>, Error> {
    let all = WatchScope::all("NodeMaintenances", PATH.to_owned());
    let all = all.list_installed::<Value>(cluster).await?.unwrap_or_default();
    let ours =
        |it: &Value| it["spec"]["nodeName"] == node.as_str() && it["metadata"]["deletionTimestamp"].is_null();
    let ours = all.into_iter().filter(ours);
    Ok(ours.min_by_key(|it| (text(&it["metadata"]["creationTimestamp"]), named(it))))
}

/// The Deployment of their own operator, unless it is scaled to nothing.
pub async fn other_operator(cluster: &ApiClient) -> Result<Option<String>, Error> {
    let path = "/apis/apps/v1/deployments".to_owned();
    let all = WatchScope::one("the operator of NodeMaintenances", path, OPERATOR);
    let all = all.list_all::<Value>(cluster).await?.items;
    Ok(all.iter().find(|it| it["spec"]["replicas"] != 0).map(named))
}

/// Errors: those of [`ApiClient::order`].
pub async fn write_status(cluster: &ApiClient, object: &Value, status: &Value) -> Result<(), Error> {
    let (name, body) = (named(object), Patch::Merge(json!({ "status": status })));
    let order = Request::new(PATH).patch_subresource("status", &name, &signed(), &body);
    cluster.order(&format!("write the status of NodeMaintenance {name}"), order).await
}
