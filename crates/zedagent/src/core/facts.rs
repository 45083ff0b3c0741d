//! The facts and effects of zedagent's core. Pure: no clock, no I/O, no task.

use step::{LiteMap, LogMessage};
use topics::{
    ConfigGetStatus, DeviceOp, DeviceOpPending, DeviceOpsCmd, GoTime, NodeAgentStatus, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, OperationPause, ZedAgentStatus,
};

/// What the device config says of the machine itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredDevice {
    /// Commands by operation; one that is absent here is absent in the config.
    pub commands: LiteMap<DeviceOp, DeviceOpsCmd>,
    /// Operations with an invalid section: neither wanted nor withdrawn.
    pub unclear: Vec<DeviceOp>,
    /// Whether this node belongs to a cluster.
    pub clustered: bool,
    pub maintenance: bool,
    /// `force.fallback.counter`.
    pub force_fallback_counter: u32,
    /// How the config was come by.
    pub config_get_status: ConfigGetStatus,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the config wants.
    Config(DesiredDevice),
    /// There is no config to be had, not even an old one.
    NoConfig,
    /// NodeDrainStatus, or that there is none.
    Drain(Option<NodeDrainStatus>),
    /// NodeDrainProgress, or that there is none. Before the first of these it is not known whether zedkube gives one.
    Progress(Option<Box<NodeDrainProgress>>),
    /// Whether this node, once its config says that it is in no cluster, has yet to leave one: zedkube's record of it,
    /// or that there is none.
    HasToLeave(bool),
    Nodeagent(Box<NodeAgentStatus>),
    /// The force file: what it orders, or that there is none that counts.
    Forced(Option<NodeDrainStatus>),
    /// What a whole-site operation orders or has carried out, or neither.
    Site(Option<SiteOrder>),
    /// What a person at this node wants in this boot, and who that is and why; or nothing.
    Person(Option<(DeviceOp, String)>),
    /// A person's pause on this node, or none.
    Pause(Option<OperationPause>),
    /// Whether an image waits in the other partition.
    ImageWaits(bool),
    /// When the monotonic clock started, by the wall clock as it is now.
    Wall(GoTime),
    Tick,
}

/// A machine that goes down in a whole-site operation, in one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOrder {
    pub id: String,
    /// What is done with the machine.
    pub op: DeviceOp,
    /// The boot in which that holds.
    pub boot_id: String,
    /// It goes down now.
    pub go: bool,
    /// It went down before this boot.
    pub back: bool,
}

/// Something for the shell to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Keep how far an operation is.
    Journal(DeviceOpPending),
    /// An operation is no longer pending.
    Forget(DeviceOp),
    /// Keep the counter that was carried out last.
    SaveCounter(DeviceOp, DeviceOpsCmd),
    /// No counter counts any more.
    DropCounter(DeviceOp),
    /// Ask for a drain.
    Request(NodeDrainRequest),
    /// Take the request back.
    Withdraw,
    Publish(Box<ZedAgentStatus>),
    /// The order in the force file was carried out: remove it.
    UseForce,
    /// Write to the log.
    Say(LogMessage),
}

/// What an earlier run left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedDeviceOps {
    /// Counters that were carried out last.
    pub counters: LiteMap<DeviceOp, DeviceOpsCmd>,
    /// Operations that were pending.
    pub pending: Vec<DeviceOpPending>,
    /// Of these an older copy was read: they may have been commanded since, and carried out.
    pub older: Vec<DeviceOp>,
    /// The request that is still open.
    pub request: Option<NodeDrainRequest>,
    /// Whether nodeagent was commanded in this boot to take the machine down.
    pub told: bool,
    /// A person's pause on this node.
    pub pause: Option<OperationPause>,
    pub boot_id: String,
}
