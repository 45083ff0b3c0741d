//! What the rules of k3s updates hear and say. Pure: no clock, no I/O, no task.

use requester::{DeviceClustering, DrainTopicUpdate};
use step::LogMessage;
use topics::{GoTime, K3sUpdate, NodeDrainRequest, NodeDrainStatus, OperationPause};

use super::config::{DesiredK3s, Override};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// What the device config wants.
    Wanted(DesiredK3s),
    /// Something that the drain half of this agent has said.
    Drain(DrainTopicUpdate),
    /// Whether this node is in a cluster, and whether it has yet to leave one.
    Member(DeviceClustering, bool),
    /// The force file, if it counts.
    Forced(Option<NodeDrainStatus>),
    /// A person's pause on this node, or none.
    Pause(Option<OperationPause>),
    /// Answer to [`Effect::ReadFile`]: the override file, empty where there is none; `None` while the vault is shut.
    File(Option<Override>),
    /// Answer to [`Effect::Look`] of this number: the version that the kubelet of this node reports, or why that is not
    /// known.
    Reported(u64, Result<String, String>),
    /// The gate, watched as [`Effect::Gate`] says: why it is shut, or nothing when it is open.
    Gate(Option<String>),
    /// When the monotonic clock started, by the wall clock as it is now.
    Wall(GoTime),
    Tick,
}

/// Something for the shell to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// Keep how far the update is, and tell the drain half.
    Journal(Box<K3sUpdate>),
    Forget,
    /// Ask for the turn and the drain of this node.
    Request(NodeDrainRequest),
    /// Take the request back.
    Withdraw,
    /// Publish this version for the kube container.
    Version(String),
    /// Publish whether virtual machines are moved back when this node has started.
    OnBoot(bool),
    /// Put this into the override file; an empty one is removed.
    File(Override),
    /// Read the override file.
    ReadFile,
    /// Read what the kubelet reports.
    Look(u64),
    /// Watch over the gate, or do so no longer.
    Gate(bool),
    /// Write to the log.
    Say(LogMessage),
}
