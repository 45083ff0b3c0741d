//! Files and sockets of topics, as publishers and subscribers use them.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

mod files;
mod places;
mod quoted;
mod restored;
mod sockets;

use pubsub::Codec;
