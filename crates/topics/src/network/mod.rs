//! DeviceNetworkStatus: the ports of the device and their addresses. zedkube looks for the cluster's one.
//!
//! Beside this file: cellular and wireless ports (`wireless`, `modem`), bonds and VLANs (`link`). Not here: what is
//! looked for in it (`nodestatus`).
//! Source: lf-edge/eve pkg/pillar/types/{dns,dpc,conntest}.go. Pure: no clock, no I/O, no task.

mod link;
mod modem;
mod wireless;

pub use link::*;
pub use modem::*;
pub use wireless::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{Base64, GoIp, GoTime, IpNet, Kind, RadioSilence, Topic, is_zero};

/// The ports of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceNetworkStatus {
    /// Where the config in force comes from.
    #[serde(rename = "DPCKey")]
    pub dpc_key: String,
    /// 0, or 1 when `IsMgmt` of the ports counts.
    pub version: u32,
    /// Whether the config is still being tried and should be left alone.
    pub testing: bool,
    /// How the trial of the config went.
    pub state: DpcState,
    /// Place of the config in the list of all; -1 for none.
    pub current_index: i64,
    /// Radio silence as it is.
    pub radio_silence: RadioSilence,
    /// The ports.
    pub ports: Option<Vec<NetworkPortStatus>>,
}

impl Topic for DeviceNetworkStatus {
    const NAME: &'static str = "DeviceNetworkStatus";
    const KIND: Kind = Kind::Volatile;
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkPortStatus {
    /// Name of its Linux interface.
    pub if_name: String,
    /// Its name in the hardware model.
    pub phylabel: String,
    /// Its name in the controller's config; `ClusterInterface` means this.
    pub logicallabel: String,
    /// PCI address of its card, or empty.
    pub pci_long: String,
    /// Names that it shares with other ports.
    pub shared_labels: Option<Vec<String>>,
    /// Another name of it.
    pub alias: String,
    /// Whether the controller is reached through it.
    pub is_mgmt: bool,
    /// Whether it has addresses at all.
    pub is_l3_port: bool,
    /// Whether its config is wrong.
    pub invalid_config: bool,
    /// Cost of using it; 0 is free.
    pub cost: u8,
    /// Where its addresses come from.
    pub dhcp: DhcpType,
    /// Its IP versions.
    pub r#type: NetworkType,
    /// Network of the static config.
    pub configured_subnet: Option<IpNet>,
    /// Address of the static config.
    #[serde(rename = "ConfiguredIP")]
    pub configured_ip: GoIp,
    /// Whether addresses from DHCP are not used.
    #[serde(rename = "IgnoredDhcpIPs")]
    pub ignored_dhcp_ips: bool,
    /// Its IPv4 network.
    #[serde(rename = "IPv4Subnet")]
    pub ipv4_subnet: Option<IpNet>,
    /// Its IPv6 networks.
    #[serde(rename = "IPv6Subnets")]
    pub ipv6_subnets: Option<Vec<IpNet>>,
    /// Its domain.
    pub domain_name: String,
    /// Its name servers.
    #[serde(rename = "DNSServers")]
    pub dns_servers: Option<Vec<GoIp>>,
    /// Its time servers, names or addresses.
    pub ntp_servers: Option<Vec<String>>,
    /// Its addresses.
    pub addr_info_list: Option<Vec<AddrInfo>>,
    /// This node's address in the cluster, when it is on this port.
    #[serde(rename = "ClusterIPAddr")]
    pub cluster_ip_addr: GoIp,
    /// Its gateways.
    pub default_routers: Option<Vec<GoIp>>,
    /// Whether it is up.
    pub up: bool,
    /// Its MAC address, six bytes.
    pub mac_addr: Option<Base64>,
    /// Largest packet in bytes.
    #[serde(rename = "MTU")]
    pub mtu: u16,
    /// Config of a cellular or wireless port.
    pub wireless_cfg: WirelessConfig,
    /// State of a cellular or wireless port.
    pub wireless_status: WirelessStatus,
    /// Access control of the port.
    #[serde(rename = "PNAC")]
    pub pnac: PnacStatus,
    /// State of a bond.
    pub bond_status: BondStatus,
    /// Where its config comes from.
    pub config_source: PortConfigSource,
    /// Its proxies.
    #[serde(skip_serializing_if = "is_zero")]
    pub proxies: Vec<ProxyEntry>,
    /// Hosts that need no proxy.
    #[serde(skip_serializing_if = "is_zero")]
    pub exceptions: String,
    /// Script that chooses the proxy, base64.
    #[serde(skip_serializing_if = "is_zero")]
    pub pacfile: String,
    /// Whether the proxy is found by the network (WPAD).
    #[serde(skip_serializing_if = "is_zero")]
    pub network_proxy_enable: bool,
    /// Address of the script that chooses the proxy.
    #[serde(rename = "NetworkProxyURL", skip_serializing_if = "is_zero")]
    pub network_proxy_url: String,
    /// Address of that script as the network told it.
    #[serde(rename = "WpadURL", skip_serializing_if = "is_zero")]
    pub wpad_url: String,
    /// Certificates of proxies, PEM.
    #[serde(rename = "pubsub-large-ProxyCertPEM")]
    pub proxy_cert_pem: Option<Vec<Base64>>,
    /// Whether it is a VLAN or a bond.
    #[serde(rename = "L2Type", skip_serializing_if = "is_zero")]
    pub l2_type: L2LinkType,
    /// The VLAN, when it is one.
    #[serde(rename = "VLAN")]
    pub vlan: VlanConfig,
    /// The bond, when it is one.
    pub bond: BondConfig,
    /// When the controller could last not be reached through it.
    pub last_failed: GoTime,
    /// When the controller was last reached through it.
    pub last_succeeded: GoTime,
    /// What went wrong at `LastFailed`.
    pub last_error: String,
    /// What was not quite right at `LastSucceeded`.
    pub last_warning: String,
    /// What is wrong with the config from the local profile server.
    pub lps_config_error: String,
}

/// One address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AddrInfo {
    /// The address.
    pub addr: GoIp,
    /// The mask's bytes.
    pub mask: Option<Base64>,
    /// Where in the world it is.
    pub geo: IpInfo,
    /// When that was looked up.
    pub last_geo_timestamp: GoTime,
}

