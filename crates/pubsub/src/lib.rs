//! Publications and subscriptions over files and sockets: who writes, who is told, what survives.
//!
//! Not here: any topic; values are bytes with a codec. Files are the truth, events are hints.
//! Source of places, names and modes: lf-edge/eve pkg/pillar/pubsub.

mod disk;
mod error;
mod large;
mod lock;
mod name;
mod publication;
#[cfg(test)]
#[path = "../tests/quoted.rs"]
mod quoted;
mod raw;
pub mod reach;
mod retry;
mod socket;
pub mod store;
mod subscription;
mod topic_root;
pub mod trust;
mod watch;

pub use socket::record;
use socket::{peer, server};
pub use watch::glance;
use watch::{file, files, folder, removed};

pub use error::{BadFile, CodecError, Error};
pub use file::{FileAuthor, FileRule, FileState, FileWatch};
pub use name::Name;
pub use publication::Publication;
pub use raw::{Change, Published};
pub use retry::Retry;
pub use socket::feed::SocketFeed;
pub use subscription::Subscription;
pub use topic_root::TopicRoot;

/// How values become bytes and back.
pub struct Codec<T> {
    /// Compact bytes without a final newline.
    pub encode: fn(&T) -> Result<Vec<u8>, CodecError>,
    /// The value in the bytes of a whole file.
    pub decode: fn(&[u8]) -> Result<T, CodecError>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

/// Bytes as they are.
#[cfg(test)]
fn plain_codec() -> Codec<Vec<u8>> {
    Codec { encode: |bytes| Ok(bytes.clone()), decode: |bytes| Ok(bytes.to_vec()) }
}

/// Makes the wire form of a value out of its form on disk. A large member is stored by the function that it is
/// given, with its name and the content of its file, and is replaced by the path that comes back. Without a member
/// whose name begins with `pubsub-` it is at most six times as long as the form on disk, and cannot fail.
pub type ToWire = fn(&[u8], &mut StoreLarge<'_>) -> Result<Vec<u8>, CodecError>;

/// Stores a large member.
pub type StoreLarge<'a> = dyn FnMut(&str, &[u8]) -> Result<String, CodecError> + 'a;

/// No topic file is longer; what is longer is reported and not read. A value may have several large members of
/// nearly 1 MiB each.
pub const FILE_LIMIT_BYTES: u64 = 4 << 20;
