//! Where machines belong: the affinity of their replica sets follows the designated node, on which this runs. Running
//! machines stay where they are.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::{Clock, Error};
use kube::api::{GetParams, Patch};
use kube::core::Request;
use kubeapi::names::APP_NAMESPACE;
use kubeapi::nodes::signed;
use kubeapi::objects::RawObject;
use kubeapi::{ApiClient, OwnNode, found};
use serde_json::{Map, Value, json};
use step::LiteMap;
use tokio::sync::watch;
use topics::Affinity;
use tracing::{info, warn};

use crate::apps::AppRequirements;

/// `None` for an unknown number.
fn wanted(node: &str, how: Affinity) -> Option<Value> {
    let here = json!([{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }]);
    let of = |name: &str, value: Value| Some(json!({ "nodeAffinity": { name: value } }));
    match how {
        Affinity::Preferred => of(
            "preferredDuringSchedulingIgnoredDuringExecution",
            json!([{ "weight": 100, "preference": { "matchExpressions": here } }]),
        ),
        Affinity::Required => of(
            "requiredDuringSchedulingIgnoredDuringExecution",
            json!({ "nodeSelectorTerms": [{ "matchExpressions": here }] }),
        ),
        Affinity::Stranger(_) => None,
    }
}

/// Merge patch from `now` to `wanted`: extra members are null. `None` where they are equal.
fn change(now: &Value, wanted: &Value) -> Option<Value> {
    if now == wanted {
        return None;
    }
    let (Some(old), Some(new)) = (now.as_object(), wanted.as_object()) else { return Some(wanted.clone()) };
    let mut patch = Map::new();
    patch.extend(old.keys().filter(|it| !new.contains_key(*it)).map(|it| (it.clone(), Value::Null)));
    for (name, value) in new {
        if let Some(part) = change(old.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), part);
        }
    }
    Some(Value::Object(patch))
}

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
        let other = |it: &AppRequirements| it.places.clone().unwrap_or_default() != places;
        tokio::select! {
            changed = apps.wait_for(other) => if changed.is_err() { return Ok(()) },
            () = clock.sleep_until(due) => {}
        }
    }
}

/// Writes what differs; returns failures in words.
async fn look(cluster: &ApiClient, node: &str, places: &LiteMap<String, Affinity>) -> BTreeSet<String> {
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
