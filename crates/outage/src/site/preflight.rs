//! What is looked at before the whole site goes down, and what speaks against it.
//!
//! All is looked at, and each finding has a code by which a person passes it. What cannot be read is a finding too. Not
//! here: another operation that is in progress (`operator`). Source: spec/cluster-lock.md 6.3 and 7.1, spec/vm-storage.md
//! B8. Reads only.

use futures::join;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Resource;
use kubeapi::machines::calls::{MACHINES, path};
use kubeapi::names::{ETCD, listed as names};
use kubeapi::objects::{condition, text};
use kubeapi::slim::longhorn::{self, Backup, StorageNode, Volume};
use kubeapi::watch::Scope;
use kubeapi::{Cluster, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::{listed, longhorn_volumes, named};
use crate::turn::record::Record;

/// A snapshot of etcd that is older counts as none; k3s makes one every 12 h.
pub const SNAPSHOT_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Something that speaks against it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// `turn`, `nodes`, `etcd`, `snapshot`, `certificates`, `volumes` or `backups`.
    pub code: String,
    /// What was found, a sentence.
    pub text: String,
    /// What a person can do.
    pub next: String,
}

/// All codes.
pub const CODES: [&str; 7] = ["turn", "nodes", "etcd", "snapshot", "certificates", "volumes", "backups"];

fn finding(code: &str, text: String, next: impl Into<String>) -> Finding {
    Finding { code: code.to_owned(), text, next: next.into() }
}

/// Looks at all of it; `now` is the wall clock.
pub async fn look(cluster: &Cluster, record: &Record, now: Timestamp) -> Vec<Finding> {
    let mut events = Scope::all("events of nodes", Event::url_path(&(), Some("default")));
    events.fields = Some("involvedObject.kind=Node".to_owned());
    let (nodes, snapshots, events, volumes, storage, backups, machines) = join!(
        Box::pin(listed::<Value>(cluster, "nodes", Node::url_path(&(), None))),
        Box::pin(listed::<Value>(
            cluster,
            "etcd snapshots",
            "/apis/k3s.cattle.io/v1/etcdsnapshotfiles".to_owned()
        )),
        Box::pin(events.list_all::<Value>(cluster)),
        Box::pin(longhorn_volumes(cluster)),
        Box::pin(listed(cluster, "nodes.longhorn.io", longhorn::path("nodes"))),
        Box::pin(listed(cluster, "backups.longhorn.io", longhorn::path("backups"))),
        Box::pin(listed::<Value>(cluster, "virtual machines", path(MACHINES))),
    );
    let turn = record.holders.iter().map(|it| {
        let text = format!("node {} holds a turn ({}, phase {})", it.node, it.op.text(), it.phase.text());
        finding("turn", text, "wait until it is back, or stop what it does: --although-held")
    });
    let mut found: Vec<Finding> = turn.collect();
    let has_etcd =
        nodes.as_ref().is_ok_and(|all| all.iter().any(|it| !it["metadata"]["labels"][ETCD].is_null()));
    of("nodes", nodes.as_deref(), &mut found, |all| [unready(all), voters(all)].concat());
    if has_etcd {
        of("snapshot", snapshots.as_deref(), &mut found, |all| snapshot(all, now));
    }
    of("certificates", events.as_ref().map(|it| it.items.as_slice()), &mut found, certificates);
    of("volumes", volumes.as_deref(), &mut found, unhealthy);
    of("volumes", storage.as_deref(), &mut found, |all| full(all, volumes.as_deref().unwrap_or_default()));
    of("backups", backups.as_deref(), &mut found, backing_up);
    of("backups", volumes.as_deref(), &mut found, restoring);
    of("backups", machines.as_deref(), &mut found, machine_snapshots);
    found.dedup();
    found
}

fn of<T>(
    code: &str,
    read: Result<&[T], &Error>,
    found: &mut Vec<Finding>,
    judge: impl FnOnce(&[T]) -> Vec<Finding>,
) {
    match read {
        Ok(all) => found.extend(judge(all)),
        Err(error) => {
            found.push(finding(code, format!("cannot be checked: {}", error.line()), error.next_step()));
        }
    }
}

fn unready(nodes: &[Value]) -> Vec<Finding> {
    let off = |it: &&Value| condition(&it["status"], "Ready")["status"] != "True";
    let off: Vec<String> = nodes.iter().filter(off).map(named).collect();
    let Some(first) = off.first() else { return Vec::new() };
    let next =
        format!("kubectl describe node {first}; it cannot take part, and the site comes back without it");
    vec![finding("nodes", format!("nodes that are not Ready: {}", names(&off, ", ")), next)]
}

fn voters(nodes: &[Value]) -> Vec<Finding> {
    let sick = |it: &&Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        !it["metadata"]["labels"][ETCD].is_null() && !voter.is_null() && voter["status"] != "True"
    };
    let what = |it: &Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        format!("{} ({})", named(it), text(&voter["reason"]))
    };
    let sick: Vec<String> = nodes.iter().filter(sick).map(what).collect();
    if sick.is_empty() {
        return Vec::new();
    }
    let text = format!("members of etcd that are no healthy voters: {}", names(&sick, ", "));
    vec![finding("etcd", text, "repair them first: a site that goes down so may come back without quorum")]
}

