//! Volumes, and work on them that is in progress.
//!
//! Not here: whether the last healthy copy of a volume is on a node, which a drain guards itself
//! (`kubenodeop::storage`). Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::listed as names;
use kubeapi::objects::{is_ready, items, named, text, time};
use kubeapi::slim::longhorn::{Engine, Replica, StorageNode, Volume, VolumeUser};
use serde_json::Value;

use crate::{Finding, Severity};

/// Prefix of [`unhealthy`] findings.
const UNHEALTHY: &str = "volumes that are not healthy";

pub fn is_unhealthy(text: &str) -> bool {
    text.starts_with(UNHEALTHY)
}

/// Volumes that are degraded or faulted; code `volumes`.
pub fn unhealthy(volumes: &[Volume]) -> Vec<Finding> {
    let bad = |it: &&Volume| matches!(it.status.robustness.as_str(), "degraded" | "faulted");
    let what = |it: &Volume| format!("{}: {}", it.shown(), it.status.robustness);
    let bad: Vec<String> = volumes.iter().filter(bad).map(what).collect();
    let faulted = volumes.iter().any(|it| it.status.robustness == "faulted");
    let next = if faulted {
        "a faulted volume has no copy that can be used, and waiting does not help: start the nodes that hold its copies; \
         kubectl -n longhorn-system get replicas.longhorn.io -o wide shows which"
    } else {
        "wait until they are rebuilt: kubectl -n longhorn-system get volumes.longhorn.io"
    };
    Finding::listing(("volumes", Severity::Blocks), UNHEALTHY, &bad, |_| next.to_owned())
}

/// Volumes with a copy on a full disk: a guest that writes there is paused by IO errors. Code `volumes`.
pub fn full(nodes: &[StorageNode], volumes: &[Volume]) -> Vec<Finding> {
    // A copy's name is its volume's, then -r- and some letters.
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

/// Work on an object that has not changed for so long is only a warning: it may hang, and must not block a
/// node for ever.
pub const STALE: SignedDuration = SignedDuration::from_hours(24);

/// Last change by any writer; the creation where that is unknown.
fn changed(object: &Value) -> Option<Timestamp> {
    let meta = &object["metadata"];
    let written = items(&meta["managedFields"]).iter().map(|it| &it["time"]);
    written.chain([&meta["creationTimestamp"]]).filter_map(time).max()
}

/// Work by name and last change; [`STALE`] work apart, as a warning. `look` shows it.
fn in_work(
    what: &str,
    all: impl Iterator<Item = (String, Option<Timestamp>)>,
    now: Timestamp,
    look: &str,
) -> Vec<Finding> {
    let age = |at: Option<Timestamp>| at.map(|it| now.duration_since(it)).filter(|it| *it > STALE);
    let (stale, runs): (Vec<_>, Vec<_>) = all.partition(|it| age(it.1).is_some());
    let runs: Vec<String> = runs.into_iter().map(|it| it.0).collect();
    let wait = |_: &String| format!("{look}; wait for their end");
    let mut found = Finding::listing(("backups", Severity::Blocks), what, &runs, wait);
    let shown = |(name, at): (String, _)| format!("{name} ({} h)", age(at).unwrap_or_default().as_hours());
    let stale: Vec<String> = stale.into_iter().map(shown).collect();
    let what = format!("{what}, by their times for more than {} h", STALE.as_hours());
    found.extend(Finding::listing(("backups", Severity::Warns), &what, &stale, |_| {
        format!("look twice, 10 min apart: {look}; one that moves is cut off by a reboot, so wait for it")
    }));
    found
}

/// Backups of Longhorn in progress; code `backups`.
pub fn backing_up(backups: &[Value], now: Timestamp) -> Vec<Finding> {
    let runs = |it: &&Value| matches!(text(&it["status"]["state"]).as_str(), "" | "Pending" | "InProgress");
    let all = backups.iter().filter(runs).map(|it| (text(&it["metadata"]["name"]), changed(it)));
    in_work("backups in progress", all, now, "kubectl -n longhorn-system get backups")
}

/// Longhorn volumes in restore, since their creation; code `backups`.
pub fn restoring(volumes: &[Volume], now: Timestamp) -> Vec<Finding> {
    let runs = |it: &&Volume| it.status.restore_required && !it.spec.standby;
    let made = |it: &Volume| it.metadata.creation_timestamp.as_ref().map(|it| it.0);
    let all = volumes.iter().filter(runs).map(|it| (it.shown(), made(it)));
    in_work("volumes being restored", all, now, "kubectl -n longhorn-system get volumes")
}

/// Virtual machines in a snapshot or a restore; code `backups`.
pub fn machine_snapshots(machines: &[Value], now: Timestamp) -> Vec<Finding> {
    let runs = |it: &&Value| {
        ["snapshotInProgress", "restoreInProgress"].iter().any(|word| !it["status"][word].is_null())
    };
    let all = machines.iter().filter(runs).map(|it| (named(it), changed(it)));
    let look = "kubectl get virtualmachinesnapshots,virtualmachinerestores -A";
    in_work("virtual machines in a snapshot or a restore", all, now, look)
}

/// Longhorn's setting that puts a volume's only replica on its pod's node.
const STRICT_LOCAL: &str = "strict-local";

/// Volumes with one replica, and no shards, by their own settings: their users go down with its node; code `volumes`. Hints,
/// because they are meant so: the last copy of a volume keeps its node up.
pub fn single(volumes: &[Volume]) -> Vec<Finding> {
    let used = volumes.iter().filter(|it| it.status.state != "detached");
    let (strict, others): (Vec<&Volume>, Vec<&Volume>) =
        used.partition(|it| it.spec.data_locality == STRICT_LOCAL);
    let one = others.into_iter().filter(|it| it.spec.number_of_replicas == 1 && !it.is_sharded());
    let hint = |what: &str, all: Vec<String>, next: &str| {
        Finding::listing(("volumes", Severity::Hint), what, &all, |_| next.to_owned())
    };
    let rows = [
        hint(
            "volumes with a single replica",
            one.map(Volume::shown).collect(),
            "set numberOfReplicas to 2 where another node has room: kubectl -n longhorn-system edit volumes.longhorn.io NAME",
        ),
        hint(
            "strict-local volumes, whose only replica cannot leave the node of their pod",
            strict.into_iter().map(Volume::shown).collect(),
            "set dataLocality to best-effort where that will do: kubectl -n longhorn-system edit volumes.longhorn.io NAME",
        ),
    ];
    rows.concat()
}

/// Copies in the making, with their progress; code `rebuilds`.
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
    let what = "volumes with a replica that is being rebuilt";
    let next = "kubectl -n longhorn-system get engines; wait until they are rebuilt";
    Finding::listing(("rebuilds", Severity::Warns), what, &all, |_| next.to_owned())
}

