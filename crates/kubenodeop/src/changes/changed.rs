//! Waiting until something that held an attempt up has changed, or until something happens on a node that was drained.
//!
//! Not here: which change counts (`watched`), what follows from it: a person or a scheduler may have undone the drain,
//! so whoever waits looks again. It watches and does not poll; the list that opens each watch tells of changes that
//! came before it. Only the end of a refusal cannot be watched (`refused`).

use std::collections::BTreeSet;

use futures::stream;
use futures::stream::{BoxStream, SelectAll, StreamExt};
use kubeapi::ApiClient;
use kubeapi::names::{NodeName, PodUid};
use kubeapi::nodes::CordonAnnotation;
use kubeapi::slim::VolumeAttachment;
use kubeapi::watch::{Update, follow, jitter_seed};
use topics::CordonOwner;
use tracing::debug;

use super::streams;
use crate::calls::{refused, volumes};
use crate::changes::watched::WatchedBlockers;
use crate::engine::Event;
use crate::plan::{PodClass, PodFacts};
use crate::storage::StorageView;

/// Ends when something in `watched` has changed for the better, also before the call, and says what, as
/// `budget shop/web now allows 1`. Without a change it never ends; trouble with the server is got over. Dropping
/// the future closes its watches and loses nothing: the next call sees the same.
pub async fn until_changed(cluster: &ApiClient, node: &NodeName, watched: &WatchedBlockers) -> String {
    let mut facts: SelectAll<BoxStream<'static, Event>> = SelectAll::new();
    if !watched.pods.is_empty() {
        facts.push(streams::pod_events(cluster, node, None, jitter_seed()));
    }
    for namespace in watched.budgets.keys() {
        facts.push(streams::budget_events(cluster, namespace.clone(), jitter_seed()));
    }
    if watched.node.is_some() {
        facts.push(streams::node_events(cluster, node, None, jitter_seed()));
    }
    if !watched.last_copies.is_empty() || watched.storage_unknown {
        facts.push(streams::storage_events(cluster, node, jitter_seed()));
    }
    let mut changes: SelectAll<BoxStream<'_, String>> = SelectAll::new();
    changes.push(facts.filter_map(|fact| std::future::ready(change(watched, &fact))).boxed());
    if !watched.volumes.is_empty() {
        let heard = follow::<VolumeAttachment>(cluster.clone(), volumes::scope(), jitter_seed());
        changes.push(heard.filter_map(|heard| std::future::ready(detached(watched, &heard))).boxed());
    }
    if let Some(machines) = &watched.machines {
        changes.push(stream::once(machines.until_changed(cluster, node)).boxed());
    }
    if !watched.refused.is_empty() {
        changes.push(stream::once(refused::until_accepted(cluster, node, &watched.refused)).boxed());
    }
    // With nothing to watch this waits for ever, as promised.
    changes.push(stream::pending().boxed());
    match changes.next().await {
        Some(what) => what,
        None => std::future::pending().await,
    }
}

/// What `fact` changes in what is watched.
fn change(watched: &WatchedBlockers, fact: &Event) -> Option<String> {
    match fact {
        Event::Pods(all) => watched.pods_now(all),
        Event::Pod(facts) => watched.pod_now(facts),
        Event::PodGone(uid) => watched.pod_gone(uid),
        Event::Budgets { namespace, budgets } => watched.budgets_now(namespace, budgets),
        Event::Node(facts) => watched.node_now(facts),
        Event::Storage(Ok(Some(look))) => watched.storage_now(look),
        // Without that storage there is no last copy any more.
        Event::Storage(Ok(None)) => watched.storage_now(&StorageView::default()),
        Event::Trouble(failure) | Event::Storage(Err(failure)) => {
            debug!(error = failure.text, "trouble while waiting for a change");
            None
        }
        // Answers to calls, which nobody makes here.
        Event::Looked { .. }
        | Event::Evicted { .. }
        | Event::Unrequested { .. }
        | Event::Surged { .. }
        | Event::Inspected { .. }
        | Event::Volumes(_)
        | Event::CopyAsked { .. }
        | Event::Machines(_)
        | Event::MachinesChanged(_)
        | Event::MachineAnswered { .. }
        | Event::Containers(_)
        | Event::Cordoned(_)
        | Event::NodeGone(_)
        | Event::Tick => None,
    }
}

