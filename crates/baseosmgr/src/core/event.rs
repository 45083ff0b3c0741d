//! What the core hears, what it starts from and what it asks for.
//!
//! Pure: no clock, no I/O, no task.

use agent::partitions::{Label, PartitionState, Partitions};
use requester::{DeviceClustering, ProceedReason};
use step::LogMessage;
use topics::{
    BaseOsConfig, BaseOsStatus, ContentTreeStatus, GoTime, ImageWrite, NodeDrainProgress, NodeDrainRequest,
    NodeDrainStatus, OperationPause, ZbootStatus,
};

/// A fact. Each carries the latest value, so that hearing one twice changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The image that is wanted under `key`, or that none is.
    Config {
        /// Key of the topic.
        key: String,
        /// `None` once it is unpublished.
        value: Option<BaseOsConfig>,
    },
    /// How far the content `key` has come, or that it is gone.
    Tree {
        /// The content tree's UUID.
        key: String,
        /// `None` once it is unpublished.
        value: Option<Box<ContentTreeStatus>>,
    },
    /// What zedkube publishes about the node; `None` when it publishes nothing.
    Drain(Option<NodeDrainStatus>),
    /// What our zedkube publishes beside it; a zedkube of the reference never does.
    Progress(Option<Box<NodeDrainProgress>>),
    /// Whether the node belongs to a cluster.
    Cluster(DeviceClustering),
    /// Whether this node, once its config says that it is in no cluster, has yet to leave one: zedkube's record of it.
    HasToLeave(bool),
    /// The force file, once it was found in order; `None` when there is none. Also counts as [`RequiredTopic::Force`].
    Forced(Option<NodeDrainStatus>),
    /// A person's pause on this node, or none. Also counts as [`RequiredTopic::Pause`].
    Pause(Option<OperationPause>),
    /// nodeagent's word on the test of partition `label`.
    TestComplete {
        label: Label,
        /// Whether its image passed.
        complete: bool,
    },
    /// How the boot before this one ended.
    LastBoot(LastBootReport),
    /// The controller's force fallback counter.
    FallbackCounter(u32),
    /// All that `0` had on disk at start was heard.
    Heard(RequiredTopic),
    /// Our request as it was published.
    Asked {
        /// Which one, see [`Effect::Ask`].
        nth: u32,
        request: NodeDrainRequest,
    },
    /// What became of an order to the partitions.
    Stored {
        order: PartitionChange,
        /// The reason when it failed.
        outcome: Result<(), String>,
    },
    /// How far a write is.
    Writing {
        nth: u32,
        /// In percent of its source.
        percent: u8,
    },
    /// What became of a write.
    Written {
        of: PartitionWrite,
        /// The version that is in the partition now, or the reason of a failure.
        outcome: Result<String, String>,
    },
    /// A write failed, or could not even begin.
    Refused {
        of: PartitionWrite,
        reason: String,
        /// The partitions as they are now.
        partitions: Box<Partitions>,
    },
    /// Answer to [`Effect::AskNodeagent`]: whether it is taking the machine down.
    GoingDown(bool),
    Tick,
}

/// A topic whose first full scan matters: before all of these were heard, nothing is decided.
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

/// How the boot before this one ended, as nodeagent reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LastBootReport {
    pub reason: String,
    /// When it went down.
    pub time: GoTime,
    /// Label of the partition that ran then.
    pub image: String,
}

/// What an earlier run left on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedUpdates {
    /// Our own request that is still open.
    pub request: Option<NodeDrainRequest>,
    /// Statuses that still stand, with their keys.
    pub statuses: Vec<(String, BaseOsStatus)>,
    pub counters: Counters,
}

/// Counters that outlive a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Retry counter that is reported: the last one that came to its end.
    pub current_retry: u32,
    /// Retry counter that was acted upon last.
    pub config_retry: u32,
    /// Force fallback counter that was acted upon last; `None` before the first one.
    pub fallback: Option<u32>,
    /// A fallback that was begun and maybe not counted yet.
    pub fallback_from: Option<FallbackFrom>,
}

/// Journal of a fallback: written before the switch, so that a power cut between switch and counter neither
/// loses the fallback nor does it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackFrom {
    /// The controller's counter that asked for it.
    pub counter: u32,
    /// The partition that ran then.
    pub from: Label,
}

/// Which counter is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// [`Counters::current_retry`].
    CurrentRetry,
    /// [`Counters::config_retry`].
    ConfigRetry,
    /// [`Counters::fallback`].
    Fallback,
}

/// A change to the partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionChange {
    /// A new state for the partition that does not run.
    Set { label: Label, state: PartitionState },
    /// The running image passed its test.
    MarkActive,
}

/// One image on its way to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionWrite {
    /// Counts the writes of this run, so that a late result cannot speak for a newer one.
    pub nth: u32,
    /// Key of the config that wants it.
    pub key: String,
    /// Content tree that it is written from.
    pub tree: String,
    pub label: Label,
    pub version: String,
    /// Name of the content, see `agent::partitions::Image::content`.
    pub content: String,
}

/// Something for the shell to do, in the order given.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Say(LogMessage),
    /// Say that an image is switched, and why it may be.
    Switch {
        /// What is switched.
        context: String,
        why: ProceedReason,
    },
    /// Publish `NodeDrainRequest` for UPDATE with the time of now, and tell it back as [`Event::Asked`].
    Ask {
        /// Counts the requests of this run, so that a late echo cannot speak for a newer one.
        nth: u32,
        /// What is to be switched.
        context: String,
    },
    /// Read whether nodeagent is taking the machine down, after all before this has been published; the answer
    /// comes as [`Event::GoingDown`].
    AskNodeagent,
    /// Unpublish `NodeDrainRequest`.
    Withdraw,
    /// Change the partitions, and tell the outcome back as [`Event::Stored`].
    Store(PartitionChange),
    /// Start to write an image in place of any write under way; the outcome comes as [`Event::Written`].
    Write {
        /// The write, which its outcome names.
        write: PartitionWrite,
        /// The content to write.
        tree: Box<ContentTreeStatus>,
    },
    /// Give up the write under way.
    StopWriting,
    Save(Counter, u32),
    /// Save or remove the journal of a fallback.
    Journal(Option<FallbackFrom>),
    /// Remove the force file, which was used.
    RemoveForce,
    /// Publish the status of a partition.
    Zboot(ZbootStatus),
    /// Tell that both partitions are published.
    ZbootReady,
    /// Publish the status of an image; a zero error time beside an error means now.
    Status {
        /// Key of the topic.
        key: String,
        status: Box<BaseOsStatus>,
    },
    /// Unpublish the status of an image.
    Unpublish {
        /// Key of the topic.
        key: String,
    },
    /// Publish how far the write under way is, or that there is none.
    Writing(Option<ImageWrite>),
    /// Publish the retry counter that came to its end last.
    Manager(u32),
}
