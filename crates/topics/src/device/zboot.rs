//! The two image partitions: nodeagent's test result and their state.
//!
//! Not here: how they are written and switched. Source: lf-edge/eve pkg/pillar/types/zboottypes.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::topic;

/// What nodeagent has found out about the image in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ZbootConfig {
    /// `IMGA` or `IMGB`; the key.
    pub partition_label: String,
    /// The image is good.
    pub test_complete: bool,
}

topic!(ZbootConfig: Volatile, None);

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

topic!(ZbootStatus: Volatile, None);
