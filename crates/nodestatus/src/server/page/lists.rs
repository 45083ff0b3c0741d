//! The lists of the page, each there only if something is in it, and what they are made of.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::nodes::ReachableNode;
use maud::{Markup, html};
use serde_json::Value;
use sheet::text::{span, spoken};
use sheet::{Row, RowWeight, blocker_words, counts_words};
use step::SmallSort as _;
use topics::{
    DrainRecord, GoTime, Headline, KubeNodeInfo, KubeNodeStatus, NodeShown, NodeState, NodeStatus, PodCounts,
    go_json, number,
};

use super::super::metrics::between;
use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;
use super::{SHOWN, commands, moment, step};

/// How far the pods are.
pub(super) fn bar(counts: PodCounts) -> Markup {
    let PodCounts { total, gone, going, waiting, blocked } = counts;
    html! {
        @if total > 0 {
            div.bar role="img" aria-label=(counts_words(counts)) {
                @for (class, count) in [("gone", gone), ("going", going), ("blocked", blocked), ("waiting", waiting)] {
                    @if count > 0 { i.(class) style={ "flex:" (count) } {} }
                }
            }
        }
    }
}

/// The rows of the sheet, the weightiest first, each with what to do about it.
pub(super) fn rows(rows: &[Row]) -> Markup {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.order_by_key(|it| it.weight);
    html! {
        dl id="rows" {
            @for row in rows {
                dt.(weight(row)) { (row.label) }
                dd {
                    (commands(&spoken(&row.text)))
                    @if !row.step.is_empty() { p { b { "Do: " } (step(&spoken(&row.step))) } }
                }
            }
        }
    }
}

/// How a row looks: what blocks, what holds up, and the rest.
const fn weight(row: &Row) -> &'static str {
    match row.weight {
        RowWeight::Essential => "blocks",
        RowWeight::Cause => "holds",
        RowWeight::Course | RowWeight::Detail => "rest",
    }
}

pub(super) fn cluster(status: &NodeStatus) -> Markup {
    let all = &status.nodes;
    let known = !all.is_empty() || !status.leader.is_empty();
    html! {
        @if known {
            h2 { "Cluster" }
            @if !status.leader.is_empty() {
                p.soft { "reported by " span id="leader" { (status.leader) @if status.leader == status.node { " (this node)" } } }
            }
            @if all.is_empty() { p { "The nodes are not known yet." } } @else {
                table id="nodes" {
                    thead { tr { th { "Node" } th { "State" } th { "Drain" } } }
                    tbody { @for node in all.iter().take(SHOWN) { (node_row(node, status)) } }
                }
                @if all.len() > SHOWN { p { "and " (all.len() - SHOWN) " more" } }
                p.soft id="nodes-as-of" { (number(all.len(), "node")) " " (status.nodes_source) "." }
            }
        }
    }
}

fn node_row(node: &NodeShown, status: &NodeStatus) -> Markup {
    let own = node.name == status.node;
    let says = if own { Some(&status.headline) } else { node.headline.as_ref() };
    let roles = match (node.control_plane, node.etcd) {
        (true, true) => "control plane, etcd",
        (true, false) => "control plane",
        (false, true) => "etcd",
        (false, false) => "worker",
    };
    html! {
        tr {
            td { @if own { (node.name) " (this node)" } @else if node.page.is_empty() { (node.name) } @else { a href=(node.page) { (node.name) } } }
            td {
                @if node.ready == "Ready" { (node.ready) } @else { span.code { (node.ready) } }
                @if node.cordoned { ", " span.code { "cordoned" } }
                ", " (roles)
            }
            td {
                @match says {
                    Some(it) => { (it.text) },
                    None if node.page.is_empty() => { span.soft { "asking \u{2026}" } },
                    None => { span.code { "no answer" } },
                }
            }
        }
    }
}

/// The versions of what runs here.
pub(super) fn versions(status: &NodeStatus) -> String {
    let kubelet = status.nodes.iter().find(|it| it.name == status.node).map_or("", |it| &it.kubelet);
    let all = [("", status.os.as_str()), ("Kubernetes ", kubelet), ("zedbox ", &status.program)];
    let known = all.into_iter().filter(|(_, version)| !version.is_empty());
    known.map(|(of, version)| format!("{of}{version}")).collect::<Vec<_>>().join(" \u{b7} ")
}

/// The last drains, folded: a link unfolds them, as the page cannot keep more than its address when it refreshes.
pub(super) fn history(status: &NodeStatus, open: bool) -> Markup {
    let drains = status.history.as_ref().map(|it| it.drains.as_slice()).unwrap_or_default();
    html! {
        @if !drains.is_empty() {
            h2 id="history" {
                "Last drains: " (drains.len()) " "
                @if open { a href="/" { "fold" } } @else { a href="/?open#history" { "unfold" } }
            }
            @if open { ul { @for it in drains { li { (past(it, status.at)) } } } }
        }
    }
}

