//! zedkube as a whole: core, shell and hands on real files, an embedded cluster and a clock that stands still.
//!
//! Time moves only when nothing is left to do, by default limits: a pause of 300 s takes no time at all.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

mod after_boot;
mod apps;
mod away;
mod clock;
mod cordons;
mod crowd;
mod device;
mod diary;
mod duties;
mod failures;
mod flapping;
mod forced;
mod history;
mod leader;
mod leaving;
mod leaving_words;
mod limits;
mod lost;
mod operator;
mod pauses;
mod restarts;
mod server;
mod statuses;
mod void;
mod withdrawn;
mod writes;
