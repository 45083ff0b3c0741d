//! Events, saved state and effects of the core.
//!
//! Pure: no clock, no I/O, no task.

use agent::partitions::{Label, PartitionState, Partitions};
use requester::{DeviceClustering, ProceedReason};
use step::LogMessage;
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
    /// Progress of a write.
    Writing {
        nth: u32,
        /// In percent of its source.
        percent: u8,
    },
    /// Result of a write.
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
    /// `NodeLeave`.
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
    /// [`Counters::current_retry`].
    CurrentRetry,
    /// [`Counters::config_retry`].
    ConfigRetry,
    /// [`Counters::fallback`].
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
