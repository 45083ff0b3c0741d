//! Large objects with no more than what is read of them, by the names that the API has.
//!
//! Of a pod with its whole specification, its environment variables and the record of who wrote what, a tenth is read;
//! the rest is passed over as the answer is parsed. Not here: what is written back whole. Source: the Kubernetes API
//! reference. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSelector, Taint, Toleration};
use k8s_openapi::api::{core::v1 as core, policy::v1 as policy, storage::v1 as storage};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ManagedFieldsEntry, OwnerReference, Time,
};
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub mod longhorn;

macro_rules! slim {
    ($($(#[$about:meta])+ $name:ident { $($(#[$of:meta])* $member:ident: $kind:ty,)+ })+) => { $(
        $(#[$about])+
        #[derive(Debug, Clone, PartialEq, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$of])* pub $member: $kind,)+ }
    )+ };
}

slim! {
    /// Metadata of an object.
    Meta {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        finalizers: Option<Vec<String>>,
    }
    /// An object of which only the metadata is read.
    Known { metadata: Meta, }
    /// A node, without its images, which are most of it.
    NodeObject { metadata: NodeMeta, spec: Option<NodeObjectSpec>, status: Option<NodeObjectStatus>, }
    /// Metadata of a node, with who wrote what.
    NodeMeta {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        managed_fields: Option<Vec<ManagedFieldsEntry>>,
    }
    /// What a node keeps pods away by.
    NodeObjectSpec { unschedulable: Option<bool>, taints: Option<Vec<Taint>>, }
    /// How a node is, and what it offers.
    NodeObjectStatus {
        conditions: Option<Vec<Condition>>,
        addresses: Option<Vec<NodeAddress>>,
        allocatable: Option<BTreeMap<String, Quantity>>,
        node_info: Option<NodeVersions>,
    }
    /// What runs on a node, and on which machine.
    NodeVersions {
        kubelet_version: String,
        #[serde(rename = "bootID")]
        boot_id: String,
        #[serde(rename = "machineID")]
        machine_id: String,
        #[serde(rename = "systemUUID")]
        system_uuid: String,
    }
    /// A pod.
    Pod { metadata: Meta, spec: Option<PodSpec>, status: Option<PodStatus>, }
    /// What a pod asks for.
    PodSpec {
        node_name: Option<String>,
        termination_grace_period_seconds: Option<i64>,
        priority: Option<i32>,
        priority_class_name: Option<String>,
        node_selector: Option<BTreeMap<String, String>>,
        affinity: Option<Affinity>,
        tolerations: Option<Vec<Toleration>>,
        volumes: Option<Vec<Volume>>,
        containers: Vec<Container>,
        init_containers: Option<Vec<Container>>,
        topology_spread_constraints: Option<Vec<SpreadConstraint>>,
        resources: Option<Resources>,
        overhead: Option<BTreeMap<String, Quantity>>,
    }
    /// Where a pod wants to be.
    Affinity {
        node_affinity: Option<NodeAffinity>,
        pod_affinity: Option<PodTerms>,
        pod_anti_affinity: Option<PodTerms>,
    }
    /// On which nodes.
    NodeAffinity { required_during_scheduling_ignored_during_execution: Option<NodeSelector>, }
    /// Beside which pods it must be, or must not.
    PodTerms { required_during_scheduling_ignored_during_execution: Option<Vec<PodTerm>>, }
    /// Some pods, and how near.
    PodTerm {
        label_selector: Option<LabelSelector>,
        namespaces: Option<Vec<String>>,
        namespace_selector: Option<LabelSelector>,
        topology_key: String,
        match_label_keys: Option<Vec<String>>,
        mismatch_label_keys: Option<Vec<String>>,
    }
    /// How evenly pods are to be spread.
    SpreadConstraint {
        max_skew: i32,
        topology_key: String,
        when_unsatisfiable: String,
        label_selector: Option<LabelSelector>,
        match_label_keys: Option<Vec<String>>,
        node_taints_policy: Option<String>,
    }
    /// A volume of a pod.
    Volume {
        name: String,
        host_path: Option<HostPath>,
        persistent_volume_claim: Option<MountedClaim>,
        ephemeral: Option<IgnoredAny>,
    }
    /// A path of the node.
    HostPath { path: String, }
    /// A claim that a pod mounts.
    MountedClaim { claim_name: String, }
    /// A container of a pod.
    Container {
        resources: Option<Resources>,
        restart_policy: Option<String>,
        ports: Option<Vec<ContainerPort>>,
    }
    /// A port of a container; one of the node where it says so.
    ContainerPort { host_port: Option<i32>, protocol: Option<String>, }
    /// What a container, or a whole pod, asks of the node.
    Resources { requests: Option<BTreeMap<String, Quantity>>, }
    /// How a pod is.
    PodStatus {
        phase: Option<String>,
        start_time: Option<Time>,
        conditions: Option<Vec<Condition>>,
        container_statuses: Option<Vec<ContainerStatus>>,
        init_container_statuses: Option<Vec<ContainerStatus>>,
    }
    /// One condition of an object.
    Condition {
        #[serde(rename = "type")]
        type_: String,
        status: String,
        reason: Option<String>,
        message: Option<String>,
        last_transition_time: Option<Time>,
    }
    /// How a container is.
    ContainerStatus { state: Option<ContainerState>, }
    /// What a container does.
    ContainerState { waiting: Option<Waiting>, }
    /// What a container waits for.
    Waiting { reason: Option<String>, }
    /// A disruption budget.
    PodDisruptionBudget { metadata: Meta, spec: Option<BudgetSpec>, status: Option<BudgetStatus>, }
    /// What a budget guards.
    BudgetSpec { selector: Option<LabelSelector>, unhealthy_pod_eviction_policy: Option<String>, }
    /// What a budget allows.
    BudgetStatus {
        current_healthy: Option<i32>,
        desired_healthy: Option<i32>,
        disruptions_allowed: Option<i32>,
        expected_pods: Option<i32>,
        observed_generation: Option<i64>,
        disrupted_pods: Option<BTreeMap<String, Time>>,
        conditions: Option<Vec<Condition>>,
    }
    /// A volume of the cluster.
    PersistentVolume { metadata: Meta, spec: Option<VolumeSpec>, }
    /// Who has a volume, and where it can be used.
    VolumeSpec { claim_ref: Option<ClaimRef>, node_affinity: Option<VolumeNodeAffinity>, csi: Option<Csi>, }
    /// What serves a volume, and its name there.
    Csi { driver: String, volume_handle: String, }
    /// The claim that a volume is bound to.
    ClaimRef { namespace: Option<String>, name: Option<String>, }
    /// The nodes that a volume can be used on.
    VolumeNodeAffinity { required: Option<NodeSelector>, }
    /// A volume on its way to, on or from a node.
    VolumeAttachment { metadata: Meta, spec: AttachmentSpec, status: Option<AttachmentStatus>, }
    /// Whether it has been done.
    AttachmentStatus { attached: Option<bool>, }
    /// What is attached where.
    AttachmentSpec { node_name: String, source: AttachmentSource, }
    /// The volume of an attachment.
    AttachmentSource { persistent_volume_name: Option<String>, }
}

macro_rules! listed {
    ($($name:ident = $whole:ty;)+) => { $(
        impl $name {
            /// Where such objects are, in all namespaces or in one.
            pub fn url_path(namespace: Option<&str>) -> String {
                <$whole>::url_path(&(), namespace)
            }
        }
    )+ };
}

listed! {
    NodeObject = core::Node;
    Pod = core::Pod;
    PersistentVolume = core::PersistentVolume;
    PodDisruptionBudget = policy::PodDisruptionBudget;
    VolumeAttachment = storage::VolumeAttachment;
}

/// Whether the condition Ready of this pod is True.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
