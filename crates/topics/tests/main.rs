//! Shapes on disk: samples of the reference, and what fuzzing kept.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod corpus;
mod drain;
mod fit;
mod go_json;
mod golden;
mod orders;
mod schema;
mod time;
mod to_wire;
mod values;
mod wire;