fn detached(watched: &WatchedBlockers, heard: &Update<VolumeAttachment>) -> Option<String> {
    fn name(it: &VolumeAttachment) -> &str {
        it.metadata.name.as_deref().unwrap_or_default()
    }
    match heard {
        Update::Listed(all) => watched.volumes_now(&all.iter().map(name).collect::<Vec<_>>()),
        Update::Gone(one) => watched.volume_gone(name(one)),
        Update::Put(_) => None,
        Update::Trouble(error) => {
            debug!(error = error.line(), "trouble while waiting for a change");
            None
        }
    }
}

/// Ends when the cordon of `node` is not what it was at the time of the call, or when a pod is there that would have
/// to leave and was not there then, and says what, as `pod shop/web-1 has come`. Without that it never ends; trouble
/// with the server is got over. Dropping the future closes its watches and loses nothing that a look does not show.
pub async fn until_activity(cluster: &ApiClient, node: &NodeName) -> String {
    let mut before = NodeBefore::default();
    let nodes = streams::node_events(cluster, node, None, jitter_seed());
    let mut facts = stream::select(nodes, streams::pod_events(cluster, node, None, jitter_seed()));
    while let Some(fact) = facts.next().await {
        if let Some(what) = before.activity(node, fact) {
            return what;
        }
    }
    std::future::pending().await
}

/// The node as it was when it was first heard of.
#[derive(Debug, Default)]
struct NodeBefore {
    cordon: Option<(CordonOwner, Option<CordonAnnotation>)>,
    pods: Option<BTreeSet<PodUid>>,
}

impl NodeBefore {
    fn activity(&mut self, name: &NodeName, fact: Event) -> Option<String> {
        match fact {
            Event::Node(now) => {
                let cordon = (now.cordon, now.annotation.filter(|_| now.cordon == CordonOwner::Ours));
                let before = self.cordon.get_or_insert_with(|| cordon.clone());
                (*before != cordon).then(|| format!("the cordon of node {name} is another one"))
            }
            Event::Pods(all) => self.come(all),
            Event::Pod(one) => self.come(vec![one]),
            Event::Trouble(failure) => {
                debug!(error = failure.text, "trouble while watching the drained node");
                None
            }
            // A pod that leaves undoes no drain, and nobody makes calls here.
            Event::PodGone(_)
            | Event::Budgets { .. }
            | Event::Looked { .. }
            | Event::Evicted { .. }
            | Event::Unrequested { .. }
            | Event::Surged { .. }
            | Event::Inspected { .. }
            | Event::Volumes(_)
            | Event::Storage(_)
            | Event::CopyAsked { .. }
            | Event::Machines(_)
            | Event::MachinesChanged(_)
            | Event::MachineAnswered { .. }
            | Event::Containers(_)
            | Event::Cordoned(_)
            | Event::NodeGone(_)
            | Event::Tick => None,
        }
    }

