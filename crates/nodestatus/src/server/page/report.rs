//! What page and `/status.json` tell, out of what was read: one value for both.
//!
//! Pure: no clock, no I/O, no task.

use topics::{DrainPhase, GoTime, NodeDrainProgress, NodeState, NodeStatus};

use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;
use super::headline::headline;
use super::nodes;
use super::text::spoken;

/// What a person does who wants to work on a node that is in service.
const TO_WORK: &str =
    "to work on it: `sudo zedbox drain request --reason TEXT` there, and wait for SAFE TO WORK ON";
const TO_KNOW: &str = "check that zedkube runs: `zedbox drain status` on the node";
const TO_KEEP_OFF: &str = "do not work on the node: it takes pods again";
const TO_KEEP_AWAY: &str = "leave the node alone: it goes down by itself";
const TO_TAKE_CARE: &str =
    "do not work on the node: pods may still run on it; `zedbox drain status` says why";

/// All that is known at `now`.
pub(in crate::server) fn report(view: NodeView, known: Option<&NodesSnapshot>, now: GoTime) -> NodeStatus {
    let headline = headline(&view, now);
    let next_step = next_step(&view, headline.state);
    let (nodes, nodes_source) = nodes::shown(&view, known, now);
    in_own_words(NodeStatus {
        node: view.node,
        at: now,
        headline,
        next_step,
        progress: view.progress,
        preflight: view.preflight,
        pending: view.pending,
        last_look: view.last_look,
        leader: view.leader.map(|it| it.leader_identity).unwrap_or_default(),
        nodes,
        nodes_source,
        history: view.history,
    })
}

/// What to do first.
fn next_step(view: &NodeView, state: NodeState) -> String {
    // What zedkube says after its COMPLETE is only for whoever may work on the node now (K7).
    let is_over = |it: &&NodeDrainProgress| it.phase == DrainPhase::Complete && state != NodeState::Safe;
    let steps = [
        view.trouble.as_ref().map(|it| &it.next_step),
        view.last_look.as_ref().map(|it| &it.next_step),
        view.progress.as_ref().filter(|it| !is_over(it)).map(|it| &it.next_step),
        view.pending.first().map(|it| &it.next_step),
    ];
    let known = steps
        .into_iter()
        .flatten()
        .find(|it| !it.is_empty() && !it.starts_with("nothing") && !it.starts_with("see run/"));
    let step = match state {
        NodeState::Unknown => TO_KNOW,
        NodeState::InService => known.map_or(TO_WORK, String::as_str),
        NodeState::Withdrawn => known.map_or(TO_KEEP_OFF, String::as_str),
        NodeState::Drained => known.map_or(TO_KEEP_AWAY, String::as_str),
        NodeState::Unproved => known.map_or(TO_TAKE_CARE, String::as_str),
        NodeState::NoCluster
        | NodeState::Cordoned
        | NodeState::Requested
        | NodeState::UnderWay
        | NodeState::WaitingForTurn
        | NodeState::WaitingForWindow
        | NodeState::Paused
        | NodeState::Blocked
        | NodeState::Failed
        | NodeState::Safe
        | NodeState::AfterBoot
        | NodeState::WholeSite
        | NodeState::Leaving => known.map_or("", String::as_str),
    };
    step.to_owned()
}

/// The same in words of this program alone: a person on the way cannot do anything with those of its libraries.
fn in_own_words(mut status: NodeStatus) -> NodeStatus {
    let mut texts = vec![&mut status.next_step];
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
