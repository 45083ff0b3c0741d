//! AppInstanceConfig: an application as the controller wants it.
//!
//! Not here: what runs (`domain`), the machine's settings (`vm`).
//! Source: lf-edge/eve pkg/pillar/types/{zedmanagertypes,zedroutertypes,volumetypes}.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{
    AppRuntimeType, Base64, BootOrder, CipherContext, ErrorEntity, ErrorSeverity, GoIp, GoTime, GoUuid,
    IoAdapter, Kind, Topic, UuidAndVersion, VmConfig,
};

/// An application as the controller wants it; the key is its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInstanceConfig {
    /// Its identity and the version of this config.
    #[serde(rename = "UUIDandVersion")]
    pub uuid_and_version: UuidAndVersion,
    /// Its name for people.
    pub display_name: String,
    /// What is wrong with this config; it must not be carried out while there is anything.
    pub errors: Option<Vec<String>>,
    /// The machine that it runs on.
    pub fixed_resources: VmConfig,
    /// Whether its log is not collected.
    pub disable_logs: bool,
    /// Its volumes.
    pub volume_ref_config_list: Option<Vec<VolumeRefConfig>>,
    /// Whether it is to run.
    pub activate: bool,
    /// Its virtual network interfaces.
    pub app_net_adapter_list: Option<Vec<AppNetAdapterConfig>>,
    /// Devices that are assigned to it.
    pub io_adapter_list: Option<Vec<IoAdapter>>,
    /// Restart from the controller.
    pub restart_cmd: AppInstanceOpsCmd,
    /// Purge from the controller.
    pub purge_cmd: AppInstanceOpsCmd,
    /// Restart from the local operator.
    pub local_restart_cmd: AppInstanceOpsCmd,
    /// Purge from the local operator.
    pub local_purge_cmd: AppInstanceOpsCmd,
    /// Cloud-init data in clear text, base64; a secret.
    #[serde(rename = "pubsub-large-CloudInitUserData")]
    pub cloud_init_user_data: Option<String>,
    /// Whether its console may be reached from the controller.
    pub remote_console: bool,
    /// Where its own statistics are fetched, TCP port 2375; empty for nowhere.
    #[serde(rename = "CollectStatsIPAddr")]
    pub collect_stats_ip_addr: GoIp,
    /// Identity of its encrypted block.
    #[serde(rename = "CipherBlockID")]
    pub cipher_block_id: String,
    /// How that block is encrypted.
    #[serde(rename = "CipherContextID")]
    pub cipher_context_id: String,
    /// Start of the cipher.
    pub initial_value: Option<Base64>,
    /// The encrypted bytes.
    #[serde(rename = "pubsub-large-CipherData")]
    pub cipher_data: Option<Base64>,
    /// Hash of the clear text.
    pub clear_text_hash: Option<Base64>,
    /// Whether there is an encrypted block at all.
    pub is_cipher: bool,
    /// How the block is encrypted, once known.
    pub cipher_context: Option<CipherContext>,
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
    /// How it gets its cloud-init data.
    pub meta_data_type: MetaDataType,
    /// Profiles in which it runs; none means all.
    pub profile_list: Option<Vec<String>>,
    /// How long its start is put off, in nanoseconds.
    pub delay: i64,
    /// Whether it starts as its image says.
    pub service: bool,
    /// A change runs cloud-init again.
    pub cloud_init_version: u32,
    /// Its snapshots.
    pub snapshot: SnapshotConfig,
    /// Whether it may find the other applications of its networks.
    pub allow_to_discover: bool,
    /// Whether this node is its designated node.
    #[serde(rename = "IsDesignatedNodeID")]
    pub is_designated_node_id: bool,
    /// How firmly it belongs there.
    pub affinity_type: Affinity,
    /// What kind of runtime it is.
    pub deployment_type: AppRuntimeType,
    /// Boot order as the controller wants it.
    pub controller_boot_order: BootOrder,
    /// Who decided on the boot order in force.
    pub boot_order_source: BootOrderSource,
}

impl Topic for AppInstanceConfig {
    const NAME: &'static str = "AppInstanceConfig";
    const KIND: Kind = Kind::Volatile;
}

/// A command that is carried out when its counter changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInstanceOpsCmd {
    /// The counter.
    pub counter: u32,
    /// Not used.
    pub apply_time: String,
}

