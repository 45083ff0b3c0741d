//! Publisher's and subscriber's side of a topic, with the type of its values.

use crate::raw::publication::RawPublication;
use crate::raw::subscription::RawSubscription;
use crate::raw::{AnyValue, Change, Published, decode};
use crate::watch::WatchHub;
use crate::{BadFile, Codec, Error, Name, ToWire};
#[cfg(test)]
use crate::{disk::Disk, lock::Lock};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// The only publisher of one topic. Dropping it leaves the files, as a crash would; [`Publication::close`] tidies.
pub struct Publication<T> {
    raw: RawPublication,
    codec: Codec<T>,
}

impl<T: Send + Sync + 'static> Publication<T> {
    pub(crate) fn open(hub: &Arc<WatchHub>, root: &Path, name: Name, codec: Codec<T>) -> Result<Self, Error> {
        Ok(Self { raw: RawPublication::open(hub, root, name, decode(codec))?, codec })
    }

    #[cfg(test)]
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        root: &Path,
        name: Name,
        codec: Codec<T>,
        lock: Lock,
    ) -> Result<Self, Error> {
        Ok(Self { raw: RawPublication::open_on(disk, root, name, decode(codec), lock)?, codec })
    }

    /// What [`crate::TopicRoot::serve`] does.
    pub(crate) fn serve(&mut self, place: (&Arc<WatchHub>, &Path), to_wire: ToWire) -> Result<(), Error> {
        let encode = self.codec.encode;
        self.raw.serve(place, to_wire, &|value| {
            value.downcast_ref().map_or_else(|| Err("it is of another type".into()), encode)
        })
    }

    /// Publishes `value` under `key`, unless it is published already. Errors: a key that cannot be a file, a
    /// value without form or too long, or a write that failed. Memory has not changed then, nor have disk and
    /// subscribers, unless it was the very last step that failed: bringing the directory to disk. Then they
    /// may know the new value until the next good publish.
    pub fn publish(&mut self, key: &str, value: &T) -> Result<Published, Error> {
        self.raw.publish(key, (self.codec.encode)(value))
    }

    /// Errors: `key` is not published, or its file cannot be removed.
    pub fn unpublish(&mut self, key: &str) -> Result<(), Error> {
        self.raw.unpublish(key)
    }

    pub fn get(&self, key: &str) -> Option<&T> {
        self.raw.get(key)?.downcast_ref()
    }

    /// Whether the value under `key` was read from its backup, so later values are lost.
    pub fn was_older(&self, key: &str) -> bool {
        self.raw.was_older(key)
    }

    /// In the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.raw.iter().filter_map(|(key, value)| Some((key, value.downcast_ref()?)))
    }

    /// How often the publisher has signalled a restart.
    pub const fn restarted(&self) -> u32 {
        self.raw.restarted()
    }

    /// Says that the first values are all there.
    pub fn signal_restarted(&mut self) -> Result<(), Error> {
        self.raw.signal_restarted()
    }

    pub fn clear_restarted(&mut self) -> Result<(), Error> {
        self.raw.clear_restarted()
    }

    pub fn take_findings(&mut self) -> Vec<BadFile> {
        self.raw.take_findings()
    }

    /// Ends the topic: a volatile one removes every key, a persistent one keeps them.
    pub fn close(self) -> Result<(), Error> {
        self.raw.close()
    }
}

/// Follows one topic: also before its publisher runs, before its directory exists, and after both were
/// replaced.
pub struct Subscription<T> {
    /// Boxed because many of them are in one future.
    raw: Box<RawSubscription>,
    of: PhantomData<fn() -> T>,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Subscription<T> {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: &Path, codec: Codec<T>) -> Self {
        let same = |one: &AnyValue, other: &AnyValue| one.downcast_ref::<T>() == other.downcast_ref();
        Self { raw: Box::new(RawSubscription::new(hub, dir, decode(codec), same)), of: PhantomData }
    }

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
