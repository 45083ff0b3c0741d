//! Replicas of Longhorn's volumes: how many are on a node, and whether one is the last healthy one of its volume.
//!
//! Not here: the state of volumes that the leader reports (`stats`). Source: the API type replicas.longhorn.io/v1beta2.

use std::collections::BTreeSet;

use serde::Deserialize;

use kubeapi::Cluster;
use kubeapi::Error;
use kubeapi::found;
use kubeapi::names::{NodeName, longhorn};
use kubeapi::watch::Scope;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Replica {
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "nodeID")]
    node: String,
    volume_name: String,
    /// When it was whole for the first time, or empty.
    healthy_at: String,
    /// When it failed, or empty.
    failed_at: String,
}

/// How many replicas are on `node`.
pub(crate) async fn count(cluster: &Cluster, node: &NodeName) -> Result<usize, Error> {
    Ok(list(cluster).await?.iter().filter(|it| it.spec.node == node.as_str()).count())
}

/// A volume whose last healthy replica is on `node`, by name.
///
/// # Errors
/// Those of [`Cluster`]. A cluster without Longhorn has no replicas.
pub async fn last_of_volume(cluster: &Cluster, node: &NodeName) -> Result<Option<String>, Error> {
    Ok(last(&list(cluster).await?, node))
}

async fn list(cluster: &Cluster) -> Result<Vec<Replica>, Error> {
    let scope = Scope::all("replicas.longhorn.io", longhorn("replicas"));
    Ok(found(scope.list_all::<Replica>(cluster).await)?.map(|it| it.items).unwrap_or_default())
}

/// A replica here counts unless it has failed; one elsewhere only once it was whole.
fn last(replicas: &[Replica], node: &NodeName) -> Option<String> {
    let good = |it: &&Replica| it.spec.failed_at.is_empty();
    let (here, elsewhere): (Vec<&Replica>, Vec<&Replica>) =
        replicas.iter().filter(good).partition(|it| it.spec.node == node.as_str());
    let safe: BTreeSet<&str> = elsewhere
        .iter()
        .filter(|it| !it.spec.healthy_at.is_empty() && !it.spec.node.is_empty())
        .map(|it| it.spec.volume_name.as_str())
        .collect();
    here.iter()
        .map(|it| it.spec.volume_name.as_str())
        .filter(|it| !safe.contains(it))
        .min()
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(volume: &str, node: &str, healthy_at: &str, failed_at: &str) -> Replica {
        let own = str::to_owned;
        let spec = Spec {
            node: own(node),
            volume_name: own(volume),
            healthy_at: own(healthy_at),
            failed_at: own(failed_at),
        };
        Replica { spec }
    }

    #[test]
    fn a_volume_is_named_when_no_other_node_has_a_healthy_replica_of_it() {
        const AT: &str = "2026-03-14T09:00:00Z";
        let here = |healthy: &str, failed: &str| replica("pvc-1", "n1", healthy, failed);
        let there = |healthy: &str, failed: &str| replica("pvc-1", "n2", healthy, failed);
        let table = [
            (vec![], None),
            (vec![here(AT, "")], Some("pvc-1")),
            (vec![here("", "")], Some("pvc-1")),
            (vec![here(AT, AT)], None),
            (vec![there(AT, "")], None),
            (vec![here(AT, ""), there(AT, "")], None),
            (vec![here(AT, ""), there(AT, AT)], Some("pvc-1")),
            (vec![here(AT, ""), there("", "")], Some("pvc-1")),
            (vec![here(AT, ""), replica("pvc-1", "", AT, "")], Some("pvc-1")),
            (vec![here(AT, ""), there(AT, ""), replica("pvc-2", "n1", AT, "")], Some("pvc-2")),
            (vec![here(AT, ""), replica("pvc-2", "n2", AT, "")], Some("pvc-1")),
        ];
        for (replicas, expected) in table {
            let found = last(&replicas, &NodeName::parse("n1").unwrap());
            assert_eq!(found.as_deref(), expected, "{replicas:?}");
        }
    }
}
