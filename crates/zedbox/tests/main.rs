//! The program as a person, an image and a machine use it.
//!
//! Tests start in the order of their names: the longest ones are in modules of the first half of the alphabet.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

mod access;
mod artifacts;
mod calls;
mod check;
mod demo;
mod documents;
mod drain_cmd;
mod image;
mod page;
mod processes;
mod setup;
mod update_status;
