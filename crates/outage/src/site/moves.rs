//! What is read for a phase of a whole-site operation and what can follow from it; who may work for all.
//!
//! Not here: what follows when (`coordinate`, `restart`). Source: spec/cluster-lock.md 6.3, 7 and 8.1.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use super::record::{Ack, MachineWork, Machines, NodeStep, SiteKind, SiteMember, SiteRecord};
use crate::turn::pulses::Pulse;
use crate::turn::rule::TurnNode;

/// How long the way up waits for a node, and the end for its cordon; then it continues without it and names it.
pub const NODE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A workload that is scaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaledWorkload {
    /// `deployments` or `statefulsets`.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// What it is to have.
    pub replicas: i64,
    /// What is written there of the operation: the annotation, or nothing.
    pub mark: Option<String>,
    /// The version that a write must name.
    pub version: String,
}

/// What was read for the phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhaseReadings {
    /// What is in the way, each by name: attached volumes, faulted volumes; of a restart, layers that are not well.
    pub blocking: Vec<String>,
    /// Why the virtual IP of the API is not there yet, a sentence or empty.
    pub address: String,
    pub machines: Machines,
    /// Workloads to be scaled.
    pub work: Vec<ScaledWorkload>,
    /// Nodes that hold a turn.
    pub holders: Vec<String>,
    /// How long this phase has been seen; of a restart, this step of the node that goes.
    pub lasted: Duration,
    /// Of a restart: how the cluster is with the node back, a sentence; what is not well is in `blocking`.
    pub verified: String,
    /// Of a restart: volumes of which copies are missing or are being made.
    pub rebuilding: Vec<String>,
    /// Of a restart: for how long nothing has been in the way.
    pub well: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// It waits for this; and what a person can type.
    Wait(String, String),
    Scale(Vec<ScaledWorkload>),
    /// These are stopped or started, one after another.
    Machines(Vec<MachineWork>),
    /// The record in its next phase.
    To(Box<SiteRecord>),
    /// The operation is over.
    End,
}

pub(super) fn node_of<'a>(member: &SiteMember, nodes: &'a [TurnNode]) -> Option<&'a TurnNode> {
    nodes.iter().find(|it| it.name == member.node && it.uid == member.uid)
}

pub(super) fn is_alive(member: &SiteMember, nodes: &[TurnNode]) -> bool {
    node_of(member, nodes).is_some_and(|it| it.ready && it.pulse != Pulse::Still)
}

/// Whether this node may work for all. Of a restart one that goes does where there is no other one: its limit has to end.
pub(super) fn may_coordinate(node: &str, site: &SiteRecord, nodes: &[TurnNode]) -> bool {
    let servers = site.nodes.iter().any(SiteMember::is_server);
    let may = |it: &SiteMember, going: bool| {
        let step = site.step(&it.node);
        (!servers || it.is_server())
            && step.is_some_and(|it| going || *it != NodeStep::Going)
            && is_alive(it, nodes)
    };
    let last = site.kind == SiteKind::Restart && !site.nodes.iter().any(|it| may(it, false));
    site.nodes.iter().any(|it| it.node == node && may(it, last))
}

/// The node that goes, and how far it is.
pub(super) fn in_turn(site: &SiteRecord) -> Option<(&SiteMember, &Ack)> {
    let goes = |step: &NodeStep| !matches!(step, NodeStep::Seen | NodeStep::Done | NodeStep::Skipped);
    site.nodes.iter().find_map(|it| Some((it, site.ack(&it.node).filter(|ack| goes(&ack.step))?)))
}

pub(super) const CANCEL: &str = "zedbox site cancel --reason '...'";

/// What ends the wait of this phase.
pub(super) fn pass_step(site: &SiteRecord) -> String {
    let goes = (site.kind == SiteKind::Restart).then(|| in_turn(site)).flatten();
    let node = goes.map(|(it, _)| format!(" --node {}", it.node)).unwrap_or_default();
    format!("zedbox site continue --phase {}{node} --reason '...'", site.phase.text())
}
