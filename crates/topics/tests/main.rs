//! Shapes on disk: samples of the reference, and what fuzzing kept.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod corpus;
mod golden;
mod orders;
mod schema;
mod wire;
