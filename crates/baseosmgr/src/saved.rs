//! Counters that survive a boot, as plain decimal files.
//!
//! Not here: their meaning. Source of the paths: spec topics.md section 6.

use agent::Error;
use agent::partitions::Label;
use pubsub::{TopicRoot, store};
use tracing::warn;

use crate::core::{Counter, Counters, FallbackFrom};

const CURRENT_RETRY: &str = "persist/status/current_retry_update_counter";
const CONFIG_RETRY: &str = "persist/status/config_retry_update_counter";
const FALLBACK: &str = "persist/checkpoint/forceFallbackCounter";
/// Ours: `<counter> <label>` during a fallback, see [`FallbackFrom`].
pub(crate) const FALLBACK_FROM: &str = "persist/checkpoint/forceFallbackFrom";
const LIMIT_BYTES: u64 = 128;

/// A file without a number is logged and counts as absent, as in the reference.
pub(crate) fn read(topic_root: &TopicRoot) -> Result<Counters, Error> {
    Ok(Counters {
        current_retry: parsed(topic_root, CURRENT_RETRY, |text| text.parse().ok())?.unwrap_or_default(),
        config_retry: parsed(topic_root, CONFIG_RETRY, |text| text.parse().ok())?.unwrap_or_default(),
        fallback: parsed(topic_root, FALLBACK, |text| text.parse().ok())?,
        fallback_from: parsed(topic_root, FALLBACK_FROM, |text| {
            let (counter, label) = text.split_once(' ')?;
            Some(FallbackFrom { counter: counter.parse().ok()?, from: label.parse::<Label>().ok()? })
        })?,
    })
}

/// Under the root.
pub(crate) const fn path(counter: Counter) -> &'static str {
    match counter {
        Counter::CurrentRetry => CURRENT_RETRY,
        Counter::ConfigRetry => CONFIG_RETRY,
        Counter::Fallback => FALLBACK,
    }
}

pub(crate) fn write(topic_root: &TopicRoot, counter: Counter, value: u32) -> Result<(), Error> {
    let path = path(counter);
    store::replace(&topic_root.path(path), value.to_string().as_bytes()).map_err(Error::pubsub(path))
}

pub(crate) fn journal(topic_root: &TopicRoot, journal: Option<FallbackFrom>) -> Result<(), Error> {
    let path = topic_root.path(FALLBACK_FROM);
    match journal {
        Some(FallbackFrom { counter, from }) => store::replace(&path, format!("{counter} {from}").as_bytes()),
        None => store::remove(&path).map(drop),
    }
    .map_err(Error::pubsub(FALLBACK_FROM))
}

fn parsed<T>(
    topic_root: &TopicRoot,
    path: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(bytes) = store::read(&topic_root.path(path), LIMIT_BYTES).map_err(Error::pubsub(path))? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let value = parse(text.trim());
    if value.is_none() {
        warn!(path, found = text.trim(), "ignored a counter file without a counter; it is written again");
    }
    Ok(value)
}
