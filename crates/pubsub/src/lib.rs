//! Publications and subscriptions over files: who writes, who is told, what survives.
//!
//! Not here: any topic; values are bytes with a codec. Files are the truth, events are hints.
//! Source of places, names and modes: lf-edge/eve pkg/pillar/pubsub.

mod bus;
mod error;
mod file;
mod lock;
mod name;
mod publication;
pub mod record;
pub mod store;
mod subscription;
mod watch;

pub use bus::Bus;
pub use error::{BoxError, Error, Finding};
pub use file::{FileRule, FileState, FileWatch};
pub use name::Name;
pub use publication::{Publication, Published};
pub use subscription::{Change, Subscription};

/// How values become bytes and back.
pub struct Codec<T> {
    /// Compact bytes without a final newline.
    pub encode: fn(&T) -> Result<Vec<u8>, BoxError>,
    /// The value in the bytes of a whole file.
    pub decode: fn(&[u8]) -> Result<T, BoxError>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

/// No topic file is longer; what is longer is reported and not read.
pub const FILE_LIMIT_BYTES: u64 = 1 << 20;
