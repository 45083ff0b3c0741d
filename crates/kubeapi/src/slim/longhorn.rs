//! Objects of Longhorn with only the members that are read, by its API's names.
//!
//! Not here: what they mean for a node (`kubenodeop::storage`), and `clusterview`, which reads other members.
//! Source: the API types longhorn.io/v1beta2. Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::names::STORAGE_NAMESPACE;
use crate::slim::{Condition, Meta};
use crate::watch::WatchScope;

/// Setting: what Longhorn does about a node that is drained.
pub const DRAIN_POLICY: &str = "node-drain-policy";
/// Setting: what it does about pods of a node that is silent; and the value for nothing.
pub const NODE_DOWN_POLICY: &str = "node-down-pod-deletion-policy";
pub const NODE_DOWN_NOTHING: &str = "do-nothing";

pub fn scope(kind: &str) -> WatchScope {
    WatchScope::all(format!("{kind}.longhorn.io"), path(kind))
}

pub fn path(kind: &str) -> String {
    format!("/apis/longhorn.io/v1beta2/namespaces/{STORAGE_NAMESPACE}/{kind}")
}

/// Go writes an empty map or list as null.
fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

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
    ($($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $member:ident: $kind:ty,)+ })+) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $(#[serde(deserialize_with = "or_empty")] $(#[$of])* pub $member: $kind,)+ }
    )+ };
}

types! {
    Volume { metadata: Meta, spec: VolumeSpec, status: VolumeStatus, }
    VolumeSpec {
        number_of_replicas: u32,
        /// Follows the backups of another cluster: always being restored.
        standby: bool,
        data_locality: String,
        #[serde(rename = "migrationNodeID")]
        migration_node: String,
        data_layout: DataLayout,
    }
    /// How its data is spread; without a type by whole replicas.
    DataLayout {
        #[serde(rename = "type")]
        kind: String,
    }
    VolumeStatus {
        state: String,
        robustness: String,
        #[serde(rename = "currentNodeID")]
        current_node: String,
        kubernetes_status: Claimed,
        conditions: Vec<Condition>,
        restore_required: bool,
    }
    /// The claim of a volume.
    Claimed { namespace: String, pvc_name: String, workloads_status: Vec<VolumeUser>, }
    /// A present or former user of a volume.
    VolumeUser { pod_status: String, workload_name: String, workload_type: String, }
    Replica { metadata: Meta, spec: ReplicaSpec, status: InstanceStatus, }
    ReplicaSpec {
        volume_name: String,
        #[serde(rename = "nodeID")]
        node: String,
        healthy_at: String,
        failed_at: String,
        desire_state: String,
        eviction_requested: bool,
    }
    InstanceStatus { current_state: String, conditions: Vec<Condition>, }
    Engine { metadata: Meta, spec: EngineSpec, status: EngineStatus, }
    EngineSpec { volume_name: String, active: bool, }
    EngineStatus {
        current_state: String,
        replica_mode_map: BTreeMap<String, String>,
        current_replica_address_map: BTreeMap<String, String>,
        rebuild_status: BTreeMap<String, Rebuild>,
    }
    Rebuild { is_rebuilding: bool, progress: u8, }
    StorageNode { metadata: Meta, spec: StorageNodeSpec, status: StorageNodeStatus, }
    StorageNodeSpec { allow_scheduling: bool, disks: BTreeMap<String, DiskSpec>, }
    /// In bytes.
    DiskSpec { storage_reserved: i64, }
    StorageNodeStatus { conditions: Vec<Condition>, disk_status: BTreeMap<String, DiskStatus>, }
    /// In bytes.
    DiskStatus { scheduled_replica: KeySet, storage_available: i64, storage_maximum: i64, }
    /// The instance manager: runs engines and replicas on a node.
    Manager { metadata: Meta, spec: ManagerSpec, status: ManagerStatus, }
    ManagerSpec {
        #[serde(rename = "nodeID")]
        node: String,
    }
    ManagerStatus { current_state: String, instance_engines: KeySet, }
    /// Who needs a volume attached, named as the volume.
    Attachment { metadata: Meta, spec: AttachmentSpec, }
    AttachmentSpec { attachment_tickets: BTreeMap<String, Ticket>, }
    Ticket {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "nodeID")]
        node: String,
    }
    Setting { metadata: Meta, value: String, }
    /// The shards of a volume, named as the volume.
    ShardGroup { metadata: Meta, spec: ShardGroupSpec, status: ShardGroupStatus, }
    /// So many shards are needed to read the data, and so many more there are.
    ShardGroupSpec { data_chunks: u32, parity_chunks: u32, }
    ShardGroupStatus { state: String, failed_count: u32, rebuild_in_progress: bool, }
    Shard { metadata: Meta, spec: ShardSpec, status: ShardStatus, }
    ShardSpec {
        shard_group_name: String,
        #[serde(rename = "nodeID")]
        node: String,
        eviction_requested: bool,
    }
    ShardStatus { state: String, rebuild_progress: u8, }
}

/// `shop/data (pvc-1)`, and `pvc-1` without a claim.
pub fn named(namespace: &str, claim: &str, volume: &str) -> String {
    if claim.is_empty() { volume.to_owned() } else { format!("{namespace}/{claim} ({volume})") }
}

macro_rules! objects {
    ($($name:ident)+) => { $(
        impl AsRef<Meta> for $name {
            fn as_ref(&self) -> &Meta {
                &self.metadata
            }
        }
    )+ };
}

objects! { Volume Replica Engine StorageNode Manager Attachment Shard ShardGroup Setting }

impl Volume {
    /// Whether shards hold its data, in place of replicas.
    pub fn is_sharded(&self) -> bool {
        self.spec.data_layout.kind == "sharded"
    }

    pub fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    pub fn shown(&self) -> String {
        let claimed = &self.status.kubernetes_status;
        named(&claimed.namespace, &claimed.pvc_name, &self.name())
    }
}

impl DiskStatus {
    /// Less than 1 % is free: no copy can be written there.
    pub fn is_full(&self) -> bool {
        self.storage_available.saturating_mul(100) < self.storage_maximum
    }
}

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
