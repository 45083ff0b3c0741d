//! What the status server answers to `GET /status.json`, shows as its page, and says to other nodes at `GET /drain`. It
//! is no topic: nobody publishes or follows it.
//!
//! Members are added, never renamed. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DeviceOpPending, DrainHistory, DrainPreflight, GoTime, NodeDrainProgress, OutageQuestion};

/// What is known of this node, and what of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeStatus {
    /// Name of the Kubernetes node, or empty while it is not known.
    pub node: String,
    /// When this was put together.
    pub at: GoTime,
    /// Whether it is safe to work on the node, in one sentence.
    pub headline: Headline,
    /// What to do first, or empty.
    pub next_step: String,
    /// Its drain; null before zedkube has published any.
    pub progress: Option<NodeDrainProgress>,
    /// What the newest preflight has found; null before the first one of a boot.
    pub preflight: Option<DrainPreflight>,
    /// Reboots and shutdowns that wait or are on their way.
    pub pending: Vec<DeviceOpPending>,
    /// Why the machine is held at the last moment; null while it is not.
    pub last_look: Option<OutageQuestion>,
    /// The node that reports the cluster, or empty while none is known.
    pub leader: String,
    /// The nodes of the cluster; empty while they are not known.
    pub nodes: Vec<NodeShown>,
    /// How current they are, in words.
    pub nodes_source: String,
    /// The version of the OS that runs here; empty where it is not known.
    pub os: String,
    /// The version of this program.
    pub program: String,
    /// The last drains and force files; null before the first one.
    pub history: Option<DrainHistory>,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeShown {
    /// Its name.
    pub name: String,
    /// Its condition: `Ready`, `not Ready` or `kubelet silent`.
    pub ready: String,
    /// It is cordoned.
    pub cordoned: bool,
    /// It is of the control plane.
    pub control_plane: bool,
    /// It is a member of etcd.
    pub etcd: bool,
    /// The version of its kubelet, as `v1.32.1+k3s1`; empty where it is not known.
    pub kubelet: String,
    /// What it says of itself; null where it has not answered lately.
    pub headline: Option<Headline>,
    /// Its own page; empty until it was asked.
    pub page: String,
}

/// A state and the sentence about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Headline {
    /// For programs.
    pub state: NodeState,
    /// The words of the state first, as `BLOCKED: reboot waits, 1 of 4 pods cannot leave`.
    pub text: String,
}

impl Headline {
    /// The words of the state, and the sentence behind them.
    pub fn new(state: NodeState, rest: &str) -> Self {
        Self { state, text: format!("{}: {rest}", state.words()) }
    }

    /// Both again; of a text that another version has made, all of it is the sentence.
    pub fn parts(&self) -> (&'static str, &str) {
        let words = self.state.words();
        let rest = self.text.strip_prefix(words).and_then(|rest| rest.strip_prefix(": "));
        (words, rest.unwrap_or(&self.text))
    }
}

/// Whether it is safe to work on a node, or what is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It cannot be said.
    #[default]
    Unknown,
    /// It is in no cluster: nothing is drained.
    NoCluster,
    /// In its cluster, nothing is asked for.
    InService,
    /// Cordoned by somebody else, and nothing is asked for: its pods run.
    Cordoned,
    /// Asked for, and not begun.
    Requested,
    /// Cordoned, or about to be; pods leave.
    UnderWay,
    /// Not before another node is back, or has gone.
    WaitingForTurn,
    /// Not before a window opens.
    WaitingForWindow,
    /// Not before the Kubernetes API answers, or the drain is skipped for that.
    WaitingForApi,
    /// A person keeps operations from starting.
    Paused,
    /// Something does not leave, or holds the machine.
    Blocked,
    /// Given up.
    Failed,
    /// It counts as drained without a proof: skipped, or forced by a person.
    Unproved,
    /// Proved empty under a cordon; the operation that it is for goes ahead.
    Drained,
    /// Proved empty under a cordon, for work on it and nothing else.
    Safe,
    /// Nobody asks for its drain any more; the cordon is being removed.
    Withdrawn,
    /// Cordoned since a boot, until it is healthy.
    AfterBoot,
    /// An operation on the whole site holds it.
    WholeSite,
    /// On its way out of its cluster.
    Leaving,
}

impl NodeState {
    /// The words that a headline begins with.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Unknown => "NOT KNOWN",
            Self::NoCluster => "IN NO CLUSTER",
            Self::InService => "IN SERVICE",
            Self::Cordoned => "CORDONED, NOT DRAINED",
            Self::Requested => "REQUESTED",
            Self::UnderWay => "DRAINING",
            Self::WaitingForTurn => "WAITING FOR ITS TURN",
            Self::WaitingForWindow => "WAITING FOR A WINDOW",
            Self::WaitingForApi => "WAITING FOR THE KUBERNETES API",
            Self::Paused => "PAUSED",
            Self::Blocked => "BLOCKED",
            Self::Failed => "NOT DRAINED",
            Self::Unproved => "WITHOUT A PROVED DRAIN",
            Self::Drained => "DRAINED",
            Self::Safe => "SAFE TO WORK ON",
            Self::Withdrawn => "WITHDRAWN",
            Self::AfterBoot => "AFTER A BOOT",
            Self::WholeSite => "WHOLE-SITE OPERATION",
            Self::Leaving => "LEAVING ITS CLUSTER",
        }
    }
}
