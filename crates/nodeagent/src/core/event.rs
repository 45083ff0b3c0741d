//! The events of the core, what it starts from and what it asks for.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::device::MachineOperation;
use serde::{Deserialize, Serialize};
use step::LogMessage;
use topics::{
    Answer, BootReason, ConfigGetStatus, NodeAgentStatus, NodeDrainStatus, OutageAnswer, OutageQuestion,
    ZbootConfig, ZbootStatus,
};

use super::{LastBoot, MachineOrder, Vault};

/// A fact. Each carries the latest value, so that hearing one twice changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What zedkube publishes about the node.
    Drain(NodeDrainStatus),
    /// What zedagent wants of the device and knows of the controller.
    Wish(DeviceCommand),
    /// What baseosmgr publishes about a partition.
    Partition(ZbootStatus),
    /// Whether the application `key` still runs.
    Application {
        /// UUID of the application.
        key: String,
        /// Whether it is not halted yet.
        active: bool,
    },
    /// What vaultmgr says about the vault of the applications.
    Vault(Vault),
    /// Whether tpmmgr says that the TPM does not encrypt.
    Tpm {
        fails: bool,
    },
    /// Bytes that volumemgr has left; `None` while it says nothing.
    Space(Option<u64>),
    /// The controller's limits.
    Waits(Waits),
    /// While [`Effect::LastSync`]: hooks are called before it; why the last try failed, or empty.
    Hooking(String),
    /// The hooks were called; nothing is on the disks yet.
    Hooked,
    /// Answer to [`Effect::LastSync`]: everything is on the disks, or cannot be brought there.
    Synced,
    /// Answer to [`Effect::Check`].
    Checked {
        /// What zedkube says right now; `None` where what was heard last has to do.
        status: Option<NodeDrainStatus>,
        /// What it has answered to whom; empty beside a zedkube that gives no answers.
        answers: Vec<Answer>,
        /// What the force file orders, where there is one that counts.
        forced: Option<NodeDrainStatus>,
        /// It is a zedkube that answers questions.
        ours: bool,
    },
    /// What zedkube has answered last, to this question or another one.
    Answer(OutageAnswer),
    /// All that `0` had on disk at start was heard.
    Heard(RequiredReading),
    /// What came of [`Effect::Operate`].
    Operated {
        /// The operation that the device was asked for.
        operation: MachineOperation,
        /// What it did, or why it refused.
        outcome: Result<Took, String>,
    },
    Tick,
}

/// The part of ZedAgentStatus that matters here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceCommand {
    pub reboot: bool,
    /// Take the applications down.
    pub shutdown: bool,
    pub poweroff: bool,
    /// Why, for the next boot.
    pub reason: String,
    /// Why, as a number.
    pub boot_reason: BootReason,
    /// How the last reading of the device config went.
    pub contact: ConfigGetStatus,
    /// Whether the controller refuses the device's certificates.
    pub certs_refused: bool,
    /// A zedagent of ours, which has nothing more to report once it says this. The one of the reference needs time to
    /// report to its controller.
    pub ours: bool,
}

/// Topics with a first reading that matters: until it is through, silence does not mean "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredReading {
    Drain,
    Applications,
    /// ZbootStatus of baseosmgr, which says when it has published all partitions; there may be none.
    Partitions,
}

/// Limits that the controller sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// How long a new image is tested.
    pub image_test: Duration,
    /// How long a new image may be without controller before it falls back.
    pub fallback: Duration,
    /// How long the device may be without controller before it restarts.
    pub no_controller: Duration,
    /// How long the vault may stay shut.
    pub vault: Duration,
}

/// What the device made of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// The machine obeys; after a reboot or power-off there is nothing more to come.
    Machine,
    /// A stand-in wrote down what it would have done: the machine stays up.
    StandIn,
}

/// What an earlier run in this boot, and the boot before, left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavedNodeState {
    /// How the boot before this one ended.
    pub last_boot: LastBoot,
    /// The status that an earlier run of this boot published last.
    pub said: Option<NodeAgentStatus>,
    /// The operation that it was at.
    pub resumed: Option<Resumed>,
    /// Partitions with an image that had passed its test.
    pub tested: BTreeSet<String>,
    /// Whether the image runs Kubernetes.
    pub hv_type_kube: bool,
    /// What it asked zedkube last.
    pub question: OutageQuestion,
}

/// An operation that an earlier run of this boot had latched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Resumed {
    #[serde(flatten)]
    pub order: MachineOrder,
    /// It was carried out and the machine is up by intention: a shutdown, or a stand-in.
    pub done: bool,
}

/// Something for the shell to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Say(LogMessage),
    /// Remember the operation for a restart of the agent within this boot.
    Journal(Resumed),
    /// The operation was called off before the device was asked: it is neither remembered nor the reason of the next boot.
    CallOff(MachineOrder),
    Publish(Box<NodeAgentStatus>),
    /// Publish what zedkube is asked, and why the machine is not down yet.
    Question(Box<OutageQuestion>),
    /// Note beside the reason of this boot's end what was not as it should be.
    Mark {
        /// The operation and its reason.
        order: MachineOrder,
        why: String,
    },
    /// Publish the verdict on a partition.
    Zboot(ZbootConfig),
    /// Store for the next boot why this one ends, unless another reason is stored already (D-N4).
    Reason {
        /// The operation and its reason.
        order: MachineOrder,
        /// The partition that runs.
        image: String,
    },
    /// Read what zedkube and the force file say at this moment; answered by [`Event::Checked`].
    Check,
    /// Bring everything to the disks, while others come to rest.
    Sync,
    /// Call the hooks before a reboot, unless they were called in this run of the agent, which is answered by
    /// [`Event::Hooked`]. Without one, bring everything to the disks; answered by [`Event::Synced`]. It may take long.
    LastSync,
    /// Ask the device for it at once; answered by [`Event::Operated`].
    Operate(MachineOrder),
    /// Leave, so that the watchdog of the machine restarts it.
    Exit(MachineOrder),
}
