//! What page and `/status.json` tell, out of what was read: one value for both.
//!
//! Pure: no clock, no I/O, no task.

use topics::{Blocker, DrainPhase, GoTime, NodeDrainProgress, NodeState, NodeStatus};

use super::super::node_list::Known;
use super::super::view::View;
use super::headline::headline;
use super::nodes;
use super::text::spoken;

/// What a person does who wants to work on a node that is in service.
const TO_WORK: &str =
    "to work on it: `sudo zedbox drain request --reason TEXT` there, and wait for SAFE TO WORK ON";
const TO_KNOW: &str = "look whether zedkube runs: `zedbox drain status` on the node";
const TO_KEEP_OFF: &str = "do not work on the node: it takes pods again";
const TO_KEEP_AWAY: &str = "leave the node alone: it goes down by itself";
const TO_TAKE_CARE: &str =
    "do not work on the node: pods may still run on it; `zedbox drain status` says why";

/// All that is known at `now`.
pub(in crate::server) fn report(view: View, known: Option<&Known>, now: GoTime) -> NodeStatus {
    let headline = headline(&view, now);
    let next_step = next_step(&view, headline.state);
    let (nodes, nodes_source) = nodes::shown(&view, known, now);
    NodeStatus {
        node: view.node,
        at: now,
        headline,
        next_step,
        progress: view.progress.map(without_raw_words),
        preflight: view.preflight,
        pending: view.pending,
        last_look: view.last_look,
        leader: view.leader.map(|it| it.leader_identity).unwrap_or_default(),
        nodes,
        nodes_source,
        history: view.history,
    }
}

/// What to do first.
fn next_step(view: &View, state: NodeState) -> String {
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
        | NodeState::Blocked
        | NodeState::Failed
        | NodeState::Safe
        | NodeState::AfterBoot
        | NodeState::Held
        | NodeState::Leaving => known.map_or("", String::as_str),
    };
    spoken(step)
}

/// The same in words of this program alone: a person on the way cannot do anything with those of its libraries.
fn without_raw_words(mut progress: NodeDrainProgress) -> NodeDrainProgress {
    let blockers =
        progress.blockers.iter_mut().flat_map(|Blocker { reason, next_step, .. }| [reason, next_step]);
    let storage = progress.storage.iter_mut().map(|it| &mut it.reason);
    let machines = progress.machines.iter_mut().map(|it| &mut it.reason);
    let gate = &mut progress.gate;
    let warnings = gate.warnings.iter_mut().map(|it| &mut it.words);
    let own = [&mut progress.skip, &mut progress.reason, &mut progress.next_step, &mut gate.words];
    for text in own.into_iter().chain(blockers).chain(storage).chain(machines).chain(warnings) {
        *text = spoken(text);
    }
    for text in progress.hooks.iter_mut().chain(&mut progress.left) {
        *text = spoken(text);
    }
    for answer in &mut progress.answers {
        answer.skip = spoken(&answer.skip);
    }
    progress
}
