//! Whether this node belongs to a cluster, and the state of its leave. Topics of our own, as in
//! `drain::progress`; `NodeLeave` survives a reboot, so that a node with a config that changed while it was
//! off leaves too.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::cut_blockers;
use crate::{Blocker, DrainMarks, EdgeNodeClusterConfig, GoTime, GoUuid, Kind, Most, Topic, topic};

/// Which cluster this node belongs to, or how far it is on its way out of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeLeave {
    /// Where it stands.
    pub phase: LeavePhase,
    /// The cluster.
    pub cluster_name: String,
    /// Its identity.
    #[serde(rename = "ClusterID")]
    pub cluster_id: GoUuid,
    /// When the config was heard that says that the node is in no cluster.
    pub started_at: GoTime,
    /// When the first step is taken, unless the config says by then that the node is a member; zero while that is not
    /// decided, and once it was taken.
    pub deadline: GoTime,
    /// When it had left, or was given up.
    pub ended_at: GoTime,
    /// Why things are as they are, in one sentence.
    pub reason: String,
    /// What a person can do.
    pub next_step: String,
    /// Pods that hold the drain up, and why.
    pub blockers: Vec<Blocker>,
    /// Blockers beyond those.
    pub blockers_omitted: u32,
    /// Steps that failed and were passed over, in words.
    pub passed_over: Vec<String>,
    /// Steps beyond those.
    pub passed_over_omitted: u32,
    /// The boot in which `Marks` were written; empty before there were any.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// Since when the limits of the drain run, in that boot.
    pub marks: DrainMarks,
    /// The cluster's config as it was heard last, as long as the node has not left: in another boot the node needs it
    /// to reach the cluster that it leaves. Its token stands here as there, encrypted.
    pub config: Option<EdgeNodeClusterConfig>,
}

impl Topic for NodeLeave {
    const NAME: &'static str = "NodeLeave";
    const KIND: Kind = Kind::Persistent;

    fn cut(&mut self, most: Most) {
        most.each([&mut self.cluster_name, &mut self.reason, &mut self.next_step, &mut self.boot_id]);
        self.blockers_omitted = self.blockers_omitted.saturating_add(cut_blockers(&mut self.blockers, most));
        self.passed_over_omitted = most.texts(&mut self.passed_over);
        self.marks.cut(most);
    }
}

/// Where a node stands between its cluster and none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeavePhase {
    /// In no cluster, as far as is known.
    #[default]
    Outside,
    /// In a cluster.
    Member,
    /// Still a member: the config reads as one of a node in no cluster, but that does not count, see `Reason`.
    Unconfirmed,
    /// Still a member: the first step is taken at `Deadline`, unless the config says by then that it is one.
    Announced,
    /// Looks for the cluster that is to be left.
    Reaching,
    /// Makes the node unschedulable.
    Cordoning,
    /// Deletes the pods of applications.
    RemovingApps,
    /// Looks for replicas of volumes on the node.
    CheckingReplicas,
    /// Drains the node, as replicas live there.
    Draining,
    /// Deletes the Node object.
    Deleting,
    /// Has left: there is no Node object of this node any more.
    Left,
    /// Was the only node of its cluster: there was nothing to leave.
    Alone,
    /// The cluster was out of reach; its Node object is still there.
    NotReached,
    /// The Node object could not be deleted.
    Failed,
}

impl LeavePhase {
    /// Whether the node is leaving.
    pub const fn is_under_way(self) -> bool {
        matches!(
            self,
            Self::Reaching
                | Self::Cordoning
                | Self::RemovingApps
                | Self::CheckingReplicas
                | Self::Draining
                | Self::Deleting
        )
    }

    /// Whether nothing is to be done or decided.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Outside | Self::Member | Self::Left | Self::Alone)
    }

    pub const fn text(self) -> &'static str {
        match self {
            Self::Outside => "in no cluster",
            Self::Member => "member",
            Self::Unconfirmed => "still a member, not leaving",
            Self::Announced => "still a member, about to leave",
            Self::Reaching => "leaving, connecting to the cluster",
            Self::Cordoning => "leaving, cordoning the node",
            Self::RemovingApps => "leaving, deleting pods of applications",
            Self::CheckingReplicas => "leaving, checking volume replicas",
            Self::Draining => "leaving, draining the node",
            Self::Deleting => "leaving, deleting the Node object",
            Self::Left => "has left",
            Self::Alone => "was the only node, nothing to leave",
            Self::NotReached => "left without removing the Node object: cluster not reachable",
            Self::Failed => "left without removing the Node object: deleting it failed",
        }
    }

    /// Whether the node must still leave a cluster once its config says that it is in none.
    pub const fn has_to_leave(self) -> bool {
        self.is_under_way() || matches!(self, Self::Member | Self::Unconfirmed | Self::Announced)
    }
}

/// What the device config says about the cluster, published by our zedagent only, beside EdgeNodeClusterConfig: there
/// a zedagent of the reference says `Valid: false` of a section that it cannot read, too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClusterDecision {
    /// What a config that was read whole says.
    pub membership: ConfigMembership,
}

topic!(ClusterDecision: Volatile);

/// Whether the device config puts this node into a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigMembership {
    /// Not known.
    #[default]
    Unknown,
    /// It has a cluster section, which is good.
    Member,
    /// It names the device and has no cluster section.
    NoCluster,
}
