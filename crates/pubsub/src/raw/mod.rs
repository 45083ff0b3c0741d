//! Topics whatever they hold: one code for all of them, where a generic one would be there once for each topic.
//!
//! `publication` is the publisher's side, `subscription` the subscriber's, `mirror` what a subscriber knows. To be called
//! by the two types that know the type of the values. Not here: that type.

mod mirror;
pub(crate) mod publication;
pub(crate) mod subscription;

use std::any::Any;
use std::sync::Arc;

use crate::{BadFile, Codec, CodecError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The file has the new value.
    Written,
    /// The value is the one that is published already; nothing was written.
    Unchanged,
}

/// What a subscriber is told. Values that are equal to the last one are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A key is new or has another value.
    Put {
        key: String,
        value: T,
        /// Its value before, if it had one.
        old: Option<T>,
    },
    /// A key is gone, also when it went while nobody looked.
    Gone { key: String, old: T },
    /// The first reading is through, also when there is no directory yet: all that is there was read. Told once.
    Synced,
    /// The publisher's counter of starts is another one; told after the data of the same reading.
    Restarted(u32),
    /// A file makes no sense, or cannot be read. It is told once; the last good value of its key stays, and what
    /// could not be read is read again after a pause.
    Bad(BadFile),
}

/// A value of any topic.
pub(crate) type AnyValue = Arc<dyn Any + Send + Sync>;

/// Reads the values of one topic.
pub(crate) type Decode = Box<dyn Fn(&[u8]) -> Result<AnyValue, CodecError> + Send + Sync>;

/// Writes the values of one topic.
pub(crate) type Encode<'a> = dyn Fn(&dyn Any) -> Result<Vec<u8>, CodecError> + 'a;

/// How the values of a topic are read.
pub(crate) fn decode<T: Send + Sync + 'static>(codec: Codec<T>) -> Decode {
    Box::new(move |bytes| (codec.decode)(bytes).map(|value| Arc::new(value) as AnyValue))
}
