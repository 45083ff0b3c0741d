//! Which other node can take a machine: by its labels, its CPU and its state, and by what the pods there leave.
//!
//! KubeVirt itself says nothing of this before a target pod cannot be scheduled. What the launcher asks of a node is
//! what the target will ask. Not here: what pods ask in general (`plan::placement`, `plan::residents`). Pure: no clock,
//! no I/O, no task.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use step::SmallSort as _;

use super::VirtualMachine;
use super::facts::CREATED_BY;
use super::rules::needs_target;
use crate::plan::placement::{PeerNode, SchedulingNeeds, place};
use crate::plan::residents::{Resident, Residents};

/// KubeVirt puts machines on nodes with this label only.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Of the source: its CPU model, as the rest of the key.
const MODEL: &str = "host-model-cpu.node.kubevirt.io/";
/// Of the source: a feature that a guest with its CPU model needs.
const FEATURE: &str = "host-model-required-features.node.kubevirt.io/";
/// Of a target: it can take guests of this CPU model, and has this feature.
const TAKES_MODEL: &str = "cpu-model-migration.node.kubevirt.io/";
const HAS_FEATURE: &str = "cpu-feature.node.kubevirt.io/";

/// What a machine asks of the node that takes it.
#[derive(Debug, Clone, Default)]
pub struct Asks {
    /// Its launcher, of nodes.
    pub needs: SchedulingNeeds,
    /// The guest has the CPU model of its node.
    pub host_model: bool,
    /// Its launcher, among other pods.
    pub launcher: Resident,
}

/// A node that can take the machine, or why each cannot. `own` are the labels of its node; without `residents` it is not
/// asked what the pods of the peers leave.
pub fn target(
    asks: &Asks,
    own: &BTreeMap<String, String>,
    peers: &[PeerNode],
    residents: Option<&Residents>,
) -> Result<String, String> {
    let full = |peer: &PeerNode| residents.and_then(|it| it.why_not(&asks.launcher, peer));
    let found = place(peers, |peer| why_not(asks, own, peer).or_else(|| full(peer)));
    found.map(|it| it.name.clone()).map_err(|why| {
        if asks.needs.is_pinned(peers) && !peers.is_empty() {
            format!(
                "{why}; its node selector or affinity is changed on its VirtualMachine, not on the instance"
            )
        } else {
            why
        }
    })
}

/// Sets machines that leave together off against each other: those under way come first, then the largest. One for which
/// nothing is left is crowded. What they take is added to `residents`.
pub fn set_off(
    machines: &mut [(VirtualMachine, Asks)],
    own: &BTreeMap<String, String>,
    peers: &[PeerNode],
    residents: &mut Residents,
) {
    let busy = |it: &VirtualMachine| it.here && (it.marked || it.migration.is_some());
    let mut order: Vec<&mut (VirtualMachine, Asks)> =
        machines.iter_mut().filter(|(it, _)| busy(it) || needs_target(it)).collect();
    order.order_by_key(|(it, asks)| {
        (!busy(it), Reverse(asks.launcher.memory_bytes), Reverse(asks.launcher.cpu_milli), it.guest.clone())
    });
    for (machine, asks) in order {
        let launches =
            |it: &Resident| it.labels.get(CREATED_BY).is_some_and(|uid| uid == machine.guest.uid.as_str());
        // The pod of its target counts already.
        let has_place =
            busy(machine) && residents.pods.iter().any(|it| launches(it) && it.node != machine.node);
        if has_place || (machine.target.is_err() && !busy(machine)) {
            continue;
        }
        match target(asks, own, peers, Some(residents)) {
            Ok(node) => {
                residents.pods.push(Resident { node: node.clone(), ..asks.launcher.clone() });
                machine.target = Ok(node);
            }
            Err(why) => machine.crowded = Some(why),
        }
    }
}

fn why_not(asks: &Asks, own: &BTreeMap<String, String>, peer: &PeerNode) -> Option<String> {
    if let Some(why) = asks.needs.why_not(peer, false) {
        return Some(why);
    }
    let is_true =
        |labels: &BTreeMap<String, String>, key: &str| labels.get(key).is_some_and(|it| it == "true");
    if own.contains_key(SCHEDULABLE) && !is_true(&peer.labels, SCHEDULABLE) {
        return Some(format!("has no label {SCHEDULABLE}=true: virt-handler is not well there"));
    }
    if !asks.host_model {
        return None;
    }
    let lacks = |key: &str| {
        if let Some(model) = key.strip_prefix(MODEL) {
            let wanted = format!("{TAKES_MODEL}{model}");
            return (!is_true(&peer.labels, &wanted)).then(|| format!("cannot take CPU model {model}"));
        }
        let feature = key.strip_prefix(FEATURE)?;
        let has = |prefix: &str| peer.labels.contains_key(&format!("{prefix}{feature}"));
        (!has(HAS_FEATURE) && !has(FEATURE)).then(|| format!("lacks CPU feature {feature}"))
    };
    own.keys().find_map(|key| lacks(key))
}
