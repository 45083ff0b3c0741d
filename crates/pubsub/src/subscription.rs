//! The subscriber's side of a topic, with the type of its values.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Codec;
use crate::raw::subscription::RawSubscription;
use crate::raw::{AnyValue, Change, decode};
use crate::watch::WatchHub;

/// Follows one topic: also before its publisher runs, before its directory exists, and after both were
/// replaced.
pub struct Subscription<T> {
    /// Boxed because many of them are in one future.
    raw: Box<RawSubscription>,
    of: PhantomData<fn() -> T>,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Subscription<T> {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: PathBuf, codec: Codec<T>) -> Self {
        let same = |one: &AnyValue, other: &AnyValue| one.downcast_ref::<T>() == other.downcast_ref();
        Self { raw: Box::new(RawSubscription::new(hub, dir, decode(codec), same)), of: PhantomData }
    }

    /// Reads this key only.
    #[must_use]
    pub fn only(mut self, key: &'static str) -> Self {
        self.raw.only(key);
        self
    }

    /// The next change; waits until there is one. Dropping it loses nothing.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = typed(self.raw.next().await) {
                return change;
            }
        }
    }

    /// Whether everything was read once, or a failed read is being repeated, and all of that was returned:
    /// for callers that cannot wait for [`Change::Synced`].
    pub fn was_tried(&self) -> bool {
        self.raw.was_tried()
    }

    /// As read so far.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.raw.values().get(key)?.downcast_ref()
    }

    /// As read so far, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.raw.values().iter().filter_map(|(key, value)| Some((key.as_str(), value.downcast_ref()?)))
    }
}

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
