//! The lists of the page, each there only if something is in it, and what they are made of.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::nodes::ReachableNode;
use maud::{Markup, html};
use sheet::text::span;
use sheet::{Row, blocker_words, counts_words};
use topics::{DrainRecord, GoTime, KubeNodeInfo, KubeNodeStatus, NodeShown, NodeStatus, PodCounts};

use super::super::metrics::between;
use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;
use super::text::spoken;
use super::{SHOWN, commands, moment};

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
    rows.sort_by_key(|it| it.weight);
    html! {
        dl id="rows" {
            @for row in rows {
                dt { (row.label) }
                dd {
                    (commands(&spoken(&row.text)))
                    @if !row.step.is_empty() { p { b { "Do: " } (commands(&spoken(&row.step))) } }
                }
            }
        }
    }
}

/// The nodes of the cluster.
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
                p.soft id="nodes-as-of" { (all.len()) " nodes " (status.nodes_source) "." }
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
            td { @match says { Some(it) => { (it.text) }, None => { span.soft { "not known" } } } }
        }
    }
}

/// The last drains, folded.
pub(super) fn history(status: &NodeStatus) -> Markup {
    let drains = status.history.as_ref().map(|it| it.drains.as_slice()).unwrap_or_default();
    html! {
        @if !drains.is_empty() {
            details id="history" {
                summary { "Last drains: " (drains.len()) }
                ul { @for it in drains { li { (past(it, status.at)) } } }
            }
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
        history: view.drain.history,
    });
    (status, rows)
}

/// The same in words of this program alone: a person on the way cannot do anything with those of its libraries.
fn in_own_words(mut status: NodeStatus) -> NodeStatus {
    let mut texts = vec![&mut status.headline.text, &mut status.next_step];
    for it in &mut status.pending {
        texts.extend([&mut it.waiting_for, &mut it.next_step, &mut it.skip]);
    }
    if let Some(it) = &mut status.last_look {
        texts.extend([&mut it.held, &mut it.next_step]);
    }
    for it in status.preflight.iter_mut().flat_map(|it| &mut it.findings) {
        texts.extend([&mut it.text, &mut it.next_step]);
    }
    for it in status.history.iter_mut().flat_map(|it| &mut it.drains) {
        texts.push(&mut it.skip);
        texts.extend(it.steps.iter_mut().map(|it| &mut it.text).chain(&mut it.left));
        texts.extend(it.blockers.iter_mut().map(|it| &mut it.reason));
    }
    if let Some(it) = &mut status.progress {
        let gate = &mut it.gate;
        texts.extend([&mut it.skip, &mut it.reason, &mut it.next_step, &mut gate.words, &mut gate.next_step]);
        texts.extend(gate.warnings.iter_mut().flat_map(|it| [&mut it.words, &mut it.next_step]));
        texts.extend(it.blockers.iter_mut().flat_map(|it| [&mut it.reason, &mut it.next_step]));
        texts.extend(it.storage.iter_mut().flat_map(|it| [&mut it.reason, &mut it.next_step]));
        texts.extend(it.machines.iter_mut().map(|it| &mut it.reason));
        texts.extend(it.hooks.iter_mut().chain(&mut it.left));
        texts.extend(it.answers.iter_mut().map(|it| &mut it.skip));
    }
    for text in texts {
        *text = spoken(text);
    }
    status
}
