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
