//! The subscriber's side of a topic, with the type of its values.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Codec;
use crate::raw::subscription::RawSubscription;
use crate::raw::{AnyValue, Change, decode};
use crate::watch::WatchHub;

/// Follows one topic for good: before its publisher runs, before its directory exists, after both were replaced.
pub struct Subscription<T> {
    /// Boxed: many of them are in one future.
    raw: Box<RawSubscription>,
    of: PhantomData<fn() -> T>,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Subscription<T> {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: PathBuf, codec: Codec<T>) -> Self {
        let same = |one: &AnyValue, other: &AnyValue| one.downcast_ref::<T>() == other.downcast_ref();
        Self { raw: Box::new(RawSubscription::new(hub, dir, decode(codec), same)), of: PhantomData }
    }

    /// The same of this key alone: files of others are not read.
    #[must_use]
    pub fn only(mut self, key: &'static str) -> Self {
        self.raw.only(key);
        self
    }

    /// The next change. It waits for ever when there is none. Dropping it loses nothing.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = typed(self.raw.next().await) {
                return change;
            }
        }
    }

    /// Whether everything there was read once, or reading fails and is repeated, and all of that was handed over:
    /// for whoever cannot wait for [`Change::Synced`].
    pub fn was_tried(&self) -> bool {
        self.raw.was_tried()
    }

    /// The value under `key` as far as changes were read.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.raw.values().get(key)?.downcast_ref()
    }

    /// All keys with their values as far as changes were read, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.raw.values().iter().filter_map(|(key, value)| Some((key.as_str(), value.downcast_ref()?)))
    }
}

/// A change of a topic of `T`; all its values are of this type.
fn typed<T: Clone + Send + Sync + 'static>(change: Change<AnyValue>) -> Option<Change<T>> {
    let value = |it: AnyValue| it.downcast().ok().map(Arc::unwrap_or_clone);
    Some(match change {
        Change::Put { key, value: new, old } => {
            Change::Put { key, value: value(new)?, old: old.and_then(value) }
        }
        Change::Gone { key, old } => Change::Gone { key, old: value(old)? },
        Change::Synced => Change::Synced,
        Change::Restarted(count) => Change::Restarted(count),
        Change::Bad(finding) => Change::Bad(finding),
    })
}