/// Where in the world an address is, as ipinfo.io tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IpInfo {
    /// The address.
    pub ip: String,
    /// Its name.
    pub hostname: String,
    /// City.
    pub city: String,
    /// Part of the country.
    pub region: String,
    /// Country in two letters.
    pub country: String,
    /// Latitude and longitude, as `52.52,13.40`.
    pub loc: String,
    /// Who runs the network.
    pub org: String,
    /// Postal code.
    pub postal: String,
}

/// Where the config of a port comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PortConfigSource {
    /// From whom.
    #[serde(skip_serializing_if = "is_zero")]
    pub origin: NetworkConfigOrigin,
    /// When it was made there.
    pub submitted_at: GoTime,
}

/// One proxy. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProxyEntry {
    /// What it is for.
    #[serde(skip_serializing_if = "is_zero")]
    pub r#type: NetworkProxyType,
    /// Its host.
    #[serde(skip_serializing_if = "is_zero")]
    pub server: String,
    /// Its port.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: u32,
}

numbers! {
    /// How the trial of a network config went.
    DpcState: u8 {
        /// Not tried.
        None = 0,
        /// Failed.
        Fail = 1,
        /// Failed, though there are addresses and name servers.
        FailWithIpAndDns = 2,
        /// The controller was reached.
        Success = 3,
        /// Waits for addresses or name servers.
        IpDnsWait = 4,
        /// Waits for a card.
        PciWait = 5,
        /// Waits for an interface.
        IntfWait = 6,
        /// The controller is at fault.
        RemoteWait = 7,
        /// Waits for a part of the config to be in place.
        AsyncWait = 8,
        /// Waits for a modem.
        WwanWait = 9,
    }
}

numbers! {
    /// Where the addresses of a port come from.
    DhcpType: u8 {
        /// Not said.
        Noop = 0,
        /// From the config.
        Static = 1,
        /// From nowhere: the port belongs to a switch.
        None = 2,
        /// No longer used.
        Deprecated = 3,
        /// From DHCP or router advertisements.
        Client = 4,
    }
}

numbers! {
    /// IP versions of a port.
    NetworkType: u8 {
        /// Not said.
        Noop = 0,
        /// IPv4.
        Ipv4 = 4,
        /// IPv4 and nothing else.
        Ipv4Only = 5,
        /// IPv6.
        Ipv6 = 6,
        /// IPv6 and nothing else.
        Ipv6Only = 7,
        /// Both.
        DualStack = 8,
    }
}

numbers! {
    /// What a proxy is for.
    NetworkProxyType: u8 {
        /// HTTP.
        Http = 0,
        /// HTTPS.
        Https = 1,
        /// SOCKS.
        Socks = 2,
        /// FTP.
        Ftp = 3,
        /// Not a proxy.
        NoProxy = 4,
        /// End of the list.
        Last = 255,
    }
}

numbers! {
    /// From whom the config of a port comes.
    NetworkConfigOrigin: u8 {
        /// Not said.
        Unspecified = 0,
        /// The controller.
        Controller = 1,
        /// The installer, signed by the controller.
        Bootstrap = 2,
        /// A file in the installer.
        Override = 3,
        /// The device itself, for want of anything better.
        LastResort = 4,
        /// The text console.
        Tui = 5,
        /// The local operator console.
        Loc = 6,
        /// The local profile server.
        Lps = 7,
    }
}
