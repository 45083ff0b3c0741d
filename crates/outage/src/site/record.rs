//! The record of a whole-site operation: [`Mode`] of the Lease, with all its members; what is read for a phase and
//! what can follow from it; who may work for all.
//!
//! It is written by compare-and-swap only. Members of another version are written back as they were. No decision
//! reads a time out of it. Pure: no clock, no I/O, no task.

use std::time::Duration;

pub use kubeapi::machines::{MachineAction, MachineSeen, MachineWork, RunStrategy};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::calls::Finding;
use crate::turn::record::{Class, Mode, RESTART, words};

words! {
    /// What is done with every machine.
    SiteKind {
        Shutdown = "shutdown",
        Reboot = "reboot",
        /// One after another reboots, each drained in its turn.
        Restart = RESTART,
    }
}

words! {
    /// In their order on the way down and up, then those of a restart.
    SitePhase {
        /// Each node writes the operation to its own disk.
        Announced = "announced",
        Cordoning = "cordoning",
        /// Virtual machines are stopped, then applications with volumes scaled down.
        Stopping = "stopping",
        Detaching = "detaching",
        WorkersGoing = "workers-going",
        /// The servers go, one after another; from here on nothing needs the API.
        ServersGoing = "servers-going",
        /// The site is back: waits for all nodes and for storage.
        Starting = "starting",
        Uncordoning = "uncordoning",
        /// Applications are scaled up again, then virtual machines started.
        Restoring = "restoring",
        /// Of a restart: the nodes go one after another.
        Restarting = "restarting",
        /// Of a restart: a node has failed, and nothing more starts until a person says so.
        Stopped = "stopped",
        /// Of a restart that was stopped: nothing starts before the cluster is well again.
        Checking = "checking",
    }
}

words! {
    NodeStep {
        /// The operation is on its disk.
        Seen = "seen",
        Cordoned = "cordoned",
        /// A server that has the order of going on its disk.
        Ready = "ready",
        Going = "going",
        /// It is back in a new boot, with its own checks passed.
        Booted = "booted",
        /// Its cordon is removed.
        Open = "open",
        /// Of a restart: it is ordered to be drained in a turn and to reboot.
        Draining = "draining",
        /// Of a restart: it is back, and whether the cluster is well with it is being looked at.
        Verifying = "verifying",
        /// Of a restart: it went through its reboot, and the cluster is well with it.
        Done = "done",
        /// Of a restart: it is left out, by a person's word or as it was deleted.
        Skipped = "skipped",
        Failed = "failed",
    }
}

impl SitePhase {
    /// Whether the operation can still be withdrawn: until the servers go.
    pub fn may_cancel(&self) -> bool {
        *self < Self::ServersGoing || matches!(self, Self::Restarting | Self::Stopped | Self::Checking)
    }
}

/// A node of the site when the operation began.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SiteMember {
    pub node: String,
    pub uid: String,
    /// Its class then; which server leads etcd is known when the servers go.
    pub class: Class,
}

impl SiteMember {
    /// Whether it has the control plane or etcd.
    pub fn is_server(&self) -> bool {
        self.class != Class::Worker
    }
}

