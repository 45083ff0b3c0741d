//! The latest values that the core has heard.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use agent::partitions::{Label, Partition, PartitionState, Partitions};
use requester::Hold;
use topics::{BaseOsConfig, ContentTreeStatus};

use super::event::{Counters, Event, LastBootReport, PartitionChange, PartitionWrite, RequiredTopic};

/// Levels, each as of the last event about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UpdateFacts {
    pub(super) heard: BTreeSet<RequiredTopic>,
    pub(super) configs: BTreeMap<String, BaseOsConfig>,
    pub(super) trees: BTreeMap<String, ContentTreeStatus>,
    pub(super) partitions: Partitions,
    pub(super) hold: Hold,
    pub(super) test_complete: BTreeMap<Label, bool>,
    pub(super) last_boot: LastBootReport,
    pub(super) fallback_counter: Option<u32>,
    pub(super) counters: Counters,
}

impl UpdateFacts {
    pub(super) fn new(partitions: Partitions, counters: Counters, hold: Hold) -> Self {
        Self {
            heard: BTreeSet::new(),
            configs: BTreeMap::new(),
            trees: BTreeMap::new(),
            partitions,
            hold,
            test_complete: BTreeMap::new(),
            last_boot: LastBootReport::default(),
            fallback_counter: None,
            counters,
        }
    }

    /// Takes what is a plain level; results of effects are the machine's.
    pub(super) fn hear(&mut self, event: Event) {
        match event {
            Event::Config { key, value } => put(&mut self.configs, key, value),
            Event::Tree { key, value } => put(&mut self.trees, key, value.map(|tree| *tree)),
            Event::Drain(status) => self.hold.heard.status(status),
            Event::Progress(progress) => self.hold.heard.progress(progress),
            Event::Cluster(membership) => self.hold.cluster = membership,
            Event::HasToLeave(it) => self.hold.has_to_leave = it,
            Event::Forced(forced) => {
                // A file is reported with its present state first, so one event is all of it.
                self.heard.insert(RequiredTopic::Force);
                self.hold.forced = forced;
            }
            Event::Pause(pause) => {
                self.heard.insert(RequiredTopic::Pause);
                self.hold.pause = pause;
            }
            Event::TestComplete { label, complete } => {
                self.test_complete.insert(label, complete);
            }
            Event::LastBoot(last) => self.last_boot = last,
            Event::FallbackCounter(counter) => self.fallback_counter = Some(counter),
            Event::Heard(source) => {
                if source == RequiredTopic::Drain {
                    self.hold.heard.read();
                }
                self.heard.insert(source);
            }
            Event::Asked { .. }
            | Event::Stored { .. }
            | Event::Writing { .. }
            | Event::Written { .. }
            | Event::Refused { .. }
            | Event::GoingDown(_)
            | Event::Tick => {}
        }
    }

    /// Whether all that was on disk at start has been heard.
    pub(super) fn all_heard(&self) -> bool {
        RequiredTopic::ALL.iter().all(|source| self.heard.contains(source))
    }

    pub(super) fn running(&self) -> &Partition {
        self.partitions.running()
    }

    pub(super) fn spare(&self) -> &Partition {
        self.partitions.spare()
    }

    fn partition_mut(&mut self, label: Label) -> &mut Partition {
        match label {
            Label::A => &mut self.partitions.a,
            Label::B => &mut self.partitions.b,
        }
    }

    /// An order was carried out.
    pub(super) fn stored(&mut self, order: PartitionChange) {
        let running = self.partitions.current;
        match order {
            PartitionChange::Set { label, state } => self.partition_mut(label).state = state,
            PartitionChange::MarkActive => {
                self.partition_mut(running).state = PartitionState::Active;
                self.partition_mut(running.other()).state = PartitionState::Unused;
            }
        }
    }

    /// A write begins: from here on the partition holds no image.
    pub(super) fn emptied(&mut self, label: Label) {
        let partition = self.partition_mut(label);
        partition.state = PartitionState::Unused;
        partition.short_version.clear();
        partition.content.clear();
    }

    /// A write has ended well.
    pub(super) fn written(&mut self, write: &PartitionWrite, version: String) {
        let partition = self.partition_mut(write.label);
        partition.short_version = version;
        partition.content.clone_from(&write.content);
    }

    /// The other partition is to be booted because of a fallback that was begun in this boot.
    pub(super) fn falling_back(&self) -> bool {
        let begun = self.counters.fallback_from.is_some_and(|begun| begun.from == self.partitions.current);
        begun && self.spare().state == PartitionState::Updating
    }

    /// The counter of a fallback that is due: the controller's counter differs from the one acted upon, the
    /// running image is good, and the other partition holds one to fall back to.
    pub(super) fn fallback_due(&self) -> Option<u32> {
        let asked = self.fallback_counter?;
        let acted = self.counters.fallback?;
        let (running, spare) = (self.running(), self.spare());
        let possible = running.state == PartitionState::Active
            && spare.state == PartitionState::Unused
            && !spare.short_version.is_empty();
        (asked != acted && possible).then_some(asked)
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, key: String, value: Option<T>) {
    match value {
        Some(value) => {
            map.insert(key, value);
        }
        None => {
            map.remove(&key);
        }
    }
}
