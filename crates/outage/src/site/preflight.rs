//! What is looked at before the whole site goes down, and what speaks against it.
//!
//! All is looked at, and each finding has a code by which a person passes it. Here is what the record of turns says; the
//! rest is `checks`. Not here: another operation that is in progress (`operator`). Source: spec/cluster-lock.md 6.3 and
//! 7.1. Reads only.

pub use checks::{Finding, blocking};
use jiff::Timestamp;
use kubeapi::ApiClient;

use crate::turn::record::TurnRecord;

pub const CODES: [&str; 8] =
    ["turn", "nodes", "paused", "etcd", "snapshot", "certificates", "volumes", "backups"];

/// Looks at all of it; `now` is the wall clock.
pub async fn look(cluster: &ApiClient, record: &TurnRecord, now: Timestamp) -> Vec<Finding> {
    let turn = record.holders.iter().map(|it| {
        let text = format!("node {} holds a turn ({}, phase {})", it.node, it.op.text(), it.phase.text());
        Finding::new("turn", text, "wait until it is back, or stop what it does: --although-held")
    });
    let mut found: Vec<Finding> = turn.collect();
    found.extend(checks::cluster::site(cluster, now).await);
    found
}
