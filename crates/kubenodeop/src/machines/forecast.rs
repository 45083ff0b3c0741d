//! Which other node can take a machine, as far as facts tell that do not change by the minute.
//!
//! KubeVirt itself says nothing of this before a target pod cannot be scheduled. What the launcher asks of a node is what
//! the target will ask. Not here: what pods ask in general (`plan::placement`). Source: spec/vm-storage.md A7, last
//! paragraph. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use crate::plan::placement::{Needs, Peer};

/// KubeVirt puts machines on nodes with this label only.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Of the source: its CPU model, as the rest of the key.
const MODEL: &str = "host-model-cpu.node.kubevirt.io/";
/// Of the source: a feature that a guest with its CPU model needs.
const FEATURE: &str = "host-model-required-features.node.kubevirt.io/";
/// Of a target: it can take guests of this CPU model, and has this feature.
const TAKES_MODEL: &str = "cpu-model-migration.node.kubevirt.io/";
const HAS_FEATURE: &str = "cpu-feature.node.kubevirt.io/";

/// A node that can take the machine, or why each cannot. `own` are the labels of its node; `host_model`: the guest has the
/// CPU model of its node.
///
/// # Errors
/// Why none can, node by node.
pub fn target(
    needs: &Needs,
    host_model: bool,
    own: &BTreeMap<String, String>,
    peers: &[Peer],
) -> Result<String, String> {
    let mut whys = Vec::new();
    for peer in peers {
        match why_not(needs, host_model, own, peer) {
            None => return Ok(peer.name.clone()),
            Some(why) => whys.push(format!("node {} {why}", peer.name)),
        }
    }
    Err(if whys.is_empty() { "there is no other node".to_owned() } else { kubeapi::listed(&whys, ", ") })
}

fn why_not(needs: &Needs, host_model: bool, own: &BTreeMap<String, String>, peer: &Peer) -> Option<String> {
    if let Some(why) = needs.why_not(peer, false) {
        return Some(why);
    }
    let is_true =
        |labels: &BTreeMap<String, String>, key: &str| labels.get(key).is_some_and(|it| it == "true");
    if own.contains_key(SCHEDULABLE) && !is_true(&peer.labels, SCHEDULABLE) {
        return Some(format!("has no label {SCHEDULABLE}=true: virt-handler is not well there"));
    }
    if !host_model {
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
