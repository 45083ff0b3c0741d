//! Reads values of any topic by the topic's name, for tools that read files of all topics.
//!
//! Pure: no clock, no I/O, no task.

use serde_json::Value;

use crate::{Topic, go_json};

/// Reads a value as agents do, and returns it as they would write it.
pub type Reread = fn(&[u8]) -> Result<Value, go_json::Error>;

/// Sorted by name.
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
