//! The cluster on the page: each node with Ready, cordoned, roles and headline.
//!
//! The leader shows its report; another node its last reading, with its age. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::nodes::ReachableNode;
use sheet::text::span;
use topics::{GoTime, KubeNodeInfo, KubeNodeStatus, NodeShown};

use super::super::metrics::between;
use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;

/// Longest wait of the page; then the former nodes are shown.
pub(in crate::server) const WAIT: Duration = Duration::from_millis(500);
/// The statistics' part with nodes.
const PART: &str = "nodes";

/// The nodes with their age; empty where unknown.
pub(super) fn shown(view: &NodeView, known: Option<&NodesSnapshot>, now: GoTime) -> (Vec<NodeShown>, String) {
    let (mut nodes, source) = listed(view, known, now);
    for node in &mut nodes {
        if let Some(word) = known.and_then(|it| it.words.get(&node.name)) {
            node.headline = Some(word.headline.clone());
            node.page = format!("http://{}/", word.at);
        }
    }
    (nodes, source)
}

fn listed(view: &NodeView, known: Option<&NodesSnapshot>, now: GoTime) -> (Vec<NodeShown>, String) {
    if let Some(nodes) = &view.nodes {
        let late = view.stats.iter().flat_map(|it| &it.parts).find(|it| it.name == PART);
        let source = late.map_or_else(
            || "as this node follows them for the cluster's report".to_owned(),
            |part| format!("as they were {} ago: they cannot be read now", span(between(part.since, now))),
        );
        return (nodes.iter().map(reported).collect(), source);
    }
    known.map_or_else(Default::default, |known| {
        let source = format!("as of {} ago", span(between(known.at, now)));
        (known.members.iter().map(read).collect(), source)
    })
}

fn reported(node: &KubeNodeInfo) -> NodeShown {
    let ready = match node.status {
        KubeNodeStatus::Ready => "Ready",
        KubeNodeStatus::NotReady => "not Ready",
        KubeNodeStatus::NotReachable | KubeNodeStatus::Unknown | KubeNodeStatus::Stranger(_) => {
            "not heard of"
        }
    };
    NodeShown {
        name: node.name.clone(),
        ready: ready.to_owned(),
        cordoned: !node.schedulable,
        control_plane: node.is_master,
        etcd: node.uses_etcd,
        ..NodeShown::default()
    }
}

fn read(member: &ReachableNode) -> NodeShown {
    let facts = &member.facts;
    let ready = match facts.ready.as_str() {
        "True" => "Ready",
        "False" => "not Ready",
        _ => "not heard of",
    };
    NodeShown {
        name: member.name.clone(),
        ready: ready.to_owned(),
        cordoned: facts.unschedulable,
        control_plane: facts.control_plane,
        etcd: facts.etcd,
        ..NodeShown::default()
    }
}
