//! The cluster as its leader reports it, and what this node says of its applications.
//!
//! Members keep the reference's names; its source says what they mean (lf-edge/eve pkg/pillar/types).
//! Pure: no clock, no I/O, no task.

#![expect(missing_docs, reason = "members are those of the reference, which documents them")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorDescription, ErrorEntity, ErrorSeverity, GoTime, GoUuid, Kind, Topic};

/// Part `KubeClusterInfoNode` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterInfoNode {
    pub name: String,
    pub status: u64,
    pub is_master: bool,
    pub uses_etcd: bool,
    pub creation_time: GoTime,
    pub last_transition_time: GoTime,
    pub kubelet_version: String,
    #[serde(rename = "InternalIP")]
    pub internal_ip: String,
    #[serde(rename = "ExternalIP")]
    pub external_ip: String,
    pub schedulable: bool,
    pub admission: u64,
    #[serde(rename = "NodeID")]
    pub node_id: GoUuid,
}

/// Part `AppPod` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppPod {
    pub name: String,
    pub status: u64,
    pub restart_count: u64,
    pub restart_timestamp: GoTime,
    pub creation_timestamp: GoTime,
    #[serde(rename = "PodIP")]
    pub pod_ip: String,
    pub node_name: String,
}

/// Part `AppVmi` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppVmi {
    pub name: String,
    pub status: u64,
    pub creation_time: GoTime,
    pub last_transition_time: GoTime,
    pub is_ready: bool,
    pub node_name: String,
}

/// Part `KubeClusterInfoReplica` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterInfoReplica {
    pub name: String,
    pub owner_node: String,
    pub rebuild_progress_percentage: u64,
    pub status: u64,
}

/// Part `KubeClusterInfoVolume` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterInfoVolume {
    pub name: String,
    pub state: u64,
    pub robustness: u64,
    pub created_at: GoTime,
    pub provisioned_bytes: u64,
    pub allocated_bytes: u64,
    pub pvc_status: u64,
    pub replicas: Vec<KubeClusterInfoReplica>,
    pub robustness_substate: u64,
    #[serde(rename = "VolumeID")]
    pub volume_id: String,
}

/// Part `Storage` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Storage {
    pub health: u64,
    pub transition_time: GoTime,
    pub volumes: Option<Vec<KubeClusterInfoVolume>>,
}

/// Part `PodNsInfo` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodNsInfo {
    pub name: String,
    pub pod_count: u64,
    pub pod_running_count: u64,
    pub pod_pending_count: u64,
    pub pod_failed_count: u64,
    pub pod_succeeded_count: u64,
}

/// KubeClusterInfo of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterInfo {
    pub nodes: Option<Vec<KubeClusterInfoNode>>,
    #[serde(rename = "pubsub-large-AppPods")]
    pub app_pods: Option<Vec<AppPod>>,
    #[serde(rename = "pubsub-large-AppVMIs")]
    pub app_vmis: Option<Vec<AppVmi>>,
    #[serde(rename = "pubsub-large-Storage")]
    pub storage: Storage,
    pub pod_ns_info: Option<Vec<PodNsInfo>>,
}

impl Topic for KubeClusterInfo {
    const NAME: &'static str = "KubeClusterInfo";
    const KIND: Kind = Kind::Volatile;
}

/// Part `VmiDescheduleEvents` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VmiDescheduleEvents {
    pub on_boot: bool,
}

/// KubeConfig of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeConfig {
    pub k3s_version: String,
    pub vmi_deschedule_events: VmiDescheduleEvents,
}

impl Topic for KubeConfig {
    const NAME: &'static str = "KubeConfig";
    const KIND: Kind = Kind::Persistent;
}

/// Part `UserService` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct UserService {
    pub name: String,
    pub namespace: String,
    pub protocol: String,
    pub port: u64,
    pub node_port: u64,
    #[serde(rename = "Type")]
    pub kind: String,
    #[serde(rename = "LoadBalancerIP")]
    pub load_balancer_ip: String,
    #[serde(rename = "ACEenabled")]
    pub ac_eenabled: bool,
}

/// Part `UserIngress` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct UserIngress {
    pub name: String,
    pub namespace: String,
    pub hostname: String,
    pub path: String,
    pub path_type: String,
    pub protocol: String,
    pub service: String,
    pub service_port: u64,
    pub service_type: String,
    #[serde(rename = "IngressIP")]
    pub ingress_ip: Vec<String>,
}

/// Part `LbPoolStatus` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct LbPoolStatus {
    pub interface: String,
    #[serde(rename = "IPPrefix")]
    pub ip_prefix: String,
    #[serde(rename = "AllocatedIPs")]
    pub allocated_ips: Vec<String>,
    pub error: ErrorDescription,
}

/// KubeUserServices of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeUserServices {
    pub user_service: Option<Vec<UserService>>,
    pub user_ingress: Option<Vec<UserIngress>>,
    #[serde(rename = "LBPoolStatus")]
    pub lb_pool_status: Option<LbPoolStatus>,
    pub service_error: ErrorDescription,
}

impl Topic for KubeUserServices {
    const NAME: &'static str = "KubeUserServices";
    const KIND: Kind = Kind::Volatile;
}

/// KubeLeaderElectInfo of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeLeaderElectInfo {
    pub in_leader_election: bool,
    pub is_stats_leader: bool,
    pub election_running: bool,
    pub leader_identity: String,
    pub latest_change: GoTime,
}

impl Topic for KubeLeaderElectInfo {
    const NAME: &'static str = "KubeLeaderElectInfo";
    const KIND: Kind = Kind::Volatile;
}

/// KubeClusterUpdateStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterUpdateStatus {
    pub current_node: String,
    pub component: u64,
    pub status: u64,
    pub destination_kube_update_version: u64,
    pub error: String,
    pub error_time: GoTime,
    pub error_severity: ErrorSeverity,
    pub error_retry_condition: String,
    pub error_entities: Option<Vec<ErrorEntity>>,
}

impl Topic for KubeClusterUpdateStatus {
    const NAME: &'static str = "KubeClusterUpdateStatus";
    const KIND: Kind = Kind::Persistent;
}

/// ENClusterAppStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ENClusterAppStatus {
    #[serde(rename = "AppUUID")]
    pub app_uuid: GoUuid,
    pub is_d_nid_node: bool,
    pub scheduled_on_this_node: bool,
    pub app_kube_status: u64,
    #[serde(rename = "AppIsVMI")]
    pub app_is_vmi: bool,
    #[serde(rename = "VMIName")]
    pub vmi_name: String,
    #[serde(rename = "VNCPort")]
    pub vnc_port: u64,
}

impl Topic for ENClusterAppStatus {
    const NAME: &'static str = "ENClusterAppStatus";
    const KIND: Kind = Kind::Volatile;
}
