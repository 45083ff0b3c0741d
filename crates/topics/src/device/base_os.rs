//! OS images: wanted ones and their state.
//!
//! Not here: the two partitions (`zboot`), the content that they come from (`others`).
//! Source: lf-edge/eve pkg/pillar/types/zedagenttypes.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{ErrorEntity, ErrorSeverity, GoTime, topic};

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

topic!(BaseOsConfig: Volatile, key None);

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

topic!(BaseOsStatus: Volatile, key None, cut base_os_version error error_retry_condition);

/// How far an OS image is on its way into a partition, while it is written there. A topic of our own: the reference's
/// status of an image has no member for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageWrite {
    /// Its version.
    pub base_os_version: String,
    /// Its content tree.
    #[serde(rename = "ContentTreeUUID")]
    pub content_tree_uuid: String,
    /// The partition that it is written to.
    pub partition_label: String,
    /// How much of it has been read, in percent.
    pub percent: u8,
}

topic!(ImageWrite: Volatile);

/// What baseosmgr has done about retries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BaseOSMgrStatus {
    /// The retry counter that was last acted upon.
    pub current_retry_update_counter: u32,
}

topic!(BaseOSMgrStatus: Volatile);

numbers! {
    /// How far software is on its way.
    SwState: u8 {
        Unset = 0, Initial = 100, ResolvingTag = 101, ResolvedTag = 102, Downloading = 103,
        Downloaded = 104, Verifying = 105, Verified = 106, Loading = 107, Loaded = 108,
        CreatingVolume = 109, CreatedVolume = 110, Installed = 111, AwaitNetworkInstance = 112,
        StartDelayed = 113, Booting = 114, Running = 115, Pausing = 116, Paused = 117,
        Halting = 118, Halted = 119, Broken = 120, Unknown = 121, Pending = 122, Scheduling = 123,
        Failed = 124, RemoteLoaded = 125, MaxState = 126,
    }
}

/// What nodeagent has found out about the image in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ZbootConfig {
    /// `IMGA` or `IMGB`; the key.
    pub partition_label: String,
    /// The image is good.
    pub test_complete: bool,
}

topic!(ZbootConfig: Volatile, key None);

/// One of the two partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ZbootStatus {
    /// `IMGA` or `IMGB`; the key.
    pub partition_label: String,
    /// Its device.
    pub partition_devname: String,
    /// `active`, `inprogress`, `updating` or `unused`.
    pub partition_state: String,
    /// Version of the image in it.
    pub short_version: String,
    /// Version in full.
    pub long_version: String,
    /// Whether this boot runs it.
    pub current_partition: bool,
    /// Whether its test is over.
    pub test_complete: bool,
}

topic!(ZbootStatus: Volatile, key None);
