//! Virtual addresses of the cluster, by the leases of kube-vip.
//!
//! Source: spec/cluster-lock.md 7. Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::VIRTUAL_IPS;
use kubeapi::objects::{condition, text, time};
use serde_json::Value;

use crate::{Finding, Severity};

/// kube-vip renews every 2 s; the clocks of its node and of the API server may differ.
const RENEWED: SignedDuration = SignedDuration::from_mins(2);

/// Addresses whose holder is no Ready node, or does not renew; code `network`. Without kube-vip there is nothing to find.
#[must_use]
pub fn addresses(leases: &[Value], nodes: &[Value], now: Timestamp) -> Vec<Finding> {
    let ready = |name: &str| {
        let node = nodes.iter().find(|it| it["metadata"]["name"] == name);
        node.is_some_and(|it| condition(&it["status"], "Ready")["status"] == "True")
    };
    let of = |lease: &&str| {
        let lease = leases.iter().find(|it| it["metadata"]["name"] == **lease)?;
        let name = text(&lease["metadata"]["name"]);
        let holder = text(&lease["spec"]["holderIdentity"]);
        let next = format!("kubectl -n kube-system get lease {name}, and the log of kube-vip on its node");
        if holder.is_empty() || !ready(&holder) {
            let who = if holder.is_empty() {
                "nobody".to_owned()
            } else {
                format!("{holder}, which is no Ready node")
            };
            return Some(Finding::new(
                "network",
                format!("the virtual address of lease {name} is held by {who}"),
                next,
            ));
        }
        let renewed = time(&lease["spec"]["renewTime"])?;
        let silent = now.duration_since(renewed);
        (silent > RENEWED).then(|| {
            let text = format!(
                "{holder} has not renewed the virtual address of lease {name} for {} s",
                silent.as_secs()
            );
            Finding::new("network", text, next).with(Severity::Warns)
        })
    };
    VIRTUAL_IPS.iter().filter_map(of).collect()
}
