//! Publications and subscriptions over files and sockets.
//!
//! Files are the source of truth, events are hints. Not here: any topic; values are bytes with a codec.
//! Source of places, names and modes: lf-edge/eve pkg/pillar/pubsub.

mod disk;
mod error;
mod large;
mod lock;
mod name;
#[cfg(test)]
#[path = "../tests/quoted.rs"]
mod quoted;
mod raw;
pub mod reach;
mod retry;
mod socket;
pub mod store;
mod topic_root;
pub mod trust;
mod typed;
mod watch;

pub use socket::record;
use socket::{peer, removed, server};
use watch::{file, folder};

pub use error::{BadFile, CodecError, Error};
pub use file::{FileAuthor, FileRule, FileState, FileWatch};
pub use name::Name;
pub use raw::{Change, Published};
pub use retry::Retry;
pub use socket::feed::SocketFeed;
pub use topic_root::TopicRoot;
pub use typed::{Publication, Subscription};

pub struct Codec<T> {
    /// Compact bytes without a final newline.
    pub encode: fn(&T) -> Result<Vec<u8>, CodecError>,
    /// Decodes a whole file.
    pub decode: fn(&[u8]) -> Result<T, CodecError>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

#[cfg(test)]
fn plain_codec() -> Codec<Vec<u8>> {
    Codec { encode: |bytes| Ok(bytes.clone()), decode: |bytes| Ok(bytes.to_vec()) }
}

/// Makes the wire form of a value from its form on disk. A large member is passed with its name and content
/// to the given function, and replaced by the returned path. Without a member named `pubsub-…` it is at most
/// six times as long as the form on disk, and cannot fail.
pub type ToWire = fn(&[u8], &mut StoreLarge<'_>) -> Result<Vec<u8>, CodecError>;

pub type StoreLarge<'a> = dyn FnMut(&str, &[u8]) -> Result<String, CodecError> + 'a;

/// Longer topic files are reported and not read. A value may have several large members of nearly 1 MiB each.
pub const FILE_LIMIT_BYTES: u64 = 4 << 20;
