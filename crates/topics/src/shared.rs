//! Shapes that several topics hold: identities, errors, base64 bytes, prefixes.
//! Source: lf-edge/eve pkg/pillar/types. Pure: no clock, no I/O, no task.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

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
    ErrorSeverity: i32 {
        /// Not said.
        Unspecified = 0,
        /// For information.
        Notice = 1,
        /// Worth a look.
        Warning = 2,
        /// An operation failed.
        Error = 3,
    }
}

numbers! {
    /// What an error is about.
    ErrorEntityType: i32 {
        /// Not said.
        Unspecified = 0,
        /// An OS image.
        BaseOs = 1,
        /// A network port.
        SystemAdapter = 2,
        /// The vault.
        Vault = 3,
        /// The attestation.
        Attestation = 4,
        /// An application.
        AppInstance = 5,
        /// A physical port.
        Port = 6,
        /// A network.
        Network = 7,
        /// A network instance.
        NetworkInstance = 8,
        /// A content tree.
        ContentTree = 9,
        /// A blob of a content tree.
        Blob = 10,
        /// A volume.
        Volume = 11,
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

/// A UUID as lower-case text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoUuid(pub Uuid);

impl JsonSchema for GoUuid {
    fn schema_name() -> Cow<'static, str> {
        "GoUuid".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}

impl std::fmt::Display for GoUuid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// An address as text; empty when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GoIp(pub Option<IpAddr>);

impl Serialize for GoIp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(address) => serializer.collect_str(&address),
            None => serializer.serialize_str(""),
        }
    }
}

impl<'de> Deserialize<'de> for GoIp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self(None));
        }
        let address =
            text.parse().map_err(|cause| de::Error::custom(format!("`{text}` is no address: {cause}")))?;
        Ok(Self(Some(address)))
    }
}

impl JsonSchema for GoIp {
    fn schema_name() -> Cow<'static, str> {
        "GoIp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "an IPv4 or IPv6 address, or empty" })
    }
}

/// Bytes as standard base64 with padding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Self)
            .map_err(|cause| de::Error::custom(format!("no base64: {cause}")))
    }
}

impl JsonSchema for Base64 {
    fn schema_name() -> Cow<'static, str> {
        "Base64".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}

/// An address with its mask; host bits are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct IpNet {
    /// The address.
    #[serde(rename = "IP")]
    pub ip: GoIp,
    /// The mask's bytes.
    pub mask: Option<Base64>,
}
