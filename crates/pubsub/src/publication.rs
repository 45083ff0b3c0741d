//! The publisher's side of a topic, with the type of its values.

use std::path::Path;
use std::sync::Arc;

use crate::raw::publication::RawPublication;
use crate::raw::{Published, decode};
use crate::watch::WatchHub;
use crate::{BadFile, Codec, Error, Name, ToWire};
#[cfg(test)]
use crate::{disk::Disk, lock::Lock};

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
