//! OS images: what is wanted, how far it is, and the content that it comes from.
//!
//! Not here: the two partitions (`zboot`).
//! Source: lf-edge/eve pkg/pillar/types/{zedagent,contenttree}types.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{ErrorEntity, ErrorSeverity, GoTime, GoUuid, Kind, Most, Topic};

/// The OS image that the controller wants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BaseOsConfig {
    /// Its version.
    pub base_os_version: String,
    /// Its content tree; the key.
    #[serde(rename = "ContentTreeUUID")]
    pub content_tree_uuid: String,
    /// A change tries a failed update again.
    pub retry_update_counter: u32,
    /// Whether to switch to it.
    pub activate: bool,
}

impl Topic for BaseOsConfig {
    const NAME: &'static str = "BaseOsConfig";
    const KIND: Kind = Kind::Volatile;
}

/// How far an OS image is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BaseOsStatus {
    /// Its version.
    pub base_os_version: String,
    /// Whether this boot runs it.
    pub activated: bool,
    /// Whether it waits for the test of the present image.
    pub too_early: bool,
    /// Its content tree; the key.
    #[serde(rename = "ContentTreeUUID")]
    pub content_tree_uuid: String,
    /// The partition that holds it.
    pub partition_label: String,
    /// Device of that partition.
    pub partition_device: String,
    /// State of that partition.
    pub partition_state: String,
    /// How far it is.
    pub state: SwState,
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

impl Topic for BaseOsStatus {
    const NAME: &'static str = "BaseOsStatus";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        for text in [&mut self.base_os_version, &mut self.error, &mut self.error_retry_condition] {
            most.text(text);
        }
    }
}

/// What baseosmgr has done about retries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BaseOSMgrStatus {
    /// The retry counter that was last acted upon.
    pub current_retry_update_counter: u32,
}

impl Topic for BaseOSMgrStatus {
    const NAME: &'static str = "BaseOSMgrStatus";
    const KIND: Kind = Kind::Volatile;
}

numbers! {
    /// How far software is on its way.
    SwState: u8 {
        /// Nothing said yet.
        Unset = 0,
        /// Known.
        Initial = 100,
        /// Its tag is being looked up.
        ResolvingTag = 101,
        /// Its tag is known.
        ResolvedTag = 102,
        /// On its way.
        Downloading = 103,
        /// Here.
        Downloaded = 104,
        /// Being checked.
        Verifying = 105,
        /// Checked.
        Verified = 106,
        /// Being loaded.
        Loading = 107,
        /// Loaded.
        Loaded = 108,
        /// Its volume is being made.
        CreatingVolume = 109,
        /// Its volume is there.
        CreatedVolume = 110,
        /// In its place.
        Installed = 111,
        /// Waits for a network.
        AwaitNetworkInstance = 112,
        /// Waits for its time.
        StartDelayed = 113,
        /// Starts.
        Booting = 114,
        /// Runs.
        Running = 115,
        /// About to pause.
        Pausing = 116,
        /// Pauses.
        Paused = 117,
        /// Going down.
        Halting = 118,
        /// Down.
        Halted = 119,
        /// Broken.
        Broken = 120,
        /// Cannot be told.
        Unknown = 121,
        /// Not yet scheduled.
        Pending = 122,
        /// Being scheduled.
        Scheduling = 123,
        /// Failed.
        Failed = 124,
        /// Loaded elsewhere.
        RemoteLoaded = 125,
        /// Not a state.
        MaxState = 126,
    }
}

numbers! {
    /// Format of an image or a disk.
    Format: i32 {
        /// Not said.
        Unknown = 0,
        /// Raw.
        Raw = 1,
        /// QEMU's first.
        Qcow = 2,
        /// QEMU's second.
        Qcow2 = 3,
        /// Virtual PC's.
        Vhd = 4,
        /// VMware's.
        Vmdk = 5,
        /// A packed machine.
        Ova = 6,
        /// Hyper-V's.
        Vhdx = 7,
        /// A container image.
        Container = 8,
        /// A CD image.
        Iso = 9,
        /// A volume of the cluster.
        Pvc = 10,
    }
}

/// Content that volumemgr has brought, such as an OS image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ContentTreeStatus {
    /// Its identity; the key.
    #[serde(rename = "ContentID")]
    pub content_id: GoUuid,
    /// Where it may come from.
    #[serde(rename = "DatastoreIDList")]
    pub datastore_id_list: Option<Vec<GoUuid>>,
    /// Kinds of those places.
    pub datastore_types_list: Option<Vec<String>>,
    /// Whether all of them are known.
    pub all_datastores_resolved: bool,
    /// Whether one is a registry.
    #[serde(rename = "IsOCIRegistry")]
    pub is_oci_registry: bool,
    /// Its name there.
    #[serde(rename = "RelativeURL")]
    pub relative_url: String,
    /// Its format.
    pub format: Format,
    /// Its hash.
    pub content_sha256: String,
    /// Its size at most, in bytes.
    pub max_download_size: u64,
    /// Counts its generations.
    pub generation_counter: i64,
    /// Its name for people.
    pub display_name: String,
    /// Whether a resolver is at work.
    pub has_resolver_ref: bool,
    /// How far it is.
    pub state: SwState,
    /// When it was made.
    pub create_time: GoTime,
    /// Bytes in all.
    pub total_size: i64,
    /// Bytes here.
    pub current_size: i64,
    /// Percent here.
    pub progress: u64,
    /// Where it lies, when it is one file.
    pub file_location: String,
    /// Whether its name is an address.
    #[serde(rename = "NameIsURL")]
    pub name_is_url: bool,
    /// Its parts.
    pub blobs: Option<Vec<String>>,
    /// Whether it is for a Kubernetes image.
    #[serde(rename = "HVTypeKube")]
    pub hv_type_kube: bool,
    /// Whether it is for this node.
    pub is_local: bool,
    /// What kind of thing the error comes from.
    pub error_source_type: String,
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

impl Topic for ContentTreeStatus {
    const NAME: &'static str = "ContentTreeStatus";
    const KIND: Kind = Kind::Volatile;
}
