//! Events, saved state and effects of the core.
//!
//! Pure: no clock, no I/O, no task.
//!
//! The latest values that the core has heard.

use std::collections::BTreeSet;

use agent::partitions::{Label, Partition, PartitionState, Partitions};
use requester::{DeviceClustering, Hold, ProceedReason};
use step::{LiteMap, LogMessage};
use topics::{
    BaseOsConfig, BaseOsStatus, ContentTreeStatus, GoTime, ImageWrite, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, OperationPause, ZbootStatus,
};

/// Each carries the latest value, so that a repetition changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The image wanted under `key`, or none.
    Config {
        key: String,
        /// `None` once unpublished.
        value: Option<BaseOsConfig>,
    },
    /// State of the content `key`, or that it is gone.
    Tree {
        key: String,
        /// `None` once unpublished.
        value: Option<Box<ContentTreeStatus>>,
    },
    /// zedkube's status of the node; `None` without one.
    Drain(Option<NodeDrainStatus>),
    /// zedkube's progress; a zedkube of the reference has none.
    Progress(Option<Box<NodeDrainProgress>>),
    Cluster(DeviceClustering),
    /// Whether this node, once its config names no cluster, has yet to leave one: from zedkube's record.
    HasToLeave(bool),
    /// A valid force file; `None` without one. Also counts as [`RequiredTopic::Force`].
    Forced(Option<NodeDrainStatus>),
    /// A person's pause on this node, or none. Also counts as [`RequiredTopic::Pause`].
    Pause(Option<OperationPause>),
    /// nodeagent's verdict on the test of partition `label`.
    TestComplete {
        label: Label,
        complete: bool,
    },
    LastBoot(LastBootReport),
    FallbackCounter(u32),
    /// All files of this topic at the start were read.
    Heard(RequiredTopic),
    /// Our request as published.
    Asked {
        /// See [`Effect::Ask`].
        nth: u32,
        request: NodeDrainRequest,
    },
    /// Result of an order to the partitions.
    Stored {
        order: PartitionChange,
        outcome: Result<(), String>,
    },
    Writing {
        nth: u32,
        /// In percent of its source.
        percent: u8,
    },
    Written {
        of: PartitionWrite,
        /// The version now in the partition, or the error.
        outcome: Result<String, String>,
    },
    /// A write failed, or could not begin.
    Refused {
        of: PartitionWrite,
        reason: String,
        partitions: Box<Partitions>,
    },
    /// Answer to [`Effect::AskNodeagent`]: nodeagent is taking the machine down.
    GoingDown(bool),
    Tick,
}

/// Topics with a first full scan before which nothing is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredTopic {
    /// `BaseOsConfig`.
    Configs,
    /// `ContentTreeStatus`.
    Trees,
    /// `NodeDrainStatus` and `NodeDrainProgress`.
    Drain,
    /// `EdgeNodeClusterConfig`.
    Cluster,
    Leave,
    Force,
    /// A person's pause.
    Pause,
    /// `ZbootConfig`.
    Test,
    /// `NodeAgentStatus`.
    LastBoot,
    /// `ZedAgentStatus`.
    Fallback,
}

impl RequiredTopic {
    pub const ALL: [Self; 10] = [
        Self::Configs,
        Self::Trees,
        Self::Drain,
        Self::Cluster,
        Self::Leave,
        Self::Force,
        Self::Pause,
        Self::Test,
        Self::LastBoot,
        Self::Fallback,
    ];
}

/// As nodeagent reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LastBootReport {
    pub reason: String,
    pub time: GoTime,
    /// Label of its partition.
    pub image: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SavedUpdates {
    /// Our own open request.
    pub request: Option<NodeDrainRequest>,
    /// Published statuses by key.
    pub statuses: Vec<(String, BaseOsStatus)>,
    pub counters: Counters,
}

/// Counters that survive a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The last completed retry counter, as reported.
    pub current_retry: u32,
    /// The last handled retry counter.
    pub config_retry: u32,
    /// The last handled force fallback counter; `None` before the first one.
    pub fallback: Option<u32>,
    /// A fallback that was begun and may not be counted yet.
    pub fallback_from: Option<FallbackFrom>,
}

/// Journal of a fallback: written before the switch, so that a power cut between switch and counter neither
/// loses the fallback nor repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackFrom {
    /// The controller's counter for it.
    pub counter: u32,
    /// The partition of that boot.
    pub from: Label,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    CurrentRetry,
    ConfigRetry,
    Fallback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionChange {
    Set { label: Label, state: PartitionState },
    MarkActive,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionWrite {
    /// Number of the write in this run, so that a late result cannot count for a newer one.
    pub nth: u32,
    /// Key of its config.
    pub key: String,
    /// Its content tree.
    pub tree: String,
    pub label: Label,
    pub version: String,
    /// Name of the content, see `agent::partitions::Image::content`.
    pub content: String,
}

/// For the shell, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Say(LogMessage),
    /// Log a switch, and why it is released.
    Switch {
        context: String,
        why: ProceedReason,
    },
    /// Publish `NodeDrainRequest` for UPDATE with the present time; answered by [`Event::Asked`].
    Ask {
        /// Number of the request in this run, so that a late echo cannot count for a newer one.
        nth: u32,
        context: String,
    },
    /// Read whether nodeagent is taking the machine down, after all earlier effects have been published;
    /// answered by [`Event::GoingDown`].
    AskNodeagent,
    Withdraw,
    /// Answered by [`Event::Stored`].
    Store(PartitionChange),
    /// Start to write an image, in place of a write under way; answered by [`Event::Written`].
    Write {
        write: PartitionWrite,
        tree: Box<ContentTreeStatus>,
    },
    StopWriting,
    Save(Counter, u32),
    /// Save or remove the journal of a fallback.
    Journal(Option<FallbackFrom>),
    /// The force file was used: remove it.
    RemoveForce,
    Zboot(ZbootStatus),
    /// Both partitions are published.
    ZbootReady,
    /// Publish the status of an image; a zero error time beside an error means now.
    Status {
        key: String,
        status: Box<BaseOsStatus>,
    },
    /// Unpublish the status of an image.
    Unpublish {
        key: String,
    },
    /// Publish the progress of the write under way, or that there is none.
    Writing(Option<ImageWrite>),
    /// Publish the last completed retry counter.
    Manager(u32),
}

/// Levels, each as of the last event about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UpdateFacts {
    pub(super) heard: BTreeSet<RequiredTopic>,
    pub(super) configs: LiteMap<String, BaseOsConfig>,
    pub(super) trees: LiteMap<String, ContentTreeStatus>,
    pub(super) partitions: Partitions,
    pub(super) hold: Hold,
    pub(super) test_complete: LiteMap<Label, bool>,
    pub(super) last_boot: LastBootReport,
    pub(super) fallback_counter: Option<u32>,
    pub(super) counters: Counters,
}

impl UpdateFacts {
    pub(super) fn new(partitions: Partitions, counters: Counters, hold: Hold) -> Self {
        Self {
            heard: BTreeSet::new(),
            configs: LiteMap::new(),
            trees: LiteMap::new(),
            partitions,
            hold,
            test_complete: LiteMap::new(),
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

fn put<T>(map: &mut LiteMap<String, T>, key: String, value: Option<T>) {
    match value {
        Some(value) => {
            map.insert(key, value);
        }
        None => {
            map.remove(&key);
        }
    }
}
