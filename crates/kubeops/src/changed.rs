//! Waiting until something that held an attempt up has changed.
//!
//! Not here: which change counts (`watched`), what follows from it. Source: goals D16. It watches and never
//! polls; the list that opens each watch tells of changes that came before it.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use tracing::debug;

use crate::budget::BudgetFacts;
use crate::client::Cluster;
use crate::names::NodeName;
use crate::watch::{Heard, Object, Scope, follow};
use crate::watched::Watched;
use crate::{node, pods, volumes};

/// Ends when something in `watched` has changed for the better, also before the call, and says what, as
/// `budget shop/web now allows 1`. Without a change it never ends; trouble with the server is got over. Dropping
/// the future closes its watches and loses nothing: the next call sees the same.
pub async fn until_changed(cluster: &Cluster, node: &NodeName, watched: &Watched) -> String {
    let mut changes: SelectAll<BoxStream<'_, String>> = SelectAll::new();
    if !watched.pods.is_empty() {
        let told = heard::<Pod>(cluster, pods::scope(node)).filter_map(|heard| {
            std::future::ready(match heard {
                Heard::Listed(all) => watched.pods_now(&all.iter().map(pods::facts).collect::<Vec<_>>()),
                Heard::Put(pod) => watched.pod_now(&pods::facts(&pod)),
                Heard::Gone(pod) => watched.pod_gone(&pods::pod_ref(&pod).uid),
                Heard::Trouble(_) => None,
            })
        });
        changes.push(told.boxed());
    }
    for namespace in watched.budgets.keys() {
        changes.push(budgets(cluster, namespace, watched));
    }
    if watched.node.is_some() {
        let told = heard::<Node>(cluster, node::scope(node)).filter_map(move |heard| {
            let now = match heard {
                Heard::Listed(all) => {
                    all.into_iter().find(|it| it.metadata.name.as_deref() == Some(node.as_str()))
                }
                Heard::Put(node) => Some(node),
                Heard::Gone(_) | Heard::Trouble(_) => None,
            };
            let facts = now.and_then(|node| node::facts(&node).ok());
            std::future::ready(facts.and_then(|facts| watched.node_now(&facts)))
        });
        changes.push(told.boxed());
    }
    if !watched.volumes.is_empty() {
        let told = heard::<VolumeAttachment>(cluster, volumes::scope()).filter_map(|heard| {
            let name = |it: &VolumeAttachment| it.metadata.name.clone().unwrap_or_default();
            std::future::ready(match heard {
                Heard::Listed(all) => {
                    let names: Vec<String> = all.iter().map(name).collect();
                    watched.volumes_now(&names.iter().map(String::as_str).collect::<Vec<_>>())
                }
                Heard::Gone(one) => watched.volume_gone(&name(&one)),
                Heard::Put(_) | Heard::Trouble(_) => None,
            })
        });
        changes.push(told.boxed());
    }
    // With nothing to watch this waits for ever, as promised.
    changes.push(stream::pending().boxed());
    match changes.next().await {
        Some(what) => what,
        None => std::future::pending().await,
    }
}

fn budgets<'a>(cluster: &Cluster, namespace: &'a str, watched: &'a Watched) -> BoxStream<'a, String> {
    let known: BTreeMap<String, BudgetFacts> = BTreeMap::new();
    heard::<PodDisruptionBudget>(cluster, pods::budget_scope(namespace))
        .scan(known, move |known, heard| {
            match heard {
                Heard::Listed(all) => {
                    *known = all.iter().map(pods::budget_facts).map(|it| (it.name.clone(), it)).collect();
                }
                Heard::Put(budget) => {
                    let facts = pods::budget_facts(&budget);
                    known.insert(facts.name.clone(), facts);
                }
                Heard::Gone(budget) => {
                    known.remove(budget.metadata.name.as_deref().unwrap_or_default());
                }
                Heard::Trouble(_) => return std::future::ready(Some(None)),
            }
            let now: Vec<BudgetFacts> = known.values().cloned().collect();
            std::future::ready(Some(watched.budgets_now(namespace, &now)))
        })
        .filter_map(std::future::ready)
        .boxed()
}