/// Longhorn names a user of a volume by the owner of its pod.
fn is_guest(user: &VolumeUser) -> bool {
    user.workload_type == "VirtualMachineInstance" && user.pod_status == "Running"
}

/// Degraded volumes of virtual machines with a single good copy by the running engine, and that copy's name.
pub fn thin<'a>(volumes: &'a [Volume], engines: &'a [Engine]) -> Vec<(&'a Volume, &'a str)> {
    let copy = |volume: &Volume| {
        let name = volume.name();
        let runs = engines.iter().find(|it| it.spec.active && it.spec.volume_name == name)?;
        let mut good = runs.status.replica_mode_map.iter().filter(|(_, mode)| *mode == "RW");
        good.next().filter(|_| good.next().is_none()).map(|(name, _)| name.as_str())
    };
    let used = |it: &&Volume| it.status.kubernetes_status.workloads_status.iter().any(is_guest);
    let degraded = volumes.iter().filter(|it| it.status.robustness == "degraded").filter(used);
    degraded.filter_map(|it| Some((it, copy(it)?))).collect()
}

/// [`thin`] volumes with their good copy on `node`: while it is down, their machines stop on any node. Code
/// `last-copy`. The drain guards the copy too, but only after the cordon and after moving machines.
pub fn last_copies(thin: &[(&Volume, &str)], replicas: &[Replica], node: &str) -> Vec<Finding> {
    let here = |copy: &str| {
        replicas.iter().any(|it| it.metadata.name.as_deref() == Some(copy) && it.spec.node == node)
    };
    let machines = |volume: &Volume| {
        let of = &volume.status.kubernetes_status;
        let guests = of.workloads_status.iter().filter(|it| is_guest(it));
        let all: Vec<String> = guests.map(|it| format!("{}/{}", of.namespace, it.workload_name)).collect();
        format!("{} on {}", names(&all, ", "), volume.shown())
    };
    let all: Vec<String> = thin.iter().filter(|(_, copy)| here(copy)).map(|(it, _)| machines(it)).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "virtual machines on degraded volumes whose only good copy is on this node: {}",
        names(&all, "; ")
    );
    let next =
        "wait until they are rebuilt: kubectl -n longhorn-system get volumes.longhorn.io,engines.longhorn.io";
    vec![Finding::new("last-copy", text, next)]
}

/// CSI snapshots that are neither ready nor failed; code `backups`.
pub fn csi_snapshots(snapshots: &[Value], now: Timestamp) -> Vec<Finding> {
    // Without a status the work has not begun, and may never.
    let runs = |it: &&Value| {
        !it["status"].is_null() && it["status"]["readyToUse"] != true && it["status"]["error"].is_null()
    };
    let all = snapshots.iter().filter(runs).map(|it| (named(it), changed(it)));
    in_work("snapshots of volumes in progress", all, now, "kubectl get volumesnapshots -A")
}

/// Volumes attached to nodes that are gone or not Ready: unusable elsewhere; code `volumes`.
pub fn stale_attachments(attachments: &[Value], nodes: &[Value]) -> Vec<Finding> {
    let ready = |name: &Value| nodes.iter().any(|it| it["metadata"]["name"] == *name && is_ready(it));
    let of = |it: &Value| {
        let (node, volume) = (&it["spec"]["nodeName"], &it["spec"]["source"]["persistentVolumeName"]);
        let stale = it["status"]["attached"] == true && !ready(node);
        stale.then(|| format!("{} (node {})", text(volume), text(node)))
    };
    let all: Vec<String> = attachments.iter().filter_map(of).collect();
    let what = "volumes that are attached to nodes which are gone or not Ready";
    let next = "start that node; Kubernetes detaches them some minutes after its pods are gone: kubectl get volumeattachments";
    Finding::listing(("volumes", Severity::Warns), what, &all, |_| next.to_owned())
}
