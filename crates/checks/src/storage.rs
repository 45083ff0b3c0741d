//! Volumes, and work on them that is in progress.
//!
//! Not here: whether the last healthy copy of a volume is on a node, which a drain guards itself (`kubenodeop::storage`).
//! Source: spec/vm-storage.md B8. Pure: no clock, no I/O, no task.

use kubeapi::names::listed as names;
use kubeapi::objects::{condition, named, text};
use kubeapi::slim::longhorn::{Backup, Engine, StorageNode, Volume};
use serde_json::Value;

use crate::{Finding, Severity};

/// How a finding of [`unhealthy`] begins.
const UNHEALTHY: &str = "volumes that are not healthy";

/// Whether a finding is one of [`unhealthy`].
#[must_use]
pub fn is_unhealthy(text: &str) -> bool {
    text.starts_with(UNHEALTHY)
}

/// Volumes that are degraded or faulted; code `volumes`.
#[must_use]
pub fn unhealthy(volumes: &[Volume]) -> Vec<Finding> {
    let bad = |it: &&Volume| matches!(it.status.robustness.as_str(), "degraded" | "faulted");
    let what = |it: &Volume| format!("{}: {}", it.shown(), it.status.robustness);
    let bad: Vec<String> = volumes.iter().filter(bad).map(what).collect();
    if bad.is_empty() {
        return Vec::new();
    }
    let text = format!("{UNHEALTHY}: {}", names(&bad, ", "));
    vec![Finding::new("volumes", text, "kubectl -n longhorn-system get volumes; wait until they are rebuilt")]
}

/// Volumes with a copy on a disk that is full: a guest that writes there is paused by IO errors. Code `volumes`.
#[must_use]
pub fn full(nodes: &[StorageNode], volumes: &[Volume]) -> Vec<Finding> {
    // A copy is called as its volume, then -r- and some letters.
    let shown = |copy: &String| {
        let volume = copy.rsplit_once("-r-").map_or(copy.as_str(), |(volume, _)| volume);
        volumes.iter().find(|it| it.name() == volume).map_or_else(|| volume.to_owned(), Volume::shown)
    };
    let on = |node: &StorageNode| {
        let disks = node.status.disk_status.values().filter(|it| it.is_full());
        let copies: Vec<String> = disks.flat_map(|it| &it.scheduled_replica.0).map(shown).collect();
        let name = node.metadata.name.clone().unwrap_or_default();
        (!copies.is_empty()).then(|| format!("node {name}: {}", names(&copies, ", ")))
    };
    let all: Vec<String> = nodes.iter().filter_map(on).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text = format!("volume-full: disks with copies of volumes are full: {}", names(&all, "; "));
    vec![Finding::new(
        "volumes",
        text,
        "make room on the disk: kubectl -n longhorn-system get nodes.longhorn.io -o yaml",
    )]
}

fn in_work(what: &str, names_of: &[String], next: &str) -> Vec<Finding> {
    if names_of.is_empty() {
        return Vec::new();
    }
    vec![Finding::new("backups", format!("{what}: {}", names(names_of, ", ")), next)]
}

/// Backups of Longhorn in progress; code `backups`.
#[must_use]
pub fn backing_up(backups: &[Backup]) -> Vec<Finding> {
    let runs = |it: &&Backup| matches!(it.status.state.as_str(), "" | "Pending" | "InProgress");
    let names = backups.iter().filter(runs).map(|it| it.metadata.name.clone().unwrap_or_default());
    let all: Vec<String> = names.collect();
    in_work("backups in progress", &all, "kubectl -n longhorn-system get backups; wait for their end")
}

/// Volumes of Longhorn that are being restored; code `backups`.
#[must_use]
pub fn restoring(volumes: &[Volume]) -> Vec<Finding> {
    let runs = |it: &&Volume| it.status.restore_required && !it.spec.standby;
    let all: Vec<String> = volumes.iter().filter(runs).map(Volume::shown).collect();
    in_work("volumes being restored", &all, "kubectl -n longhorn-system get volumes; wait for their end")
}