    fn come(&mut self, here: Vec<PodFacts>) -> Option<String> {
        let leaves = here.into_iter().filter(|it| it.class() == PodClass::Leave);
        let Some(known) = &self.pods else {
            self.pods = Some(leaves.map(|it| it.pod.uid).collect());
            return None;
        };
        let mut come = leaves.filter(|it| !known.contains(&it.pod.uid));
        come.next().map(|it| format!("pod {} has come", it.pod))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubeapi::mock;
    use kubeapi::mock::{AfterLines, MockReply, RecordedCall};
    use kubeapi::names::OWNER_ANNOTATION;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::calls::budgets;
    use crate::changes::watched::NodeMark;
    use crate::plan::PodFacts;
    use crate::plan::tier::tests::pod;

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

    fn watched() -> WatchedBlockers {
        let known = budgets::facts(&serde_json::from_value(budget(0, 2, "1")).unwrap());
        WatchedBlockers {
            budgets: [("shop".to_owned(), vec![known])].into_iter().collect(),
            node: Some(NodeMark { unschedulable: Some(true), ready: false }),
            volumes: [("va-1".to_owned(), "shop/data (pv pv-1)".to_owned())].into(),
            ..WatchedBlockers::default()
        }
        .with_pods(&[pod("a")] as &[PodFacts])
    }

    /// A server where each kind answers with a list and then with its lines.
    fn server(kind: &'static str, listed: Option<Value>, lines: Vec<String>) -> ApiClient {
        mock::server(move |call: &RecordedCall| {
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
                MockReply::Lines(if this { lines.clone() } else { vec![] }, AfterLines::Silence)
            } else {
                let first = listed.clone().filter(|_| this).unwrap_or(initial);
                let items = if first.is_null() { vec![] } else { vec![first] };
                mock::list("5", &items)
            }
        })
        .0
    }

    async fn said(cluster: &ApiClient) -> Option<String> {
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
        let nothing = WatchedBlockers::default();
        let day = Duration::from_secs(86400);
        assert!(timeout(day, until_changed(&cluster, &node, &nothing)).await.is_err());
        assert!(calls.lines().is_empty());

        let only_pods = WatchedBlockers::default().with_pods(&[pod("a")]);
        let (cluster, calls) =
            mock::cluster(vec![mock::status(503, ""), MockReply::Refused("refused"), mock::list("5", &[])]);
        assert_eq!(until_changed(&cluster, &node, &only_pods).await, "pod shop/a is gone");
        assert_eq!(calls.lines().len(), 3);
    }

    fn owned_pod(name: &str, owner: &str) -> Value {
        let mut pod = pod_object(name, "6");
        let owner =
            json!({"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true});
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod
    }

    fn node(unschedulable: bool, marked: bool, heartbeat: &str) -> Value {
        let owner = r#"{"bootId":"b1","requestedBy":2,"requestedAt":"t"}"#;
        let marks = if marked { json!({ OWNER_ANNOTATION: owner }) } else { json!({}) };
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "resourceVersion": heartbeat, "annotations": marks},
            "spec": {"unschedulable": unschedulable},
        })
    }

    /// What is said when the watches bring these lines after lists with `there` and our cordon.
    async fn activity_of(there: Vec<Value>, nodes: Vec<Value>, pods: Vec<Value>) -> Option<String> {
        let (cluster, _) = mock::server(move |call: &RecordedCall| {
            let line = &call.line;
            let events = |all: &[Value]| {
                let lines = all.iter().map(|it| mock::event("MODIFIED", it)).collect();
                MockReply::Lines(lines, AfterLines::Silence)
            };
            match (line.contains("/nodes"), line.contains("watch=true")) {
                (true, false) => mock::list("5", &[node(true, true, "5")]),
                (true, true) => events(&nodes),
                (false, false) => mock::list("5", &there),
                (false, true) => events(&pods),
            }
        });
        let node = NodeName::parse("n1").unwrap();
        timeout(Duration::from_secs(20), until_activity(&cluster, &node)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn p8_an_uncordon_and_a_pod_that_would_have_to_leave_stir() {
        let cordon = Some("the cordon of node n1 is another one".to_owned());
        assert_eq!(activity_of(vec![], vec![node(false, true, "6")], vec![]).await, cordon);
        assert_eq!(activity_of(vec![], vec![node(true, false, "6")], vec![]).await, cordon);
        let come = Some("pod shop/web-1 has come".to_owned());
        assert_eq!(activity_of(vec![], vec![], vec![owned_pod("web-1", "ReplicaSet")]).await, come);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_what_stays_in_a_drain_and_heartbeats_stir_nothing() {
        let there = vec![owned_pod("late-0", "ReplicaSet")];
        let again = vec![owned_pod("late-0", "ReplicaSet"), owned_pod("agent", "DaemonSet")];
        assert_eq!(activity_of(there, vec![node(true, true, "6"), node(true, true, "7")], again).await, None);
    }
}
