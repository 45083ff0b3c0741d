//! How far this node is in a shutdown or reboot of the whole site: a topic of our own, which outlives a restart of the
//! machine. What all nodes share is in the cluster's Lease of turns; this is what one node knows without it.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DeviceOp, GoTime, topic};

/// A shutdown or reboot of the whole site, as this node has it; there is no file while there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteOperation {
    /// The operation.
    #[serde(rename = "ID")]
    pub id: String,
    /// What is done with every machine.
    pub op: DeviceOp,
    /// How far this node is: `seen`, `cordoned`, `ready`, `going`, `booted` or `open`; of a restart `draining`, until it
    /// has rebooted, and `booted`.
    pub step: String,
    /// The boot in which it came so far.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// The machine goes down now, in that boot.
    pub go: bool,
    /// It has the control plane or etcd.
    pub server: bool,
    /// The servers in the order in which they go, the leader of etcd last.
    pub order: Vec<String>,
    /// All of them have that order.
    pub all_ready: bool,
    /// The site is up again: nothing holds this node any more.
    pub released: bool,
    /// What the site is in: the phase that the Lease named last.
    pub phase: String,
    /// Who asked for it, and why.
    pub by: String,
    /// What this node waits for, or empty.
    pub waiting_for: String,
    /// What a person can do.
    pub next_step: String,
    /// Of a restart: the newest drain of DrainHistory that was over when this node was ordered to go, or empty; it and those
    /// before it are no failure of the order.
    pub drains_before: String,
    /// When this was written: a clock that shows less later is wrong.
    pub at: GoTime,
}

/// What `zedbox site status -o json` prints where the API answers; all empty while there is no operation. Of a restart, also
/// after it has ended, until another operation of that kind begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteStatus {
    /// The operation.
    #[serde(rename = "ID")]
    pub id: String,
    /// `shutdown`, `reboot` or `restart`.
    pub kind: String,
    /// How far the site is, as `stopping`; `ended` of a restart that is over.
    pub phase: String,
    /// Since when it is in that phase.
    pub since: String,
    /// Who asked for it.
    pub who: String,
    /// Why.
    pub why: String,
    /// When.
    pub when: String,
    /// It was withdrawn.
    pub withdrawn: bool,
    /// The servers in the order in which they go; of a restart all nodes.
    pub order: Vec<String>,
    /// The node that leads etcd, the last of them.
    pub leader: String,
    /// Nodes without which the site continued.
    pub missing: Vec<String>,
    /// What speaks against the operation and was passed when it began.
    pub findings: Vec<SiteFinding>,
    /// Virtual machines that were stopped, in the order in which they are started.
    pub machines: Vec<SiteMachine>,
    /// What this phase waits for, or empty.
    pub waits_for: String,
    /// What a person can type.
    pub next_step: String,
    /// The nodes of the site.
    pub nodes: Vec<SiteNode>,
}

/// Something that speaks against a whole-site operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteFinding {
    /// By which it is passed: `turn`, `nodes`, `etcd`, `snapshot`, `certificates`, `volumes` or `backups`.
    pub code: String,
    /// What was found.
    pub text: String,
    /// What a person can do.
    pub next_step: String,
}

/// A virtual machine, or a replica set of machines, of a whole-site operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteMachine {
    /// `virtualmachines` or `virtualmachineinstancereplicasets`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it had before: a run strategy, `true` for `running`, or a number of replicas.
    pub was: String,
}

/// A node of a whole-site operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteNode {
    /// Name of its Node object.
    pub node: String,
    /// `worker`, `tie-breaker` or `follower`.
    pub class: String,
    /// How far it is, see `Step` of SiteOperation; empty before it has
    /// said anything. Of a restart: `seen` while it waits, `draining`, `going`, `booted`, `open`, `verifying`, `done` or
    /// `failed`.
    pub step: String,
    /// Since when.
    pub since: String,
    /// Of a restart: the steps before this one, in their order.
    pub past: Vec<SiteStep>,
    /// Of a restart: how the cluster was with the node back, or empty.
    pub verified: String,
    /// What it waits for by itself, or empty.
    pub waits_for: String,
    /// As the cluster shows it.
    pub state: String,
}

/// A step of a node in a restart of the site.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SiteStep {
    /// See `Step` of its node.
    pub step: String,
    /// Since when it was there.
    pub since: String,
}

topic!(SiteStatus: Volatile);

topic!(SiteOperation: Persistent, cut by waiting_for next_step);
