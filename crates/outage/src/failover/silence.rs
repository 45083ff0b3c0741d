//! Which nodes are silent, and whether they still answer anybody: one reading of the nodes, with the leases of their kubelets
//! on the reader's own clock, and who answers `GET /outage`.
//!
//! A node that is down by its turn or by a whole-site operation is expected to be silent. One that answers anybody lives,
//! whatever its kubelet does. Where our own kubelet's lease does not move either, the fault is ours or the API's, and nothing is
//! said of others. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use kubeapi::names::listed;
use step::SmallSort as _;
use topics::number;

use super::record::standing;
use crate::turn::pulses::Pulse;
use crate::turn::record::{DeclaredNode, Phase, TurnRecord};
use crate::turn::rule::TurnNode;

/// Who was asked for an answer of a node, and has it: `true`.
pub type Heard = BTreeMap<String, bool>;

/// What is the matter with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeSilence {
    /// It was declared dead, and the kubelet of the boot that is to be dead lives.
    Broken,
    /// A person has declared it dead.
    Declared,
    /// It answers no node: it may be dead, or cut off.
    Silent,
    /// Its kubelet is silent, and its agent or its machine answers somebody: it lives.
    Heard,
}

/// A node of which something has to be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentNode {
    pub node: TurnNode,
    pub silence: NodeSilence,
    /// By node who was asked whether it answers, and whether it does.
    pub heard: Heard,
    /// The entry of who has declared it dead.
    pub declared: Option<DeclaredNode>,
}

impl SilentNode {
    fn with(&self, answers: bool) -> Vec<String> {
        self.heard.iter().filter(|(_, is)| **is == answers).map(|(node, _)| node.clone()).collect()
    }

    /// Whether nothing but the lease of its kubelet shows that the boot which was declared dead lives.
    pub fn is_renewed_only(&self) -> bool {
        self.silence == NodeSilence::Broken && !self.node.ready
    }

    /// Whether it is back, and has failed so often that a person lifts its cordon.
    fn waits_for_person(&self) -> bool {
        let stays = self.declared.as_ref().is_some_and(|it| it.stays() && !self.node.is_in_dead_boot(it));
        stays && self.node.out_of_service.is_none()
    }

    /// The nodes that it answers.
    pub fn heard_by(&self) -> Vec<String> {
        self.with(true)
    }

    /// What shows it, as the end of a sentence: its kubelet, its condition, who asked it.
    pub fn evidence(&self) -> String {
        let ready = if self.node.ready { "its condition Ready is still True" } else { "it is not Ready" };
        let asked = match (self.with(true), self.with(false)) {
            (by, _) if !by.is_empty() => format!("it answers {}", listed(&by, ", ")),
            (_, none) if none.is_empty() => "nobody could ask its agent".to_owned(),
            (_, none) => format!("its agent answers none of those that asked it ({})", listed(&none, ", ")),
        };
        format!("its kubelet has renewed no lease for 40 s, {ready}, {asked}")
    }

    /// What it means and how that is seen, after the name of the node and a colon.
    pub fn words(&self) -> String {
        match (self.silence, &self.declared) {
            (NodeSilence::Broken, Some(it)) => format!(
                "LIVES in the boot that {} has declared dead ({}): its work may run twice",
                it.who, it.why
            ),
            (NodeSilence::Declared, Some(it)) => {
                let waits: Vec<String> = it.waiting().map(|it| format!("{it}: {}", it.waits)).collect();
                let waits = if waits.is_empty() {
                    String::new()
                } else {
                    format!("; waits: {}", listed(&waits, "; "))
                };
                let is_back = !self.node.is_in_dead_boot(it) && self.node.pulse != Pulse::Still;
                let life = match self.heard_by() {
                    _ if is_back && self.waits_for_person() => format!(
                        "; it is back in another boot, declared dead {} within 24 h: it stays cordoned",
                        number(it.times, "time")
                    ),
                    _ if is_back => "; it is back in another boot".to_owned(),
                    by if by.is_empty() => String::new(),
                    by => format!("; it answers {}: it is booting, or was never off", listed(&by, ", ")),
                };
                format!("declared dead by {} ({}), {}{life}{waits}", it.who, it.why, it.state.text())
            }
            (NodeSilence::Heard, _) => format!("its kubelet is silent, it is not dead: {}", self.evidence()),
            (NodeSilence::Silent | NodeSilence::Broken | NodeSilence::Declared, _) => {
                format!("silent, it may be dead: {}", self.evidence())
            }
        }
    }

