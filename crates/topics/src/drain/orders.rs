//! Orders of a person, and what speaks against a drain: to reboot or shut down, to start a drain now, to have findings of the
//! preflight pass.
//!
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RequestId, Requester};
use crate::{DeviceOp, DeviceOpPending, Error, GoTime, Kind, Most, Topic, go_json};

/// Under the root.
pub const DEVICE_ORDER: &str = "run/zedbox/device-order.json";

/// Written by `zedbox reboot` and `zedbox shutdown`, read by zedagent; under `/run`, as it is meant for this boot.
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

    /// The same, written in `by`, within a sentence: `ordered by root (new disk)`; `None` for a whole-site operation.
    pub fn person(by: &str) -> Option<String> {
        let (who, why) = by.strip_prefix(PERSON)?.split_once(": ")?;
        Some(format!("ordered by {who} ({why})"))
    }

    /// Whether `by` names a person; the identity of a whole-site operation has no blank.
    pub fn is_person(by: &str) -> bool {
        by.starts_with(PERSON)
    }
}

impl DeviceOpPending {
    /// The operation, with the controller's counter where the controller has ordered it, or with the person who has.
    pub fn words(&self) -> String {
        let op = self.op.word();
        match (DeviceOrder::person(&self.site), self.counter) {
            (Some(ordered), _) => format!("{op} {ordered}"),
            (None, 0) => op.to_owned(),
            (None, counter) => format!("{op} {counter}"),
        }
    }
}

/// Under the root.
pub const WINDOW_PASS: &str = "run/zedbox/window-pass.json";

/// Written by `zedbox go --past window`, read by zedkube; under `/run`, because it is for one request of this boot.
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

/// What the preflight of the newest drain has found, all at once; there is no file before the first one of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainPreflight {
    /// Since when this is found.
    pub at: GoTime,
    /// What was found, what stops the drain first.
    pub findings: Vec<DrainFinding>,
    /// So many more were found than there is room for.
    pub left_out: u32,
}

/// Something that speaks against a drain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainFinding {
    /// What it is about, as `backups`; by this word it is passed.
    pub code: String,
    /// `blocks`, `warns` or `hint`.
    pub severity: String,
    /// What was found.
    pub text: String,
    /// What a person can do.
    pub next_step: String,
    /// Who has it pass and why, or empty.
    pub passed_by: String,
}

impl Topic for DrainPreflight {
    const NAME: &'static str = "DrainPreflight";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        self.left_out += most.list(&mut self.findings);
        for it in &mut self.findings {
            most.each([&mut it.text, &mut it.next_step, &mut it.passed_by]);
        }
    }
}

/// A person's order to pass findings; lost at a reboot.
pub const PASS_FILE: &str = "run/zedbox/drain-preflight-pass.json";

/// Findings that do not stop a drain in this boot, by a person's word.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PreflightPass {
    /// Codes of findings.
    pub codes: Vec<String>,
    /// Why.
    pub reason: String,
    /// Who, by name.
    pub by: String,
    /// When.
    pub at: GoTime,
}

impl PreflightPass {
    /// Errors: it is no JSON of this form, names no code, or gives no reason.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = go_json::from_slice(bytes).map_err(|error: Error| error.to_string())?;
        if read.codes.is_empty() || read.reason.trim().is_empty() {
            return Err("it needs Codes and a Reason".to_owned());
        }
        Ok(read)
    }
}
