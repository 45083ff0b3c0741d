//! Machines in the hand, and what is decided about them.

mod attempt;
mod objects;
mod rules;

use std::time::Duration;

use kubeapi::machines::{DRAIN, MachineSeen};
use kubeapi::names::{PodRef, PodUid};

use super::rules::{Decision, DrainIdentity, decide};
use super::{
    EvictionStrategy, Launcher, MachineOwner, MachinePolicy, Migratable, Migration, MigrationRequest,
    MigrationSettings, VirtualMachine,
};

fn named(name: &str) -> PodRef {
    PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new(format!("u-{name}")) }
}

fn drain() -> DrainIdentity {
    DrainIdentity { node: "n1".into(), request: "request 2 of t".into() }
}

pub(crate) fn settings() -> MigrationSettings {
    MigrationSettings::of_version((1, 7))
}

pub(crate) fn vm(name: &str, word: &str) -> MachineOwner {
    MachineOwner::Machine(Some(Box::new(MachineSeen {
        kind: "virtualmachines",
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("vm-{name}"),
        version: "7".into(),
        created: "2026-01-01T00:00:00Z".into(),
        strategy: kubeapi::machines::RunStrategy {
            run_strategy: Some(word.into()),
            ..kubeapi::machines::RunStrategy::default()
        },
        marking: &DRAIN,
        mark: None,
        alive: true,
        stopping: false,
        starting: false,
    })))
}

/// One that runs on n1 and can be migrated to n2.
pub(crate) fn machine(name: &str) -> VirtualMachine {
    VirtualMachine {
        guest: named(name),
        node: "n1".into(),
        here: true,
        unread: None,
        over: false,
        ending: false,
        strategy: EvictionStrategy::LiveMigrate,
        migratable: Migratable::Yes,
        marked: false,
        clearable: true,
        asked: None,
        owner: vm(name, "Always"),
        manager: None,
        migration: None,
        failed: Vec::new(),
        paused: None,
        claims: Vec::new(),
        disks: Vec::new(),
        although_rebuilding: false,
        launchers: vec![Launcher { pod: named(&format!("virt-launcher-{name}")), ending: false }],
        policy: MachinePolicy::MigrateOrShutdown,
        policy_from: "machines_policy of the limits file".into(),
        target: Ok("n2".into()),
        start: Ok("n2".into()),
        lacks_room: false,
        crowded: None,
        bytes: 2 << 30,
        copies_disks: false,
        limits: settings().limits,
        limits_of: "KubeVirt".into(),
    }
}

fn asked() -> MigrationRequest {
    MigrationRequest { node: "n1".into(), request: drain().request, ..MigrationRequest::default() }
}

fn no(reason: &str) -> Migratable {
    Migratable::No(reason.into(), "because".into())
}

fn migration(phase: &str) -> Migration {
    Migration {
        object: named("kubevirt-evacuation-1"),
        phase: phase.into(),
        target: "n2".into(),
        post_copy: false,
        ending: false,
    }
}

fn failures(count: usize) -> Vec<(String, String)> {
    (0..count).map(|nth| (format!("m{nth}"), "Live migration stuck for 150 seconds".to_owned())).collect()
}

/// What is decided at once, where no other migration runs.
fn now(machine: &VirtualMachine) -> Decision {
    after(machine, 0)
}

/// The same once it has been so for a while.
fn after(machine: &VirtualMachine, secs: u64) -> Decision {
    decide(&drain(), machine, Duration::from_secs(secs), 0)
}
