//! What speaks against an operation, on scripted clusters and machines.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod findings;
mod machine;
