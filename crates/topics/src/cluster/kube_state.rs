//! This node in the cluster, as zedkube publishes it: election, applications, component updates.
//!
//! Not here: the whole cluster (`kube_info`), the drain (`drain`, `drain::progress`).
//! Source: lf-edge/eve pkg/pillar/types/{zedkubetypes,clustertypes,clusterupdatetypes}.go.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{ErrorEntity, ErrorSeverity, GoTime, GoUuid, Kind, Most, Topic, topic};

/// The election of the node that reports on the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeLeaderElectInfo {
    /// Whether this node may take part.
    pub in_leader_election: bool,
    /// Whether this node holds the lease.
    pub is_stats_leader: bool,
    /// Whether the election task of this node is at work.
    pub election_running: bool,
    /// Name of the node that was last seen to hold the lease, or empty.
    pub leader_identity: String,
    /// Whether this node holds the Lease `eve-app-op`; ours never asks for it.
    pub is_app_op_leader: bool,
    /// Who does, or empty.
    pub app_op_leader_identity: String,
    /// When this was published, so that two publications are never equal.
    pub latest_change: GoTime,
}

topic!(KubeLeaderElectInfo: Volatile, cut leader_identity app_op_leader_identity);

/// An application as this node sees it in the cluster; the key is its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ENClusterAppStatus {
    /// The application.
    #[serde(rename = "AppUUID")]
    pub app_uuid: GoUuid,
    /// Whether this node is the application's designated node.
    #[serde(rename = "IsDNidNode")]
    pub is_dnid_node: bool,
    /// Whether a pod of it that is not ending is on this node.
    pub scheduled_on_this_node: bool,
    /// Whether it runs anywhere.
    pub app_kube_status: AppKubeStatus,
    /// Whether it is a virtual machine.
    #[serde(rename = "AppIsVMI")]
    pub app_is_vmi: bool,
    /// Name of that machine: its launcher pod without `virt-launcher-` and the last six characters.
    #[serde(rename = "VMIName")]
    pub vmi_name: String,
    /// TCP port of its console: 5900 + `VncDisplay`; 0 for anything but a virtual machine.
    #[serde(rename = "VNCPort")]
    pub vnc_port: u32,
}

topic!(ENClusterAppStatus: Volatile, key None, cut vmi_name);

numbers! {
    /// What this node knows of an application in the cluster.
    AppKubeStatus: u8 {
        Unknown = 0, ApiUnreachable = 1,
        /// It has no pod.
        NotInCluster = 2,
        /// It has a pod that does not run.
        NotRunning = 3,
        Running = 4,
    }
}

/// What the kube container is told through a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeConfig {
    /// k3s version to run; empty for the one in the image.
    pub k3s_version: String,
    /// When virtual machines are moved back.
    pub vmi_deschedule_events: VmiDescheduleEvents,
}

topic!(KubeConfig: Persistent);

/// When virtual machines are moved back to their designated node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VmiDescheduleEvents {
    /// When that node has started.
    pub on_boot: bool,
}

/// How far the update of a Kubernetes component is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterUpdateStatus {
    /// The node that is being updated.
    pub current_node: String,
    /// The component that is being updated.
    pub component: KubeComponent,
    /// How far it is.
    pub status: KubeComponentUpdateStatus,
    /// The version of the whole set of components that the update leads to.
    pub destination_kube_update_version: u32,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
    /// What it is about.
    pub error_entities: Option<Vec<ErrorEntity>>,
}

topic!(KubeClusterUpdateStatus: Persistent);

numbers! {
    /// A component of the Kubernetes image.
    KubeComponent: u8 {
        Unknown = 0, Containerd = 1, K3s = 2,
        /// Networks of pods.
        Multus = 3,
        Kubevirt = 4,
        /// Import of disk images.
        Cdi = 5,
        Longhorn = 6,
    }

    /// How far the update of a component is.
    KubeComponentUpdateStatus: u8 {
        Unknown = 0, Download = 1, DownloadFailed = 2, InProgress = 3, Failed = 4, Completed = 5,
    }
}

/// Whether this node publishes `KubeClusterInfo`, and which of its parts are not what the cluster has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeStatsState {
    /// This node leads: it alone publishes `KubeClusterInfo`.
    pub leader: bool,
    /// Until when that is certain, renewed while the lease is; zero while another node leads.
    pub until: GoTime,
    /// Requests to the API server that are open: one watch for each resource that is followed.
    pub requests_open: u32,
    /// Parts of `KubeClusterInfo` that are not what the cluster has; empty when all is well. A resource that is not
    /// installed is none of them.
    pub parts: Vec<KubeStatsPart>,
}

impl Topic for KubeStatsState {
    const NAME: &'static str = "KubeStatsState";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        for KubeStatsPart { name, error, next_step, since: _ } in &mut self.parts {
            most.each([name, error, next_step]);
        }
    }
}

/// A part of `KubeClusterInfo` that is old, empty or cut short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeStatsPart {
    /// The resource that cannot be read, as `volumes.longhorn.io`, or the member that was cut short, as `AppPods`.
    pub name: String,
    /// Since when.
    pub since: GoTime,
    /// Why, in words.
    pub error: String,
    /// What a person can do.
    pub next_step: String,
}

/// The answer to `GET /outage`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeOutage {
    /// Name of its Node object.
    pub node: String,
    /// Its own member of etcd; null on a node without one.
    pub etcd: Option<EtcdMember>,
    /// Its turn to be down.
    pub turn: TurnWord,
    /// By node with a silent kubelet: it answers this one, as it was asked last.
    pub hears: BTreeMap<String, bool>,
}

/// A member of etcd, as its own node reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EtcdMember {
    /// Its id in hexadecimal digits, or empty while it cannot be read.
    pub member: String,
    /// It is started and ready, knows a leader, votes, and has no alarm.
    pub healthy: bool,
    /// Why not, or empty.
    pub why: String,
    /// It leads.
    pub leads: bool,
}

/// Whether a node needs its turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct TurnWord {
    /// It neither has nor wants a turn; false while that is not known.
    pub idle: bool,
    /// Number of the turn that it has, or 0.
    pub fence: u32,
}

topic!(NodeOutage: Volatile);
