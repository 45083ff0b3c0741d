//! What a drain would do with the virtual machines of a node, by the rules of the drain itself.
//!
//! Not here: reading them (`survey`), pods (`forecast`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use crate::machines::rules::{DrainIdentity, decide};
use crate::machines::{MachinesView, Migratable, MigrationSettings, VirtualMachine, limits};
use crate::node::cordon::NodeFacts;
use crate::plan::held::Foreseen;
use crate::progress::{MachineState, Subject};

/// One virtual machine in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMachine {
    /// As `shop/db`.
    pub name: String,
    /// Its eviction strategy, in KubeVirt's word.
    pub strategy: &'static str,
    /// Empty when KubeVirt can migrate it, else its reason and its sentence.
    pub not_migratable: String,
    /// What becomes of it where it cannot be migrated.
    pub policy: &'static str,
    /// A node that can take it, or empty.
    pub target: String,
    /// What the drain would do with it, and why.
    pub fate: String,
}

/// What a drain would do with each machine, which ones hold it up, and how long those that migrate are estimated to take.
pub(super) fn foreseen(
    node: &NodeFacts,
    view: &MachinesView,
) -> (Vec<PlannedMachine>, Vec<Foreseen>, Vec<String>) {
    let drain = DrainIdentity { node: node.name.to_string(), request: String::new() };
    let (mut held, mut copies) = (Vec::new(), Vec::new());
    let planned = |it: &VirtualMachine| {
        // The others have left by then.
        let alone = it.crowded.clone().filter(|_| it.target.is_ok());
        let alone = alone.map(|why| VirtualMachine { target: Err(why), ..it.clone() });
        let found = decide(&drain, alone.as_ref().unwrap_or(it), Duration::ZERO, view.running);
        if let Some(code) = found.code {
            let reason = format!("virtual machine {} {}", it.guest, found.text);
            held.push(Foreseen { subject: Subject::Machine(it.guest.clone()), code, reason });
        }
        if matches!(found.state, MachineState::Waiting | MachineState::Asked | MachineState::Moving) {
            copies.push(limits::estimate(it));
        }
        PlannedMachine {
            name: it.guest.to_string(),
            strategy: it.strategy.text(),
            not_migratable: match &it.migratable {
                Migratable::Yes => String::new(),
                Migratable::No(reason, text) => format!("{reason}: {text}"),
                Migratable::Unknown => "KubeVirt has not reported yet".to_owned(),
            },
            policy: it.policy.text(),
            target: it.target.clone().unwrap_or_default(),
            fate: if found.left.is_empty() { found.text } else { found.left },
        }
    };
    let mut all: Vec<PlannedMachine> = view.machines.iter().map(planned).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let mut words: Vec<String> = estimate(&view.settings, &copies).into_iter().collect();
    // Of a node without machines nothing is told.
    words.extend(view.unusual.iter().filter(|_| !all.is_empty()).cloned());
    (all, held, words)
}

/// For all that migrate; none of them, no sentence.
fn estimate(settings: &MigrationSettings, copies: &[Option<Duration>]) -> Option<String> {
    let known: Vec<Duration> = copies.iter().copied().flatten().collect();
    let places = settings.at_once.min(settings.from_node);
    let what = format!("{} virtual machines migrate, at most {places} at the same time", copies.len());
    if copies.is_empty() {
        None
    } else if known.len() < copies.len() {
        Some(format!("{what}; no estimate, as their bandwidth has no limit (bandwidthPerMigration)"))
    } else {
        let secs = limits::together(settings, &known).as_secs();
        Some(format!("{what}: estimated {secs} s, by memory, disks and bandwidth"))
    }
}