/// What is heard of a scope; trouble is logged too.
pub(crate) fn heard<K: Object>(cluster: &Cluster, scope: Scope) -> BoxStream<'static, Heard<K>> {
    let what = scope.what.clone();
    follow::<K>(cluster.clone(), scope, RandomState::new().hash_one("jitter"))
        .inspect(move |heard| {
            if let Heard::Trouble(error) = heard {
                debug!(scope = what, error = error.line(), "trouble while waiting for a change");
            }
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::mock::{self, Answer, Call, Then};
    use crate::plan::PodFacts;
    use crate::plan::tests::pod;
    use crate::watched::NodeMark;

    fn pod_object(name: &str, version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
                "resourceVersion": version, "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running"},
        })
    }

    fn budget(allowed: i32, healthy: i32, version: &str) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": version},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3},
        })
    }

    fn node_object(ready: &str, version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "resourceVersion": version},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{
                "type": "Ready", "status": ready, "lastHeartbeatTime": format!("2025-01-01T00:00:0{version}Z"),
            }]},
        })
    }

    fn attachment(name: &str, version: &str) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": name, "resourceVersion": version},
            "spec": {"attacher": "driver", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
        })
    }

    fn watched() -> Watched {
        let known = pods::budget_facts(&serde_json::from_value(budget(0, 2, "1")).unwrap());
        Watched {
            budgets: [("shop".to_owned(), vec![known])].into(),
            node: Some(NodeMark { unschedulable: true, ready: false }),
            volumes: [("va-1".to_owned(), "shop/data (pv pv-1)".to_owned())].into(),
            ..Watched::default()
        }
        .with_pods(&[pod("a")] as &[PodFacts])
    }

    /// A server where each kind answers with a list and then with its lines.
    fn server(kind: &'static str, listed: Option<Value>, lines: Vec<String>) -> Cluster {
        mock::server(move |call: &Call| {
            let (of, initial) = [
                ("/pods?", pod_object("a", "1")),
                ("/poddisruptionbudgets?", budget(0, 2, "1")),
                ("/nodes?", node_object("False", "1")),
                ("/volumeattachments?", attachment("va-1", "1")),
            ]
            .into_iter()
            .find(|(of, _)| call.line.contains(of))
            .unwrap();
            let this = of.contains(kind);
            if call.line.contains("watch=true") {
                Answer::Lines(if this { lines.clone() } else { vec![] }, Then::Silence)
            } else {
                let first = listed.clone().filter(|_| this).unwrap_or(initial);
                let items = if first.is_null() { vec![] } else { vec![first] };
                mock::list("5", &items)
            }
        })
        .0
    }

    async fn said(cluster: &Cluster) -> Option<String> {
        let node = NodeName::parse("n1").unwrap();
        timeout(Duration::from_secs(2), until_changed(cluster, &node, &watched())).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn d16_a_change_wakes_within_two_seconds_also_one_from_before() {
        let mut ending = pod_object("a", "6");
        ending["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
        let null = Value::Null;
        let gone = |it: Value| mock::event("DELETED", &it);
        let put = |it: &Value| mock::event("MODIFIED", it);
        let table = [
            ("pods", ending.clone(), put(&ending), "pod shop/a is ending now"),
            ("pods", null.clone(), gone(pod_object("a", "6")), "pod shop/a is gone"),
            ("budgets", budget(1, 3, "6"), put(&budget(1, 3, "6")), "budget shop/web now allows 1"),
            ("budgets", null.clone(), gone(budget(0, 2, "6")), "budget shop/web is gone"),
            ("nodes", node_object("True", "6"), put(&node_object("True", "6")), "node n1 is Ready again"),
            ("volume", null, gone(attachment("va-1", "6")), "volume shop/data (pv pv-1) is detached"),
        ];
        for (kind, before, line, expected) in table {
            assert_eq!(said(&server(kind, Some(before), vec![])).await.as_deref(), Some(expected), "before");
            assert_eq!(said(&server(kind, None, vec![line])).await.as_deref(), Some(expected), "after");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d16_what_is_only_in_flux_wakes_nobody() {
        let table = [
            ("pods", mock::event("MODIFIED", &pod_object("a", "6"))),
            ("pods", mock::event("ADDED", &pod_object("new", "6"))),
            ("pods", mock::event("DELETED", &pod_object("other", "6"))),
            ("budgets", mock::event("MODIFIED", &budget(0, 1, "6"))),
            ("nodes", mock::event("MODIFIED", &node_object("False", "6"))),
            ("volume", mock::event("MODIFIED", &attachment("va-1", "6"))),
            ("volume", mock::event("DELETED", &attachment("va-2", "6"))),
        ];
        for (kind, line) in table {
            assert_eq!(said(&server(kind, None, vec![line.clone()])).await, None, "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d16_nothing_to_watch_asks_for_nothing_and_never_ends_and_trouble_is_got_over() {
        let node = NodeName::parse("n1").unwrap();
        let (cluster, calls) = mock::cluster(vec![]);
        let nothing = Watched::default();
        let day = Duration::from_secs(86400);
        assert!(timeout(day, until_changed(&cluster, &node, &nothing)).await.is_err());
        assert!(calls.lines().is_empty());

        let only_pods = Watched::default().with_pods(&[pod("a")]);
        let (cluster, calls) =
            mock::cluster(vec![mock::status(503, ""), Answer::Refused("refused"), mock::list("5", &[])]);
        assert_eq!(until_changed(&cluster, &node, &only_pods).await, "pod shop/a is gone");
        assert_eq!(calls.lines().len(), 3);
    }
}
