//! Pods and budgets as the server has them, turned into facts.
//!
//! Not here: what is done with a pod (`plan`). Sources: spec/agents.md 4.4; kubectl's drain filters (a finished
//! pod counts as without `DaemonSet`, a pod of a vanished one leaves when forced).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use kube::api::GetParams;
use kube::core::{ObjectList, Request};
use serde::Deserialize;

use crate::budget::{BudgetFacts, Condition, Holds, Selector};
use crate::client::Cluster;
use crate::error::Error;
use crate::names::{NodeName, PodRef, PodUid};
use crate::plan::{KEPT_APPS_SELECTOR, Owner, PodFacts};
use crate::reply::Reply;
use crate::watch::Scope;

/// Kubernetes puts this on the kubelet's images of static pods.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// What the API server gives a pod that asks for nothing.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// `DaemonSet`s looked up at the same time.
const LOOKUPS: usize = 8;

/// The pods of `node` that a drain may have to do with, `DaemonSet`s looked up. Read from the store, not from a
/// cache.
///
/// # Errors
/// Those of [`Cluster`].
pub async fn list(cluster: &Cluster, node: &NodeName) -> Result<Vec<PodFacts>, Error> {
    let scope = scope(node);
    let pods: ObjectList<Pod> = cluster.ask(&format!("list {}", scope.what), scope.list()).await?;
    let owners: BTreeSet<(String, String)> =
        pods.items.iter().filter_map(daemon_set).map(|(key, _)| key).collect();
    let alive: BTreeMap<(String, String), Option<String>> = stream::iter(owners)
        .map(|key| async move {
            let uid = daemon_set_uid(cluster, &key.0, &key.1).await?;
            Ok::<_, Error>((key, uid))
        })
        .buffer_unordered(LOOKUPS)
        .try_collect()
        .await?;
    Ok(pods.items.iter().map(|pod| looked_up(pod, &alive)).collect())
}

/// The pods of `node` as a thing to follow.
pub(crate) fn scope(node: &NodeName) -> Scope {
    Scope {
        what: format!("pods of node {node}"),
        path: Pod::url_path(&(), None),
        fields: Some(format!("spec.nodeName={node}")),
        labels: Some(KEPT_APPS_SELECTOR.to_owned()),
    }
}

/// The budgets of `namespace` as a thing to follow.
pub(crate) fn budget_scope(namespace: &str) -> Scope {
    Scope {
        what: format!("disruption budgets of namespace {namespace}"),
        path: PodDisruptionBudget::url_path(&(), Some(namespace)),
        fields: None,
        labels: None,
    }
}

/// The UID of a `DaemonSet`, `None` when there is none of this name.
async fn daemon_set_uid(cluster: &Cluster, namespace: &str, name: &str) -> Result<Option<String>, Error> {
    #[derive(Deserialize)]
    struct Known {
        metadata: ObjectMeta,
    }
    let sets = Request::new(DaemonSet::url_path(&(), Some(namespace)));
    let what = format!("read DaemonSet {namespace}/{name}");
    match cluster.ask::<Known>(&what, sets.get(name, &GetParams::default())).await {
        Ok(set) => Ok(set.metadata.uid),
        Err(error) if matches!(error.reply(), Reply::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Namespace and name of the pod's `DaemonSet`, and the UID by which the pod knows it.
fn daemon_set(pod: &Pod) -> Option<((String, String), &str)> {
    let owner = controller(pod).filter(|owner| owner.kind == "DaemonSet")?;
    Some(((pod.metadata.namespace.clone().unwrap_or_default(), owner.name.clone()), &owner.uid))
}

fn looked_up(pod: &Pod, alive: &BTreeMap<(String, String), Option<String>>) -> PodFacts {
    let mut facts = facts(pod);
    if let Some((key, uid)) = daemon_set(pod) {
        let there = alive.get(&key).is_some_and(|found| found.as_deref() == Some(uid));
        facts.owner = if there { Owner::DaemonSet } else { Owner::VanishedDaemonSet };
    }
    facts
}

/// The facts about a pod. Its `DaemonSet` is taken to be there: the next [`list`] looks.
pub(crate) fn facts(pod: &Pod) -> PodFacts {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let grace = meta
        .deletion_grace_period_seconds
        .or_else(|| spec.and_then(|spec| spec.termination_grace_period_seconds))
        .and_then(|secs| u64::try_from(secs).ok())
        .map_or(DEFAULT_GRACE, Duration::from_secs);
    let mirror = meta.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR_ANNOTATION));
    let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    PodFacts {
        pod: pod_ref(pod),
        labels: meta.labels.clone().unwrap_or_default(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        terminating: meta.deletion_timestamp.is_some(),
        grace,
        owner: match controller(pod) {
            _ if mirror => Owner::Kubelet,
            None => Owner::Nobody,
            Some(owner) if owner.kind == "DaemonSet" => Owner::DaemonSet,
            Some(_) => Owner::Other,
        },
        empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
    }
}

/// Name and identity of a pod.
pub(crate) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: PodUid::new(pod.metadata.uid.clone().unwrap_or_default()),
    }
}

/// The facts about a budget.
pub(crate) fn budget_facts(budget: &PodDisruptionBudget) -> BudgetFacts {
    let status = budget.status.as_ref();
    BudgetFacts {
        name: budget.metadata.name.clone().unwrap_or_default(),
        selector: budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(selector),
        allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        healthy: status.and_then(|status| status.current_healthy).unwrap_or(0),
        desired: status.and_then(|status| status.desired_healthy).unwrap_or(0),
        expected: status.and_then(|status| status.expected_pods).unwrap_or(0),
    }
}

fn selector(selector: &LabelSelector) -> Selector {
    let conditions = selector.match_expressions.as_deref().unwrap_or_default();
    Selector {
        labels: selector.match_labels.clone().unwrap_or_default(),
        conditions: conditions
            .iter()
            .map(|condition| Condition {
                key: condition.key.clone(),
                holds: match (condition.operator.as_str(), condition.values.clone().unwrap_or_default()) {
                    ("In", values) => Holds::In(values),
                    ("NotIn", values) => Holds::NotIn(values),
                    ("Exists", _) => Holds::Exists,
                    ("DoesNotExist", _) => Holds::Absent,
                    (other, _) => Holds::Stranger(other.to_owned()),
                },
            })
            .collect(),
    }
}
