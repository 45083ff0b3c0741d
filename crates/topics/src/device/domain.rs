//! DomainStatus: an application as domainmgr runs it. nodeagent waits for `Activated` to fall.
//!
//! Not here: what is wanted (`app`). Source: lf-edge/eve pkg/pillar/types/domainmgrtypes.go.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{
    AppRuntimeType, Base64, BootOrder, ErrorEntity, ErrorSeverity, Format, GoIp, GoTime, IoAdapter, IpNet,
    Kind, SwState, Topic, UuidAndVersion, VmMode,
};

/// An application as it runs; the key is its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DomainStatus {
    /// Its identity and the version of its config.
    #[serde(rename = "UUIDandVersion")]
    pub uuid_and_version: UuidAndVersion,
    /// Its name for people.
    pub display_name: String,
    /// How far it is.
    pub state: SwState,
    /// Whether it is up: the device must not go down before this is false.
    pub activated: bool,
    /// Its number on this device.
    pub app_num: i64,
    /// The purge that it comes from.
    pub purge_counter: u32,
    /// The restart that it comes from.
    pub restart_counter: u32,
    /// Is being made.
    pub pending_add: bool,
    /// Is being changed.
    pub pending_modify: bool,
    /// Is being removed.
    pub pending_delete: bool,
    /// Its name at the hypervisor.
    pub domain_name: String,
    /// Its number at the hypervisor; 0 when it is surely not there.
    pub domain_id: i64,
    /// When it started.
    pub boot_time: GoTime,
    /// Its disks.
    pub disk_status_list: Option<Vec<DiskStatus>>,
    /// Its virtual network interfaces.
    pub vif_list: Option<Vec<VifInfo>>,
    /// Devices that are assigned to it.
    pub io_adapter_list: Option<Vec<IoAdapter>>,
    /// Whether its log is not collected.
    pub disable_logs: bool,
    /// How often its start was tried.
    pub tried_count: i64,
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
    /// Its config is wrong.
    pub config_failed: bool,
    /// It did not start.
    pub boot_failed: bool,
    /// A device could not be assigned.
    pub adapters_failed: bool,
    /// Folder with the config of a container image, or empty.
    #[serde(rename = "OCIConfigDir")]
    pub oci_config_dir: String,
    /// Environment of a container.
    pub env_variables: Option<BTreeMap<String, String>>,
    /// Files that cloud-init wants in a container.
    pub writable_files: Option<Vec<WritableFile>>,
    /// Kernel to boot, or empty.
    pub kernel: String,
    /// Initial RAM disk, or empty.
    pub ramdisk: String,
    /// Memory in kilobytes.
    pub memory: i64,
    /// Memory at most, in kilobytes.
    pub max_mem: i64,
    /// CPUs.
    #[serde(rename = "VCpus")]
    pub vcpus: i64,
    /// CPUs at most.
    pub max_cpus: i64,
    /// Device of the root file system.
    pub root_dev: String,
    /// More kernel arguments.
    pub extra_args: String,
    /// Boot loader, or empty.
    pub boot_loader: String,
    /// CPUs that it is pinned to.
    #[serde(rename = "CPUs")]
    pub cpus: Option<Vec<u32>>,
    /// Device tree, or empty.
    pub device_tree: String,
    /// Nodes of the device tree that it is given.
    pub dt_dev: Option<Vec<String>>,
    /// Interrupts that it is given.
    #[serde(rename = "IRQs")]
    pub irqs: Option<Vec<i64>>,
    /// I/O memory that it is given, as `0xf7020,1`.
    #[serde(rename = "IOMem")]
    pub io_mem: Option<Vec<String>>,
    /// Kind of virtualization.
    pub virtualization_mode: VmMode,
    /// Whether it has a console.
    pub enable_vnc: bool,
    /// Number of the console; its TCP port is 5900 more.
    pub vnc_display: u32,
    /// Password of the console: a secret.
    pub vnc_passwd: String,
    /// Whether its CPUs are its own.
    #[serde(rename = "CPUsPinned")]
    pub cpus_pinned: bool,
    /// Memory that the hypervisor may use for it, in kilobytes.
    #[serde(rename = "VMMMaxMem")]
    pub vmm_max_mem: i64,
    /// Whether the helper machine around it has a console.
    #[serde(rename = "EnableVncShimVM")]
    pub enable_vnc_shim_vm: bool,
    /// Whether its network interfaces keep the order of the config.
    pub enforce_network_interface_order: bool,
    /// Whether it is given the licence key of the hardware.
    pub enable_oem_win_license_key: bool,
    /// Whether it has no virtual TPM.
    #[serde(rename = "DisableVirtualTPM")]
    pub disable_virtual_tpm: bool,
    /// Which devices it tries to boot first.
    pub boot_order: BootOrder,
    /// Whether it starts as its image says.
    pub service: bool,
    /// Whether it has a virtual TPM.
    #[serde(rename = "VirtualTPM")]
    pub virtual_tpm: bool,
    /// Screen size, or empty.
    pub fml_custom_resolution: String,
    /// Whether this node is its designated node.
    #[serde(rename = "IsDNidNode")]
    pub is_dnid_node: bool,
    /// Name of the device.
    pub node_name: String,
    /// Whether it is given the licence key of the hardware.
    pub passthrough_windows_license_key: bool,
    /// What kind of runtime it is.
    pub deployment_type: AppRuntimeType,
    /// Whether it has crashed and is being kept.
    pub crash_state: CrashState,
    /// Hypervisor's word for the crash.
    pub crash_run_state: String,
    /// Path of its last memory dump.
    pub guest_core_dump_path: String,
    /// Until when a crashed machine is kept.
    pub hold_until: GoTime,
    /// Debugger socket of a machine that is kept.
    pub gdb_socket: String,
}

