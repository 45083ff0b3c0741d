//! Virtual machines of a node that is drained: how each is, whether it can be migrated, where to, and what becomes of it
//! otherwise.
//!
//! `rules` decides about one machine, `engine::machines` about all of them, `facts` reads objects of KubeVirt,
//! `forecast` looks for a target among the peers, `kubevirt` asks, writes and notices changes, `undo` takes back what
//! we asked for and starts again what we stopped. Migrations are KubeVirt's: one eviction of the launcher asks for one,
//! and we create none ourselves. No drain taint is put on the node, so none has to be removed. What we did is written
//! on the objects themselves: a restart of the agent reads it there. Not here: pods (`engine`).

pub mod facts;
pub mod forecast;
pub mod kubevirt;
pub mod rules;
pub mod stuck;
#[cfg(test)]
pub(crate) mod tests;
pub mod undo;

use std::time::Duration;

use kubeapi::machines::MachineSeen;
use kubeapi::names::PodRef;
use serde::{Deserialize, Serialize};

pub use facts::MachineDisk;
pub use rules::MigrationLimits;

/// Annotation of an instance that a drain asked to migrate: a JSON object [`MigrationRequest`].
pub const ASKED: &str = "pillar-rs/drain-asked";
/// Annotation of the same three: `migrate` lets it be migrated while a volume of it is rebuilt.
pub const REBUILDING: &str = "pillar-rs/drain-rebuilding";
/// Annotation of a machine, its instance or its namespace that names its [`MachinePolicy`].
pub const POLICY: &str = "pillar-rs/drain-policy";

step::named! {
    pub enum MachinePolicy {
        /// Migrated; shut down where that cannot be.
        MigrateOrShutdown = "migrate-or-shutdown",
        /// Migrated; where that cannot be, the drain waits.
        MigrateOrHold = "migrate-or-hold",
        Shutdown = "shutdown",
        /// Migrated; where that cannot be, the attempt fails.
        Fail = "fail",
    }
}

impl MachinePolicy {
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.text() == word)
    }
}

step::named! {
    /// What KubeVirt does about the eviction of a launcher.
    pub enum EvictionStrategy {
        /// Nothing: the guest is shut down.
        None = "None",
        /// It migrates the machine, or refuses.
        LiveMigrate = "LiveMigrate",
        /// It migrates the machine where that can be; otherwise the guest is shut down.
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        /// It marks the machine, for another controller.
        External = "External",
    }
}

/// Whether KubeVirt can migrate a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migratable {
    Yes,
    /// It cannot: its reason and its sentence.
    No(String, String),
    /// It has not said so yet.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineOwner {
    /// A machine, where it was read.
    Machine(Option<Box<MachineSeen>>),
    /// A replica set of machines, or anything else that makes it again: kind and name.
    Other(String),
    /// Nobody starts it again.
    Nobody,
}

/// What a drain writes on an instance before it asks for a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationRequest {
    pub node: String,
    pub request: String,
    /// UIDs of migrations that had failed before.
    pub failed_before: Vec<String>,
    /// Why no other migration is waited for; empty while one is.
    pub gave_up: String,
}

/// A migration that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub object: PodRef,
    /// Its phase, in KubeVirt's word.
    pub phase: String,
    /// Where to, once known.
    pub target: String,
    /// The state of the guest is on both nodes: it must not be ended.
    pub post_copy: bool,
    pub ending: bool,
}

impl Migration {
    /// It takes one of the places of migrations that run at the same time.
    #[must_use]
    pub fn runs(&self) -> bool {
        runs(&self.phase)
    }
}

/// Whether a migration of this phase takes a place.
#[must_use]
pub fn runs(phase: &str) -> bool {
    matches!(phase, "Scheduling" | "Scheduled" | "PreparingTarget" | "TargetReady" | "Running")
}

/// A launcher pod on our node that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    pub pod: PodRef,
    pub ending: bool,
}

/// One machine that has something on our node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualMachine {
    pub guest: PodRef,
    pub node: String,
    pub here: bool,
    /// What of its objects is not as KubeVirt writes it: then nothing is decided about it.
    pub unread: Option<String>,
    pub over: bool,
    pub ending: bool,
    pub strategy: EvictionStrategy,
    pub migratable: Migratable,
    /// It is marked for leaving our node.
    pub marked: bool,
    pub clearable: bool,
    /// What this drain, or an earlier one of our node, has written there.
    pub asked: Option<MigrationRequest>,
    pub owner: MachineOwner,
    /// Kind and name of what made its VirtualMachine, where that was not a person.
    pub manager: Option<String>,
    pub migration: Option<Migration>,
    /// Its migrations that have failed since one succeeded, the newest first: UID and why.
    pub failed: Vec<(String, String)>,
    /// It is paused, but not by its migration: since when.
    pub paused: Option<String>,
    /// Claims of its pod, in its namespace.
    pub claims: Vec<String>,
    /// Its volumes of Longhorn, where they were read.
    pub disks: Vec<MachineDisk>,
    /// It may be migrated while one of them is rebuilt.
    pub although_rebuilding: bool,
    pub launchers: Vec<Launcher>,
    pub policy: MachinePolicy,
    pub policy_from: String,
    /// A node that can take it, or why none can.
    pub target: Result<String, String>,
    /// The same for one that starts anew, which any model of CPU can take.
    pub start: Result<String, String>,
    /// None can for now: one could, but for the pods that are there.
    pub lacks_room: bool,
    /// Why none is left for it beside the machines that leave before it, where one could take it alone.
    pub crowded: Option<String>,
    pub bytes: u64,
    pub copies_disks: bool,
    pub limits: MigrationLimits,
    pub limits_of: String,
}

/// Limits of KubeVirt's migrations, read from its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationSettings {
    /// Version as (major, minor).
    pub version: (u32, u32),
    /// Migrations at the same time in the cluster.
    pub at_once: u32,
    /// Migrations at the same time away from one node.
    pub from_node: u32,
    /// Limits of one migration, where nobody says otherwise.
    pub limits: MigrationLimits,
}

impl MigrationSettings {
    /// What holds where the settings say nothing.
    #[must_use]
    pub const fn of_version(version: (u32, u32)) -> Self {
        let old = version.0 == 0 || (version.0 == 1 && version.1 < 4);
        Self {
            version,
            at_once: 5,
            from_node: 2,
            limits: MigrationLimits {
                completion_per_gib: Some(Duration::from_secs(if old { 800 } else { 150 })),
                progress: Some(Duration::from_secs(150)),
                bandwidth: None,
                auto_converge: false,
                post_copy: false,
                disrupts: false,
            },
        }
    }

    /// Whether KubeVirt lets a mark be removed: by a subresource from 1.7 on, and before by nobody but its own parts. One of an
    /// unknown version is asked.
    #[must_use]
    pub const fn cancels(&self) -> bool {
        !matches!(self.version, (1, 0..=6))
    }
}

/// All machines of our node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinesView {
    pub settings: MigrationSettings,
    /// What of its settings is not as usual, in sentences.
    pub unusual: Vec<String>,
    pub machines: Vec<VirtualMachine>,
    /// Migrations that run in the whole cluster.
    pub running: usize,
}
