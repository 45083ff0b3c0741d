//! Applications as a node reports them: watches and logs of an embedded cluster, and real files, on a clock that
//! stands still.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod crashes;
mod logs;
mod pipe;
mod runs;
mod stage;
mod statuses;
