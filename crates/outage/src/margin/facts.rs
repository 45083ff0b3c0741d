//! Facts for the margin: this node's etcd, Kubernetes, the peers.
//!
//! Not here: reading them (`calls`, the caller) and the rule (`rule`). Source: spec/cluster-lock.md 4 and 5.
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::time::Duration;

use kubeapi::names::{CONTROL_PLANE, ETCD, WITNESS_LABELS};
use kubeapi::objects::{condition, items, text};
use serde_json::Value;

use super::metrics::Metrics;

/// Annotations of k3s and rke2 with the name of a node's member of etcd.
const MEMBER_NAMES: [&str; 2] = ["etcd.k3s.cattle.io/node-name", "etcd.rke2.cattle.io/node-name"];

/// All facts of one judgement, read within a few seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFacts {
    pub node: String,
    pub own: OwnEtcd,
    pub kubernetes: Kubernetes,
    /// Answers of peers' agents about their own etcd. A peer without an entry has no agent.
    pub words: Vec<PeerReport>,
}

/// Answers of our own etcd. An error names what could not be read, where, and the command to type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEtcd {
    /// Whether etcd keeps data on this node.
    pub data: Result<Data, String>,
    /// Port 2381, `/metrics`.
    pub metrics: Result<Metrics, String>,
    /// Port 2381, `/readyz`, or `/health` where this version of etcd has no such page.
    pub readyz: Result<Readyz, String>,
    /// Port 2382, the members.
    pub members: Result<MemberList, String>,
    /// Alarms by name, as `NOSPACE`: of all members by port 2382, or those that `/health` of port 2381 names.
    pub alarms: Result<Vec<String>, String>,
}

/// Whether etcd keeps data here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    Present,
    /// None: kine or no server.
    Absent {
        /// Where it was looked for, and what to type if that is the wrong place.
        looked: String,
    },
}

/// The answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readyz {
    Ready,
    /// A failed check, in its own words.
    NotReady(String),
}

/// The answer of `/v3/cluster/member/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    /// Of the member that answered.
    pub by: u64,
    pub members: Vec<ListedMemberFacts>,
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMemberFacts {
    pub id: u64,
    /// `<node>-<8 hex digits>` with k3s and rke2; empty when it never started.
    pub name: String,
    /// Without a vote.
    pub learner: bool,
    /// For the other members, if that is an address.
    pub address: Option<IpAddr>,
}

/// Kubernetes' view of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubernetes {
    /// Workers too.
    Read(Vec<ServerNode>),
    /// The API answered without the nodes: why.
    Unreadable(String),
    /// No answer. At the last look before a reboot the answers of etcd and of the peers' agents then suffice
    /// (spec/cluster-lock.md 3.4); a caller that has not cordoned yet uses [`Kubernetes::Unreadable`].
    Unreachable(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerNode {
    pub name: String,
    /// Role label of etcd.
    pub etcd: bool,
    /// Role label of the control plane.
    pub control_plane: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// Its lease in `kube-node-lease` was renewed within 40 s of our own clock.
    pub lease_moving: bool,
    /// Its condition `EtcdIsVoter`, if it has one.
    pub voter: Option<EtcdIsVoter>,
    /// Its annotation `etcd.k3s.cattle.io/node-name`, or rke2's.
    pub member: Option<String>,
    /// Its first address of the type `InternalIP`.
    pub address: Option<IpAddr>,
    /// A tie-breaker or a witness: it votes, and should not lead.
    pub witness: bool,
}

/// The condition `EtcdIsVoter` of a Node object. k3s and rke2 write it on the leader's node only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdIsVoter {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// `MemberNotLearner`, `MemberIsLearner`, `Unhealthy` or `NotAMember`.
    pub reason: String,
    /// The error for `Unhealthy`.
    pub message: String,
    /// How long its `lastHeartbeatTime` has not changed, by our own clock. Zero where unknown.
    pub unmoved: Duration,
}

/// A peer's agent's answer about its own etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    pub node: String,
    /// Its member's id, if given.
    pub member: Option<u64>,
    /// [`OwnEtcd::health`] there; without an answer in time its member does not count.
    pub health: Result<(), String>,
}

impl ServerNode {
    /// For tests.
    pub fn healthy(name: &str, member: String) -> Self {
        let voter = EtcdIsVoter {
            status: "True".to_owned(),
            reason: "MemberNotLearner".to_owned(),
            ..EtcdIsVoter::default()
        };
        Self {
            name: name.to_owned(),
            etcd: true,
            control_plane: true,
            ready: true,
            lease_moving: true,
            voter: Some(voter),
            member: Some(member),
            ..Self::default()
        }
    }

    /// From a Node object. `lease_moving` and `unmoved` come from the caller, as they need a clock: see the
    /// members of this type and of [`EtcdIsVoter`]. Members of a wrong type count as missing.
    pub fn read(object: &Value, lease_moving: bool, unmoved: Duration) -> Self {
        let (meta, status) = (&object["metadata"], &object["status"]);
        let has = |label: &str| !meta["labels"][label].is_null();
        let voter = condition(status, "EtcdIsVoter");
        let internal = items(&status["addresses"]).iter().find(|it| it["type"] == "InternalIP");
        Self {
            name: text(&meta["name"]),
            etcd: has(ETCD),
            control_plane: CONTROL_PLANE.into_iter().any(has),
            ready: condition(status, "Ready")["status"] == "True",
            lease_moving,
            voter: voter.is_object().then(|| EtcdIsVoter {
                status: text(&voter["status"]),
                reason: text(&voter["reason"]),
                message: text(&voter["message"]),
                unmoved,
            }),
            member: MEMBER_NAMES.iter().find_map(|it| meta["annotations"][*it].as_str()).map(str::to_owned),
            address: internal.and_then(|it| it["address"].as_str()?.parse().ok()),
            witness: WITNESS_LABELS.into_iter().any(|it| meta["labels"][it] == "true"),
        }
    }
}

impl OwnEtcd {
    /// For the peers.
    pub fn health(&self) -> Result<(), String> {
        let metrics = self.metrics.as_ref().map_err(Clone::clone)?;
        if let Readyz::NotReady(why) = self.readyz.as_ref().map_err(Clone::clone)? {
            return Err(format!("etcd is not ready: {why}"));
        }
        if metrics.is_learner {
            return Err("etcd is still a learner".to_owned());
        }
        if !metrics.has_leader {
            return Err("etcd has no leader".to_owned());
        }
        let alarms = self.alarms.as_ref().map_err(Clone::clone)?;
        if alarms.is_empty() { Ok(()) } else { Err(format!("etcd has the alarm {}", alarms.join(", "))) }
    }
}
