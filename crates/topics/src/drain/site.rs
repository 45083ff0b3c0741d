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
    /// Of a restart: the newest drain of DrainHistory that was over when this node was ordered to go, or empty; it and those
    /// before it are no failure of the order.
    pub drains_before: String,
    /// When this was written: a clock that shows less later is wrong.
    pub at: GoTime,
}

topic!(SiteOperation: Persistent, cut by waiting_for);
