//! Text that must not appear in a log.
//!
//! Pure: no clock, no I/O, no task.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroize as _;

use super::letters::number;
use super::or_zero;

/// Replaces a possible secret in a message: kind and length.
///
/// # Examples
/// `a text of 15 characters`
pub fn by_length(text: &str) -> String {
    format!("a text of {}", number(text.chars().count(), "character"))
}

/// A secret. Its `Debug` tells only whether there is one, and its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Secret(String);

impl Secret {
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself: to be used, never to be shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_empty() { "Secret(empty)" } else { "Secret(..)" })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_zero(deserializer, |text| Ok(Self(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use crate::{EdgeNodeClusterConfig, EdgeNodeClusterStatus, go_json};

    #[test]
    fn s2_a_secret_is_written_but_never_shown() {
        let status: EdgeNodeClusterStatus =
            go_json::from_slice(br#"{"EncryptedClusterToken":"s3cr3t"}"#).unwrap();
        assert_eq!(status.encrypted_cluster_token.reveal(), "s3cr3t");
        let (shown, written) = (format!("{status:?} {status:#?}"), go_json::to_vec(&status).unwrap());
        assert!(shown.contains("Secret(..)") && !shown.contains("s3cr3t"), "{shown}");
        assert!(String::from_utf8(written).unwrap().contains(r#""EncryptedClusterToken":"s3cr3t""#));
        let none: EdgeNodeClusterStatus = go_json::from_slice(br#"{"EncryptedClusterToken":null}"#).unwrap();
        assert_eq!(format!("{:?}", none.encrypted_cluster_token), "Secret(empty)");
    }

    #[test]
    fn s2_a_secret_where_another_kind_belongs_is_named_by_its_length() {
        let wrong = go_json::from_slice::<EdgeNodeClusterConfig>(br#"{"CipherToken":"s3cr3t"}"#).unwrap_err();
        let told = wrong.to_string();
        assert!(told.contains("/CipherToken: found a text of 6 characters, expected"), "{told}");
        assert!(!told.contains("s3cr3t"), "{told}");
    }
}
