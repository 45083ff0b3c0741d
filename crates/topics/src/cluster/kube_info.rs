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
        /// Not known.
        Unknown = 0,
        /// Ready.
        Ready = 1,
        /// Says itself that it is not ready.
        NotReady = 2,
        /// Has not been heard of.
        NotReachable = 3,
    }
}

numbers! {
    /// Whether a node is on its way in or out of the cluster.
    NodeAdmission: u8 {
        /// Not known.
        Unknown = 0,
        /// Belongs to no cluster.
        NotClustered = 1,
        /// Leaves.
        Leaving = 2,
        /// Joins.
        Joining = 3,
        /// Has joined.
        Joined = 4,
    }
}

numbers! {
    /// Phase of a pod.
    KubePodStatus: i8 {
        /// Not known.
        Unknown = 0,
        /// Waits for a node or an image.
        Pending = 1,
        /// Runs.
        Running = 2,
        /// Ended well.
        Succeeded = 3,
        /// Ended badly.
        Failed = 4,
    }
}

numbers! {
    /// Phase of a virtual machine instance.
    KubeVmiStatus: i8 {
        /// Not said.
        Unset = 0,
        /// Waits.
        Pending = 1,
        /// Looks for a node.
        Scheduling = 2,
        /// Has a node.
        Scheduled = 3,
        /// Runs.
        Running = 4,
        /// Ended well.
        Succeeded = 5,
        /// Ended badly.
        Failed = 6,
        /// Not known.
        Unknown = 7,
    }
}

numbers! {
    /// Health of a service of the cluster.
    ServiceStatus: i8 {
        /// Not said.
        Unset = 0,
        /// Does not work.
        Failed = 1,
        /// Works with a part missing.
        Degraded = 2,
        /// Works.
        Healthy = 3,
    }
}

numbers! {
    /// Whether a volume is attached.
    StorageVolumeState: u8 {
        /// Not known.
        Unknown = 0,
        /// Is being made.
        Creating = 1,
        /// Is attached to a node.
        Attached = 2,
        /// Is attached to none.
        Detached = 3,
        /// Is being attached.
        Attaching = 4,
        /// Is being detached.
        Detaching = 5,
        /// Is being deleted.
        Deleting = 6,
    }
}

numbers! {
    /// State of a volume's replicas.
    StorageVolumeRobustness: u8 {
        /// Not known.
        Unknown = 0,
        /// All are good.
        Healthy = 1,
        /// Some are good.
        Degraded = 2,
        /// None is good.
        Faulted = 3,
    }
}

numbers! {
    /// State of a volume's claim; the reference only ever sets 1.
    StorageVolumePvcStatus: u8 {
        /// Not known.
        Unknown = 0,
        /// Bound to a volume.
        Bound = 1,
        /// Waits for a volume.
        Pending = 2,
        /// Free.
        Available = 3,
        /// Given back.
        Released = 4,
        /// Broken.
        Faulted = 5,
    }
}

numbers! {
    /// State of a replica.
    StorageVolumeReplicaStatus: u8 {
        /// Not known.
        Unknown = 0,
        /// Is being filled.
        Rebuilding = 1,
        /// In use.
        Online = 2,
        /// Broken.
        Failed = 3,
        /// Not in use.
        Offline = 4,
        /// Starts.
        Starting = 5,
        /// Stops.
        Stopping = 6,
    }
}

numbers! {
    /// State of a volume's three replicas in detail.
    StorageHealthStatus: u8 {
        /// Not known.
        Unknown = 0,
        /// All are good.
        Healthy = 1,
        /// Two are good and a third is being filled.
        TwoAvailableReplicating = 2,
        /// Two are good and no third is being filled.
        TwoAvailableNotReplicating = 3,
        /// One is good and others are being filled.
        OneAvailableReplicating = 4,
        /// One is good and no other is being filled.
        OneAvailableNotReplicating = 5,
        /// None is good.
        Failed = 6,
    }
}
