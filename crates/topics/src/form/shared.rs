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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go_json;

    fn again<T: Serialize + serde::de::DeserializeOwned>(text: &str) -> Result<String, String> {
        let value: T = go_json::from_slice(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(go_json::to_vec(&value).unwrap()).unwrap())
    }

    #[test]
    fn addresses_are_written_as_go_writes_them() {
        for (read, written) in [
            (r#""""#, r#""""#),
            ("null", r#""""#),
            (r#""10.244.244.2""#, r#""10.244.244.2""#),
            (r#""FE80:0::0001""#, r#""fe80::1""#),
            (r#""::ffff:10.0.0.1""#, r#""10.0.0.1""#),
        ] {
            assert_eq!(again::<GoIp>(read).unwrap(), written);
        }
        let (mapped, plain): (GoIp, GoIp) =
            go_json::from_slice(br#"["::ffff:10.0.0.1","10.0.0.1"]"#).unwrap();
        assert_eq!(mapped, plain);
        for wrong in [r#""10.0.0""#, r#""10.0.0.1/8""#, r#""host""#, "1"] {
            assert!(again::<GoIp>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn identities_are_written_in_lower_case() {
        let zero = r#""00000000-0000-0000-0000-000000000000""#;
        assert_eq!(again::<GoUuid>("null").unwrap(), zero);
        assert_eq!(again::<Vec<GoUuid>>("[null]").unwrap(), format!("[{zero}]"));
        let upper = r#""6BA7B810-9DAD-41D1-80B4-00C04FD430C8""#;
        assert_eq!(again::<GoUuid>(upper).unwrap(), upper.to_lowercase());
        for wrong in [r#""""#, r#""6ba7b810""#, "0"] {
            assert!(again::<GoUuid>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_base64_with_padding() {
        assert_eq!(again::<Base64>(r#""AAECA/r7/P3+/w==""#).unwrap(), r#""AAECA/r7/P3+/w==""#);
        // As Go reads it, and writes it back.
        assert_eq!(again::<Base64>(r#""AAECA/r7\r\n/P3+/x==""#).unwrap(), r#""AAECA/r7/P3+/w==""#);
        assert_eq!(again::<Option<Base64>>("null").unwrap(), "null");
        assert_eq!(again::<Option<Base64>>(r#""""#).unwrap(), r#""""#);
        for wrong in [r#""AA""#, r#""A-==""#, "[1,2]"] {
            assert!(again::<Base64>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_bits_of_a_prefix_are_kept() {
        let text = r#"{"IP":"10.244.244.2","Mask":"////8A=="}"#;
        assert_eq!(again::<IpNet>(text).unwrap(), text);
    }
}