/// A volume of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeRefConfig {
    /// The volume.
    #[serde(rename = "VolumeID")]
    pub volume_id: GoUuid,
    /// Its generation at the controller.
    pub generation_counter: i64,
    /// Its generation at the local operator.
    pub local_generation_counter: i64,
    /// The application.
    #[serde(rename = "AppUUID")]
    pub app_uuid: GoUuid,
    /// Where it is mounted.
    pub mount_dir: String,
    /// Whether it is fetched and checked but not made.
    pub verify_only: bool,
}

/// A virtual network interface of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppNetAdapterConfig {
    /// Its name.
    pub name: String,
    /// Its MAC address, six bytes, when the controller chose one.
    pub app_mac_addr: Option<Base64>,
    /// Its address, when the controller chose one.
    #[serde(rename = "AppIPAddr")]
    pub app_ip_addr: GoIp,
    /// Place among all network interfaces of the application.
    pub intf_order: u32,
    /// What is wrong with this config, or empty.
    pub error: String,
    /// Network that it belongs to.
    pub network: GoUuid,
    /// What may pass.
    #[serde(rename = "ACLs")]
    pub acls: Option<Vec<Ace>>,
    /// VLAN of an access port, or 0.
    #[serde(rename = "AccessVlanID")]
    pub access_vlan_id: u32,
    /// Number among the interfaces of one network.
    pub if_idx: u32,
    /// Whether the application may find others through it.
    pub allow_to_discover: bool,
}

/// One rule of what may pass a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ace {
    /// All must hold.
    pub matches: Option<Vec<AceMatch>>,
    /// What is done then.
    pub actions: Option<Vec<AceAction>>,
    /// Its name.
    pub name: String,
    /// Its number.
    #[serde(rename = "RuleID")]
    pub rule_id: i32,
    /// Direction of the traffic.
    pub dir: AceDirection,
}

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AceMatch {
    /// What is looked at, such as `ip` or `host`.
    pub r#type: String,
    /// What it must be.
    pub value: String,
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AceAction {
    /// Dropped rather than let through.
    pub drop: bool,
    /// Whether the rate is limited.
    pub limit: bool,
    /// Packets in a unit of time.
    pub limit_rate: i64,
    /// Unit of time: `s`, `m` or `h`.
    pub limit_unit: String,
    /// Packets at once.
    pub limit_burst: i64,
    /// Whether the port is mapped.
    pub port_map: bool,
    /// Port that it is mapped to.
    pub target_port: i64,
}

numbers! {
    /// Direction of traffic.
    AceDirection: u8 {
        /// Both.
        Both = 0,
        /// To the application.
        Ingress = 1,
        /// From the application.
        Egress = 2,
    }
}

/// Snapshots of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotConfig {
    /// The one in use, or empty.
    pub active_snapshot: String,
    /// How many there may be.
    pub max_snapshots: u32,
    /// Goes back to the active one.
    pub rollback_cmd: AppInstanceOpsCmd,
    /// Those that the controller knows.
    pub snapshots: Option<Vec<SnapshotDesc>>,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotDesc {
    /// Its UUID.
    #[serde(rename = "SnapshotID")]
    pub snapshot_id: String,
    /// When it is taken.
    pub snapshot_type: SnapshotType,
}

numbers! {
    /// When a snapshot is taken.
    SnapshotType: i32 {
        /// Never.
        Unspecified = 0,
        /// Before the application is updated.
        AppUpdate = 1,
        /// At once.
        Immediate = 2,
    }
}

numbers! {
    /// How an application gets its cloud-init data.
    MetaDataType: u8 {
        /// On a disk.
        Drive = 0,
        /// Not at all.
        None = 1,
        /// From a server like `OpenStack`'s.
        OpenStack = 2,
        /// On a disk, in several parts.
        DriveMultipart = 3,
    }
}

numbers! {
    /// How firmly an application belongs to its designated node.
    Affinity: u8 {
        /// May run elsewhere.
        Preferred = 0,
        /// Must not run elsewhere.
        Required = 1,
    }
}

numbers! {
    /// Who decided on a boot order.
    BootOrderSource: i32 {
        /// Nobody.
        Unspecified = 0,
        /// The local profile server.
        Lps = 1,
        /// The controller.
        Controller = 2,
        /// A property of the device.
        DeviceProperty = 3,
    }
}