impl Topic for DomainStatus {
    const NAME: &'static str = "DomainStatus";
    const KIND: Kind = Kind::Volatile;
}

numbers! {
    /// What is done about a crash.
    CrashState: u8 {
        /// There was none.
        None = 0,
        /// Memory is being dumped.
        CaptureInProgress = 1,
        /// Memory has been dumped.
        Captured = 2,
        /// The machine is being kept.
        Held = 3,
    }
}

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DiskStatus {
    /// The volume.
    pub volume_key: String,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Its path.
    pub file_location: String,
    /// Its format.
    pub format: Format,
    /// Where it is mounted.
    pub mount_dir: String,
    /// Its name for people.
    pub display_name: String,
    /// Its kind at the hypervisor.
    pub devtype: String,
    /// Its device name in the machine.
    pub vdev: String,
    /// Its world-wide name.
    #[serde(rename = "WWN")]
    pub wwn: String,
    /// More about it.
    pub custom_meta: String,
}

/// A virtual network interface of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VifInfo {
    /// Bridge that it is on.
    pub bridge: String,
    /// Its name.
    pub vif: String,
    /// Its MAC address, six bytes.
    pub mac: Option<Base64>,
    /// Largest packet in bytes.
    #[serde(rename = "MTU")]
    pub mtu: u16,
    /// The pod's side of it, on Kubernetes.
    pub pod_vif: PodVif,
    /// Place among all network interfaces.
    pub vif_order: u32,
    /// The name in use.
    pub vif_used: String,
}

/// A network interface inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodVif {
    /// Its name there.
    pub guest_if_name: String,
    /// Its addresses.
    #[serde(rename = "IPAM")]
    pub ipam: PodIpamConfig,
}

/// Addresses of a network interface inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodIpamConfig {
    /// Addresses.
    #[serde(rename = "IPs")]
    pub ips: Option<Vec<PodIpAddress>>,
    /// Routes.
    pub routes: Option<Vec<PodRoute>>,
    /// Name service.
    #[serde(rename = "DNS")]
    pub dns: PodDns,
}

/// One address inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodIpAddress {
    /// The address with its mask.
    pub address: Option<IpNet>,
    /// Its gateway.
    pub gateway: GoIp,
}

/// One route inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodRoute {
    /// Where it leads.
    pub dst: Option<IpNet>,
    /// Through which gateway.
    #[serde(rename = "GW")]
    pub gw: GoIp,
}

/// Name service inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodDns {
    /// Servers.
    pub nameservers: Option<Vec<String>>,
    /// Own domain.
    pub domain: String,
    /// Domains that are searched.
    pub search: Option<Vec<String>>,
    /// Options of the resolver.
    pub options: Option<Vec<String>>,
}

/// A file that cloud-init wants in a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WritableFile {
    /// Its path.
    pub path: String,
    /// What is in it.
    pub content: String,
    /// Its mode, octal.
    pub permissions: String,
    /// How `Content` is encoded.
    pub encoding: String,
    /// Its owner.
    pub owner: String,
}
