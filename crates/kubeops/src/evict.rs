//! The eviction call: name *and* UID, and an answer that is a value.
//!
//! Not here: when to call, what follows from the answer. Sources: goals D1; the Kubernetes page "API-initiated
//! Eviction". Not `kube::Api::evict`: it writes `delete_options` where the API reads `deleteOptions`, so the
//! server drops the UID without a word.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;

use crate::client::Cluster;
use crate::names::PodRef;
use crate::reply::Reply;

/// Evicts exactly this pod, with its own grace period. Dropping the future leaves open whether the server has
/// carried it out.
pub async fn evict(cluster: &Cluster, pod: &PodRef) -> Reply {
    match cluster.order(&format!("evict pod {pod}"), request(pod)).await {
        Ok(()) => Reply::Done,
        Err(error) => error.reply(),
    }
}

fn request(pod: &PodRef) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let exactly_this = Preconditions { uid: Some(pod.uid.to_string()), resource_version: None };
    let order = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions { preconditions: Some(exactly_this), ..DeleteOptions::default() }),
    };
    let body = serde_json::to_vec(&order).map_err(kube::core::request::Error::SerializeBody)?;
    Request::new(Pod::url_path(&(), Some(&pod.namespace))).create_subresource(
        "eviction",
        &pod.name,
        &PostParams::default(),
        body,
    )
}
