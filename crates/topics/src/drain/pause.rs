//! A person's order that no operation starts on this node, in this boot and later ones. Written by
//! `zedbox pause` and `zedbox pause --only-controller`, read by zedagent, baseosmgr and zedkube, each by itself.
//!
//! It has the form of a topic, and the rule for orders applies. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, topic};

/// The rest of a pause with an end, written down from time to time by zedagent: the same, with less time. It
/// counts in later boots while it belongs to the pause in [`PAUSE_FILE`].
pub const PAUSE_LEFT_FILE: &str = "persist/status/zedbox/OperationPause/left.json";
/// Under the root.
pub const PAUSE_FILE: &str = "persist/status/zedbox/OperationPause/global.json";

/// A person's word that operations wait. As a member of another value: the one that counts, or all zero without one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OperationPause {
    /// Which ones.
    pub scope: PauseScope,
    /// Who says so, by name.
    pub by: String,
    /// Why, in a person's words.
    pub reason: String,
    /// When it was said.
    pub since: GoTime,
    /// When it ends by itself, as the wall clock shows it: for display where `LastsSecs` says how long it lasts. Zero where
    /// a person ends it.
    pub until: GoTime,
    /// It ends by itself after so many seconds from `AtSecs` on. Only in the file; zero where a person ends it, or where
    /// `Until` counts.
    #[serde(skip_serializing_if = "is_zero")]
    pub lasts_secs: u64,
    /// The kernel's identity of the boot in which `AtSecs` was read. Only in the file.
    #[serde(rename = "BootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// By the kernel's monotonic clock, in seconds. Only in the file.
    #[serde(skip_serializing_if = "is_zero")]
    pub at_secs: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(secs: &u64) -> bool {
    *secs == 0
}

topic!(OperationPause: Persistent, cut by reason);

/// Which operations wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PauseScope {
    /// All that have not started: `zedbox pause`.
    #[default]
    Node,
    /// All that the controller has ordered, started or not, until the machine is commanded down: `zedbox pause --only-controller`.
    Controller,
}

impl OperationPause {
    pub fn is_set(&self) -> bool {
        !self.by.is_empty()
    }

    /// Seconds left at `now`, a monotonic time in the boot `boot_id`, where `LastsSecs` gives its length. In
    /// a later boot the rest counts from the start of that boot.
    pub fn left_secs(&self, boot_id: &str, now_secs: u64) -> Option<u64> {
        let same = !boot_id.is_empty() && self.boot_id == boot_id;
        let passed = if same { now_secs.saturating_sub(self.at_secs) } else { now_secs };
        (self.lasts_secs > 0).then(|| self.lasts_secs.saturating_sub(passed))
    }

    /// Whether both are one pause, of which one may have less left.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.scope, &self.by, &self.reason, self.since)
            == (other.scope, &other.by, &other.reason, other.since)
    }

    /// As `paused by field: new disk, since 2026-03-14 09:30:00 UTC`.
    pub fn words(&self) -> String {
        let Self { scope, by, reason, since, until, .. } = self;
        let what = match scope {
            PauseScope::Node => "paused",
            PauseScope::Controller => "refused",
        };
        let end = if until.is_zero() { String::new() } else { format!(", until {}", until.shown()) };
        format!("{what} by {by}: {reason}, since {}{end}", since.shown())
    }

    pub const fn next_step(&self) -> &'static str {
        "ask whoever paused it first; then, on this node: `sudo zedbox resume`"
    }
}
