//! Keeps the affinity of replica sets. Not here: what it is (`affinity`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::{Clock, Error};
use kube::api::{GetParams, Patch};
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::signed;
use kubeapi::objects::RawObject;
use kubeapi::{ApiClient, OwnNode, found};
use serde_json::json;
use tokio::sync::watch;
use topics::Affinity;
use tracing::{info, warn};

use super::affinity::{change, wanted};
use crate::apps::AppRequirements;

/// Between two looks: the set comes later than the config, and others write its template.
const LOOK: Duration = Duration::from_mins(1);

/// Keeps it until the sender of `wanted` is gone. Makes no call without machines of this designated node.
/// Failed calls are retried. Dropping it loses nothing.
pub async fn run(
    cluster: ApiClient,
    clock: Clock,
    own_node: OwnNode,
    mut apps: watch::Receiver<AppRequirements>,
) -> Result<(), Error> {
    let (node, _) = own_node.known().await;
    let mut said = BTreeSet::new();
    loop {
        let places = apps.borrow_and_update().places.clone().unwrap_or_default();
        let now = look(&cluster, node.as_str(), &places).await;
        for line in now.difference(&said) {
            warn!("affinity of machines: {line}");
        }
        said = now;
        let due = (!places.is_empty()).then(|| clock.now() + LOOK);
        loop {
            tokio::select! {
                changed = apps.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    if apps.borrow_and_update().places.clone().unwrap_or_default() == places {
                        continue;
                    }
                }
                () = clock.sleep_until(due), if due.is_some() => {}
            }
            break;
        }
    }
}

/// Writes what differs; returns failures in words.
async fn look(cluster: &ApiClient, node: &str, places: &BTreeMap<String, Affinity>) -> BTreeSet<String> {
    let mut failed = BTreeSet::new();
    for (set, how) in places {
        if let Err(error) = keep(cluster, node, set, *how).await
            && !error.is_conflict()
        {
            failed.insert(error.advice());
        }
    }
    failed
}

async fn keep(cluster: &ApiClient, node: &str, set: &str, how: Affinity) -> Result<(), kubeapi::Error> {
    let Some(wanted) = wanted(node, how) else { return Ok(()) };
    let path = format!("/apis/kubevirt.io/v1/namespaces/{APP_NAMESPACE}/virtualmachineinstancereplicasets");
    let read = Request::new(path.as_str()).get(set, &GetParams::default());
    let what = format!("read replica set {APP_NAMESPACE}/{set}");
    let Some(now) = found(cluster.ask::<RawObject>(&what, read).await)? else { return Ok(()) };
    let Some(change) = change(&now.spec["template"]["spec"]["affinity"], &wanted) else { return Ok(()) };
    let body = json!({
        "metadata": { "resourceVersion": now.metadata.resource_version },
        "spec": { "template": { "spec": { "affinity": change } } },
    });
    let what = format!("change the affinity of replica set {APP_NAMESPACE}/{set}");
    cluster.order(&what, Request::new(path).patch(set, &signed(), &Patch::Merge(body))).await?;
    info!(set, node, affinity = how.number(), "changed the affinity of machines");
    Ok(())
}
