//! Topics of other agents that ours read: applications, onboarding, vault, volumes, TPM.
//!
//! Members keep the reference's names; its source says what they mean (lf-edge/eve pkg/pillar/types).
//! Pure: no clock, no I/O, no task.

#![expect(missing_docs, reason = "members are those of the reference, which documents them")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorEntity, ErrorSeverity, GoTime, GoUuid, Kind, Topic, UuidAndVersion};

/// DomainStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DomainStatus {
    #[serde(rename = "UUIDandVersion")]
    pub uui_dand_version: UuidAndVersion,
    pub display_name: String,
    pub state: u64,
    pub activated: bool,
    pub app_num: u64,
    pub purge_counter: u64,
    pub restart_counter: u64,
    pub pending_add: bool,
    pub pending_modify: bool,
    pub pending_delete: bool,
    pub domain_name: String,
    pub domain_id: u64,
    pub boot_time: GoTime,
    pub disk_status_list: Option<serde_json::Value>,
    pub vif_list: Option<serde_json::Value>,
    pub io_adapter_list: Option<serde_json::Value>,
    pub disable_logs: bool,
    pub tried_count: u64,
    pub error: String,
    pub error_time: GoTime,
    pub error_severity: ErrorSeverity,
    pub error_retry_condition: String,
    pub error_entities: Option<Vec<ErrorEntity>>,
    pub config_failed: bool,
    pub boot_failed: bool,
    pub adapters_failed: bool,
    #[serde(rename = "OCIConfigDir")]
    pub oci_config_dir: String,
    pub env_variables: Option<serde_json::Value>,
    pub writable_files: Option<serde_json::Value>,
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
    pub service: bool,
    #[serde(rename = "VirtualTPM")]
    pub virtual_tpm: bool,
    pub fml_custom_resolution: String,
    pub is_d_nid_node: bool,
    pub node_name: String,
    pub passthrough_windows_license_key: bool,
    pub deployment_type: u64,
    pub crash_state: u64,
    pub crash_run_state: String,
    pub guest_core_dump_path: String,
    pub hold_until: GoTime,
    pub gdb_socket: String,
}

impl Topic for DomainStatus {
    const NAME: &'static str = "DomainStatus";
    const KIND: Kind = Kind::Volatile;
}

/// OnboardingStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OnboardingStatus {
    #[serde(rename = "DeviceUUID")]
    pub device_uuid: GoUuid,
    pub hardware_model: String,
}

impl Topic for OnboardingStatus {
    const NAME: &'static str = "OnboardingStatus";
    const KIND: Kind = Kind::Persistent;
}

/// Part `TrimStatus` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct TrimStatus {
    pub last_start_time: GoTime,
    pub last_end_time: GoTime,
    pub last_error: String,
}

/// VaultStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VaultStatus {
    pub name: String,
    pub status: u64,
    #[serde(rename = "PCRStatus")]
    pub pcr_status: u64,
    pub conversion_complete: bool,
    #[serde(rename = "MismatchingPCRs")]
    pub mismatching_pc_rs: Option<serde_json::Value>,
    pub unlock_method: u64,
    pub trim_status: TrimStatus,
    pub error: String,
    pub error_time: GoTime,
    pub error_severity: ErrorSeverity,
    pub error_retry_condition: String,
    pub error_entities: Option<Vec<ErrorEntity>>,
}

impl Topic for VaultStatus {
    const NAME: &'static str = "VaultStatus";
    const KIND: Kind = Kind::Volatile;
}

/// VolumeMgrStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMgrStatus {
    pub name: String,
    pub initialized: bool,
    pub remaining_space: u64,
}

impl Topic for VolumeMgrStatus {
    const NAME: &'static str = "VolumeMgrStatus";
    const KIND: Kind = Kind::Volatile;
}

/// TpmSanityStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct TpmSanityStatus {
    pub name: String,
    pub status: u64,
    pub error: String,
    pub error_time: GoTime,
    pub error_severity: ErrorSeverity,
    pub error_retry_condition: String,
    pub error_entities: Option<Vec<ErrorEntity>>,
}

impl Topic for TpmSanityStatus {
    const NAME: &'static str = "TpmSanityStatus";
    const KIND: Kind = Kind::Volatile;
}
