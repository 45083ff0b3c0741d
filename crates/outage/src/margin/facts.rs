//! What the margin is judged by: this node's etcd, Kubernetes, the peers.
//!
//! Not here: where it comes from (`calls`, the caller) and what follows from it (`rule`).
//! Source: spec/cluster-lock.md 4 and 5.
//! Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::time::Duration;

use kubeapi::names::{CONTROL_PLANE, ETCD, WITNESS_LABELS};
use kubeapi::objects::{condition, items, text};
use serde_json::Value;

use super::metrics::Metrics;

/// Where k3s and rke2 write the name of a node's member of etcd.
const MEMBER_NAMES: [&str; 2] = ["etcd.k3s.cattle.io/node-name", "etcd.rke2.cattle.io/node-name"];

/// Everything that one judgement needs. All of it should be read within a few seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFacts {
    /// Our Node object's name.
    pub node: String,
    pub own: OwnEtcd,
    pub kubernetes: Kubernetes,
    /// What the agents of peers say of their own etcd. A peer without an entry has no agent there.
    pub words: Vec<PeerReport>,
}

/// What our own etcd says. An error says what could not be read, where, and what to type.
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
    /// There is none; kine or no server.
    Absent {
        /// Where it was looked for, and what to type if that is the wrong place.
        looked: String,
    },
}

/// The answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readyz {
    Ready,
    /// It answered that a check failed; its own words.
    NotReady(String),
}

/// The answer of `/v3/cluster/member/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    /// Id of the member that answered.
    pub by: u64,
    pub members: Vec<ListedMemberFacts>,
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMemberFacts {
    pub id: u64,
    /// Its name, `<node>-<8 hex digits>` with k3s and rke2; empty when it never started.
    pub name: String,
    /// It has no vote yet.
    pub learner: bool,
    /// Where the other members reach it, if that is an address.
    pub address: Option<IpAddr>,
}

/// What Kubernetes says of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubernetes {
    /// All nodes, workers too.
    Read(Vec<ServerNode>),
    /// The API answered, and not with the nodes: why.
    Unreadable(String),
    /// Nothing answers. At the last look before a reboot etcd's own word and those of the peers' agents then suffice
    /// (spec/cluster-lock.md 3.4); a caller that has not cordoned yet says [`Kubernetes::Unreadable`].
    Unreachable(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerNode {
    pub name: String,
    /// It has the role label of etcd.
    pub etcd: bool,
    /// It has a role label of the control plane.
    pub control_plane: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// Its lease in `kube-node-lease` was renewed in the last 40 s of our own clock.
    pub lease_moving: bool,
    /// Its condition `EtcdIsVoter`, if it has one.
    pub voter: Option<EtcdIsVoter>,
    /// Its annotation `etcd.k3s.cattle.io/node-name`, or rke2's.
    pub member: Option<String>,
    /// Its first address of the type `InternalIP`.
    pub address: Option<IpAddr>,
    /// It is a tie-breaker or a witness: it votes, and is not to lead.
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
    /// How long we have watched its `lastHeartbeatTime` not change, by our own clock. Zero where that is not known.
    pub unmoved: Duration,
}

/// What the agent of a peer says of its own etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    /// The peer's node.
    pub node: String,
    /// Its member's id, where it says one.
    pub member: Option<u64>,
    /// [`OwnEtcd::health`] there; an agent that does not say it, or not in time, is a reason not to count its member.
    pub health: Result<(), String>,
}

impl ServerNode {
    /// A server with a healthy member of etcd of this name, as tests begin with.
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

    /// What a Node object says. `lease_moving` and `unmoved` are the caller's, as they take a clock: see the members
    /// of this type and of [`EtcdIsVoter`]. Members of a wrong type count as left out.
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
    /// Whether our own member is healthy, for the peers to read.
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
