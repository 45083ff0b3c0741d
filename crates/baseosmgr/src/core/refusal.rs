//! What baseosmgr does where there are no partitions to be had: it refuses every image, and says so in its status.
//!
//! Nothing is written, no drain is requested and nothing restarts. `INSTALLED` is never said, not even of the version
//! that runs: nobody here has seen the machine boot it. Pure: no clock, no I/O, no task.

use agent::partitions::{Label, Partition, PartitionState, Partitions};
use topics::{BaseOsConfig, BaseOsStatus, ErrorSeverity, SwState};

use super::event::{Effect, RequiredTopic, SavedUpdates};
use super::machine::{BaseOs, NoPartitions};
use crate::Limits;

/// What helps where none are named, and where they cannot be read.
const RETRY_NAMED: &str = "a device config without this image, or baseosmgr started with --partitions";
const RETRY_READ: &str = "partitions that can be read; tried again every few seconds";

impl BaseOs {
    /// A core without partitions, that continues from what an earlier run left on disk. `unreadable` says why those
    /// that are named cannot be read: until they can, nothing is concluded, and what an earlier run asked for stays.
    pub fn refusing(limits: Limits, unreadable: Option<String>, found: SavedUpdates) -> Self {
        // Never looked at.
        let none = |label| Partition {
            label,
            device: String::new(),
            state: PartitionState::Unused,
            short_version: String::new(),
            long_version: String::new(),
            size_bytes: 0,
            content: String::new(),
        };
        let none = Partitions { current: Label::A, a: none(Label::A), b: none(Label::B) };
        Self { refuses: Some(NoPartitions { unreadable }), ..Self::new(limits, none, found) }
    }

    /// In place of all that needs partitions.
    pub(super) fn refuse(&mut self, NoPartitions { unreadable }: &NoPartitions, effects: &mut Vec<Effect>) {
        if self.said.manager.is_none() {
            effects.push(Effect::ZbootReady);
        }
        self.publish_manager(effects);
        if unreadable.is_none() {
            // It may be taking the machine down for an image that an earlier run switched to: then nodeagent says so,
            // and the node stays drained for that.
            self.withdraw(effects);
        }
        if ![RequiredTopic::Configs, RequiredTopic::Trees].iter().all(|it| self.facts.heard.contains(it)) {
            return;
        }
        self.unpublish_gone(effects);
        for (key, config) in self.facts.configs.clone() {
            let fetched = self.facts.trees.get(&config.content_tree_uuid).map(|tree| tree.state);
            let status = refused(config, fetched, unreadable.as_deref());
            let before = self.said.statuses.get(&key);
            // This boot has seen it run.
            let runs = before.is_some_and(|it| it.activated && it.base_os_version == status.base_os_version);
            if unreadable.is_none() || !runs {
                self.publish_status(key, status, effects);
            }
        }
    }
}

/// As the reference shows an image that it refuses: the state follows the content, no partition is named.
fn refused(config: BaseOsConfig, fetched: Option<SwState>, unreadable: Option<&str>) -> BaseOsStatus {
    let version = &config.base_os_version;
    let (error, retry) = match unreadable {
        None => (
            format!(
                "update to {version} refused: this device has no image partitions (--partitions none); nothing was \
                 written, and no drain or reboot follows"
            ),
            RETRY_NAMED,
        ),
        Some(why) => {
            (format!("update to {version} refused: the image partitions cannot be read: {why}"), RETRY_READ)
        }
    };
    BaseOsStatus {
        base_os_version: config.base_os_version,
        content_tree_uuid: config.content_tree_uuid,
        state: fetched.unwrap_or_else(|| SwState::from(0)),
        error,
        error_severity: ErrorSeverity::Error,
        error_retry_condition: retry.to_owned(),
        ..BaseOsStatus::default()
    }
}
