//! Virtual addresses of the cluster, by the leases of kube-vip, and the address of this node in it.
//!
//! Not here: reading them (`cluster`). Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::names::VIRTUAL_IPS;
use kubeapi::objects::{is_ready, named, text, time};
use serde_json::Value;
use topics::{DeviceNetworkStatus, EdgeNodeClusterStatus};

use crate::{Finding, Severity};

/// kube-vip renews every 2 s; the clocks of its node and of the API server may differ.
const RENEWED: SignedDuration = SignedDuration::from_mins(2);

/// The lease of a virtual IP, as one reading shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VirtualIp {
    /// As `kube-system/plndr-cp-lock`.
    pub lease: String,
    /// The node that holds it, or empty.
    pub holder: String,
    /// That is a Ready node.
    pub ready: bool,
    /// Its time of renewal as text.
    pub renewed: String,
    /// Why its holder is not known to renew it; empty where it does.
    pub stale: String,
    /// What is wrong with its address; empty for nothing.
    pub address: String,
}

impl VirtualIp {
    /// Of one of [`VIRTUAL_IPS`]; its renewal and its address are not judged.
    pub fn of(lease: &Value, is_ready: impl Fn(&str) -> bool) -> Self {
        let (holder, renewed) = (text(&lease["spec"]["holderIdentity"]), text(&lease["spec"]["renewTime"]));
        let ready = !holder.is_empty() && is_ready(&holder);
        Self { lease: named(lease), holder, ready, renewed, ..Self::default() }
    }

    fn trouble(&self) -> Option<&str> {
        let why = match (self.holder.is_empty(), self.ready) {
            (true, _) => "no node holds it",
            (false, false) => "its holder is not a Ready node",
            (false, true) if !self.stale.is_empty() => &self.stale,
            (false, true) => &self.address,
        };
        (!why.is_empty()).then_some(why)
    }
}

/// Virtual IPs that are not served; code `network`. None without kube-vip.
pub fn virtual_ips(all: &[VirtualIp]) -> Vec<Finding> {
    let shown = |it: &VirtualIp| match (it.holder.as_str(), it.trouble()?) {
        ("", why) => Some(format!("lease {}: {why}", it.lease)),
        (holder, why) => Some(format!("lease {} of {holder}: {why}", it.lease)),
    };
    let ill: Vec<&VirtualIp> = all.iter().filter(|it| it.trouble().is_some()).collect();
    let late = ill.iter().all(|it| it.ready && !it.stale.is_empty());
    let severity = if late { Severity::Warns } else { Severity::Blocks };
    let next = |_: &String| {
        let name = ill.first().and_then(|it| it.lease.rsplit('/').next()).unwrap_or_default();
        format!(
            "look at `kubectl -n kube-system get lease {name}` and at the pods of kube-vip; if kube-vip is no longer in use: \
             `kubectl -n kube-system delete lease {name}`"
        )
    };
    let all: Vec<String> = all.iter().filter_map(shown).collect();
    Finding::listing(("network", severity), "virtual IPs are not served", &all, next)
}

/// Those of a list of leases, by one look: renewed is what was so by the server's clock a short time ago.
pub fn addresses(leases: &[Value], nodes: &[Value], now: Timestamp) -> Vec<Finding> {
    let is_node = |name: &str| nodes.iter().any(|it| it["metadata"]["name"] == name && is_ready(it));
    let ours = leases.iter().filter(|it| VIRTUAL_IPS.iter().any(|name| it["metadata"]["name"] == *name));
    let of = |lease: &Value| {
        let age = time(&lease["spec"]["renewTime"]).map(|it| now.duration_since(it));
        let late = age.filter(|it| *it > RENEWED);
        let stale = late.map(|it| format!("its holder has not renewed it for {} s", it.as_secs()));
        VirtualIp { stale: stale.unwrap_or_default(), ..VirtualIp::of(lease, is_node) }
    };
    virtual_ips(&ours.map(of).collect::<Vec<_>>())
}

/// The same leases as those `before`, of which one counts as renewed that was read with another time then.
#[must_use]
pub fn renewed(all: &[VirtualIp], before: &[VirtualIp]) -> Vec<VirtualIp> {
    let is_renewed =
        |it: &VirtualIp| before.iter().any(|old| old.lease == it.lease && old.renewed != it.renewed);
    let of = |it: &VirtualIp| {
        let stale = if is_renewed(it) { "" } else { "its holder does not renew it" };
        VirtualIp { stale: stale.to_owned(), ..it.clone() }
    };
    all.iter().map(of).collect()
}

/// The node has other addresses than it had before this boot; code `address`. None where either is not known.
pub fn moved(node: &str, before: &[String], now: &[String]) -> Vec<Finding> {
    let is_same = before.iter().all(|it| now.contains(it)) && before.len() == now.len();
    if before.is_empty() || now.is_empty() || is_same {
        return Vec::new();
    }
    let (was, is) = (before.join(", "), now.join(", "));
    let text = format!("node {node} has the address {is}; before this boot it had {was}");
    let next = "if that is not wanted: give the port its address again (a fixed one, or a DHCP reservation) and reboot; \
                etcd and the other nodes may still look for it at the old one";
    vec![Finding::new("address", text, next).with(Severity::Warns)]
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
