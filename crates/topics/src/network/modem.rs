//! State of modems and their connections; parts of DeviceNetworkStatus.
//!
//! Not here: what is wanted of them (`wireless`). Source: lf-edge/eve pkg/pillar/types/wwan.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{GoIp, IpNet, WirelessType};

/// State of a cellular or wireless port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WirelessStatus {
    /// Kind of radio.
    #[serde(rename = "WType")]
    pub wtype: WirelessType,
    /// The modem.
    pub cellular: WwanNetworkStatus,
}

/// State of a modem.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanNetworkStatus {
    /// Its name.
    pub logical_label: String,
    /// Where it is attached.
    pub phys_addrs: WwanPhysAddrs,
    /// What it is.
    pub module: WwanCellModule,
    /// One for each slot, cards or none.
    pub sim_cards: Option<Vec<WwanSimCard>>,
    /// What is wrong with its config.
    pub config_error: String,
    /// What the last check found.
    pub probe_error: String,
    /// Provider in use.
    pub current_provider: WwanProvider,
    /// All providers in reach.
    pub visible_providers: Option<Vec<WwanProvider>>,
    /// Radio technologies in use: `gsm`, `umts`, `lte`, `5gnr`.
    #[serde(rename = "CurrentRATs")]
    pub current_rats: Option<Vec<String>>,
    /// Unix time in seconds since when it is connected; 0 when it is not.
    pub connected_at: u64,
    /// Addresses from the provider.
    #[serde(rename = "IPSettings")]
    pub ip_settings: WwanIpSettings,
    /// Whether the modem tells where it is.
    pub location_tracking: bool,
    /// Connections.
    pub bearers: Option<Vec<WwanBearer>>,
    /// Profiles that the modem keeps.
    pub profiles: Option<Vec<WwanProfile>>,
}

/// Where a modem is attached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanPhysAddrs {
    /// Its interface, such as `wwan0`.
    pub interface: String,
    /// Its USB address, such as `1:2.3`.
    #[serde(rename = "USB")]
    pub usb: String,
    /// Its PCI address.
    #[serde(rename = "PCI")]
    pub pci: String,
    /// Its device file.
    pub dev: String,
}

/// What a modem is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanCellModule {
    /// Its name, unique on the device.
    pub name: String,
    /// Its equipment identity.
    #[serde(rename = "IMEI")]
    pub imei: String,
    /// Its model.
    pub model: String,
    /// Its maker.
    pub manufacturer: String,
    /// Its firmware.
    pub revision: String,
    /// `qmi`, `mbim` or empty.
    pub control_protocol: String,
    /// `online`, `online-and-connected`, `radio-off`, `offline`, `unrecognized` or empty.
    pub op_mode: String,
}

/// A SIM slot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanSimCard {
    /// Its name, unique on the device.
    pub name: String,
    /// Its number.
    pub slot_number: u8,
    /// Whether it is in use.
    pub slot_activated: bool,
    /// Identity of the card, or empty.
    #[serde(rename = "ICCID")]
    pub iccid: String,
    /// Identity of the subscriber, or empty.
    #[serde(rename = "IMSI")]
    pub imsi: String,
    /// Kind of card.
    pub r#type: SimType,
    /// State of the card in the modem's own words.
    pub state: String,
}

numbers! {
    /// Kind of SIM card.
    SimType: i32 {
        /// Not known.
        Unspecified = 0,
        /// A card.
        Physical = 1,
        /// Built in.
        Embedded = 2,
    }
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanProvider {
    /// Its network code.
    #[serde(rename = "PLMN")]
    pub plmn: String,
    /// Its name.
    pub description: String,
    /// Whether it is in use.
    pub current_serving: bool,
    /// Whether it is a foreign network.
    pub roaming: bool,
    /// Whether the card forbids it.
    pub forbidden: bool,
}

/// Addresses from a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanIpSettings {
    /// The address with its mask.
    pub address: Option<IpNet>,
    /// The gateway.
    pub gateway: GoIp,
    /// The name servers.
    #[serde(rename = "DNSServers")]
    pub dns_servers: Option<Vec<GoIp>>,
    /// Largest packet in bytes.
    #[serde(rename = "MTU")]
    pub mtu: u16,
}

/// A connection of a modem.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanBearer {
    /// Access point.
    #[serde(rename = "APN")]
    pub apn: String,
    /// What it is for.
    pub r#type: BearerType,
    /// Its IP version.
    #[serde(rename = "IPType")]
    pub ip_type: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Why it is not.
    pub connection_error: String,
    /// Unix time in seconds since when it is connected; 0 when it is not.
    pub connected_at: u64,
}

numbers! {
    /// What a connection of a modem is for.
    BearerType: i32 {
        /// Not known.
        Unspecified = 0,
        /// The first one.
        Attach = 1,
        /// The usual one.
        Default = 2,
        /// A further one.
        Dedicated = 3,
    }
}

/// A profile that a modem keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanProfile {
    /// Its name.
    pub name: String,
    /// Access point.
    #[serde(rename = "APN")]
    pub apn: String,
    /// What it is for.
    pub bearer_type: BearerType,
    /// Its IP version.
    #[serde(rename = "IPType")]
    pub ip_type: String,
    /// Whether foreign networks are left alone.
    pub forbid_roaming: bool,
}
