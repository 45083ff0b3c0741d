//! What the record of turns says against a drain that is about to start: who else is down, and whether the whole site is
//! being operated on; and whether a witness leads etcd.
//!
//! All of it warns: when this node goes is its turn's to say (`turn`).

use checks::{Finding, Severity};
use kubeapi::ApiClient;

use crate::calls::{self, LeaseRead};
use crate::margin::words;
use crate::turn::event::ReadError;
use crate::turn::record::{Holder, Phase, TurnRecord};

/// One look at the Lease, for a drain of `node`; code `turns`. It is asked for where no watch has `seen` it. Dropping it
/// loses nothing.
pub async fn look(cluster: &ApiClient, seen: Option<LeaseRead>, node: &str) -> Vec<Finding> {
    let read = match seen {
        Some(read) => read,
        None => calls::read(cluster).await,
    };
    match read {
        Ok(held) => held.map(|it| of(&it.record, node)).unwrap_or_default(),
        Err(ReadError::NoAnswer(why) | ReadError::Refused(why)) => vec![found(why, "zedbox lock status")],
        Err(ReadError::BadRecord(why)) => vec![found(why.to_string(), "zedbox lock status")],
    }
}

/// Whether a tie-breaker or a witness leads etcd, by its own word at `port`; code `etcd`. Dropping it loses nothing.
pub async fn lead(cluster: &ApiClient, port: u16) -> Vec<Finding> {
    // A silent API is found by others.
    let servers = calls::servers(cluster).await.unwrap_or_default();
    let asked = servers.into_iter().filter(|it| it.etcd && it.witness);
    let asked = asked.filter_map(|it| Some((it.name, it.address?)));
    let heard = words::ask(asked, port).await.into_iter();
    let leads =
        heard.filter(|(_, said)| said.as_ref().is_ok_and(|it| it.etcd.as_ref().is_some_and(|it| it.leads)));
    let leads = leads.map(|(node, _)| {
        let text = format!("the tie-breaker or witness {node} leads etcd; another server is to lead");
        let next = format!("on node {node}: systemctl restart k3s (rke2-server): another member is elected");
        Finding::new("etcd", text, next).with(Severity::Warns)
    });
    leads.collect()
}

pub(crate) fn of(record: &TurnRecord, node: &str) -> Vec<Finding> {
    let site = record.mode.as_ref().map(|mode| {
        let waits = if mode.waits().is_empty() { String::new() } else { format!(": {}", mode.waits()) };
        found(
            format!("an operation on the whole site is under way ({}){waits}", mode.kind),
            "zedbox site status",
        )
    });
    let most = record.limit;
    let others = record.holders.iter().filter(|it| it.node != node).map(|it| {
        let is =
            format!("node {} has the turn to be down ({}, phase {})", it.node, it.op.text(), it.phase.text());
        found(format!("{is}; at most {most} may be at once"), &next_of(it))
    });
    site.into_iter().chain(others).collect()
}

/// What to do about another node's turn.
pub fn next_of(holder: &Holder) -> String {
    let node = &holder.node;
    if holder.phase == Phase::Failed {
        return format!("it keeps its turn until a person decides: zedbox lock status --node {node}");
    }
    "wait until it is back: zedbox lock status".to_owned()
}

fn found(text: String, next: &str) -> Finding {
    Finding::new("turns", text, next).with(Severity::Warns)
}
