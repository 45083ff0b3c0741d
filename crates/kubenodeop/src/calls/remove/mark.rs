//! What the eviction API writes on a pod before it deletes it: that this is a disruption, and no fault of the pod.
//!
//! A Job whose `podFailurePolicy` passes over disruptions counts a pod without that condition as failed. Not here: the
//! deletion. Source: kubernetes `pkg/registry/core/pod/storage/eviction.go` (`addConditionAndDeletePod`); the
//! Kubernetes page "Disruptions", pod disruption conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde_json::json;

use kubeapi::names::PodRef;
use kubeapi::nodes::signed;
use kubeapi::slim::Pod;
use kubeapi::{ApiClient, Error};

/// Writes the condition `DisruptionTarget` of exactly this pod, by the reason of the eviction API, and returns the pod
/// as it is then; with `dry` only as a dry run. Another pod of this name is a conflict on the UID.
pub(super) async fn mark(cluster: &ApiClient, pod: &PodRef, dry: bool) -> Result<Pod, Error> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "its node is being drained", "lastTransitionTime": Time(Timestamp::now()),
    });
    // By `type`: the other conditions stay as they are.
    let change = json!({ "metadata": { "uid": pod.uid.as_str() }, "status": { "conditions": [condition] } });
    let how = PatchParams { dry_run: dry, ..signed() };
    let pods = Request::new(Pod::url_path(Some(&pod.namespace)));
    let request = pods.patch_subresource("status", &pod.name, &how, &Patch::Strategic(change));
    cluster.ask(&format!("mark pod {pod} as disrupted"), request).await
}
