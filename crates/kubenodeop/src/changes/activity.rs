//! Waiting until something happens on a node that was drained.
//!
//! Not here: what it means. A person or a scheduler may have undone the drain, so whoever waits looks again. It
//! watches and never polls. Source: goals P8.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt};
use tracing::debug;

use super::streams;
use crate::engine::Event;
use crate::node::cordon::Cordon;
use crate::plan::{PodClass, PodFacts};
use kubeapi::ApiClient;
use kubeapi::names::{NodeName, PodUid};
use kubeapi::watch::jitter_seed;

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
    cordon: Option<Cordon>,
    pods: Option<BTreeSet<PodUid>>,
}

impl NodeBefore {
    fn activity(&mut self, name: &NodeName, fact: Event) -> Option<String> {
        match fact {
            Event::Node(now) => {
                let before = self.cordon.get_or_insert_with(|| now.cordon.clone());
                (*before != now.cordon).then(|| format!("the cordon of node {name} is another one"))
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
            | Event::Surged { .. }
            | Event::Inspected { .. }
            | Event::Volumes(_)
            | Event::Storage(_)
            | Event::CopyAsked { .. }
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

    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use kubeapi::mock::{self, AfterLines, MockReply, RecordedCall};
    use kubeapi::names::OWNER_ANNOTATION;

    fn pod(name: &str, owner: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "6",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o",
                    "controller": true}]},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running"},
        })
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
    async fn said(there: Vec<Value>, nodes: Vec<Value>, pods: Vec<Value>) -> Option<String> {
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
        assert_eq!(said(vec![], vec![node(false, true, "6")], vec![]).await, cordon);
        assert_eq!(said(vec![], vec![node(true, false, "6")], vec![]).await, cordon);
        let come = Some("pod shop/web-1 has come".to_owned());
        assert_eq!(said(vec![], vec![], vec![pod("web-1", "ReplicaSet")]).await, come);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_what_stays_in_a_drain_and_heartbeats_stir_nothing() {
        let there = vec![pod("late-0", "ReplicaSet")];
        let again = vec![pod("late-0", "ReplicaSet"), pod("agent", "DaemonSet")];
        assert_eq!(said(there, vec![node(true, true, "6"), node(true, true, "7")], again).await, None);
    }
}
