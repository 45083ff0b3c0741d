//! The lists of the page, each there only if something is in it. Pure: no clock, no I/O, no task.

use maud::{Markup, html};
use sheet::text::span;
use topics::{BootGate, DrainRecord, GoTime, NodeDrainProgress, NodeShown, NodeStatus, PodCounts};

use super::{SHOWN, commands, moment};

/// How far the pods are: a bar, and the same in words.
pub(super) fn bar(counts: PodCounts) -> Markup {
    let PodCounts { total, gone, going, waiting, blocked } = counts;
    let text = [(going, "terminating"), (waiting, "waiting"), (blocked, "blocked")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .fold(format!("{gone} of {total} pods gone"), |text, (count, word)| {
            format!("{text}, {count} {word}")
        });
    html! {
        @if total > 0 {
            div.bar role="img" aria-label=(text) {
                @for (class, count) in [("gone", gone), ("going", going), ("blocked", blocked), ("waiting", waiting)] {
                    @if count > 0 { i.(class) style={ "flex:" (count) } {} }
                }
            }
            p id="pods" { (text) }
        }
    }
}

/// What does not leave, each with what to do about it.
pub(super) fn blockers(progress: &NodeDrainProgress, now: GoTime) -> Markup {
    let items = progress.blockers.iter().map(|it| {
        html! {
            b { (it.pod) } " " span.code { (it.code) }
            @if !it.since.is_zero() { span.soft { ", " (moment(it.since, now)) } }
            p { (commands(it.reason.strip_prefix(&format!("{}: ", it.subject())).unwrap_or(&it.reason))) }
            @if !it.next_step.is_empty() { p { b { "Do: " } (commands(&it.next_step)) } }
        }
    });
    list("Blocked", "blockers", items, progress.blockers_omitted)
}

/// What else there is to this drain.
pub(super) fn others(progress: &NodeDrainProgress) -> Markup {
    let machines = progress.machines.iter().map(|it| {
        html! { b { (it.name) } " " span.code { (it.state) } p { (commands(&it.reason)) } }
    });
    let storage = progress.storage.iter().map(|it| {
        html! { b { (it.volume) } p { (commands(&it.reason)) } @if !it.next_step.is_empty() { p { b { "Do: " } (commands(&it.next_step)) } } }
    });
    let texts = |all: &[String]| all.iter().map(|it| commands(it)).collect::<Vec<_>>().into_iter();
    html! {
        (list("Virtual machines", "machines", machines, progress.machines_omitted))
        (list("Volumes still attached", "volumes", texts(&progress.volumes), progress.volumes_omitted))
        (list("Volumes without a healthy copy elsewhere", "storage", storage, progress.storage_omitted))
        (list("Exceptions by policy", "left", texts(&progress.left), progress.left_omitted))
        (list("Hooks", "hooks", texts(&progress.hooks), 0))
    }
}

/// After a boot: what keeps the node cordoned, and what should be looked at.
pub(super) fn gate(gate: &BootGate, now: GoTime) -> Markup {
    let closed = Some(gate).filter(|it| !it.open && !it.layer.is_empty());
    let item = |(layer, failed, words, next, since): (&str, bool, &str, &str, GoTime)| {
        html! {
            b { (layer) }
            @if failed { " " span.code { "over its time" } }
            @if !since.is_zero() { span.soft { ", " (moment(since, now)) } }
            p { (commands(words)) }
            @if !next.is_empty() { p { b { "Do: " } (commands(next)) } }
        }
    };
    let closed =
        closed.map(|it| (it.layer.as_str(), it.failed, it.words.as_str(), it.next_step.as_str(), it.since));
    let warnings = gate.warnings.iter();
    let warnings =
        warnings.map(|it| (it.layer.as_str(), it.failed, it.words.as_str(), it.next_step.as_str(), it.since));
    let items: Vec<Markup> = closed.into_iter().chain(warnings).map(item).collect();
    list("Health after the boot", "gate", items.into_iter(), 0)
}

/// Operations that wait or are on their way.
pub(super) fn pending(status: &NodeStatus) -> Markup {
    let look = status
        .last_look
        .iter()
        .map(|it| html! { b { (it.op) " held at the last moment" } p { (commands(&it.held)) } });
    let ops = status.pending.iter().map(|it| {
        html! {
            b { (it.op.word()) " " (it.counter) }
            @if !it.since.is_zero() { span.soft { ", wanted " (moment(it.since, status.at)) } }
            @if !it.waiting_for.is_empty() { p { "waits for " (commands(&it.waiting_for)) } }
            @if !it.skip.is_empty() { p { "without a drain: " (it.skip) } }
        }
    });
    let items: Vec<Markup> = look.chain(ops).collect();
    list("Pending operation", "pending", items.into_iter(), 0)
}

/// What the preflight has found and nobody has passed, while a drain is wanted.
pub(super) fn findings(status: &NodeStatus) -> Markup {
    let wanted = status.progress.as_ref().is_some_and(|it| it.status.is_under_way());
    let found = status.preflight.iter().filter(|_| wanted);
    let items: Vec<Markup> = found
        .clone()
        .flat_map(|it| &it.findings)
        .map(|it| {
            html! {
                b { (it.code) } " " span.code { (it.severity) }
                p { (commands(&it.text)) }
                @if !it.passed_by.is_empty() { p.soft { "passed by " (it.passed_by) } }
                @else if !it.next_step.is_empty() { p { b { "Do: " } (commands(&it.next_step)) } }
            }
        })
        .collect();
    let more = found.map(|it| it.left_out).sum();
    list("Preflight findings", "findings", items.into_iter(), more)
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
        @for it in &drain.blockers { p { span.code { (it.code) } " " (it.reason) } }
    }
}

/// A list, if there is anything in it; `omitted` are those that the value has no room for.
fn list(title: &str, id: &str, items: impl ExactSizeIterator<Item = Markup>, omitted: u32) -> Markup {
    let shown = items.len().min(SHOWN);
    let all = items.len().saturating_add(usize::try_from(omitted).unwrap_or(usize::MAX));
    html! {
        @if all > 0 {
            h2 { (title) ": " (all) }
            ul id=(id) { @for item in items.take(SHOWN) { li { (item) } } }
            @if all > shown { p { "and " (all - shown) " more" } }
        }
    }
}
