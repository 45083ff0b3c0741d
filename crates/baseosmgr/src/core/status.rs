//! What is published: partitions, images, the retry counter.
//!
//! Source of the members and states: lf-edge/eve pkg/pillar/types. Pure: no clock, no I/O, no task.

use agent::partitions::{Label, Partition, PartitionState};
use topics::{
    BaseOsConfig, BaseOsStatus, ErrorEntity, ErrorEntityType, ErrorSeverity, GoTime, ImageWrite, SwState,
    ZbootStatus, number,
};

use super::event::{Effect, PartitionChange};
use super::machine::BaseOs;
use super::stage::ImageStage;

/// Context, reason and what helps, see [`BaseOs::held`].
type HoldReason = (String, String, &'static str);

/// What is wrong with an image, for a person.
struct ImageFault {
    text: String,
    severity: ErrorSeverity,
    /// What makes it continue.
    retry: String,
    time: GoTime,
}

impl ImageFault {
    fn error(text: impl Into<String>, retry: impl Into<String>) -> Self {
        Self { text: text.into(), severity: ErrorSeverity::Error, retry: retry.into(), time: GoTime::ZERO }
    }

    fn warning(text: impl Into<String>, retry: impl Into<String>) -> Self {
        Self { severity: ErrorSeverity::Warning, ..Self::error(text, retry) }
    }
}

impl BaseOs {
    /// Publishes what differs from what was published last. Partitions come first: nodeagent acts on them.
    pub(super) fn publish_changes(&mut self, effects: &mut Vec<Effect>) {
        let first = self.said.zboot.is_empty();
        for label in Label::BOTH {
            // nodeagent restarts at the word `updating`: it is not said of a partition that is being changed back.
            let changing =
                matches!(self.ordered, Some(PartitionChange::Set { label: of, .. }) if of == label);
            if changing && !first {
                continue;
            }
            let status = self.zboot_status(label);
            if self.said.zboot.get(&label) != Some(&status) {
                self.said.zboot.insert(label, status.clone());
                effects.push(Effect::Zboot(status));
            }
        }
        if first {
            effects.push(Effect::ZbootReady);
        }
        self.publish_manager(effects);
        let write = self.writing.as_ref().map(|write| ImageWrite {
            base_os_version: write.version.clone(),
            content_tree_uuid: write.tree.clone(),
            partition_label: write.label.to_string(),
            percent: self.percent,
        });
        if step::update(&mut self.said.write, write.clone()) {
            effects.push(Effect::Writing(write));
        }
        if !self.facts.all_heard() {
            return;
        }
        let held = self.held();
        let statuses: Vec<_> = self
            .facts
            .stages()
            .into_iter()
            .map(|(key, config, stage)| (key.clone(), self.image_status(key, config, &stage, held.as_ref())))
            .collect();
        for (key, status) in statuses {
            self.publish_status(key, status, effects);
        }
    }

    pub(super) fn publish_manager(&mut self, effects: &mut Vec<Effect>) {
        let retry = self.facts.counters.current_retry;
        if self.said.manager.replace(retry) != Some(retry) {
            effects.push(Effect::Manager(retry));
        }
    }

    pub(super) fn publish_status(&mut self, key: String, status: BaseOsStatus, effects: &mut Vec<Effect>) {
        if self.said.statuses.get(&key) != Some(&status) {
            self.said.statuses.insert(key.clone(), status.clone());
            effects.push(Effect::Status { key, status: Box::new(status) });
        }
    }

    /// Statuses of images that are not wanted any more.
    pub(super) fn unpublish_gone(&mut self, effects: &mut Vec<Effect>) {
        self.said.statuses.retain(|key, _| {
            let is_wanted = self.facts.configs.contains_key(key);
            effects.extend((!is_wanted).then(|| Effect::Unpublish { key: key.clone() }));
            is_wanted
        });
    }

    fn zboot_status(&self, label: Label) -> ZbootStatus {
        let partition = self.facts.partitions.get(label);
        let current = self.facts.partitions.current == label;
        // A level: the test is complete as long as nodeagent says so and the image is marked. A crash between
        // the mark and this status changes nothing.
        let told = self.facts.test_complete.get(&label).is_some_and(|complete| *complete);
        ZbootStatus {
            partition_label: label.to_string(),
            partition_devname: partition.device.clone(),
            partition_state: partition.state.to_string(),
            short_version: partition.short_version.clone(),
            long_version: partition.long_version.clone(),
            current_partition: current,
            test_complete: current && told && partition.state == PartitionState::Active,
        }
    }

    fn image_status(
        &self,
        key: &str,
        config: &BaseOsConfig,
        stage: &ImageStage,
        held: Option<&HoldReason>,
    ) -> BaseOsStatus {
        let tree = self.facts.trees.get(&config.content_tree_uuid);
        let fetched = tree.map_or(SwState::from(0), |tree| tree.state);
        let (running, spare) = (self.facts.running(), self.facts.spare());
        let in_spare = config.base_os_version == spare.short_version && !spare.short_version.is_empty();
        let (progress, partition): (SwState, Option<&Partition>) = match stage {
            ImageStage::Running => (SwState::Installed, Some(running)),
            ImageStage::Switched => (SwState::Installed, Some(spare)),
            ImageStage::FailedBefore { .. } => (SwState::Downloaded, Some(spare)),
            ImageStage::ToWrite | ImageStage::Written | ImageStage::Mismatch { .. } => {
                (SwState::Loaded, Some(spare))
            }
            ImageStage::Invalid(_)
            | ImageStage::Broken
            | ImageStage::Kept
            | ImageStage::WrongKind
            | ImageStage::Awaiting
            | ImageStage::Idle
            | ImageStage::TooEarly
            | ImageStage::Behind
            | ImageStage::Rival => (fetched, in_spare.then_some(spare)),
        };
        let mut status = BaseOsStatus {
            base_os_version: config.base_os_version.clone(),
            activated: *stage == ImageStage::Running,
            too_early: matches!(stage, ImageStage::TooEarly | ImageStage::Behind),
            content_tree_uuid: config.content_tree_uuid.clone(),
            state: progress,
            ..BaseOsStatus::default()
        };
        if let Some(partition) = partition {
            status.partition_label = partition.label.to_string();
            status.partition_device.clone_from(&partition.device);
            status.partition_state = partition.state.to_string();
        }
        if let (ImageStage::Broken, Some(tree)) = (stage, tree) {
            status.error.clone_from(&tree.error);
            status.error_time = tree.error_time;
            status.error_severity = tree.error_severity;
            status.error_retry_condition.clone_from(&tree.error_retry_condition);
            status.error_entities = Some(vec![ErrorEntity {
                entity_type: ErrorEntityType::ContentTree,
                entity_id: config.content_tree_uuid.clone(),
            }]);
        } else if let Some(fault) = self.fault_at(key, stage, held).or_else(|| self.fault_of(config, stage)) {
            status.error = fault.text;
            status.error_time = fault.time;
            status.error_severity = fault.severity;
            status.error_retry_condition = fault.retry;
        }
        status
    }

    /// What the stage itself says is wrong.
    fn fault_of(&self, config: &BaseOsConfig, stage: &ImageStage) -> Option<ImageFault> {
        let version = &config.base_os_version;
        let spare = self.facts.spare().label;
        match stage {
            ImageStage::Invalid(why) => {
                Some(ImageFault::error(format!("BaseOsConfig is of no use: {why}"), "a config that does"))
            }
            ImageStage::WrongKind => Some(ImageFault::error(
                format!(
                    "{version} and the running {} differ in EVE-k; that update is not supported",
                    self.facts.running().short_version
                ),
                "an image of the same kind",
            )),
            ImageStage::FailedBefore { .. } => Some(self.failed_before(version)),
            ImageStage::Mismatch { found } => Some(ImageFault::error(
                format!("the image in {spare} says that it is {found}, not {version}"),
                "a config with the image's own version, or the right content",
            )),
            ImageStage::Rival => Some(ImageFault::warning(
                "several images are to be activated at once; none is touched",
                "a config that activates one image",
            )),
            ImageStage::Broken
            | ImageStage::Running
            | ImageStage::Switched
            | ImageStage::Kept
            | ImageStage::Awaiting
            | ImageStage::Idle
            | ImageStage::TooEarly
            | ImageStage::Behind
            | ImageStage::ToWrite
            | ImageStage::Written => None,
        }
    }

    fn failed_before(&self, version: &str) -> ImageFault {
        let last = &self.facts.last_boot;
        let retry = "another retryUpdate counter, or another image";
        // The last boot says about the failed try only if that image was the one that went down.
        if last.reason.is_empty() || last.image == self.facts.running().label.word() {
            return ImageFault::error(
                format!("{version} was booted before and did not pass its test"),
                retry,
            );
        }
        ImageFault { time: last.time, ..ImageFault::error(last.reason.clone(), retry) }
    }

    /// What went wrong with the next step of the image.
    fn fault_at(&self, key: &str, stage: &ImageStage, held: Option<&HoldReason>) -> Option<ImageFault> {
        let again = |secs: u64| format!("tried again {secs} s after the error");
        // A mark that failed is the running image's, any other order the waiting one's (D-B4).
        let concerned = |order: PartitionChange| match order {
            PartitionChange::MarkActive => *stage == ImageStage::Running,
            PartitionChange::Set { .. } => {
                matches!(stage, ImageStage::Written | ImageStage::FailedBefore { .. })
            }
        };
        if let Some(trouble) = self.order_trouble.as_ref().filter(|trouble| concerned(trouble.of)) {
            return Some(ImageFault::error(trouble.reason.clone(), again(trouble.wait_secs)));
        }
        if *stage == ImageStage::ToWrite
            && let Some(trouble) = self.write_trouble.as_ref().filter(|it| it.of.0.starts_with(key))
        {
            return Some(ImageFault::error(trouble.reason.clone(), again(trouble.wait_secs)));
        }
        if let Some(trouble) = self.facts.hold.failure.as_ref().filter(|trouble| trouble.of == key) {
            return Some(ImageFault::warning(
                format!(
                    "{} of this node failed, last: {}; see /run/zedkube/NodeDrainProgress/global.json for what \
                     blocks it",
                    number(trouble.failures, "drain"),
                    trouble.reason
                ),
                format!("asked for again {} s after the error", trouble.wait_secs),
            ));
        }
        let (_, text, retry) = held.filter(|(context, _, _)| context == key)?;
        Some(ImageFault::warning(text, *retry))
    }
}
