//! Publishers and their subscribers over real sockets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test binary: a panic is its way to fail")]

mod any_order;
mod large;
mod publisher;
mod wired;
