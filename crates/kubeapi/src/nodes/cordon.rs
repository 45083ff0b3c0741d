//! The annotation that marks a cordon as ours: written by a drain, read by it and by the turn rule.
//!
//! Not here: who owns a node's cordon (`kubenodeop::node`). Pure: no clock, no I/O, no task.

use serde::{Deserialize, Serialize};

/// The owner of our cordon; the annotation is this as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CordonAnnotation {
    pub boot_id: String,
    pub requested_by: u8,
    /// When it was requested, RFC 3339.
    pub requested_at: String,
    /// Number of its turn; 0 where nodes take no turns.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fence: u32,
    /// UID of that turn's Lease; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lease_uid: String,
    /// The whole-site operation; empty for a request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
}

impl CordonAnnotation {
    /// `None` for a text that is not ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

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

    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(fence: &u32) -> bool {
    *fence == 0
}