/// Virtual machines in a snapshot or a restore; code `backups`.
#[must_use]
pub fn machine_snapshots(machines: &[Value]) -> Vec<Finding> {
    let runs = |it: &&Value| {
        ["snapshotInProgress", "restoreInProgress"].iter().any(|word| !it["status"][word].is_null())
    };
    let all: Vec<String> = machines.iter().filter(runs).map(named).collect();
    in_work("virtual machines in a snapshot or a restore", &all, "wait for their end")
}

/// Volumes with one copy by their own settings: who is on the node that holds it goes down with it; code `volumes`.
#[must_use]
pub fn single(volumes: &[Volume]) -> Vec<Finding> {
    let one = |it: &&Volume| it.spec.number_of_replicas == 1 && it.status.state != "detached";
    let all: Vec<String> = volumes.iter().filter(one).map(Volume::shown).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text = format!("volumes with a single replica: {}", names(&all, ", "));
    let next = "give them two: kubectl -n longhorn-system edit volumes, numberOfReplicas";
    vec![Finding::new("volumes", text, next).with(Severity::Warns)]
}

/// Copies of volumes that are being made, with how far they are; code `rebuilds`.
#[must_use]
pub fn rebuilding(engines: &[Engine], volumes: &[Volume]) -> Vec<Finding> {
    let shown = |name: &String| {
        volumes.iter().find(|it| it.name() == *name).map_or_else(|| name.clone(), Volume::shown)
    };
    let of = |it: &Engine| {
        let running = it.status.rebuild_status.values().filter(|it| it.is_rebuilding);
        let percent = running.map(|it| it.progress).min()?;
        Some(format!("{} ({percent} %)", shown(&it.spec.volume_name)))
    };
    let all: Vec<String> = engines.iter().filter_map(of).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text = format!("volumes with a replica that is being rebuilt: {}", names(&all, ", "));
    let next = "kubectl -n longhorn-system get engines; wait until they are rebuilt";
    vec![Finding::new("rebuilds", text, next).with(Severity::Warns)]
}

/// Snapshots by CSI that are not ready yet and have not failed; code `backups`.
#[must_use]
pub fn csi_snapshots(snapshots: &[Value]) -> Vec<Finding> {
    // Without a status nobody has begun with it, and nobody may.
    let runs = |it: &&Value| {
        !it["status"].is_null() && it["status"]["readyToUse"] != true && it["status"]["error"].is_null()
    };
    let all: Vec<String> = snapshots.iter().filter(runs).map(named).collect();
    in_work("snapshots of volumes in progress", &all, "kubectl get volumesnapshots -A; wait for their end")
}

/// Volumes that are attached to nodes that are gone or not Ready: nobody else can use them; code `volumes`.
#[must_use]
pub fn stale_attachments(attachments: &[Value], nodes: &[Value]) -> Vec<Finding> {
    let ready = |name: &Value| {
        let node = nodes.iter().find(|it| it["metadata"]["name"] == *name);
        node.is_some_and(|it| condition(&it["status"], "Ready")["status"] == "True")
    };
    let of = |it: &Value| {
        let (node, volume) = (&it["spec"]["nodeName"], &it["spec"]["source"]["persistentVolumeName"]);
        let stale = it["status"]["attached"] == true && !ready(node);
        stale.then(|| format!("{} (node {})", text(volume), text(node)))
    };
    let all: Vec<String> = attachments.iter().filter_map(of).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text =
        format!("volumes that are attached to nodes which are gone or not Ready: {}", names(&all, ", "));
    let next = "start that node, or make sure that it is off: Kubernetes detaches them after 6 min then";
    vec![Finding::new("volumes", text, next).with(Severity::Warns)]
}
