//! The annotation by which a cordon is known as ours: written by a drain, read by it and by the rule of turns.
//!
//! Not here: whose cordon a node has (`kubenodeop::node`). Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

/// What our annotation says about the one who cordoned; its text is this as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CordonAnnotation {
    /// The boot in which the cordon was made.
    pub boot_id: String,
    /// The number of the requester.
    pub requested_by: u8,
    /// When it was requested, RFC 3339.
    pub requested_at: String,
    /// Number of the turn in which it was made; 0 where nodes take no turns.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fence: u32,
    /// UID of the Lease of that turn; empty likewise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lease_uid: String,
    /// The whole-site operation that it was made for; empty where a request was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
}

impl CordonAnnotation {
    /// What the annotation of a Node says; `None` for a text that none of ours is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// What it was made for, in words.
    #[must_use]
    pub fn purpose(&self) -> &'static str {
        match self.requested_by {
            _ if !self.site.is_empty() => "an operation on the whole site",
            2 => "a reboot or shutdown",
            3 => "an OS update",
            4 => "the work of a person",
            5 => "an update of k3s",
            _ => "a requester that this version does not know",
        }
    }

    /// Its text, to be written at a Node.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(fence: &u32) -> bool {
    *fence == 0
}
