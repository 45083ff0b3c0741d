//! How values are written: Go's JSON, times, numbers, secrets, schemas, and what makes a value fit its message.
//!
//! Not here: any topic.

pub(crate) mod cidr;
pub mod fit;
pub mod go_json;
pub(crate) mod letters;
pub(crate) mod numbers;
pub mod schema;
pub(crate) mod secret;
pub(crate) mod shared;
pub(crate) mod time;

use std::borrow::Cow;

use serde::{Deserialize as _, Deserializer, de};
use serde_json::Value;

use crate::Topic;

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

/// Reads a value of any topic as agents do, and returns it as they would write it.
pub type Reread = fn(&[u8]) -> Result<Value, go_json::Error>;

/// By the topic's name, sorted, for tools that read files of all topics.
pub fn readers() -> Vec<(&'static str, Reread)> {
    crate::every_topic!(reader)
}

fn reader<T: Topic>() -> (&'static str, Reread) {
    let reread = |bytes: &[u8]| {
        let value: T = go_json::from_slice(bytes)?;
        serde_json::to_value(&value).map_err(go_json::Error::Write)
    };
    (T::NAME, reread)
}
