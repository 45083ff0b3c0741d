//! The lists of the page, each there only if something is in it. Pure: no clock, no I/O, no task.

use maud::{Markup, html};
use sheet::text::span;
use sheet::{Row, blocker_words, counts_words};
use topics::{DrainRecord, GoTime, NodeShown, NodeStatus, PodCounts};

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
