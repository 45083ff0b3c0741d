//! Output of `zedbox verify -o json`. It is no topic.
//!
//! Members are added, never renamed. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::GoTime;

/// How well something is, the worst last.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum VerifyResult {
    /// It was not looked at: it is not here.
    #[default]
    Skipped,
    /// All is well.
    Pass,
    /// It works, and a person should look.
    Warn,
    /// It could not be looked at.
    Unknown,
    /// It does not work.
    Fail,
}

impl VerifyResult {
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        }
    }
}

/// Everything that was looked at, from the bottom up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VerifyReport {
    /// The worst result of a layer.
    pub result: VerifyResult,
    /// When the look began.
    pub at: GoTime,
    /// Name of the node that was looked at from inside; empty on another machine.
    pub node: String,
    /// Each layer, lowest first.
    pub layers: Vec<VerifyLayer>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VerifyLayer {
    /// Which one, as `storage`.
    pub layer: String,
    /// The worst of its findings.
    pub result: VerifyResult,
    /// What was read, as `3 nodes`; or why nothing was.
    pub read: String,
    /// What is not well, or could not be read, the worst first.
    pub findings: Vec<VerifyFinding>,
}

/// Something that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VerifyFinding {
    /// How bad it is.
    pub result: VerifyResult,
    /// What was found, a sentence.
    pub text: String,
    /// What a person can do.
    pub next_step: String,
}
