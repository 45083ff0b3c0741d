//! Promise 1 in one place: whether an operation that needs a drained node may be carried out now.
//!
//! zedagent asks it for reboots and shutdowns, baseosmgr for images, nodeagent once more right before it asks the
//! device (`undone`), and `zedbox drain` for a person. An answer counts only for the very request that it names; where
//! zedkube names none, requester and order decide. A person's pause is judged by one rule as well (`paused`), and the
//! life around the judgement is one: [`Hold`]. Not here: what is requested, images, and how a request gets to disk.
//! Source: faults D-A1 to D-A5, D-B1, D-B3.

mod answers;
mod hold;
mod judge;
mod pause;
#[cfg(test)]
mod tests;

pub use answers::{DrainTopicUpdate, follow};
pub use answers::{LatestAnswers, OwnRequest, RequestAnswer};
pub use hold::{Hold, ZedkubeSilence};
pub use judge::{DeviceClustering, DrainJudgement, ProceedReason, UNKNOWN_WAIT, completes, serves, undone};
pub use pause::{Orderer, Paused, paused};
