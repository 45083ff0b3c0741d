//! Taints that an outage leaves on a node.
//!
//! Not here: when they are stale (`gate`). Source: goals R5; the Kubernetes page "Taints and Tolerations", taint
//! based evictions.

use checks::{Finding, nodes};
use k8s_openapi::api::core::v1::Taint;
use kubeapi::slim::NodeObject;
use serde_json::{Value, json};

use crate::node;
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::{NodeName, OUTAGE_TAINTS};
use kubeapi::watch::WatchScope;

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

/// The taints of an outage on `node`, as people read them.
pub(crate) fn of_outage(node: &NodeObject) -> Vec<String> {
    taints(node).filter(|it| is_of_outage(it)).map(text).collect()
}

/// Which taints of our node keep pods away and are not of what it is for, and what a look at the other nodes says of them.
#[derive(Debug, Default)]
pub(crate) struct UnusualTaints {
    known: Vec<String>,
    found: Vec<Finding>,
}

impl UnusualTaints {
    /// What is unusual on `node`. The other nodes are read when its taints are other ones than
    /// before; as long as they cannot be, nothing is.
    pub(crate) async fn of(&mut self, cluster: &ApiClient, node: &NodeObject) -> Vec<Finding> {
        let now: Vec<String> =
            taints(node).filter(|it| nodes::may_be_unusual(&it.key, &it.effect)).map(text).collect();
        if now != self.known {
            self.found.clear();
            if !now.is_empty() {
                let scope = WatchScope::all("nodes", NodeObject::url_path(None));
                let Ok(all) = scope.list_all::<Value>(cluster).await else { return Vec::new() };
                let name = node.metadata.name.as_deref();
                let own = all.items.iter().find(|it| it["metadata"]["name"].as_str() == name);
                let Some(own) = own else { return Vec::new() };
                self.found.extend(nodes::unusual_taints_of(&all.items, own));
            }
            self.known = now;
        }
        self.found.clone()
    }
}

/// Removes the taints of an outage from our node if it is Ready, by one patch that names the version that was read.
/// Returns those removed, as people read them.
/// Errors: as [`node::read`]; a lost race is [`Error::is_conflict`].
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
