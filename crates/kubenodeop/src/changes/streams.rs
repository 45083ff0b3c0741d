//! What a drain, or a pause between two attempts, hears of the cluster, as events of the engine.
//!
//! Not here: calls (`drain`), how a watch survives (`watch`). No stream ends; dropping one closes its connection.

use std::collections::BTreeSet;

use futures::stream::{BoxStream, StreamExt};
use kubeapi::slim::NodeObject;
use serde::{Deserialize, Deserializer};

use crate::calls::volumes::ClaimName;
use crate::engine::{CallFailure, Event};
use crate::plan::PodFacts;
use crate::plan::budget::BudgetFacts;
use crate::{calls::budgets, calls::pods, calls::volumes, node, storage};
use kubeapi::ApiClient;
use kubeapi::names::NodeName;
use kubeapi::nodes::NO_NODE;
use kubeapi::reply::Reply;
use kubeapi::slim::{Pod, PodDisruptionBudget};
use kubeapi::watch::{Manner, ObjectMirror, Update, follow_from};
use step::LiteMap;

/// A pod of which nothing but the facts is kept: of a list of thousands no two whole objects are in memory at the
/// same time.
#[derive(Debug, Clone)]
struct PodItem {
    facts: PodFacts,
}

impl<'de> Deserialize<'de> for PodItem {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(from)?;
        Ok(Self { facts: pods::facts(&pod) })
    }
}

/// The pods of `node`, listed first where they were not read at the version `from`.
pub(crate) fn pod_events(
    cluster: &ApiClient,
    node: &NodeName,
    from: Option<String>,
    seed: u64,
) -> BoxStream<'static, Event> {
    follow_from::<PodItem>(cluster.clone(), pods::scope(node), Manner { from, ..Manner::default() }, seed)
        .map(|heard| match heard {
            Update::Listed(all) => Event::Pods(all.into_iter().map(|pod| pod.facts).collect()),
            Update::Put(pod) => Event::Pod(pod.facts),
            Update::Gone(pod) => Event::PodGone(pod.facts.pod.uid),
            Update::Trouble(error) => Event::Trouble(error.into()),
        })
        .boxed()
}

/// The same of its Node object.
pub(crate) fn node_events(
    cluster: &ApiClient,
    node: &NodeName,
    from: Option<String>,
    seed: u64,
) -> BoxStream<'static, Event> {
    let name = node.clone();
    follow_from::<NodeObject>(cluster.clone(), node::scope(&name), Manner { from, ..Manner::default() }, seed)
        .filter_map(move |heard| {
            let is_own = |it: &NodeObject| it.metadata.name.as_deref() == Some(name.as_str());
            let event = match heard.one(is_own) {
                Ok(Some(node)) => node::facts(&node).ok().map(Event::Node),
                Ok(None) => Some(Event::NodeGone(gone(&name))),
                Err(error) => Some(Event::Trouble(error.into())),
            };
            std::future::ready(event)
        })
        .boxed()
}

/// The object of our node was deleted.
pub(crate) fn gone(name: &NodeName) -> CallFailure {
    let text = format!("there is no Node object {name} any more: somebody has deleted it");
    CallFailure { reply: Reply::NotFound { text: text.clone() }, text, next_step: NO_NODE.to_owned() }
}

/// The budgets of `namespace`, always all of them.
pub(crate) fn budget_events(cluster: &ApiClient, namespace: String, seed: u64) -> BoxStream<'static, Event> {
    let keep =
        |it: PodDisruptionBudget| (it.metadata.name.clone().unwrap_or_default(), Some(budgets::facts(&it)));
    let scope = budgets::scope(&namespace);
    ObjectMirror::open(cluster, scope, Manner::default(), seed, keep)
        .changes(move |known: &LiteMap<_, BudgetFacts>| Event::Budgets {
            namespace: namespace.clone(),
            budgets: known.values().cloned().collect(),
        })
        .map(|heard| heard.unwrap_or_else(|error| Event::Trouble(error.into())))
        .boxed()
}

/// The attachments to `node` of the volumes of `claims`.
pub(crate) fn volume_events(
    cluster: &ApiClient,
    node: &NodeName,
    claims: BTreeSet<ClaimName>,
    seed: u64,
) -> BoxStream<'static, Event> {
    volumes::attachments(cluster.clone(), node.clone(), claims, seed)
        .map(|heard| heard.map_or_else(|error| Event::Trouble(error.into()), Event::Volumes))
        .boxed()
}

/// The storage as far as it matters to `node`.
pub(crate) fn storage_events(cluster: &ApiClient, node: &NodeName, seed: u64) -> BoxStream<'static, Event> {
    let looks = storage::follow_looks(cluster.clone(), node.clone(), seed);
    looks.map(|seen| Event::Storage(seen.map_err(Into::into))).boxed()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_pod_only_its_facts_are_kept() {
        let pod = json!({
            "metadata": {
                "namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"},
                "annotations": {"long": "x".repeat(1000)}, "managedFields": [{"manager": "m"}],
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running"},
        });
        let seen: PodItem = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(seen.facts, pods::facts(&serde_json::from_value(pod).unwrap()));
    }
}
