//! Objects of Longhorn with no more than what is read of them, by the names that its API has.
//!
//! Not here: what they mean for a node (`kubenodeop::storage`), the report of the cluster (`clusterview`, which keeps
//! other members). Source: the API types longhorn.io/v1beta2; spec/vm-storage.md B1.
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::names::STORAGE_NAMESPACE;
use crate::slim::{Condition, Meta};
use crate::watch::WatchScope;

/// All objects of a kind, as `volumes`.
pub fn scope(kind: &str) -> WatchScope {
    WatchScope::all(format!("{kind}.longhorn.io"), path(kind))
}

/// Where objects of a kind are.
pub fn path(kind: &str) -> String {
    format!("/apis/longhorn.io/v1beta2/namespaces/{STORAGE_NAMESPACE}/{kind}")
}

/// Go writes an empty map or list as null.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// The names of a map of which nothing else is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet(pub BTreeSet<String>);

impl<'de> Deserialize<'de> for KeySet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = BTreeSet<String>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut names = BTreeSet::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    names.insert(name);
                }
                Ok(names)
            }
        }
        from.deserialize_map(Keys).map(Self)
    }
}

macro_rules! types {
    ($($(#[$about:meta])+ $name:ident { $($(#[$of:meta])* $member:ident: $kind:ty,)+ })+) => { $(
        $(#[$about])+
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $(#[serde(deserialize_with = "or_empty")] $(#[$of])* pub $member: $kind,)+ }
    )+ };
}

types! {
    /// A volume.
    Volume { metadata: Meta, spec: VolumeSpec, status: VolumeStatus, }
    /// What is wanted of a volume.
    VolumeSpec {
        number_of_replicas: u32,
        /// It follows the backups of another cluster, and is being restored all the time.
        standby: bool,
        data_locality: String,
        #[serde(rename = "migrationNodeID")]
        migration_node: String,
    }
    /// How a volume is.
    VolumeStatus {
        state: String,
        robustness: String,
        #[serde(rename = "currentNodeID")]
        current_node: String,
        kubernetes_status: Claimed,
        conditions: Vec<Condition>,
        restore_required: bool,
    }
    /// Whose volume it is.
    Claimed { namespace: String, pvc_name: String, workloads_status: Vec<VolumeUser>, }
    /// A pod that uses a volume, or used it last.
    VolumeUser { pod_status: String, workload_name: String, workload_type: String, }
    /// A copy of a volume.
    Replica { metadata: Meta, spec: ReplicaSpec, status: InstanceStatus, }
    /// What is wanted of a copy.
    ReplicaSpec {
        volume_name: String,
        #[serde(rename = "nodeID")]
        node: String,
        healthy_at: String,
        failed_at: String,
        desire_state: String,
        eviction_requested: bool,
    }
    /// How a copy is.
    InstanceStatus { current_state: String, conditions: Vec<Condition>, }
    /// What serves an attached volume.
    Engine { metadata: Meta, spec: EngineSpec, status: EngineStatus, }
    /// Which volume it serves.
    EngineSpec { volume_name: String, active: bool, }
    /// What an engine knows of the copies.
    EngineStatus {
        current_state: String,
        replica_mode_map: BTreeMap<String, String>,
        current_replica_address_map: BTreeMap<String, String>,
        rebuild_status: BTreeMap<String, Rebuild>,
    }
    /// How far a copy is being rebuilt.
    Rebuild { is_rebuilding: bool, progress: u8, }
    /// A node as Longhorn knows it.
    StorageNode { metadata: Meta, spec: StorageNodeSpec, status: StorageNodeStatus, }
    /// Whether it takes copies, and its disks.
    StorageNodeSpec { allow_scheduling: bool, disks: BTreeMap<String, DiskSpec>, }
    /// What is wanted of a disk, in bytes.
    DiskSpec { storage_reserved: i64, }
    /// How it is.
    StorageNodeStatus { conditions: Vec<Condition>, disk_status: BTreeMap<String, DiskStatus>, }
    /// A disk of a node, in bytes.
    DiskStatus { scheduled_replica: KeySet, storage_available: i64, storage_maximum: i64, }
    /// The process on a node that runs engines and replicas.
    Manager { metadata: Meta, spec: ManagerSpec, status: ManagerStatus, }
    /// Where it runs.
    ManagerSpec {
        #[serde(rename = "nodeID")]
        node: String,
    }
    /// What runs in it.
    ManagerStatus { current_state: String, instance_engines: KeySet, }
    /// Who needs a volume attached, by the volume's name.
    Attachment { metadata: Meta, spec: AttachmentSpec, }
    /// The tickets of all of them.
    AttachmentSpec { attachment_tickets: BTreeMap<String, Ticket>, }
    /// What needs it where.
    Ticket {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "nodeID")]
        node: String,
    }
    /// A setting.
    Setting { metadata: Meta, value: String, }
}

/// A volume for a person: `shop/data (pvc-1)`, and `pvc-1` without a claim.
pub fn named(namespace: &str, claim: &str, volume: &str) -> String {
    if claim.is_empty() { volume.to_owned() } else { format!("{namespace}/{claim} ({volume})") }
}

impl Volume {
    /// Its name in Longhorn.
    pub fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    /// The same for a person, with its claim.
    pub fn shown(&self) -> String {
        let claimed = &self.status.kubernetes_status;
        named(&claimed.namespace, &claimed.pvc_name, &self.name())
    }
}

impl DiskStatus {
    /// Less than 1 % of it is free: no copy there can be written.
    pub fn is_full(&self) -> bool {
        self.storage_available.saturating_mul(100) < self.storage_maximum
    }
}

/// The condition of this type.
pub fn condition<'a>(all: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    all.iter().find(|it| it.type_ == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_leaves_out_or_writes_as_null_is_empty() {
        let engine: Engine = serde_json::from_value(json!({
            "metadata": {"name": "v-e-0"}, "spec": {"volumeName": "v", "active": true, "image": "i"},
            "status": {"currentState": "stopped", "replicaModeMap": null, "rebuildStatus": null},
        }))
        .unwrap();
        assert_eq!((engine.spec.volume_name.as_str(), engine.spec.active), ("v", true));
        assert!(engine.status.replica_mode_map.is_empty() && engine.status.rebuild_status.is_empty());
        let volume: Volume = serde_json::from_value(json!({
            "spec": {"numberOfReplicas": 2, "migrationNodeID": "n2"},
            "status": {"currentNodeID": "n1", "conditions": null, "kubernetesStatus": {"pvcName": "data"}},
        }))
        .unwrap();
        assert_eq!((volume.spec.number_of_replicas, volume.spec.migration_node.as_str()), (2, "n2"));
        assert_eq!(
            (volume.status.current_node.as_str(), volume.status.kubernetes_status.pvc_name.as_str()),
            ("n1", "data")
        );
    }
}
