//! Members of etcd as their nodes report them, and its snapshots.
//!
//! Not here: etcd's own view (`outage::margin`). Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::{ETCD, listed as names};
use kubeapi::objects::{condition, named, text};
use serde_json::Value;

use crate::{Finding, Severity};

/// An older snapshot of etcd counts as none; k3s makes one every 12 h.
pub const SNAPSHOT_AGE: SignedDuration = SignedDuration::from_hours(24);

pub fn is_member(node: &Value) -> bool {
    !node["metadata"]["labels"][ETCD].is_null()
}

/// Nodes that report an unhealthy or non-voting member; code `etcd`.
pub fn voters(nodes: &[Value]) -> Vec<Finding> {
    let sick = |it: &&Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        is_member(it) && !voter.is_null() && voter["status"] != "True"
    };
    let what = |it: &Value| {
        let voter = condition(&it["status"], "EtcdIsVoter");
        format!("{} ({})", named(it), text(&voter["reason"]))
    };
    let sick: Vec<String> = nodes.iter().filter(sick).map(what).collect();
    if sick.is_empty() {
        return Vec::new();
    }
    let text = format!("etcd members that are not healthy voters: {}", names(&sick, ", "));
    vec![Finding::new(
        "etcd",
        text,
        "repair it before another server goes down; on that node: systemctl status k3s (rke2-server), journalctl -u k3s",
    )]
}

/// Age of the newest snapshot: a hint, until it is older than [`SNAPSHOT_AGE`] or there is none; code
/// `snapshot`.
pub fn snapshot(files: &[Value], now: Timestamp) -> Vec<Finding> {
    let made = |it: &Value| it["status"]["creationTime"].as_str()?.parse::<Timestamp>().ok();
    let newest = files.iter().filter(|it| it["status"]["readyToUse"] == true).filter_map(made).max();
    let age = newest.map(|at| now.duration_since(at));
    let text = match age {
        Some(age) => format!("the newest snapshot of etcd is {} h old", age.as_hours()),
        None => "the cluster has no snapshot of etcd".to_owned(),
    };
    let is_young = age.is_some_and(|it| it <= SNAPSHOT_AGE);
    let next = "on a server: k3s etcd-snapshot save (rke2: rke2 etcd-snapshot save)";
    vec![Finding::new("snapshot", text, next).with(if is_young { Severity::Hint } else { Severity::Blocks })]
}
