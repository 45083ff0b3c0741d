//! The rules of EdgeNodeClusterStatus: facts in, value out.
//!
//! Two differences are intended: nothing is published before both facts have been read, so that a restart
//! never removes the cluster's address for a moment; and an error of the token keeps its time while its text
//! stays. Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::sync::Arc;

use topics::{
    DeviceNetworkStatus, EdgeNodeClusterConfig, EdgeNodeClusterStatus, ErrorDescription, ErrorSeverity,
    GoTime, GoUuid, NetworkPortStatus, Secret,
};

use super::balance::balance;
use crate::token::{BlockAnswer, ClusterToken, Sealed};

#[derive(Debug, Default)]
pub(super) struct StatusFacts {
    /// The last decided config; `None` before the first. A missing one is an invalid one. While leaving, the
    /// former config, if known.
    pub(super) config: Option<Arc<EdgeNodeClusterConfig>>,
    pub(super) leaving: bool,
    /// `None` before the first reading.
    pub(super) network: Option<DeviceNetworkStatus>,
    /// Without nim: the address that an interface of this machine has.
    pub(super) own_address: Option<IpAddr>,
    /// Of that config.
    pub(super) token: ClusterToken,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StatusDecision {
    /// The published value stays until more is known.
    Keep,
    /// The published value and address stay: the node needs them until it has left.
    Stay,
    /// No value: the node is in no cluster.
    Nothing,
    Status(Box<EdgeNodeClusterStatus>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) address: IpAddr,
    pub(crate) cluster: GoUuid,
}

impl StatusFacts {
    /// A config with another token forgets the last token.
    pub(super) fn learn_membership(&mut self, cluster_membership: &ClusterMembership) {
        self.leaving = cluster_membership.membership == Membership::Leaving;
        let config = cluster_membership.left.as_ref().or(cluster_membership.config.as_ref());
        let wanted = config.map(AsRef::as_ref).and_then(Sealed::of).map(|it| it.block);
        if wanted != self.sealed().map(|it| it.block) {
            self.token = if wanted.is_some() { ClusterToken::Pending } else { ClusterToken::None };
        }
        self.config = config.cloned();
    }

    /// The cluster's address that an interface must have before the server can listen; `None` without a
    /// cluster, or with ports from nim.
    pub(super) fn looks_for(&self) -> Option<IpAddr> {
        let has_no_ports = self.network.as_ref().is_some_and(|it| it.ports.is_none());
        let config = self.config.as_ref().filter(|it| it.valid && has_no_ports)?;
        config.cluster_ip_prefix.as_ref()?.ip.0
    }

    /// The block to decrypt.
    pub(super) fn sealed(&self) -> Option<Sealed> {
        self.config.as_deref().and_then(Sealed::of)
    }

    /// Takes a decrypted block; one of an earlier config is ignored.
    pub(super) fn opened(&mut self, answer: BlockAnswer) {
        if self.sealed().is_some_and(|it| it.block == answer.of.block) {
            self.token = answer.token;
        }
    }

