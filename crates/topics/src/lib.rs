//! Shapes and numbers that the agents exchange through files.
//!
//! Not here: I/O, publishing, decisions. Pure: no clock, no I/O, no task.

mod cluster;
mod device;
mod drain;
mod every;
mod form;
mod node_status;
mod others;
mod report;

pub use every::{Reread, readers};
use form::{cidr, letters, numbers, secret, shared, time};
pub use form::{fit, go_json};

pub use cidr::Cidr;
pub use cluster::*;
pub use device::*;
pub use drain::*;
pub use fit::{Most, cut_text};

pub use go_json::Error;
pub use letters::{acts, harmless_json, harmless_text, number};
pub use node_status::*;
pub use others::*;
pub use report::*;
pub use secret::{Secret, by_length};
pub use shared::*;
pub use time::GoTime;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A topic whose length is bounded once the texts of `cut` are.
macro_rules! topic {
    ($name:ident: $kind:ident $(, key $key:expr)? $(, cut $($text:ident)+)?) => {
        impl crate::Topic for $name {
            const NAME: &'static str = stringify!($name);
            const KIND: crate::Kind = crate::Kind::$kind;
            $(const KEY: Option<&'static str> = $key;)?

            $(fn cut(&mut self, most: crate::Most) {
                most.each([$(&mut self.$text),+]);
            })?
        }
    };
}
use topic;

/// A value that one agent publishes and others follow.
pub trait Topic:
    Serialize + DeserializeOwned + JsonSchema + Clone + PartialEq + Debug + Send + Sync + 'static
{
    /// The directory's name and, in the reference, the type's.
    const NAME: &'static str;
    const KIND: Kind;
    /// The key of its one value; `None` for a topic of many. Files with other keys are ignored, for example a
    /// copy beside it.
    const KEY: Option<&'static str> = Some("global");

    /// Drops what is beyond `most`, and counts it where there is a member for that: for topics of unbounded
    /// length. Each call begins with the whole value.
    fn cut(&mut self, _most: Most) {}

    /// The form on disk, cut so that it fits a message (see [`fit`]).
    ///
    /// Errors: it cannot be encoded.
    fn encode(&self) -> Result<Vec<u8>, Error> {
        fit::encode(self)
    }
}

/// How long a topic lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Until the next reboot, under `/run`.
    Volatile,
    /// Through reboots, under `/persist/status`.
    Persistent,
}
