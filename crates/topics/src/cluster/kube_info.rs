//! The cluster as its leader reports it: nodes, applications, volumes, pods of each namespace.
//!
//! Not here: how the facts are gathered. Source: lf-edge/eve pkg/pillar/types/zedkubetypes.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{Error, GoTime, Kind, Topic, go_json};

/// The cluster, published by the node that holds the statistics lease and by no other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeClusterInfo {
    /// Every node of the cluster.
    pub nodes: Option<Vec<KubeNodeInfo>>,
    /// Pods of applications.
    #[serde(rename = "pubsub-large-AppPods")]
    pub app_pods: Option<Vec<KubePodInfo>>,
    /// Virtual machines of applications.
    #[serde(rename = "pubsub-large-AppVMIs")]
    pub app_vmis: Option<Vec<KubeVmiInfo>>,
    /// Replicated storage.
    #[serde(rename = "pubsub-large-Storage")]
    pub storage: KubeStorageInfo,
    /// Pods of each namespace, counted.
    pub pod_ns_info: Option<Vec<KubePodNameSpaceInfo>>,
}

impl Topic for KubeClusterInfo {
    const NAME: &'static str = "KubeClusterInfo";
    const KIND: Kind = Kind::Volatile;

    fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut fitting = self.clone();
        fitting.fit()?;
        go_json::to_vec(&fitting)
    }
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeNodeInfo {
    /// Name of the Kubernetes node.
    pub name: String,
    /// Its Ready condition.
    pub status: KubeNodeStatus,
    /// Whether it carries the role label of a control-plane node.
    pub is_master: bool,
    /// Whether it carries the role label of an etcd member.
    pub uses_etcd: bool,
    /// When the node object was made.
    pub creation_time: GoTime,
    /// When the Ready condition last changed.
    pub last_transition_time: GoTime,
    /// Version of its kubelet, such as `v1.32.1+k3s1`.
    pub kubelet_version: String,
    /// Address inside the cluster.
    #[serde(rename = "InternalIP")]
    pub internal_ip: String,
    /// Address outside of it, or empty.
    #[serde(rename = "ExternalIP")]
    pub external_ip: String,
    /// Whether new pods may be placed here; false while cordoned.
    pub schedulable: bool,
    /// Whether the node is on its way in or out.
    pub admission: NodeAdmission,
    /// Device UUID from the node's label, or empty.
    #[serde(rename = "NodeID")]
    pub node_id: String,
}

/// A pod of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubePodInfo {
    /// Name of the pod.
    pub name: String,
    /// Its phase.
    pub status: KubePodStatus,
    /// Restarts of its first container.
    pub restart_count: i32,
    /// When that container last started again.
    pub restart_timestamp: GoTime,
    /// When the pod was made.
    pub creation_timestamp: GoTime,
    /// Address of the pod, or empty.
    #[serde(rename = "PodIP")]
    pub pod_ip: String,
    /// Node that it runs on, or empty.
    pub node_name: String,
}

/// A virtual machine of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeVmiInfo {
    /// Name of the virtual machine instance.
    pub name: String,
    /// Its phase.
    pub status: KubeVmiStatus,
    /// When it was made.
    pub creation_time: GoTime,
    /// When its phase last changed.
    pub last_transition_time: GoTime,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Node that it runs on, or empty.
    pub node_name: String,
}

/// Pods of a namespace by phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubePodNameSpaceInfo {
    /// The namespace.
    pub name: String,
    /// All of its pods.
    pub pod_count: u32,
    /// Those that run.
    pub pod_running_count: u32,
    /// Those that wait for a node or an image.
    pub pod_pending_count: u32,
    /// Those that failed.
    pub pod_failed_count: u32,
    /// Those that ended well.
    pub pod_succeeded_count: u32,
}

/// Replicated storage and all of its volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeStorageInfo {
    /// The storage service as a whole.
    pub health: ServiceStatus,
    /// When `Health` last changed.
    pub transition_time: GoTime,
    /// Every volume.
    pub volumes: Option<Vec<KubeVolumeInfo>>,
}

/// A replicated volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeVolumeInfo {
    /// Name of the claim.
    pub name: String,
    /// Whether it is attached.
    pub state: StorageVolumeState,
    /// State of its replicas.
    pub robustness: StorageVolumeRobustness,
    /// When it was made.
    pub created_at: GoTime,
    /// Size that the claim asked for, in bytes.
    pub provisioned_bytes: u64,
    /// Size on disk, in bytes.
    pub allocated_bytes: u64,
    /// State of the claim.
    pub pvc_status: StorageVolumePvcStatus,
    /// Its replicas.
    pub replicas: Option<Vec<KubeVolumeReplicaInfo>>,
    /// State of its replicas in detail.
    pub robustness_substate: StorageHealthStatus,
    /// `Name` without the suffix `-pvc-0`.
    #[serde(rename = "VolumeID")]
    pub volume_id: String,
}

/// A replica of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct KubeVolumeReplicaInfo {
    /// Its name.
    pub name: String,
    /// Node that holds it.
    pub owner_node: String,
    /// How much of it is there, in percent.
    pub rebuild_progress_percentage: u8,
    /// Its state.
    pub status: StorageVolumeReplicaStatus,
}

numbers! {
    /// Ready condition of a node.
    KubeNodeStatus: i8 {
        Unknown = 0, Ready = 1,
        /// Says itself that it is not ready.
        NotReady = 2,
        /// Has not been heard of.
        NotReachable = 3,
    }

    /// Whether a node is on its way in or out of the cluster.
    NodeAdmission: u8 { Unknown = 0, NotClustered = 1, Leaving = 2, Joining = 3, Joined = 4 }

    /// Phase of a pod.
    KubePodStatus: i8 { Unknown = 0, Pending = 1, Running = 2, Succeeded = 3, Failed = 4 }

    /// Phase of a virtual machine instance.
    KubeVmiStatus: i8 {
        Unset = 0, Pending = 1, Scheduling = 2, Scheduled = 3, Running = 4, Succeeded = 5,
        Failed = 6, Unknown = 7,
    }

    /// Health of a service of the cluster.
    ServiceStatus: i8 { Unset = 0, Failed = 1, Degraded = 2, Healthy = 3 }

    /// Whether a volume is attached.
    StorageVolumeState: u8 {
        Unknown = 0, Creating = 1, Attached = 2, Detached = 3, Attaching = 4, Detaching = 5,
        Deleting = 6,
    }

    /// State of a volume's replicas.
    StorageVolumeRobustness: u8 {
        Unknown = 0, Healthy = 1,
        /// Some are good.
        Degraded = 2,
        /// None is good.
        Faulted = 3,
    }

    /// State of a volume's claim; the reference only ever sets 1.
    StorageVolumePvcStatus: u8 {
        Unknown = 0, Bound = 1, Pending = 2, Available = 3, Released = 4, Faulted = 5,
    }

    /// State of a replica.
    StorageVolumeReplicaStatus: u8 {
        Unknown = 0, Rebuilding = 1, Online = 2, Failed = 3, Offline = 4, Starting = 5,
        Stopping = 6,
    }

    /// State of a volume's three replicas in detail.
    StorageHealthStatus: u8 {
        Unknown = 0, Healthy = 1, TwoAvailableReplicating = 2, TwoAvailableNotReplicating = 3,
        OneAvailableReplicating = 4, OneAvailableNotReplicating = 5, Failed = 6,
    }
}
