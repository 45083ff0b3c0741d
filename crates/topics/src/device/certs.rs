//! Certificates that the device and its controller encrypt for each other with.
//!
//! The key of each is the hash that it carries, in lower-case hex. There is no sample of the reference for either; the
//! members and their order are those of its types.
//! Source: lf-edge/eve pkg/pillar/types/{certinfotypes,attesttypes}.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Base64, Kind, Topic};

/// A certificate of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ControllerCert {
    /// Hash in use for `CertHash`.
    pub hash_algo: i32,
    /// What it is for.
    #[serde(rename = "Type")]
    pub cert_type: i32,
    /// The certificate, PEM; others of its chain may follow.
    pub cert: Option<Base64>,
    /// Its identity.
    pub cert_hash: Option<Base64>,
}

impl Topic for ControllerCert {
    const NAME: &'static str = "ControllerCert";
    const KIND: Kind = Kind::Volatile;
}

/// What belongs to a certificate of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct CertMetaData {
    /// Its kind: 1 for the TPM's public area.
    #[serde(rename = "Type")]
    pub data_type: u8,
    /// Its bytes.
    pub data: Option<Base64>,
}

/// A certificate of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EdgeNodeCert {
    /// Hash in use for `CertID`: 1 for the first 16 bytes of SHA-256.
    pub hash_algo: u8,
    /// Its identity.
    #[serde(rename = "CertID")]
    pub cert_id: Option<Base64>,
    /// What it is for: 4 for the exchange of keys.
    pub cert_type: u8,
    /// The certificate, PEM.
    pub cert: Option<Base64>,
    /// Whether its private key is in the TPM.
    pub is_tpm: bool,
    /// What belongs to it.
    pub meta_data_items: Option<Vec<CertMetaData>>,
}

impl Topic for EdgeNodeCert {
    const NAME: &'static str = "EdgeNodeCert";
    const KIND: Kind = Kind::Persistent;
}
