//! A person's order to drain this node and reboot it or switch it off. Written by `zedbox reboot` and
//! `zedbox shutdown`, read by zedagent; under `/run`, as it is meant for this boot.
//!
//! Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

use crate::{DeviceOp, GoTime};

/// Under the root.
pub const DEVICE_ORDER: &str = "run/zedbox/device-order.json";

/// What is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeviceOrder {
    /// What is wanted.
    pub op: DeviceOp,
    /// The boot that it is for; in another one it means nothing.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When it was given.
    pub ordered_at: GoTime,
    /// Why, in a person's words.
    pub reason: String,
    /// Who wants it, by name.
    pub by: String,
}

/// Prefix of an order's words.
const PERSON: &str = "operator ";

impl DeviceOrder {
    /// As `operator root: new disk`.
    pub fn words(&self) -> String {
        format!("{PERSON}{}: {}", self.by, self.reason)
    }

    /// Whether `by` names a person; the identity of a whole-site operation has no blank.
    pub fn is_person(by: &str) -> bool {
        by.starts_with(PERSON)
    }
}
