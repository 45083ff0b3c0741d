//! Topics whatever they hold: one code for all of them, where a generic one would be there once for each topic.
//!
//! `publication` is the publisher's side, `subscription` the subscriber's, `mirror` what a subscriber knows. To be called
//! by the two types that know the type of the values. Not here: that type.

mod mirror;
pub(crate) mod publication;
pub(crate) mod subscription;

use std::any::Any;
use std::sync::Arc;

use crate::{Codec, CodecError};

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
