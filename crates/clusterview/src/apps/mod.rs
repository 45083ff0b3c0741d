//! Applications as this node sees them in the cluster: ENClusterAppStatus, and the logs of their containers.
//!
//! Not here: how pods and logs are read (`pods`).
//!
//! Pure: `app`, `look`, `app_table` (the status), `wanted` (their needs beside pods), `marks`, `track`, `course`,
//! `line` (the logs); `task` and `logs` wait. Neither waits for the drain, nor the drain for them. Source: D-K23.

mod app;
mod app_table;
mod course;
mod line;
mod logs;
mod look;
mod marks;
mod task;
mod track;
mod wanted;

pub use app_table::{GAP, UNREACHABLE_AFTER};
pub use logs::{BATCH_BYTES, Pipe, ROUND_BYTES};
pub use task::run;
pub use track::{AGAIN, DOUBT, ROUND};
pub use wanted::{AppRequirements, Console};
