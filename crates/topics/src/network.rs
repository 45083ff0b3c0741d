//! DeviceNetworkStatus: the ports of the device.
//!
//! Members keep the reference's names; its source says what they mean (lf-edge/eve pkg/pillar/types).
//! Pure: no clock, no I/O, no task.

#![expect(missing_docs, reason = "members are those of the reference, which documents them")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorDescription, GoTime, IpNet, Kind, RadioSilence, Topic};

/// Part `Geo` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Geo {
    #[serde(rename = "ip")]
    pub ip: String,
    #[serde(rename = "hostname")]
    pub hostname: String,
    #[serde(rename = "city")]
    pub city: String,
    #[serde(rename = "region")]
    pub region: String,
    #[serde(rename = "country")]
    pub country: String,
    #[serde(rename = "loc")]
    pub loc: String,
    #[serde(rename = "org")]
    pub org: String,
    #[serde(rename = "postal")]
    pub postal: String,
}

/// Part `AddrInfoList` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AddrInfoList {
    pub addr: String,
    pub mask: String,
    pub geo: Geo,
    pub last_geo_timestamp: GoTime,
}

/// Part `UserDefinedProbe` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct UserDefinedProbe {
    pub method: u64,
    pub probe_host: String,
    pub probe_port: u64,
}

/// Part `Probe` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Probe {
    pub disable: bool,
    pub user_defined_probe: UserDefinedProbe,
}

/// Part `CellularV2` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CellularV2 {
    pub probe: Probe,
}

/// Part `WirelessCfg` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WirelessCfg {
    pub cellular_v2: CellularV2,
}

/// Part `PhysAddrs` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PhysAddrs {
    pub interface: String,
    #[serde(rename = "USB")]
    pub usb: String,
    #[serde(rename = "PCI")]
    pub pci: String,
    pub dev: String,
}

/// Part `Module` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Module {
    pub name: String,
    #[serde(rename = "IMEI")]
    pub imei: String,
    pub model: String,
    pub manufacturer: String,
    pub revision: String,
    pub control_protocol: String,
    pub op_mode: String,
}

/// Part `CurrentProvider` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CurrentProvider {
    #[serde(rename = "PLMN")]
    pub plmn: String,
    pub description: String,
    pub current_serving: bool,
    pub roaming: bool,
    pub forbidden: bool,
}

/// Part `IpSettings` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct IpSettings {
    pub address: Option<serde_json::Value>,
    pub gateway: String,
    #[serde(rename = "DNSServers")]
    pub dns_servers: Option<serde_json::Value>,
    #[serde(rename = "MTU")]
    pub mtu: u64,
}

/// Part `Cellular` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Cellular {
    pub logical_label: String,
    pub phys_addrs: PhysAddrs,
    pub module: Module,
    pub sim_cards: Option<serde_json::Value>,
    pub config_error: String,
    pub probe_error: String,
    pub current_provider: CurrentProvider,
    pub visible_providers: Option<serde_json::Value>,
    #[serde(rename = "CurrentRATs")]
    pub current_ra_ts: Option<serde_json::Value>,
    pub connected_at: u64,
    #[serde(rename = "IPSettings")]
    pub ip_settings: IpSettings,
    pub location_tracking: bool,
    pub bearers: Option<serde_json::Value>,
    pub profiles: Option<serde_json::Value>,
}

/// Part `WirelessStatus` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WirelessStatus {
    pub w_type: u64,
    pub cellular: Cellular,
}

/// Part `Pnac` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Pnac {
    pub enabled: bool,
    pub state: u64,
    pub last_auth_timestamp: GoTime,
    pub error: ErrorDescription,
}

/// Part `MiiMonitor` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct MiiMonitor {
    pub enabled: bool,
    pub polling_interval: u64,
    pub up_delay: u64,
    pub down_delay: u64,
}

/// Part `ArpMonitor` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArpMonitor {
    pub enabled: bool,
    pub polling_interval: u64,
    #[serde(rename = "IPTargets")]
    pub ip_targets: Option<serde_json::Value>,
    pub missed_max: u64,
}

