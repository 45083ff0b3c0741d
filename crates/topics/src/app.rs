//! AppInstanceConfig: an application as the controller wants it.
//!
//! Members keep the reference's names; its source says what they mean (lf-edge/eve pkg/pillar/types).
//! Pure: no clock, no I/O, no task.

#![expect(missing_docs, reason = "members are those of the reference, which documents them")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorEntity, ErrorSeverity, GoTime, Kind, Topic, UuidAndVersion};

/// Part `FixedResources` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct FixedResources {
    pub kernel: String,
    pub ramdisk: String,
    pub memory: u64,
    pub max_mem: u64,
    pub v_cpus: u64,
    pub max_cpus: u64,
    pub root_dev: String,
    pub extra_args: String,
    pub boot_loader: String,
    #[serde(rename = "CPUs")]
    pub cp_us: Option<serde_json::Value>,
    pub device_tree: String,
    pub dt_dev: Option<serde_json::Value>,
    #[serde(rename = "IRQs")]
    pub ir_qs: Option<serde_json::Value>,
    #[serde(rename = "IOMem")]
    pub io_mem: Option<serde_json::Value>,
    pub virtualization_mode: u64,
    pub enable_vnc: bool,
    pub vnc_display: u64,
    pub vnc_passwd: String,
    #[serde(rename = "CPUsPinned")]
    pub cp_us_pinned: bool,
    #[serde(rename = "VMMMaxMem")]
    pub vmm_max_mem: u64,
    #[serde(rename = "EnableVncShimVM")]
    pub enable_vnc_shim_vm: bool,
    pub enforce_network_interface_order: bool,
    pub enable_oem_win_license_key: bool,
    #[serde(rename = "DisableVirtualTPM")]
    pub disable_virtual_tpm: bool,
    pub boot_order: u64,
}

/// Part `RestartCmd` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct RestartCmd {
    pub counter: u64,
    pub apply_time: String,
}

/// Part `PurgeCmd` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PurgeCmd {
    pub counter: u64,
    pub apply_time: String,
}

/// Part `LocalRestartCmd` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct LocalRestartCmd {
    pub counter: u64,
    pub apply_time: String,
}

/// Part `LocalPurgeCmd` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct LocalPurgeCmd {
    pub counter: u64,
    pub apply_time: String,
}

/// Part `RollbackCmd` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct RollbackCmd {
    pub counter: u64,
    pub apply_time: String,
}

/// Part `Snapshot` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Snapshot {
    pub active_snapshot: String,
    pub max_snapshots: u64,
    pub rollback_cmd: RollbackCmd,
    pub snapshots: Option<serde_json::Value>,
}

/// AppInstanceConfig of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInstanceConfig {
    #[serde(rename = "UUIDandVersion")]
    pub uui_dand_version: UuidAndVersion,
    pub display_name: String,
    pub errors: Option<serde_json::Value>,
    pub fixed_resources: FixedResources,
    pub disable_logs: bool,
    pub volume_ref_config_list: Option<serde_json::Value>,
    pub activate: bool,
    pub app_net_adapter_list: Option<serde_json::Value>,
    pub io_adapter_list: Option<serde_json::Value>,
    pub restart_cmd: RestartCmd,
    pub purge_cmd: PurgeCmd,
    pub local_restart_cmd: LocalRestartCmd,
    pub local_purge_cmd: LocalPurgeCmd,
    #[serde(rename = "pubsub-large-CloudInitUserData")]
    pub cloud_init_user_data: Option<serde_json::Value>,
    pub remote_console: bool,
    #[serde(rename = "CollectStatsIPAddr")]
    pub collect_stats_ip_addr: String,
    #[serde(rename = "CipherBlockID")]
    pub cipher_block_id: String,
    #[serde(rename = "CipherContextID")]
    pub cipher_context_id: String,
    pub initial_value: Option<serde_json::Value>,
    #[serde(rename = "pubsub-large-CipherData")]
    pub cipher_data: Option<serde_json::Value>,
    pub clear_text_hash: Option<serde_json::Value>,
    pub is_cipher: bool,
    pub cipher_context: Option<serde_json::Value>,
    pub error: String,
    pub error_time: GoTime,
    pub error_severity: ErrorSeverity,
    pub error_retry_condition: String,
    pub error_entities: Option<Vec<ErrorEntity>>,
    pub meta_data_type: u64,
    pub profile_list: Option<serde_json::Value>,
    pub delay: u64,
    pub service: bool,
    pub cloud_init_version: u64,
    pub snapshot: Snapshot,
    pub allow_to_discover: bool,
    #[serde(rename = "IsDesignatedNodeID")]
    pub is_designated_node_id: bool,
    pub affinity_type: u64,
    pub deployment_type: u64,
    pub controller_boot_order: u64,
    pub boot_order_source: u64,
}

impl Topic for AppInstanceConfig {
    const NAME: &'static str = "AppInstanceConfig";
    const KIND: Kind = Kind::Volatile;
}
