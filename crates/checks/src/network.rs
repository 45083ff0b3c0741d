//! Virtual addresses of the cluster, by the leases of kube-vip, and the address of this node in it.
//!
//! Sources: spec/cluster-lock.md 7; seed row 0-07. Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::VIRTUAL_IPS;
use kubeapi::objects::{condition, text, time};
use serde_json::Value;
use topics::{DeviceNetworkStatus, EdgeNodeClusterStatus};

use crate::{Finding, Severity};

/// kube-vip renews every 2 s; the clocks of its node and of the API server may differ.
const RENEWED: SignedDuration = SignedDuration::from_mins(2);

/// Addresses with a holder that is not Ready, or does not renew; code `network`. None without kube-vip.
pub fn addresses(leases: &[Value], nodes: &[Value], now: Timestamp) -> Vec<Finding> {
    let ready = |name: &str| {
        let node = nodes.iter().find(|it| it["metadata"]["name"] == name);
        node.is_some_and(|it| condition(&it["status"], "Ready")["status"] == "True")
    };
    let of = |lease: &&str| {
        let lease = leases.iter().find(|it| it["metadata"]["name"] == **lease)?;
        let name = text(&lease["metadata"]["name"]);
        let holder = text(&lease["spec"]["holderIdentity"]);
        let next = format!(
            "kubectl -n kube-system get lease {name}, and the log of kube-vip on its node: kubectl -n kube-system get pods -o wide"
        );
        if holder.is_empty() || !ready(&holder) {
            let who = if holder.is_empty() {
                "nobody".to_owned()
            } else {
                format!("{holder}, which is not a Ready node")
            };
            return Some(Finding::new(
                "network",
                format!("the virtual IP of lease {name} is held by {who}"),
                next,
            ));
        }
        let renewed = time(&lease["spec"]["renewTime"])?;
        let silent = now.duration_since(renewed);
        (silent > RENEWED).then(|| {
            let text =
                format!("{holder} has not renewed lease {name} of a virtual IP for {} s", silent.as_secs());
            Finding::new("network", text, next).with(Severity::Warns)
        })
    };
    VIRTUAL_IPS.iter().filter_map(of).collect()
}

/// The reference's number for DHCP.
const DHCP_CLIENT: u32 = 4;

/// The cluster's port has a leased address, and the cluster's config gives this node none of its own; code
/// `address`.
pub fn leased(cluster: &EdgeNodeClusterStatus, ports: &DeviceNetworkStatus) -> Option<Finding> {
    let wanted = &cluster.cluster_interface;
    let mut all = ports.ports.iter().flatten().filter(|_| !wanted.is_empty());
    let port = all.find(|it| it.logicallabel == *wanted || it.if_name == *wanted)?;
    let is_fixed = port.cluster_ip_addr.0.is_some() || cluster.cluster_ip_prefix.is_some();
    (port.dhcp == DHCP_CLIENT && !is_fixed).then(|| {
        let text = format!(
            "the address of port {} (label {}), by which this node is in the cluster, is leased by DHCP: after the reboot it may \
             be another one",
            port.if_name, port.logicallabel
        );
        let next = "give the node a fixed address in its cluster config (clusterIpPrefix), or reserve the lease at the DHCP server";
        Finding::new("address", text, next).with(Severity::Warns)
    })
}