/// Part `Lacp` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Lacp {
    pub enabled: bool,
    #[serde(rename = "LACPRate")]
    pub lacp_rate: u64,
    #[serde(rename = "ActiveAggregatorID")]
    pub active_aggregator_id: u64,
    #[serde(rename = "PartnerMAC")]
    pub partner_mac: Option<serde_json::Value>,
    pub actor_key: u64,
    pub partner_key: u64,
}

/// Part `BondStatus` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct BondStatus {
    pub mode: u64,
    pub active_member: String,
    #[serde(rename = "MIIMonitor")]
    pub mii_monitor: MiiMonitor,
    #[serde(rename = "ARPMonitor")]
    pub arp_monitor: ArpMonitor,
    #[serde(rename = "LACP")]
    pub lacp: Lacp,
    pub members: Option<serde_json::Value>,
}

/// Part `ConfigSource` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConfigSource {
    pub submitted_at: GoTime,
}

/// Part `Bond` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Bond {
    #[serde(rename = "MIIMonitor")]
    pub mii_monitor: BTreeMap<String, serde_json::Value>,
    #[serde(rename = "ARPMonitor")]
    pub arp_monitor: BTreeMap<String, serde_json::Value>,
}

/// Part `DeviceNetworkStatusPort` of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceNetworkStatusPort {
    pub if_name: String,
    pub phylabel: String,
    pub logicallabel: String,
    pub pci_long: String,
    pub shared_labels: Option<serde_json::Value>,
    pub alias: String,
    pub is_mgmt: bool,
    pub is_l3_port: bool,
    pub invalid_config: bool,
    pub cost: u64,
    pub dhcp: u64,
    #[serde(rename = "Type")]
    pub kind: u64,
    pub configured_subnet: Option<serde_json::Value>,
    #[serde(rename = "ConfiguredIP")]
    pub configured_ip: String,
    #[serde(rename = "IgnoredDhcpIPs")]
    pub ignored_dhcp_ips: bool,
    pub i_pv4_subnet: Option<IpNet>,
    pub i_pv6_subnets: Option<serde_json::Value>,
    pub domain_name: String,
    #[serde(rename = "DNSServers")]
    pub dns_servers: Option<Vec<String>>,
    pub ntp_servers: Option<Vec<String>>,
    pub addr_info_list: Option<Vec<AddrInfoList>>,
    #[serde(rename = "ClusterIPAddr")]
    pub cluster_ip_addr: String,
    pub default_routers: Option<Vec<String>>,
    pub up: bool,
    pub mac_addr: Option<String>,
    #[serde(rename = "MTU")]
    pub mtu: u64,
    pub wireless_cfg: WirelessCfg,
    pub wireless_status: WirelessStatus,
    #[serde(rename = "PNAC")]
    pub pnac: Pnac,
    pub bond_status: BondStatus,
    pub config_source: ConfigSource,
    #[serde(rename = "pubsub-large-ProxyCertPEM")]
    pub proxy_cert_pem: Option<serde_json::Value>,
    #[serde(rename = "VLAN")]
    pub vlan: BTreeMap<String, serde_json::Value>,
    pub bond: Bond,
    pub last_failed: GoTime,
    pub last_succeeded: GoTime,
    pub last_error: String,
    pub last_warning: String,
    pub lps_config_error: String,
}

/// DeviceNetworkStatus of the reference.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceNetworkStatus {
    #[serde(rename = "DPCKey")]
    pub dpc_key: String,
    pub version: u64,
    pub testing: bool,
    pub state: u64,
    pub current_index: u64,
    pub radio_silence: RadioSilence,
    pub ports: Option<Vec<DeviceNetworkStatusPort>>,
}

impl Topic for DeviceNetworkStatus {
    const NAME: &'static str = "DeviceNetworkStatus";
    const KIND: Kind = Kind::Volatile;
}
