//! A person's order to start one drain outside of the windows. Written by `zedbox drain start-now`, read by
//! zedkube; under `/run`, because it is for one request of this boot.
//!
//! Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

use super::{RequestId, Requester};
use crate::GoTime;

/// Under the root.
pub const WINDOW_PASS: &str = "run/zedbox/window-pass.json";

/// What is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WindowPass {
    /// Whose request it is for.
    pub requested_by: Requester,
    /// When that was made; no other is let start.
    pub requested_at: GoTime,
    /// Why, in a person's words.
    pub reason: String,
    /// Who says so, by name.
    pub by: String,
}

impl WindowPass {
    pub fn id(&self) -> RequestId {
        RequestId { by: self.requested_by, at: self.requested_at }
    }
}
