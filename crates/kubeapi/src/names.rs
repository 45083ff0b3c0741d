//! Names that go into paths and selectors, checked once, and those of node roles.
//!
//! Not here: looking anything up. Source: the Kubernetes page "Object Names and IDs" (DNS subdomain names).
//! Pure: no clock, no I/O, no task.

use std::fmt;

/// Role label of a control-plane node since Kubernetes 1.24.
pub const CONTROL_PLANE_NOW: &str = "node-role.kubernetes.io/control-plane";
/// Role labels of a control-plane node: Kubernetes dropped the first in 1.24 (D-K19).
pub const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/master", CONTROL_PLANE_NOW];
/// Role label of a member of etcd.
pub const ETCD: &str = "node-role.kubernetes.io/etcd";

/// Whether a node that `has` these labels, with whatever values, has the control plane or etcd.
pub fn is_server(has: impl Fn(&str) -> bool) -> bool {
    CONTROL_PLANE.into_iter().chain([ETCD]).any(has)
}

/// The annotation of a Node that says whose cordon it is.
pub const OWNER_ANNOTATION: &str = "pillar-rs/cordon-owner";
/// The annotation of a Longhorn volume of which another copy was asked for because its last one is on a node that leaves.
pub const COPY_ANNOTATION: &str = "pillar-rs/last-copy";
/// The annotation by which a person lets the last healthy copy of a Longhorn volume go down with a node: the node's name,
/// and why.
pub const PASS_ANNOTATION: &str = "pillar-rs/last-copy-pass";
/// The annotation of a Node that says which volumes had a copy there before it went down, and which of them were whole.
pub const VOLUMES_ANNOTATION: &str = "pillar-rs/volumes-before";
/// The label of a node that carries no workloads.
pub const TIE_BREAKER_LABEL: &str = "tie-breaker-node";
/// Labels, `true` there, of a server that is there for its vote: the reference's tie-breaker, Harvester's witness.
pub const WITNESS_LABELS: [&str; 2] = [TIE_BREAKER_LABEL, "node-role.harvesterhci.io/witness"];

/// Taints that the node controller puts on a node that it does not hear of.
pub const OUTAGE_TAINTS: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
/// The leases of kube-vip, in the namespace kube-system: of the address of the control plane, and of services.
pub const VIRTUAL_IPS: [&str; 2] = ["plndr-cp-lock", "plndr-svcs-lock"];

/// The namespace of applications.
pub const APP_NAMESPACE: &str = "eve-kube-app";
/// The namespace of Longhorn.
pub const STORAGE_NAMESPACE: &str = "longhorn-system";

/// The name of a Node object, a DNS subdomain: it goes into paths and field selectors as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(String);

/// A text that cannot name a Node object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName(String);

impl fmt::Display for BadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "use {:?} as a node name: lower-case letters, digits, '-' and '.' only, 1 to 253", self.0)
    }
}

impl std::error::Error for BadName {}

impl NodeName {
    /// Checks `text`.
    /// Errors: [`BadName`] when no Node object can have this name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = bytes.len() <= 253
            && bytes.first().is_some_and(|byte| edge(*byte))
            && bytes.last().is_some_and(|byte| edge(*byte))
            && bytes.iter().all(|byte| edge(*byte) || matches!(byte, b'-' | b'.'));
        if good { Ok(Self(text.to_owned())) } else { Err(BadName(text.to_owned())) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The identity of one pod object. A pod of the same name with another UID is another pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    /// Takes the server's text as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One pod object, named and identified. Shown as `namespace/name`.
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

/// How many names a sentence holds.
const LISTED: usize = 8;

/// The first of `names` with `between` them, and how many more there are: no sentence names a thousand pods.
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
