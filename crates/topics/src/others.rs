//! Topics of other agents, with the members that ours read; the rest of their files is ignored.
//!
//! Source: lf-edge/eve pkg/pillar/types. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{Base64, DataSecAtRestStatus, ErrorSeverity, GoIp, GoTime, SwState, UuidAndVersion, topic};

/// An application as the controller wants it; the key is its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInstanceConfig {
    /// Its identity and the version of this config.
    #[serde(rename = "UUIDandVersion")]
    pub uuid_and_version: UuidAndVersion,
    /// Its name for people.
    pub display_name: String,
    /// The machine that it runs on.
    pub fixed_resources: VmConfig,
    /// Purge from the controller.
    pub purge_cmd: AppInstanceOpsCmd,
    /// Purge from the local operator.
    pub local_purge_cmd: AppInstanceOpsCmd,
    /// Devices that it gets.
    pub io_adapter_list: Option<Vec<IoAdapter>>,
    /// Whether its console is wanted at the controller.
    pub remote_console: bool,
    /// Whether this node is its designated node.
    #[serde(rename = "IsDesignatedNodeID")]
    pub is_designated_node_id: bool,
    /// How firmly it belongs there.
    pub affinity_type: Affinity,
}

topic!(AppInstanceConfig: Volatile, key None);

/// Settings of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VmConfig {
    /// Kind of virtualization.
    pub virtualization_mode: VmMode,
    /// Number of the console; its TCP port is 5900 more.
    pub vnc_display: u32,
}

numbers! {
    /// Kind of virtualization: all but one are of machines.
    VmMode: u8 {
        /// None: a native container.
        NoHyper = 4,
    }
}

/// A device of an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct IoAdapter {
    /// Its kind.
    pub r#type: IoType,
    /// Its name; of an ethernet port the interface.
    pub name: String,
}

numbers! {
    /// Kind of a device.
    IoType: u8 { Ethernet = 1 }

    /// How firmly an application belongs to its designated node.
    Affinity: u8 {
        /// It may run elsewhere.
        Preferred = 0,
        /// It runs there or nowhere.
        Required = 1,
    }
}

/// A command that is carried out when its counter changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInstanceOpsCmd {
    /// The counter.
    pub counter: u32,
}

/// Content that volumemgr has brought, such as an OS image; the key is its identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ContentTreeStatus {
    /// Its name where it comes from.
    #[serde(rename = "RelativeURL")]
    pub relative_url: String,
    /// Its hash.
    pub content_sha256: String,
    /// Counts its generations.
    pub generation_counter: i64,
    /// Its name for people.
    pub display_name: String,
    /// How far it is.
    pub state: SwState,
    /// Where it lies, when it is one file.
    pub file_location: String,
    /// Its parts.
    pub blobs: Option<Vec<String>>,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
}

topic!(ContentTreeStatus: Volatile, key None);

/// A certificate that the controller encrypts with; the key is the hash of it in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ControllerCert {
    /// The certificate, PEM; others of its chain may follow.
    pub cert: Option<Base64>,
}

topic!(ControllerCert: Volatile, key None);

/// The ports of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceNetworkStatus {
    /// The ports.
    pub ports: Option<Vec<NetworkPortStatus>>,
}

topic!(DeviceNetworkStatus: Volatile);

/// One port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkPortStatus {
    /// Name of its Linux interface.
    pub if_name: String,
    /// Its name in the controller's config; `ClusterInterface` means this.
    pub logicallabel: String,
    /// Whether it has addresses at all.
    pub is_l3_port: bool,
    /// Whether its config is wrong.
    pub invalid_config: bool,
    /// How it gets an address: 4 from a DHCP server.
    pub dhcp: u32,
    /// Its addresses.
    pub addr_info_list: Option<Vec<AddrInfo>>,
    /// This node's address in the cluster, when it is on this port.
    #[serde(rename = "ClusterIPAddr")]
    pub cluster_ip_addr: GoIp,
}

/// One address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AddrInfo {
    /// The address.
    pub addr: GoIp,
}

/// An application as it runs; the key is its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DomainStatus {
    /// Whether it is up: the device must not go down before this is false.
    pub activated: bool,
}

topic!(DomainStatus: Volatile, key None);

/// A certificate that the device encrypts with; the key is the hash of it in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EdgeNodeCert {
    /// The certificate, PEM.
    pub cert: Option<Base64>,
    /// Whether its private key is in the TPM.
    pub is_tpm: bool,
}

topic!(EdgeNodeCert: Persistent, key None);

/// The encrypted store of the device; the key is its name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VaultStatus {
    /// Its name, `Application Data Store`.
    pub name: String,
    /// Whether it is open.
    pub status: DataSecAtRestStatus,
    /// Whether the conversion of an older store is over.
    pub conversion_complete: bool,
    /// Indexes of the PCRs of the TPM that are not as they were, where it cannot be opened.
    #[serde(rename = "MismatchingPCRs")]
    pub mismatching_pcrs: Option<Vec<i64>>,
}

topic!(VaultStatus: Volatile, key None);

/// Space for volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMgrStatus {
    /// Space left, in bytes; 0 puts the device into maintenance mode.
    pub remaining_space: u64,
}

topic!(VolumeMgrStatus: Volatile, key Some("volumemgr"));