    /// `last` is the published value: its errors keep their time; `now` is for new ones.
    pub(super) fn judge(&self, last: Option<&EdgeNodeClusterStatus>, now: GoTime) -> StatusDecision {
        let known = self.config.as_ref().filter(|it| it.valid || !self.leaving);
        let Some(config) = known else {
            return if self.leaving { StatusDecision::Stay } else { StatusDecision::Keep };
        };
        if self.leaving && last.is_some_and(|it| serves(it, config)) {
            return StatusDecision::Stay;
        }
        if !config.valid {
            return StatusDecision::Nothing;
        }
        let Some(network) = &self.network else { return StatusDecision::Keep };
        let ports = network.ports.as_deref().unwrap_or_default();
        let wanted = config.lb_interfaces.as_deref().unwrap_or_default();
        let balance = balance(config, ports);
        let (token, fault) = match &self.token {
            // A moment, then there is a token or a fault: until then the published value stays.
            ClusterToken::Pending => return StatusDecision::Keep,
            ClusterToken::None => (Secret::default(), ""),
            ClusterToken::Clear(token) => (token.clone(), ""),
            ClusterToken::Failed(why) => (Secret::default(), why.as_str()),
        };
        let error_of = |text: &str, severity, before: fn(&EdgeNodeClusterStatus) -> &ErrorDescription| {
            error_description(text.to_owned(), severity, last.map(before), now)
        };
        StatusDecision::Status(Box::new(EdgeNodeClusterStatus {
            cluster_name: config.cluster_name.clone(),
            cluster_id: config.cluster_id.clone(),
            cluster_interface: linux_name(&config.cluster_interface, ports),
            cluster_ip_prefix: config.cluster_ip_prefix.clone(),
            cluster_ip_is_ready: is_ready(config, ports)
                || self.looks_for().is_some_and(|it| self.own_address == Some(it)),
            is_worker_node: config.is_worker_node,
            join_server_ip: config.join_server_ip,
            bootstrap_node: config.bootstrap_node,
            encrypted_cluster_token: token,
            lb_interfaces: some(balance.serves),
            lb_ip_prefixes: some(
                wanted.iter().map(|it| &it.ip_prefix).filter(|it| !it.is_empty()).cloned().collect(),
            ),
            lb_config_error: error_of(&balance.fault, ErrorSeverity::Error, |it| &it.lb_config_error),
            witness_ip: config.witness_ip,
            witness_config_error: error_of(&config.witness_config_error, ErrorSeverity::Error, |it| {
                &it.witness_config_error
            }),
            quorum_recovery_generation: config.quorum_recovery_generation,
            quorum_recovery_error: error_of(&config.quorum_recovery_error, ErrorSeverity::Error, |it| {
                &it.quorum_recovery_error
            }),
            error: error_of(fault, ErrorSeverity::Unspecified, |it| &it.error),
        }))
    }
}

/// Whether the node can reach its cluster with this status. After a power cut while leaving there is none at
/// first.
fn serves(status: &EdgeNodeClusterStatus, config: &EdgeNodeClusterConfig) -> bool {
    let has_token = !status.encrypted_cluster_token.reveal().is_empty();
    status.cluster_ip_is_ready && (has_token || !config.cipher_token.is_cipher)
}

pub(super) fn place(status: &EdgeNodeClusterStatus) -> Option<NodeAddress> {
    let address = status.cluster_ip_prefix.as_ref()?.ip.0.filter(|_| status.cluster_ip_is_ready)?;
    Some(NodeAddress { address, cluster: status.cluster_id.uuid })
}

/// Whether a usable port of that label has the cluster's address.
fn is_ready(config: &EdgeNodeClusterConfig, ports: &[NetworkPortStatus]) -> bool {
    let label = &config.cluster_interface;
    let Some(address) = config.cluster_ip_prefix.as_ref().and_then(|it| it.ip.0) else { return false };
    !label.is_empty()
        && ports.iter().any(|port| {
            port.logicallabel == *label
                && !port.invalid_config
                && !port.if_name.is_empty()
                && port.cluster_ip_addr.0.is_some_and(|it| it.to_canonical() == address.to_canonical())
        })
}

fn linux_name(label: &str, ports: &[NetworkPortStatus]) -> String {
    let port = ports.iter().find(|port| !label.is_empty() && port.logicallabel == label);
    port.map(|port| port.if_name.clone()).unwrap_or_default()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// An error with the text of the last one keeps its time.
fn error_description(
    error: String,
    error_severity: ErrorSeverity,
    last: Option<&ErrorDescription>,
    now: GoTime,
) -> ErrorDescription {
    if error.is_empty() {
        return ErrorDescription::default();
    }
    match last {
        Some(last) if last.error == error => last.clone(),
        Some(_) | None => {
            ErrorDescription { error, error_time: now, error_severity, ..ErrorDescription::default() }
        }
    }
}

/// Whether this node belongs to a cluster, as zedkube has decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Membership {
    /// Undecided or unknown: the former value holds.
    #[default]
    Undecided,
    Member,
    /// Its config no longer names a cluster, and it is being taken out. No drain begins until it has left.
    Leaving,
    Outside,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterMembership {
    pub membership: Membership,
    /// The last decided config.
    pub config: Option<Arc<EdgeNodeClusterConfig>>,
    /// While leaving, the config of the cluster to leave.
    pub left: Option<Arc<EdgeNodeClusterConfig>>,
}

impl ClusterMembership {
    /// Whether the node is in a cluster, be it on its way out.
    pub fn is_in(&self) -> bool {
        matches!(self.membership, Membership::Member | Membership::Leaving)
    }
}

#[cfg(test)]
mod tests;
