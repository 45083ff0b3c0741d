//! The program as a person, an image and a machine use it.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

mod access;
mod check;
mod demo;
mod documents;
mod drain_cmd;
mod image;
mod package;
mod processes;
mod update_status;
