//! The stage of one wanted image.
//!
//! The first match wins, with one order instead of two: the image is written first and the node drained
//! second. The node then serves while the image is copied, a failed write costs no drain, and the partition
//! that is written is not in use. Pure: no clock, no I/O, no task.

use agent::partitions::PartitionState;
use topics::{BaseOsConfig, ContentTreeStatus, SwState};

use super::event::UpdateFacts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageStage {
    /// The config lacks a content or a version.
    Invalid(&'static str),
    /// volumemgr reports an error about the content.
    Broken,
    Running,
    /// The other partition holds it and is booted next.
    Switched,
    /// The other partition holds it, but no switch is wanted.
    Kept,
    /// Another kind of hypervisor than the running one.
    WrongKind,
    /// Its try failed. `retry`: the controller's counter, when that requests another try.
    FailedBefore {
        retry: Option<u32>,
    },
    Awaiting,
    /// The content is here, but no switch is wanted.
    Idle,
    /// The running image is still in test, and the other partition is its fallback.
    TooEarly,
    /// The other partition is about to boot another image.
    Behind,
    /// Ready to be written to the other partition.
    ToWrite,
    /// The written image has another version.
    Mismatch {
        found: String,
    },
    /// Whole in the other partition, waiting for the drain.
    Written,
    /// Several images are wanted at once; none is touched.
    Rival,
}

pub(super) fn content_name(tree: &ContentTreeStatus, uuid: &str) -> String {
    format!("{uuid}#{}", tree.generation_counter)
}

pub(super) fn same_bytes(one: &ContentTreeStatus, other: &ContentTreeStatus) -> bool {
    let of = |it: &ContentTreeStatus| (it.state, it.generation_counter);
    of(one) == of(other)
        && (&one.file_location, &one.content_sha256, &one.blobs)
            == (&other.file_location, &other.content_sha256, &other.blobs)
}

impl UpdateFacts {
    /// The stage of every wanted image, and the one to act on: the only active one that does not run yet.
    pub(super) fn stages(&self) -> Vec<(&String, &BaseOsConfig, ImageStage)> {
        let mut stages: Vec<_> =
            self.configs.iter().map(|(key, config)| (key, config, self.stage(config))).collect();
        if stages.iter().filter(|(_, config, stage)| config.activate && contends(stage)).count() > 1 {
            for (_, config, stage) in &mut stages {
                if config.activate && contends(stage) && *stage != ImageStage::Switched {
                    *stage = ImageStage::Rival;
                }
            }
        }
        stages
    }

    fn stage(&self, config: &BaseOsConfig) -> ImageStage {
        let (running, spare) = (self.running(), self.spare());
        let version = &config.base_os_version;
        let tree = self.trees.get(&config.content_tree_uuid);
        if config.content_tree_uuid.is_empty() {
            return ImageStage::Invalid("it names no content tree");
        }
        if version.is_empty() {
            return ImageStage::Invalid("it names no version");
        }
        if tree.is_some_and(|tree| !tree.error.is_empty()) {
            return ImageStage::Broken;
        }
        if *version == running.short_version {
            return ImageStage::Running;
        }
        let in_spare = *version == spare.short_version;
        if in_spare && spare.state == PartitionState::Updating {
            return ImageStage::Switched;
        }
        if in_spare && !config.activate {
            return ImageStage::Kept;
        }
        if kinds_differ(version, &running.short_version) {
            return ImageStage::WrongKind;
        }
        if in_spare && spare.state == PartitionState::Inprogress {
            let counter = config.retry_update_counter;
            let again = running.state == PartitionState::Active && counter != self.counters.config_retry;
            return ImageStage::FailedBefore { retry: again.then_some(counter) };
        }
        let written = spare.state == PartitionState::Unused && self.holds(config, tree);
        // Once the image is whole in its partition, the content is not needed.
        if !written && tree.is_none_or(|tree| tree.state != SwState::Loaded) {
            return ImageStage::Awaiting;
        }
        if !config.activate {
            return ImageStage::Idle;
        }
        if running.state == PartitionState::Inprogress || spare.state == PartitionState::Active {
            return ImageStage::TooEarly;
        }
        if written {
            let found = spare.short_version.clone();
            return if in_spare { ImageStage::Written } else { ImageStage::Mismatch { found } };
        }
        if spare.state == PartitionState::Updating && !self.holds(config, tree) {
            return ImageStage::Behind;
        }
        // Whether it fits shows when it is opened: only the root of the download counts.
        ImageStage::ToWrite
    }

    /// Whether the other partition was written from the content of `config`.
    pub(super) fn holds(&self, config: &BaseOsConfig, tree: Option<&ContentTreeStatus>) -> bool {
        let (uuid, held) = (&config.content_tree_uuid, &self.spare().content);
        match tree {
            Some(tree) => *held == content_name(tree, uuid),
            None => held.strip_prefix(uuid.as_str()).is_some_and(|rest| rest.starts_with('#')),
        }
    }
}

/// Whether an image at this stage wants the other partition.
fn contends(stage: &ImageStage) -> bool {
    matches!(
        stage,
        ImageStage::Switched
            | ImageStage::FailedBefore { .. }
            | ImageStage::Awaiting
            | ImageStage::TooEarly
            | ImageStage::Behind
            | ImageStage::ToWrite
            | ImageStage::Written
            | ImageStage::Rival
    )
}

/// Kinds come from versions of the form `<version>-<hypervisor>-<architecture>`; EVE-k is `k`. Unreadable
/// ones do not differ.
fn kinds_differ(one: &str, other: &str) -> bool {
    match (is_kube(one), is_kube(other)) {
        (Some(one), Some(other)) => one != other,
        (None, _) | (_, None) => false,
    }
}

fn is_kube(version: &str) -> Option<bool> {
    let mut parts = version.rsplit('-');
    let (_architecture, hypervisor, _number) = (parts.next()?, parts.next()?, parts.next()?);
    Some(hypervisor == "k")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eve_k_is_told_from_others_by_its_version() {
        assert_eq!(is_kube("14.5.0-k-amd64"), Some(true));
        assert_eq!(is_kube("0.0.0-master-1234-kvm-arm64"), Some(false));
        assert_eq!(is_kube("14.5.0"), None);
        assert!(kinds_differ("14.5.0-k-amd64", "14.4.0-kvm-amd64"));
        assert!(!kinds_differ("14.5.0-k-amd64", "dev"));
    }
}
