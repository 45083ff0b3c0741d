//! One machine in a stage: what is kept of it from look to look, and what of it holds the drain up.
//!
//! Not here: what is done when (`stage`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::names::PodRef;
use kubeapi::reply::Reply;
use step::Mono;

use super::rules::{Action, Decision, FLAPPING, Fate};
use super::{Migratable, VirtualMachine};
use crate::progress::{AttemptBlocker, BlockCode, Subject};

/// A machine that is paused or resumed more often in so long is not migrated.
const FLIPS: usize = 3;
const FLIPS_WITHIN: Duration = Duration::from_secs(600);

/// What is kept of one machine.
#[derive(Debug)]
pub(super) struct MachineTrack {
    pub(super) guest: PodRef,
    /// What it is in whose time limits are counted, and since when.
    pub(super) key: (String, String),
    pub(super) since: Mono,
    pub(super) decision: Decision,
    pub(super) fate: Fate,
    /// How long its copy is estimated to take, and whether it has begun.
    pub(super) copy: Option<Duration>,
    pub(super) copies: bool,
    /// Since when it is paused, and when it was paused or resumed in the last minutes.
    pub(super) paused: Option<String>,
    pub(super) flips: Vec<Mono>,
    /// Since when it has been in that state.
    pub(super) state_since: Mono,
    pub(super) busy: bool,
    /// Its claims, where nothing but its volumes keeps it up.
    pub(super) kept: Vec<String>,
    /// Calls that failed in a row, and when the next one is.
    pub(super) tries: u32,
    pub(super) not_before: Mono,
    /// The last call, and how it was refused.
    pub(super) last: Option<Action>,
    pub(super) refusal: Option<Reply>,
}

/// When a machine was paused or resumed in the last minutes, as far as it was seen.
pub(super) fn flips(now: Mono, old: Option<&MachineTrack>, machine: &VirtualMachine) -> Vec<Mono> {
    let Some(old) = old else { return Vec::new() };
    let count = match (&old.paused, &machine.paused) {
        (before, after) if before == after => 0,
        // Resumed and paused again between two looks.
        (Some(_), Some(_)) => 2,
        (None, _) | (_, None) => 1,
    };
    let recent = old.flips.iter().copied().filter(|at| now.since(*at) <= FLIPS_WITHIN);
    recent.chain(std::iter::repeat_n(now, count)).collect()
}

/// One that is paused and resumed too often is not migratable.
pub(super) fn flapping(machine: &VirtualMachine, flips: &[Mono]) -> VirtualMachine {
    let mut machine = machine.clone();
    if flips.len() > FLIPS {
        let text =
            format!("it was paused and resumed {} times within {} s", flips.len(), FLIPS_WITHIN.as_secs());
        machine.migratable = Migratable::No(FLAPPING.to_owned(), text);
    }
    machine
}

/// In what a machine is while its limits are counted.
pub(super) fn key(machine: &VirtualMachine) -> (String, String) {
    match &machine.migration {
        Some(it) => (it.object.uid.to_string(), it.phase.clone()),
        None => (
            format!("{} {}", machine.marked, machine.failed.len()),
            format!("{:?} {}", machine.migratable, machine.lacks_room),
        ),
    }
}

pub(super) fn blocker(it: &MachineTrack) -> Option<AttemptBlocker> {
    let tries = it.tries;
    let subject = Subject::Machine(it.guest.clone());
    let named = |code, reason: String, since| Some(AttemptBlocker { subject, code, reason, since });
    let text = format!("virtual machine {} {}", it.guest, it.decision.text);
    if let Some(refusal) = &it.refusal {
        // Up to KubeVirt 1.4 the budget refuses each eviction: only where no mark follows does it hold anything up.
        let is_usual = |it: &BlockCode| *it == BlockCode::Budget && tries < 2;
        let code = Some(BlockCode::of(refusal)).filter(|it| *it != BlockCode::Moving && !is_usual(it))?;
        return named(code, format!("{text}; {}", refusal.text()), it.state_since);
    }
    it.decision.code.and_then(|code| named(code, text, it.state_since))
}
