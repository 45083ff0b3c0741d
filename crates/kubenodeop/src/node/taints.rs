//! Taints that an outage leaves on a node.
//!
//! Not here: when they are stale (`gate`). Source: goals R5; the Kubernetes page "Taints and Tolerations", taint
//! based evictions.

use k8s_openapi::api::core::v1::Taint;
use kubeapi::slim::NodeObject;
use serde_json::json;

use crate::node;
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::{NodeName, OUTAGE_TAINTS};

/// Of [`OUTAGE_TAINTS`]. No other key or effect is ever touched.
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

fn is_of_outage(taint: &Taint) -> bool {
    OUTAGE_TAINTS.contains(&taint.key.as_str()) && EFFECTS.contains(&taint.effect.as_str())
}

/// A taint as `node.kubernetes.io/unreachable:NoExecute`.
fn text(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn taints(node: &NodeObject) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

/// The taints of an outage on `node`, in words.
pub(crate) fn of_outage(node: &NodeObject) -> Vec<String> {
    taints(node).filter(|it| is_of_outage(it)).map(text).collect()
}

/// Removes the taints of an outage from our node if it is Ready, by one patch that names the version that was read.
/// Returns those removed, in words.
///
/// # Errors
/// As [`node::read`]; a lost race is [`Error::is_conflict`].
pub async fn remove_stale(
    cluster: &ApiClient,
    name: &NodeName,
    device_uuid: &str,
) -> Result<Vec<String>, Error> {
    let (object, facts) = node::read_whole(cluster, name, device_uuid).await?;
    let (stale, kept): (Vec<&Taint>, Vec<&Taint>) = taints(&object).partition(|it| is_of_outage(it));
    if stale.is_empty() || !facts.ready {
        return Ok(Vec::new());
    }
    let kept = if kept.is_empty() { json!(null) } else { json!(kept) };
    let body = json!({
        "metadata": { "resourceVersion": facts.resource_version },
        "spec": { "taints": kept },
    });
    node::patch(cluster, &format!("remove stale taints of node {name}"), name, body).await?;
    Ok(stale.into_iter().map(text).collect())
}