/// What one node has said of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ack {
    pub node: String,
    pub uid: String,
    pub step: NodeStep,
    /// The boot in which it said so.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// It led etcd then.
    pub leads: bool,
    /// What it waits for by itself, a sentence or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// Since when, RFC 3339; display only.
    pub since: String,
    /// Of a restart: the steps before this one, each with since when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(NodeStep, String)>,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OperatorStatement {
    pub who: String,
    pub why: String,
    /// When, RFC 3339; display only.
    pub when: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SiteRecord {
    pub id: String,
    pub kind: SiteKind,
    pub by: OperatorStatement,
    /// Virtual machines may go down with their nodes.
    pub leave_machines: bool,
    pub phase: SitePhase,
    pub nodes: Vec<SiteMember>,
    /// The servers in the order in which they go, from `servers-going` on; of a restart all nodes, from its beginning on.
    pub order: Vec<String>,
    /// What this phase waits for, a sentence or empty.
    pub waits: String,
    /// What a person can type about that.
    pub next: String,
    /// Since when this phase is, RFC 3339; display only.
    pub since: String,
    /// What spoke against it when it began, and was passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Phases whose wait an operator has ended.
    pub passed: Vec<OperatorStatement>,
    pub cancelled: Option<OperatorStatement>,
    /// Nodes without which the site went on, by name.
    pub missing: Vec<String>,
    /// What the nodes have said.
    pub seen: Vec<Ack>,
    /// Members of another version.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl SiteRecord {
    /// Reads it out of the Lease's [`Mode`].
    /// Errors: it is not one that this version can use: why.
    pub fn of(mode: &Mode) -> Result<Self, String> {
        let read = serde_json::to_string(mode).and_then(|it| serde_json::from_str::<Self>(&it));
        let named = |why: String| format!("the whole-site operation {} cannot be read: {why}", mode.id);
        let read = read.map_err(|why| named(why.to_string()))?;
        // Without nodes it would go on at once, and without a phase from its beginning.
        let is_whole = !read.nodes.is_empty() && mode.rest.contains_key("phase");
        if is_whole { Ok(read) } else { Err(named("it has no nodes or no phase".to_owned())) }
    }

    /// As it is written into the Lease.
    /// Errors: it cannot be written as JSON; nothing may be sent then.
    pub fn mode(&self) -> Result<Mode, String> {
        let written = serde_json::to_string(self).and_then(|it| serde_json::from_str(&it));
        written.map_err(|why| format!("the whole-site operation {} cannot be written: {why}", self.id))
    }

    /// The node of this name and UID, if it is one of the site.
    pub fn member(&self, node: &str, uid: &str) -> Option<&SiteMember> {
        self.nodes.iter().find(|it| it.node == node && it.uid == uid)
    }

    pub fn ack(&self, node: &str) -> Option<&Ack> {
        let member = self.nodes.iter().find(|it| it.node == node)?;
        self.seen.iter().find(|it| it.node == node && it.uid == member.uid)
    }

    pub fn step(&self, node: &str) -> Option<&NodeStep> {
        self.ack(node).map(|it| &it.step)
    }

    /// Whether it has said that it is back in a new boot.
    pub fn is_back(&self, node: &str) -> bool {
        matches!(self.step(node), Some(NodeStep::Booted | NodeStep::Open))
    }

    /// Takes what a node says. A node that says the same again changes nothing.
    pub fn hear(&mut self, mut ack: Ack) {
        if let Some(held) = self.seen.iter_mut().find(|it| it.node == ack.node) {
            let same = held.step == ack.step && held.boot_id == ack.boot_id && held.uid == ack.uid;
            if same {
                ack.since.clone_from(&held.since);
            }
            ack.past.clone_from(&held.past);
            if self.kind == SiteKind::Restart && held.step != ack.step {
                ack.past.push((held.step.clone(), held.since.clone()));
            }
            ack.rest.clone_from(&held.rest);
            *held = ack;
        } else {
            self.seen.push(ack);
        }
    }

    /// Nodes of which it is not written since when they are so are so since `when`.
    pub fn stamp(&mut self, when: &str) {
        self.seen.iter_mut().filter(|it| it.since.is_empty()).for_each(|it| when.clone_into(&mut it.since));
    }

    /// In this phase, of which nothing is known yet.
    #[must_use]
    pub fn into_phase(self, phase: SitePhase) -> Self {
        Self { phase, waits: String::new(), next: String::new(), since: String::new(), ..self }
    }

    /// Whether an operator has ended the wait of the phase that it is in.
    pub fn is_passed(&self) -> bool {
        self.passed.iter().any(|it| it.phase == self.phase.text())
    }

    /// The server that leads etcd, or empty. Of two that say so the last by name is taken.
    pub fn leader_now(&self) -> String {
        let leads = |it: &&SiteMember| it.is_server() && self.ack(&it.node).is_some_and(|it| it.leads);
        self.nodes.iter().filter(leads).map(|it| it.node.clone()).max().unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machines {
    /// Machines and replica sets of machines.
    pub all: Vec<MachineSeen>,
    /// Guests that run, and launchers that are there without one, by name.
    pub guests: Vec<String>,
    /// Of these guests the ones that nothing stops and starts.
    pub loose: Vec<String>,
    /// How many guests are on their way up.
    pub starting: usize,
}

/// How long the way up waits for a node, and the end for its cordon; then it continues without it and names it.
pub const NODE_LIMIT: Duration = Duration::from_secs(15 * 60);

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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhaseReadings {
    /// What is in the way, each by name: attached volumes; on the way up the virtual IP of the API and faulted volumes; of a
    /// restart, layers that are not well.
    pub blocking: Vec<String>,
    pub machines: Machines,
    pub work: Vec<ScaledWorkload>,
    pub holders: Vec<String>,
    /// How long this phase has been seen; of a restart, this step of the node that goes.
    pub lasted: Duration,
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
    End,
}

/// The node that goes, and how far it is.
pub(super) fn in_turn(site: &SiteRecord) -> Option<(&SiteMember, &Ack)> {
    let goes = |step: &NodeStep| !matches!(step, NodeStep::Seen | NodeStep::Done | NodeStep::Skipped);
    site.nodes.iter().find_map(|it| Some((it, site.ack(&it.node).filter(|ack| goes(&ack.step))?)))
}

/// The record of a restart with this node at `step`, and what it waits for. Since when, the writer adds:
/// [`SiteRecord::stamp`]; whether it leads etcd, it says itself.
pub(super) fn put(mut site: SiteRecord, member: &SiteMember, step: NodeStep, waits: &str) -> SiteRecord {
    let boot_id = site.ack(&member.node).map(|it| it.boot_id.clone()).unwrap_or_default();
    let SiteMember { node, uid, .. } = member.clone();
    site.hear(Ack { node, uid, step, boot_id, waits: waits.to_owned(), ..Ack::default() });
    SiteRecord { waits: String::new(), next: String::new(), ..site }
}

pub(super) const CANCEL: &str = "zedbox site cancel --reason '...'";

/// What ends the wait of this phase.
pub(super) fn pass_step(site: &SiteRecord) -> String {
    let goes = (site.kind == SiteKind::Restart).then(|| in_turn(site)).flatten();
    let node = goes.map(|(it, _)| format!(" --node {}", it.node)).unwrap_or_default();
    format!("zedbox site continue --phase {}{node} --reason '...'", site.phase.text())
}
