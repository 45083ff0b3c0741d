//! Shapes that several topics hold: identities, errors, base64 bytes, addresses.
//!
//! Go's embedded structs stand inline in each topic instead, as their members do on disk.
//! Source: lf-edge/eve pkg/pillar/types/{types,errortime}.go. Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::or_zero;
use crate::GoTime;
use crate::numbers::numbers;

/// An identity and its version; the version is often empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct UuidAndVersion {
    /// The identity.
    #[serde(rename = "UUID")]
    pub uuid: GoUuid,
    /// Its version.
    pub version: String,
}

numbers! {
    /// How bad an error is.
    ErrorSeverity: i32 { Unspecified = 0, Notice = 1, Warning = 2, Error = 3 }

    /// What an error is about.
    ErrorEntityType: i32 {
        Unspecified = 0, BaseOs = 1, SystemAdapter = 2, Vault = 3, Attestation = 4, AppInstance = 5,
        Port = 6, Network = 7, NetworkInstance = 8, ContentTree = 9, Blob = 10, Volume = 11,
    }
}

/// One thing that an error is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ErrorEntity {
    /// Its kind.
    pub entity_type: ErrorEntityType,
    /// Its identity.
    #[serde(rename = "EntityID")]
    pub entity_id: String,
}

/// An error as a member of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ErrorDescription {
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

/// A UUID as lower-case text; all zeros means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(with = "String", description = "all zeros means none", extend("format" = "uuid"))]
pub struct GoUuid(pub Uuid);

impl<'de> Deserialize<'de> for GoUuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_zero(deserializer, |text| {
            text.parse().map(Self).map_err(|cause| format!("found `{text}`, expected a UUID: {cause}"))
        })
    }
}

impl fmt::Display for GoUuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// An address as text; empty when there is none. An IPv4 address in IPv6 clothes is the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, JsonSchema)]
#[schemars(
    with = "String",
    description = "an IPv4 or IPv6 address, or empty",
    extend("anyOf" = [{ "format": "ipv4" }, { "format": "ipv6" }, { "maxLength": 0 }])
)]
pub struct GoIp(pub Option<IpAddr>);

impl fmt::Display for GoIp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| address.to_canonical().fmt(out))
    }
}

impl Serialize for GoIp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoIp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_zero(deserializer, |text| {
            if text.is_empty() {
                return Ok(Self(None));
            }
            let address: Result<IpAddr, _> = text.parse();
            let address = address.map_err(|cause| format!("found `{text}`, expected an address: {cause}"))?;
            Ok(Self(Some(address.to_canonical())))
        })
    }
}

/// Go reads base64 with any bits after the last byte.
const LOOSE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Bytes as standard base64 with padding; in reading, line ends do not count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, JsonSchema)]
#[schemars(
    with = "String",
    extend(
        "contentEncoding" = "base64",
        "pattern" = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
    )
)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_zero(deserializer, |text| {
            let text = text.replace(['\r', '\n'], "");
            LOOSE.decode(text).map(Self).map_err(|cause| format!("no base64: {cause}"))
        })
    }
}

/// An address with its mask; host bits are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct IpNet {
    /// The address.
    #[serde(rename = "IP")]
    pub ip: GoIp,
    /// The mask's bytes, 4 or 16.
    pub mask: Option<Base64>,
}
