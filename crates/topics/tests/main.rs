//! Shapes on disk: samples of the reference, and what fuzzing kept.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod corpus;
mod drain {
    mod answers;
    mod pause;
    mod progress;
    mod trouble;
}
mod form {
    mod cidr;
    mod fit;
    mod go_json;
    mod letters;
    mod numbers;
    mod secret;
    mod shared;
    mod time;
    mod wire;
}
mod golden;
mod orders;
mod schema;
mod wire;
