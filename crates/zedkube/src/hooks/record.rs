//! Which hooks were called, on disk.

use agent::device::hooks::About;
use agent::report;
use pubsub::{TopicRoot, store};
use serde::{Deserialize, Serialize};
use topics::cut_text;

/// Under the root. It outlives a boot, of which the hooks after it learn what it was for.
const PATH: &str = "persist/status/zedkube/hooks.json";
const LIMIT_BYTES: u64 = 64 << 10;
/// Notes that are kept, the newest, and the longest one.
const NOTES: usize = 8;
const NOTE_BYTES: usize = 400;
/// Longest text of a request.
const TEXT_BYTES: usize = 400;

/// What is known of the hooks before a drain, and of those after a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct HookRecord {
    /// The boot in which those before a drain were called.
    #[serde(rename = "BootID")]
    boot_id: String,
    operation: String,
    node: String,
    request: String,
    reason: String,
    /// How often they were begun.
    attempt: u32,
    pub(super) called: Vec<Called>,
    /// None is left to be called.
    pub(super) complete: bool,
    /// The boot after which those after a boot were called.
    pub(super) after_boot: String,
    /// What a reader has to know.
    pub(super) notes: Vec<String>,
}

/// A hook that was called.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Called {
    pub(super) name: String,
    /// It has ended well, or its failure stops nothing.
    done: bool,
}

impl HookRecord {
    /// The one that was called last, and that counts as called no longer: its undo may be cut off.
    pub(super) fn undoes_last(&mut self) -> Option<String> {
        let last = self.called.last_mut()?;
        last.done = false;
        Some(last.name.clone())
    }

    /// What was kept; nothing where there is no file.
    pub(super) fn read(topic_root: &TopicRoot) -> Result<Self, String> {
        let wrong = |why: String| format!("the record of hooks /{PATH} cannot be read: {why}; remove it");
        match store::read(&topic_root.path(PATH), LIMIT_BYTES) {
            Ok(None) => Ok(Self::default()),
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|cause| wrong(cause.to_string())),
            Err(cause) => Err(wrong(report::chain(&cause))),
        }
    }

    pub(super) fn write(&self, topic_root: &TopicRoot) -> Result<(), String> {
        let wrong = |why: String| format!("the record of hooks /{PATH} cannot be written: {why}");
        let bytes = serde_json::to_vec(self).map_err(|cause| wrong(cause.to_string()))?;
        store::replace(&topic_root.path(PATH), &bytes).map_err(|cause| wrong(report::chain(&cause)))
    }

    pub(super) fn is_of(&self, boot_id: &str) -> bool {
        self.boot_id == boot_id
    }

    /// They are begun, for the first time in this boot or once more.
    pub(super) fn begin(&mut self, boot_id: &str, about: About) {
        if !self.is_of(boot_id) || self.called.is_empty() {
            let after_boot = std::mem::take(&mut self.after_boot);
            *self = Self { boot_id: boot_id.to_owned(), after_boot, ..Self::default() };
        }
        let cut = |text: String| cut_text(&text, TEXT_BYTES);
        (self.operation, self.node) = (cut(about.operation), about.node);
        (self.request, self.reason) = (about.request, cut(about.reason));
        self.attempt += 1;
    }

    pub(super) fn about(&self) -> About {
        About {
            operation: self.operation.clone(),
            node: self.node.clone(),
            request: self.request.clone(),
            reason: self.reason.clone(),
            attempt: self.attempt,
            boot_id: self.boot_id.clone(),
        }
    }

    pub(super) fn has_done(&self, name: &str) -> bool {
        self.called.iter().any(|it| it.name == name && it.done)
    }

    pub(super) fn calls(&mut self, name: &str) {
        if !self.called.iter().any(|it| it.name == name) {
            self.called.push(Called { name: name.to_owned(), done: false });
        }
    }

    pub(super) fn done(&mut self, name: &str) {
        for it in self.called.iter_mut().filter(|it| it.name == name) {
            it.done = true;
        }
    }

    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(cut_text(note, NOTE_BYTES));
        let over = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..over);
    }
}
