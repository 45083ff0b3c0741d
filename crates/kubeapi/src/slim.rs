//! Large objects with only the members that are read, by the API's names.
//!
//! A tenth of a pod is read; the rest is skipped while the answer is parsed. Not here: objects that are
//! written back whole. Source: the Kubernetes API reference. Pure: no clock, no I/O, no task.

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
    ($($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $member:ident: $kind:ty,)+ })+) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$of])* pub $member: $kind,)+ }
    )+ };
}

slim! {
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
    /// With `managedFields`.
    NodeMeta {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        managed_fields: Option<Vec<ManagedFieldsEntry>>,
    }
    NodeObjectSpec { unschedulable: Option<bool>, taints: Option<Vec<Taint>>, }
    NodeObjectStatus {
        conditions: Option<Vec<Condition>>,
        addresses: Option<Vec<NodeAddress>>,
        allocatable: Option<BTreeMap<String, Quantity>>,
        node_info: Option<NodeVersions>,
    }
    NodeVersions {
        kubelet_version: String,
        #[serde(rename = "bootID")]
        boot_id: String,
        #[serde(rename = "machineID")]
        machine_id: String,
        #[serde(rename = "systemUUID")]
        system_uuid: String,
    }
    Pod { metadata: Meta, spec: Option<PodSpec>, status: Option<PodStatus>, }
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
        /// From 1.37 on, where its gate is on: only how many is read.
        eviction_responders: Option<Vec<IgnoredAny>>,
    }
    Affinity {
        node_affinity: Option<NodeAffinity>,
        pod_affinity: Option<PodTerms>,
        pod_anti_affinity: Option<PodTerms>,
    }
    NodeAffinity { required_during_scheduling_ignored_during_execution: Option<NodeSelector>, }
    /// Pod affinity or anti-affinity.
    PodTerms { required_during_scheduling_ignored_during_execution: Option<Vec<PodTerm>>, }
    PodTerm {
        label_selector: Option<LabelSelector>,
        namespaces: Option<Vec<String>>,
        namespace_selector: Option<LabelSelector>,
        topology_key: String,
        match_label_keys: Option<Vec<String>>,
        mismatch_label_keys: Option<Vec<String>>,
    }
    SpreadConstraint {
        max_skew: i32,
        topology_key: String,
        when_unsatisfiable: String,
        label_selector: Option<LabelSelector>,
        match_label_keys: Option<Vec<String>>,
        node_taints_policy: Option<String>,
    }
    Volume {
        name: String,
        host_path: Option<HostPath>,
        persistent_volume_claim: Option<MountedClaim>,
        ephemeral: Option<IgnoredAny>,
    }
    HostPath { path: String, }
    MountedClaim { claim_name: String, }
    Container {
        resources: Option<Resources>,
        restart_policy: Option<String>,
        ports: Option<Vec<ContainerPort>>,
    }
    /// A host port where it says so.
    ContainerPort { host_port: Option<i32>, protocol: Option<String>, }
    Resources { requests: Option<BTreeMap<String, Quantity>>, }
    PodStatus {
        phase: Option<String>,
        start_time: Option<Time>,
        conditions: Option<Vec<Condition>>,
        container_statuses: Option<Vec<ContainerStatus>>,
        init_container_statuses: Option<Vec<ContainerStatus>>,
    }
    Condition {
        #[serde(rename = "type")]
        type_: String,
        status: String,
        reason: Option<String>,
        message: Option<String>,
        last_transition_time: Option<Time>,
    }
    ContainerStatus { state: Option<ContainerState>, }
    ContainerState { waiting: Option<Waiting>, }
    Waiting { reason: Option<String>, }
    PodDisruptionBudget { metadata: Meta, spec: Option<BudgetSpec>, status: Option<BudgetStatus>, }
    BudgetSpec { selector: Option<LabelSelector>, unhealthy_pod_eviction_policy: Option<String>, }
    BudgetStatus {
        current_healthy: Option<i32>,
        desired_healthy: Option<i32>,
        disruptions_allowed: Option<i32>,
        expected_pods: Option<i32>,
        observed_generation: Option<i64>,
        disrupted_pods: Option<BTreeMap<String, Time>>,
        conditions: Option<Vec<Condition>>,
    }
    PersistentVolume { metadata: Meta, spec: Option<VolumeSpec>, }
    VolumeSpec { claim_ref: Option<ClaimRef>, node_affinity: Option<VolumeNodeAffinity>, csi: Option<Csi>, }
    Csi { driver: String, volume_handle: String, }
    ClaimRef { namespace: Option<String>, name: Option<String>, }
    VolumeNodeAffinity { required: Option<NodeSelector>, }
    /// A volume on its way to, on or from a node.
    VolumeAttachment { metadata: Meta, spec: AttachmentSpec, status: Option<AttachmentStatus>, }
    AttachmentStatus { attached: Option<bool>, }
    AttachmentSpec { node_name: String, source: AttachmentSource, }
    AttachmentSource { persistent_volume_name: Option<String>, }
}

macro_rules! listed {
    ($($name:ident = $whole:ty;)+) => { $(
        impl $name {
            /// In all namespaces, or in one.
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

/// Condition Ready of a node or a pod.
fn ready(conditions: Option<&[Condition]>) -> Option<&Condition> {
    conditions.unwrap_or_default().iter().find(|it| it.type_ == "Ready")
}

/// Condition Ready of a node.
pub fn ready_of_node(node: &NodeObject) -> Option<&Condition> {
    ready(node.status.as_ref()?.conditions.as_deref())
}

/// Condition Ready of a pod.
pub fn ready_of_pod(pod: &Pod) -> Option<&Condition> {
    ready(pod.status.as_ref()?.conditions.as_deref())
}

#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    ready_of_pod(pod).is_some_and(|it| it.status == "True")
}
