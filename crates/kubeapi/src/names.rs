//! Names that go into paths and selectors, checked once, and well-known labels and annotations.
//!
//! Source: the Kubernetes page "Object Names and IDs" (DNS subdomain names). Pure: no clock, no I/O, no task.

use std::fmt;

/// Role label of a control-plane node since Kubernetes 1.24.
pub const CONTROL_PLANE_NOW: &str = "node-role.kubernetes.io/control-plane";
/// Role labels of a control-plane node: Kubernetes dropped the first in 1.24 (D-K19).
pub const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/master", CONTROL_PLANE_NOW];
pub const ETCD: &str = "node-role.kubernetes.io/etcd";

/// Whether these labels, with any values, include the control plane or etcd.
pub fn is_server(has: impl Fn(&str) -> bool) -> bool {
    CONTROL_PLANE.into_iter().chain([ETCD]).any(has)
}

/// On a Node: the owner of its cordon.
pub const OWNER_ANNOTATION: &str = "pillar-rs/cordon-owner";
/// On a Longhorn volume: another copy was requested because its last one is on a leaving node.
pub const COPY_ANNOTATION: &str = "pillar-rs/last-copy";
/// On a Longhorn volume: a person lets its last healthy copy go down with a node; the node's name, and why.
pub const PASS_ANNOTATION: &str = "pillar-rs/last-copy-pass";
/// On a Node: the volumes with a copy there before it went down, and which of them were healthy.
pub const VOLUMES_ANNOTATION: &str = "pillar-rs/volumes-before";
/// On a node without workloads.
pub const TIE_BREAKER_LABEL: &str = "tie-breaker-node";
/// Labels, with value `true`, of a server that exists for its vote: the reference's tie-breaker, Harvester's
/// witness.
pub const WITNESS_LABELS: [&str; 2] = [TIE_BREAKER_LABEL, "node-role.harvesterhci.io/witness"];

/// Taints of the node controller for a silent node.
pub const OUTAGE_TAINTS: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
/// Leases of kube-vip in the namespace kube-system: for the control plane's address, and for services.
pub const VIRTUAL_IPS: [&str; 2] = ["plndr-cp-lock", "plndr-svcs-lock"];

pub const APP_NAMESPACE: &str = "eve-kube-app";
pub const STORAGE_NAMESPACE: &str = "longhorn-system";
/// Where the basic deployments of a cluster are, as its DNS.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// The name of a Node object, a DNS subdomain: it is used in paths and field selectors unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(String);

impl fmt::Display for BadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "use {:?} as a node name: lower-case letters, digits, '-' and '.' only, 1 to 253", self.0)
    }
}

impl std::error::Error for BadName {}

impl NodeName {
    /// Errors: no Node object can have this name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = bytes.len() <= 253
            && bytes.first().is_some_and(|byte| edge(*byte))
            && bytes.last().is_some_and(|byte| edge(*byte))
            && bytes.iter().all(|byte| edge(*byte) || matches!(byte, b'-' | b'.'));
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(text.to_owned())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Identity of one pod object. A pod with the same name and another UID is another pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Shown as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: PodUid,
}

impl fmt::Display for PodRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Limit of names in a sentence.
const LISTED: usize = 8;

/// The first of `names`, joined by `between`, and how many more there are.
pub fn listed(names: &[String], between: &str) -> String {
    let first = names.get(..LISTED).unwrap_or(names).join(between);
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_eight_and_counts_the_rest() {
        let names: Vec<String> = (1..=10).map(|nth| format!("p{nth}")).collect();
        assert_eq!(listed(&names[..2], ", "), "p1, p2");
        assert_eq!(listed(&names[..8], ", "), "p1, p2, p3, p4, p5, p6, p7, p8");
        assert_eq!(listed(&names, "; "), "p1; p2; p3; p4; p5; p6; p7; p8 and 2 more");
    }

    #[test]
    fn only_dns_subdomains_name_a_node() {
        for good in ["n", "node-1", "2cd9.example", "a".repeat(253).as_str()] {
            assert!(NodeName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "Node", "a/b", "a,metadata.name=b", "a b", "ä", "a".repeat(254).as_str()]
        {
            assert!(NodeName::parse(bad).is_err(), "{bad}");
        }
    }
}
