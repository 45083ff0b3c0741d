//! Topics without the type of their values: compiled once, where generic code would be compiled for each
//! topic.
//!
//! `publication` is the publisher's side, `subscription` the subscriber's, `mirror` what a subscriber knows.
//! Called by `Publication` and `Subscription` only.

pub(crate) mod publication;
pub(crate) mod subscription;

use std::any::Any;
use std::sync::Arc;

use crate::{BadFile, Codec, CodecError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Written,
    /// Equal to the published value; nothing was written.
    Unchanged,
}

/// A change of a topic, without values equal to the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A key is new or has another value.
    Put { key: String, value: T, old: Option<T> },
    /// A key is gone, also when it went between two readings.
    Gone { key: String, old: T },
    /// The first reading has ended, also of a missing directory. Given once.
    Synced,
    /// The publisher's counter of starts changed; given after the data of the same reading.
    Restarted(u32),
    /// A file that cannot be decoded or read. Given once; the last good value of its key stays, and an
    /// unreadable file is read again after a pause.
    Bad(BadFile),
}

impl<T> Change<T> {
    /// The new value, if there is one.
    pub fn put(self) -> Option<T> {
        self.latest()?
    }

    /// What the key has now, `None` where it is gone; nothing of other changes.
    pub fn latest(self) -> Option<Option<T>> {
        match self {
            Self::Put { value, .. } => Some(Some(value)),
            Self::Gone { .. } => Some(None),
            Self::Synced | Self::Restarted(_) | Self::Bad(_) => None,
        }
    }
}

pub(crate) type AnyValue = Arc<dyn Any + Send + Sync>;

pub(crate) type Decode = Box<dyn Fn(&[u8]) -> Result<AnyValue, CodecError> + Send + Sync>;

pub(crate) type Encode<'a> = dyn Fn(&dyn Any) -> Result<Vec<u8>, CodecError> + 'a;

pub(crate) fn decode<T: Send + Sync + 'static>(codec: Codec<T>) -> Decode {
    Box::new(move |bytes| (codec.decode)(bytes).map(|value| Arc::new(value) as AnyValue))
}
