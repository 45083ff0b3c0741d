//! Config of cellular and wireless ports; parts of DeviceNetworkStatus.
//!
//! Not here: how they are (`modem`). Source: lf-edge/eve pkg/pillar/types/{dpc,wwan}.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{Base64, CipherBlockStatus, CipherContext, ErrorEntity, ErrorSeverity, GoTime, is_zero};

numbers! {
    /// Kind of radio.
    WirelessType: u8 {
        /// None.
        None = 0,
        /// Cellular.
        Cellular = 1,
        /// Wireless LAN.
        Wifi = 2,
    }
}

/// Config of a cellular or wireless port. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WirelessConfig {
    /// Kind of radio.
    #[serde(rename = "WType", skip_serializing_if = "is_zero")]
    pub wtype: WirelessType,
    /// Cellular.
    #[serde(rename = "CellularV2")]
    pub cellular_v2: CellNetPortConfig,
    /// Wireless LAN.
    #[serde(skip_serializing_if = "is_zero")]
    pub wifi: Vec<WifiConfig>,
    /// Cellular as older versions had it.
    #[serde(skip_serializing_if = "is_zero")]
    pub cellular: Vec<DeprecatedCellConfig>,
}

/// Config of a modem.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CellNetPortConfig {
    /// One for each SIM card.
    #[serde(skip_serializing_if = "is_zero")]
    pub access_points: Vec<CellularAccessPoint>,
    /// How a broken connection is noticed.
    pub probe: WwanProbe,
    /// Whether the modem tells where it is.
    #[serde(skip_serializing_if = "is_zero")]
    pub location_tracking: bool,
}

/// Config of a SIM card.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CellularAccessPoint {
    /// Its slot from 1; 0 for the only one.
    #[serde(rename = "SIMSlot", skip_serializing_if = "is_zero")]
    pub sim_slot: u8,
    /// Whether it is in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub activated: bool,
    /// Access point.
    #[serde(rename = "APN", skip_serializing_if = "is_zero")]
    pub apn: String,
    /// `ipv4`, `ipv6`, `ipv4v6` or empty.
    #[serde(rename = "IPType", skip_serializing_if = "is_zero")]
    pub ip_type: String,
    /// `pap`, `chap`, `pap-and-chap` or empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub auth_protocol: String,
    /// User and password in clear text; a secret.
    pub cleartext_credentials: WwanCleartextCredentials,
    /// User and password, encrypted.
    pub encrypted_credentials: CipherBlockStatus,
    /// Providers to be tried first.
    #[serde(rename = "PreferredPLMNs", skip_serializing_if = "is_zero")]
    pub preferred_plmns: Vec<String>,
    /// Radio technologies to be tried first.
    #[serde(rename = "PreferredRATs", skip_serializing_if = "is_zero")]
    pub preferred_rats: Vec<String>,
    /// Whether foreign networks are left alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub forbid_roaming: bool,
    /// Access point of the first connection.
    #[serde(rename = "AttachAPN", skip_serializing_if = "is_zero")]
    pub attach_apn: String,
    /// IP version of the first connection.
    #[serde(rename = "AttachIPType", skip_serializing_if = "is_zero")]
    pub attach_ip_type: String,
    /// Authentication of the first connection.
    #[serde(skip_serializing_if = "is_zero")]
    pub attach_auth_protocol: String,
    /// User and password of the first connection; a secret.
    pub attach_cleartext_credentials: WwanCleartextCredentials,
}

/// User and password in clear text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanCleartextCredentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

/// How a broken connection is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WwanProbe {
    /// Whether it is not.
    pub disable: bool,
    /// How users want it.
    pub user_defined_probe: ConnectivityProbe,
}

/// A check of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConnectivityProbe {
    /// What is sent.
    pub method: ConnectivityProbeMethod,
    /// Name or address of who must answer.
    pub probe_host: String,
    /// TCP port of who must answer.
    pub probe_port: u16,
}

numbers! {
    /// What a check of a connection sends.
    ConnectivityProbeMethod: u8 {
        /// Nothing.
        None = 0,
        /// An ICMP echo.
        Icmp = 1,
        /// A TCP connection.
        Tcp = 2,
    }
}

/// Config of a wireless LAN.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct WifiConfig {
    /// Name of the network.
    #[serde(rename = "SSID", skip_serializing_if = "is_zero")]
    pub ssid: String,
    /// How it is protected.
    #[serde(skip_serializing_if = "is_zero")]
    pub key_scheme: WifiKeyScheme,
    /// User in clear text.
    #[serde(skip_serializing_if = "is_zero")]
    pub identity: String,
    /// Password in clear text; a secret.
    #[serde(skip_serializing_if = "is_zero")]
    pub password: String,
    /// Which one is tried first.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
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
}

numbers! {
    /// How a wireless LAN is protected.
    WifiKeyScheme: u8 {
        /// Not at all.
        None = 0,
        /// WPA with a shared key.
        WpaPsk = 1,
        /// WPA with users.
        WpaEap = 2,
        /// Otherwise.
        Other = 3,
    }
}

/// Cellular config of older versions. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeprecatedCellConfig {
    /// Access point.
    #[serde(rename = "APN", skip_serializing_if = "is_zero")]
    pub apn: String,
    /// Who must answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub probe_addr: String,
    /// Whether nobody must.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_probe: bool,
    /// Whether the modem tells where it is.
    #[serde(skip_serializing_if = "is_zero")]
    pub location_tracking: bool,
}