    /// What a person can do.
    pub fn next_step(&self) -> String {
        let name = &self.node.name;
        match self.silence {
            NodeSilence::Broken => {
                format!("switch {name} off now, at its power; then `zedbox failover status` says what to do")
            }
            NodeSilence::Declared if self.waits_for_person() => {
                format!("find out why {name} fails; then `kubectl uncordon {name}`")
            }
            NodeSilence::Declared => "`zedbox failover status`".to_owned(),
            NodeSilence::Silent => format!(
                "look at {name}: power, network; once you have switched it off, this moves its work: `zedbox failover declare {name} \
                 --powered-off --reason '...'`"
            ),
            NodeSilence::Heard => {
                format!("on {name}: `systemctl status k3s`, `zedbox status`; it is not to be declared dead")
            }
        }
    }
}

/// Whether a node may be silent: it goes down or comes back in its turn, with the whole site, or by the word of a person.
pub fn is_expected(node: &TurnNode, record: &TurnRecord) -> bool {
    let holds =
        |phase: &Phase| !matches!(phase, Phase::Granted | Phase::Cordoned | Phase::Failed | Phase::Emergency);
    node.being_deleted
        || node.ignored
        || record.mode.as_ref().is_some_and(|it| !it.keeps_turns())
        || record.holder(&node.name, &node.uid).is_some_and(|it| holds(&it.phase))
}

/// The nodes with silent kubelets that no turn and no operation explains, but `own`.
/// Errors: why nothing can be said of others.
pub fn still<'a>(own: &str, nodes: &'a [TurnNode], record: &TurnRecord) -> Result<Vec<&'a TurnNode>, String> {
    if nodes.iter().any(|it| it.name == own && it.pulse == Pulse::Still) {
        return Err("the kubelet of this node itself renews no lease".to_owned());
    }
    let others = nodes.iter().filter(|it| it.name != own && it.pulse == Pulse::Still);
    Ok(others.filter(|it| !is_expected(it, record)).collect())
}

/// What is to be reported of each of `nodes`: silent ones of [`still`], with who `heard` them, and those that were declared dead.
pub fn told(
    nodes: &[TurnNode],
    record: &TurnRecord,
    silent: &[&TurnNode],
    heard: &BTreeMap<String, Heard>,
) -> Vec<SilentNode> {
    let declared = standing(record, nodes);
    let of = |node: &TurnNode| {
        let declared = declared.iter().find(|it| node.is_of(it)).cloned();
        let heard = heard.get(&node.name).cloned().unwrap_or_default();
        let is_silent = silent.iter().any(|it| it.name == node.name);
        // An answer may come from the agent of another boot, before its kubelet has reported that boot.
        let lives = node.ready || node.pulse == Pulse::Moving;
        let silence = match &declared {
            Some(it)
                if (it.state.is_tainted() || node.is_tainted_by(it)) && lives && node.is_in_dead_boot(it) =>
            {
                NodeSilence::Broken
            }
            Some(_) => NodeSilence::Declared,
            None if !is_silent => return None,
            None if heard.values().any(|it| *it) => NodeSilence::Heard,
            None => NodeSilence::Silent,
        };
        Some(SilentNode { node: node.clone(), silence, heard, declared })
    };
    let mut all: Vec<SilentNode> = nodes.iter().filter_map(of).collect();
    all.order_by(|a, b| (a.silence, &a.node.name).cmp(&(b.silence, &b.node.name)));
    all
}
