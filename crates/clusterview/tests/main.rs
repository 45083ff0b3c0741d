//! What the elected node reports and what this node follows of its cluster, against the embedded cluster.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod apps;
mod duties;
mod stage;
mod stats;
