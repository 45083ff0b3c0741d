//! zedkube as a whole: core, shell and hands on real files, an embedded cluster and a clock that stands still.
//!
//! Time moves only when nothing is left to do, by default limits: a pause of 300 s takes no time at all.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod answers;
mod device;
mod diary;
mod drain;
mod node;
mod services;