fn past(drain: &DrainRecord, now: GoTime) -> Markup {
    let end = match (drain.is_open(), drain.skip.is_empty(), drain.status.is_final()) {
        (true, ..) => "continues",
        (_, false, _) => "WITHOUT A PROVED DRAIN",
        (_, _, true) if drain.status.is_failure() => "NOT DRAINED",
        (_, _, true) => "drained",
        (_, _, false) => "ended early",
    };
    html! {
        b { (drain.context) ": " (end) } span.soft { ", " (moment(drain.started_at, now)) }
        @if drain.seconds > 0 { span.soft { ", took " (span(drain.seconds)) } }
        @if drain.counts.total > 0 { span.soft { ", " (drain.counts.gone) " of " (drain.counts.total) " pods gone" } }
        @if !drain.skip.is_empty() { p { (drain.skip) } }
        @for it in &drain.blockers { p { (blocker_words(it)) } }
    }
}

/// Longest wait of the page; then the former nodes are shown.
pub(in crate::server) const WAIT: Duration = Duration::from_millis(500);
/// The statistics' part with nodes.
const PART: &str = "nodes";
/// The kubelet of a node does not report.
const SILENT: &str = "kubelet silent";

/// The nodes with their age; empty where unknown.
pub(super) fn shown(view: &NodeView, known: Option<&NodesSnapshot>, now: GoTime) -> (Vec<NodeShown>, String) {
    let (mut nodes, source) = listed(view, known, now);
    for node in &mut nodes {
        if let Some(word) = known.and_then(|it| it.words.get(&node.name)) {
            node.headline.clone_from(&word.headline);
            node.page = format!("http://{}/", word.at);
        } else if node.name != view.node
            && known
                .is_some_and(|it| it.members.iter().any(|it| it.name == node.name && it.addresses.is_empty()))
        {
            node.headline =
                Some(Headline::new(NodeState::Unknown, "it has no address at which it could be asked"));
        }
    }
    (nodes, source)
}

fn listed(view: &NodeView, known: Option<&NodesSnapshot>, now: GoTime) -> (Vec<NodeShown>, String) {
    if let Some(nodes) = &view.nodes {
        let late = view.stats.iter().flat_map(|it| &it.parts).find(|it| it.name == PART);
        let source = late.map_or_else(
            || "as seen by this node, which reports for the cluster".to_owned(),
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
        KubeNodeStatus::NotReachable | KubeNodeStatus::Unknown | KubeNodeStatus::Stranger(_) => SILENT,
    };
    let kubelet = node.kubelet_version.clone();
    NodeShown {
        kubelet,
        ..node_shown(&node.name, ready, !node.schedulable, (node.is_master, node.uses_etcd))
    }
}

fn read(member: &ReachableNode) -> NodeShown {
    let facts = &member.facts;
    let ready = match facts.ready.as_str() {
        "True" => "Ready",
        "False" => "not Ready",
        _ => SILENT,
    };
    let kubelet = facts.kubelet.clone();
    let roles = (facts.control_plane, facts.etcd);
    NodeShown { kubelet, ..node_shown(&member.name, ready, facts.unschedulable, roles) }
}

fn node_shown(name: &str, ready: &str, cordoned: bool, (control_plane, etcd): (bool, bool)) -> NodeShown {
    let (name, ready) = (name.to_owned(), ready.to_owned());
    NodeShown { name, ready, cordoned, control_plane, etcd, ..NodeShown::default() }
}

/// All that is known at `now`, and the rows of the sheet.
pub(in crate::server) fn report(
    view: NodeView,
    known: Option<&NodesSnapshot>,
    now: GoTime,
) -> (NodeStatus, Vec<Row>) {
    let judged = view.drain.judge(now);
    let rows = sheet::rows(&view.drain, &judged, now);
    let next_step = view.drain.next_step(&judged, now);
    let (nodes, nodes_source) = shown(&view, known, now);
    let status = in_own_words(NodeStatus {
        node: view.node,
        at: now,
        headline: judged.headline,
        next_step,
        progress: view.drain.progress,
        preflight: view.drain.preflight,
        pending: view.drain.pending.into_values().collect(),
        last_look: view.drain.last_look,
        leader: view.leader.map(|it| it.leader_identity).unwrap_or_default(),
        nodes,
        nodes_source,
        os: view.os,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        history: view.drain.history,
    });
    (status, rows)
}

/// The same in words of this program alone: a person on the way cannot do anything with those of its libraries.
fn in_own_words(status: NodeStatus) -> NodeStatus {
    fn each(value: &mut Value) {
        match value {
            Value::String(text) => *text = spoken(text),
            Value::Array(all) => all.iter_mut().for_each(each),
            Value::Object(all) => all.values_mut().for_each(each),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    // By way of a text: a form of its own would be all of this code once more.
    let own = || -> Option<NodeStatus> {
        let mut value: Value = serde_json::from_slice(&go_json::to_vec(&status).ok()?).ok()?;
        each(&mut value);
        go_json::from_slice(&serde_json::to_vec(&value).ok()?).ok()
    };
    own().unwrap_or(status)
}
