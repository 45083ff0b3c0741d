//! How values are written: Go's JSON, times, numbers, secrets, and what makes a value fit its message.
//!
//! Not here: any topic.

pub(crate) mod cidr;
pub mod fit;
pub mod go_json;
pub(crate) mod letters;
pub(crate) mod numbers;
pub(crate) mod secret;
pub(crate) mod shared;
pub(crate) mod time;

use std::borrow::Cow;

use serde::{Deserialize as _, Deserializer, de};

/// Reads a text, where `null` is the zero value, as it is in Go also inside lists.
pub(crate) fn or_zero<'de, D: Deserializer<'de>, T: Default>(
    deserializer: D,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    match Option::<Cow<'de, str>>::deserialize(deserializer)? {
        Some(text) => read(&text).map_err(de::Error::custom),
        None => Ok(T::default()),
    }
}
