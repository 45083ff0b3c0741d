//! What page and `/status.json` tell, out of what was read: one value for both.
//!
//! Pure: no clock, no I/O, no task.

use sheet::Row;
use topics::{GoTime, NodeStatus};

use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;
use super::nodes;
use super::text::spoken;

/// All that is known at `now`, and the rows of the sheet.
pub(in crate::server) fn report(
    view: NodeView,
    known: Option<&NodesSnapshot>,
    now: GoTime,
) -> (NodeStatus, Vec<Row>) {
    let judged = view.drain.judge(now);
    let rows = sheet::rows(&view.drain, &judged, now);
    let next_step = view.drain.next_step(&judged, now);
    let (nodes, nodes_source) = nodes::shown(&view, known, now);
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
