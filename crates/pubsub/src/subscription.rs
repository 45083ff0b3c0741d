//! The subscriber's side of a topic, with the type of its values.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use crate::raw::subscription::RawSubscription;
use crate::raw::{AnyValue, decode};
use crate::watch::WatchHub;
use crate::{BadFile, Codec};

/// What a subscriber is told. Values that are equal to the last one are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A key is new or has another value.
    Put {
        /// The key.
        key: String,
        /// Its value now.
        value: T,
        /// Its value before, if it had one.
        old: Option<T>,
    },
    /// A key is gone, also when it went while nobody looked.
    Gone {
        /// The key.
        key: String,
        /// Its last value.
        old: T,
    },
    /// The first reading is through, also when there is no directory yet: all that is there was read. Told once.
    Synced,
    /// The publisher's counter of starts is another one; told after the data of the same reading.
    Restarted(u32),
    /// A file makes no sense, or cannot be read. It is told once; the last good value of its key stays, and what
    /// could not be read is read again after a pause.
    Bad(BadFile),
}

/// Follows one topic for good: before its publisher runs, before its directory exists, after both were replaced.
pub struct Subscription<T> {
    /// Boxed: whoever follows ten topics keeps them in one future.
    raw: Box<RawSubscription>,
    of: PhantomData<fn() -> T>,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Subscription<T> {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: PathBuf, codec: Codec<T>) -> Self {
        let same = |one: &AnyValue, other: &AnyValue| one.downcast_ref::<T>() == other.downcast_ref();
        Self { raw: Box::new(RawSubscription::new(hub, dir, decode(codec), same)), of: PhantomData }
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