fn snapshot(files: &[Value], now: Timestamp) -> Vec<Finding> {
    let made = |it: &Value| it["status"]["creationTime"].as_str()?.parse::<Timestamp>().ok();
    let newest = files.iter().filter(|it| it["status"]["readyToUse"] == true).filter_map(made).max();
    let text = match newest {
        Some(at) if now.duration_since(at) <= SNAPSHOT_AGE => return Vec::new(),
        Some(at) => format!("the newest snapshot of etcd is {} h old", now.duration_since(at).as_hours()),
        None => "the cluster knows of no snapshot of etcd".to_owned(),
    };
    vec![finding("snapshot", text, "on a server: k3s etcd-snapshot save (rke2: rke2 etcd-snapshot save)")]
}

/// What an event says of the certificates of a node.
struct Word {
    node: String,
    /// Of an authority.
    authority: bool,
    at: Option<Timestamp>,
    is_ok: bool,
    text: String,
}

impl Word {
    fn of(event: &Value) -> Option<Self> {
        let reason = text(&event["reason"]);
        let at = [&event["lastTimestamp"], &event["eventTime"], &event["metadata"]["creationTimestamp"]];
        reason.contains("CertificateExpiration").then(|| Self {
            node: text(&event["involvedObject"]["name"]),
            authority: reason.starts_with("CACertificate"),
            at: at.into_iter().find_map(|it| it.as_str()?.parse().ok()),
            is_ok: reason.ends_with("OK"),
            text: text(&event["message"]),
        })
    }
}

/// The newest word on each node's certificates, those of the authorities apart.
fn certificates(events: &[Value]) -> Vec<Finding> {
    let mut all: Vec<Word> = events.iter().filter_map(Word::of).collect();
    all.sort_by(|a, b| (&a.node, a.authority, b.at).cmp(&(&b.node, b.authority, a.at)));
    all.dedup_by(|older, newest| (&older.node, older.authority) == (&newest.node, newest.authority));
    let warning = |it: &Word| {
        let next = if it.authority {
            "renew the certificate authority first: k3s certificate rotate-ca"
        } else {
            "restart k3s on that node, which renews them"
        };
        finding("certificates", format!("certificates on node {}: {}", it.node, it.text), next)
    };
    all.iter().filter(|it| !it.is_ok).map(warning).collect()
}

fn unhealthy(volumes: &[Volume]) -> Vec<Finding> {
    let bad = |it: &&Volume| matches!(it.status.robustness.as_str(), "degraded" | "faulted");
    let what = |it: &Volume| format!("{}: {}", it.shown(), it.status.robustness);
    let bad: Vec<String> = volumes.iter().filter(bad).map(what).collect();
    if bad.is_empty() {
        return Vec::new();
    }
    let text = format!("volumes that are not healthy: {}", names(&bad, ", "));
    vec![finding("volumes", text, "kubectl -n longhorn-system get volumes; wait until they are rebuilt")]
}

/// Volumes with a copy on a disk that is full: a guest that writes there is paused by IO errors.
fn full(nodes: &[StorageNode], volumes: &[Volume]) -> Vec<Finding> {
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
    vec![finding(
        "volumes",
        text,
        "make room on the disk: kubectl -n longhorn-system get nodes.longhorn.io -o yaml",
    )]
}

fn in_work(what: &str, names_of: &[String], next: &str) -> Vec<Finding> {
    if names_of.is_empty() {
        return Vec::new();
    }
    vec![finding("backups", format!("{what}: {}", names(names_of, ", ")), next)]
}

fn backing_up(backups: &[Backup]) -> Vec<Finding> {
    let runs = |it: &&Backup| matches!(it.status.state.as_str(), "" | "Pending" | "InProgress");
    let names = backups.iter().filter(runs).map(|it| it.metadata.name.clone().unwrap_or_default());
    let all: Vec<String> = names.collect();
    in_work("backups in progress", &all, "kubectl -n longhorn-system get backups; wait for their end")
}

fn restoring(volumes: &[Volume]) -> Vec<Finding> {
    let all: Vec<String> =
        volumes.iter().filter(|it| it.status.restore_required).map(Volume::shown).collect();
    in_work("volumes being restored", &all, "kubectl -n longhorn-system get volumes; wait for their end")
}

fn machine_snapshots(machines: &[Value]) -> Vec<Finding> {
    let runs = |it: &&Value| {
        ["snapshotInProgress", "restoreInProgress"].iter().any(|word| !it["status"][word].is_null())
    };
    let all: Vec<String> = machines.iter().filter(runs).map(named).collect();
    in_work("virtual machines in a snapshot or a restore", &all, "wait for their end")
}

/// Those whose code is not among `passed`.
#[must_use]
pub fn blocking<'a>(findings: &'a [Finding], passed: &[String]) -> Vec<&'a Finding> {
    findings.iter().filter(|it| !passed.contains(&it.code)).collect()
}
