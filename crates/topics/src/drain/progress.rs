//! Topics of our own, beside the reference's: what a person needs to know, and what must survive.
//!
//! How often `NodeDrainProgress` is written: with every change of NodeDrainStatus or of an answer at once and
//! before the status, as a reader of the status looks for its answer there; everything else at most once per 200 ms,
//! always the newest, and the last value of a burst always.
//!
//! Enums are words on disk, as people read these files. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::parts::cut_blockers;
use crate::number;
use crate::{
    Blocker, BootGate, DrainStatus, GoTime, Kind, MachineProgress, Most, OperationPause, RequestId,
    Requester, RunningLimit, StorageWait, Topic, TurnShown, topic,
};

/// What zedkube is doing, what blocks, since when, until when, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeDrainProgress {
    /// Whose request is being served.
    pub requested_by: Requester,
    /// When it was asked; with `RequestedBy` its identity.
    pub requested_at: GoTime,
    /// What it is for.
    pub context: String,
    /// What is going on.
    pub phase: DrainPhase,
    /// The status that NodeDrainStatus shows.
    pub status: DrainStatus,
    /// This attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// Attempts before zedkube gives up.
    pub max_attempts: u32,
    /// Whose cordon is on the node.
    pub cordon: CordonOwner,
    /// Which pods leave now: applications first, then what they use; empty while none do.
    pub tier: String,
    /// Pods of this attempt.
    pub counts: PodCounts,
    /// The turn of this node to be down.
    pub turn: TurnShown,
    /// Virtual machines of the node, by name, while this attempt has to do with them.
    pub machines: Vec<MachineProgress>,
    /// Machines beyond those.
    pub machines_omitted: u32,
    /// What does not leave, and why; the worst first.
    pub blockers: Vec<Blocker>,
    /// Blockers beyond those: a message holds so many.
    pub blockers_omitted: u32,
    /// Volumes of pods that have left, which are still attached to this node, as `shop/data (pv pvc-1)`.
    pub volumes: Vec<String>,
    /// Volumes beyond those.
    pub volumes_omitted: u32,
    /// Volumes with a copy on this node and no healthy one elsewhere, or none anywhere.
    pub storage: Vec<StorageWait>,
    /// Volumes beyond those.
    pub storage_omitted: u32,
    /// Pods that stay on the node because a rule says so, as `shop/web-0: why`.
    pub left: Vec<String>,
    /// Pods beyond those that stay because a rule says so.
    pub left_omitted: u32,
    /// What came of hooks and stops nothing, as `not called: why`; the newest eight.
    pub hooks: Vec<String>,
    /// Evictions that the server has accepted in this drain, in all attempts.
    pub evicted: u32,
    /// Answers of the server to calls of this attempt that ask pods to leave, counted by word: `accepted`, `gone`,
    /// `other-pod`, `conflict`, `expired`, `budget`, `moving`, `cannot-move`, `responding`, `many-budgets`, `throttled`,
    /// `namespace-ending`, `denied`, `api-trouble`, `refused`.
    pub replies: BTreeMap<String, u32>,
    /// How often the node was found uncordoned in this drain and was cordoned again.
    pub recordons: u32,
    /// When this drain began.
    pub started_at: GoTime,
    /// When time alone changes something next: the attempt or the whole drain is given up, whichever is first; in a pause the
    /// next attempt begins; before the cordon the drain is skipped, its hooks are tried again, or the next window opens. Zero
    /// while nothing changes by time.
    pub deadline: GoTime,
    /// Limits of the attempt and of the whole drain that run.
    pub limits: Vec<RunningLimit>,
    /// When this attempt is expected to be done; while virtual machines move, when the last of them is estimated to have
    /// left. Zero while that cannot be told.
    pub estimate: GoTime,
    /// Since when the Kubernetes API has not answered, before the cordon or in the drain; zero while it does.
    pub api_silent_since: GoTime,
    /// Why the drain was left out, or empty.
    pub skip: String,
    /// Why things are as they are, in one sentence.
    pub reason: String,
    /// What of `Reason` is trouble with the API or the container runtime while pods leave, or empty.
    pub trouble: String,
    /// What a person can do; empty where that is nothing.
    pub next_step: String,
    /// The word of a person that keeps operations from starting; all zero without one. Its times are of the wall clock that it
    /// was written with.
    pub pause: OperationPause,
    /// Whether the node is healthy after the boot, as far as that is being looked at.
    pub gate: BootGate,
    /// What a boot had left and was fixed, with how often, since zedkube started: see [`RepairKind`].
    pub repairs: BTreeMap<String, u32>,
    /// The newest answer to each standing request.
    pub answers: Vec<Answer>,
    /// When each standing request was made.
    pub asked: Vec<Asked>,
    /// The boot in which this was written.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When the monotonic clock of that boot (`CLOCK_MONOTONIC`) started, by the wall clock that all times here but
    /// the `RequestedAt` were made with: what lies between it and one of them is the monotonic time of that one.
    pub booted_at: GoTime,
}

impl NodeDrainProgress {
    /// How many entries [`NodeDrainProgress::left`] has with those that it omits, in words; `None` without one.
    pub fn exceptions(&self) -> Option<String> {
        let omitted = usize::try_from(self.left_omitted).unwrap_or(usize::MAX);
        match self.left.len().saturating_add(omitted) {
            0 => None,
            count => Some(format!("{} by policy", number(count, "exception"))),
        }
    }

    /// The same with every time by a wall clock for which the monotonic clock started at `booted_at`.
    #[must_use]
    pub fn by_clock(mut self, booted_at: GoTime) -> Self {
        let before = std::mem::replace(&mut self.booted_at, booted_at);
        let own = [
            &mut self.started_at,
            &mut self.deadline,
            &mut self.estimate,
            &mut self.api_silent_since,
            &mut self.gate.since,
            &mut self.turn.since,
        ];
        let blockers = self.blockers.iter_mut().map(|it| &mut it.since);
        let warnings = self.gate.warnings.iter_mut().map(|it| &mut it.since);
        let answers = self.answers.iter_mut().map(|it| &mut it.at);
        let asked = self.asked.iter_mut().map(|it| &mut it.at);
        let limits = self.limits.iter_mut().flat_map(|it| [&mut it.since, &mut it.until]);
        for at in own.into_iter().chain(limits).chain(warnings).chain(blockers).chain(answers).chain(asked) {
            *at = at.moved(before, booted_at);
        }
        self
    }

    /// When a request was made, by the wall clock of the other times here; its `RequestedAt` where that is not known.
    pub fn asked_at(&self, id: RequestId) -> GoTime {
        self.asked.iter().find(|it| it.id() == id).map_or(id.at, |it| it.at)
    }

    /// The answer to one request.
    pub fn answer(&self, id: RequestId) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.id() == id)
    }
}

impl Topic for NodeDrainProgress {
    const NAME: &'static str = "NodeDrainProgress";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        let gate = &mut self.gate;
        most.each([
            &mut self.context,
            &mut self.tier,
            &mut self.skip,
            &mut self.reason,
            &mut self.trouble,
            &mut self.next_step,
            &mut gate.layer,
            &mut gate.words,
            &mut gate.next_step,
        ]);
        self.pause.cut(most);
        self.blockers_omitted = self.blockers_omitted.saturating_add(cut_blockers(&mut self.blockers, most));
        self.machines_omitted = self.machines_omitted.saturating_add(most.list(&mut self.machines));
        for MachineProgress { name, state, reason } in &mut self.machines {
            most.each([name, state, reason]);
        }
        self.volumes_omitted = self.volumes_omitted.saturating_add(most.texts(&mut self.volumes));
        self.storage_omitted = self.storage_omitted.saturating_add(most.list(&mut self.storage));
        self.storage.iter_mut().for_each(|it| it.cut(most));
        self.left_omitted = self.left_omitted.saturating_add(most.texts(&mut self.left));
        most.texts(&mut self.hooks);
        most.list(&mut self.limits);
        self.limits.iter_mut().for_each(|it| it.cut(most));
        // Words of our own, taints of the node controller: few, but bounded all the same.
        most.map(&mut self.replies);
        most.map(&mut self.repairs);
        most.texts(&mut gate.stale_taints);
        most.list(&mut gate.warnings);
        gate.warnings.iter_mut().for_each(|it| it.cut(most));
        most.texts(&mut self.turn.nodes);
        for answer in &mut self.answers {
            answer.cut(most);
        }
    }
}

/// What zedkube is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DrainPhase {
    /// Nothing is asked for.
    #[default]
    Idle,
    /// Whether the node is in a cluster is not known yet; an operation waits for that.
    Undecided,
    /// Looks for the API and the node, and for what would keep the drain from starting, see `Blockers`.
    Checking,
    /// Waits for a window to start in, which opens at `Deadline`.
    OutsideWindow,
    /// Waits until a person ends the pause, see `Pause`; nothing of it has begun.
    Paused,
    /// Waits until this node may be down, see `Turn`.
    WaitingForTurn,
    /// Calls the hooks that come before a drain.
    RunningHooks,
    /// Makes the node unschedulable.
    Cordoning,
    /// Virtual machines leave, see `Machines`; pods come after them.
    MovingMachines,
    /// Pods leave.
    Draining,
    /// Pods have left; their volumes are being detached.
    Detaching,
    /// Pods have left; a volume has its last healthy copy here, see `Storage`, or that could not be read.
    WaitingForStorage,
    /// Reads the lists that prove the node empty.
    Proving,
    /// Waits before the next attempt.
    Retrying,
    /// Done.
    Complete,
    /// Left out, with the reason in `Skip`.
    Skipped,
    /// A person has forced the status.
    Forced,
    /// Gave up cordoning.
    FailedCordon,
    /// Gave up draining.
    FailedDrain,
    /// The request was withdrawn; the cordon is being removed.
    Withdrawing,
    /// Our own cordon of an earlier boot stays until the node is healthy, see `Gate`.
    AfterBoot,
    /// The node is being taken out of its cluster, see `NodeLeave`; what is asked for waits.
    Leaving,
    /// A shutdown or reboot of the whole site holds the node, see `SiteOperation`; what is asked for waits.
    WholeSite,
}

/// Why a drain was left out, for programs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SkipKind {
    /// It was not, or nothing says why.
    #[default]
    None,
    /// The Kubernetes API was away before the cordon.
    ApiUnreachable,
    /// A person forced it.
    Forced,
    /// For another reason.
    Other,
}

/// Why a drain was left out; the default where it was not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Skip {
    pub kind: SkipKind,
    /// The same for a person.
    pub text: String,
}

impl Skip {
    /// For a reason that has no word of its own.
    pub fn other(text: impl Into<String>) -> Self {
        Self { kind: SkipKind::Other, text: text.into() }
    }
}

impl SkipKind {
    /// The word for metrics; a skip that an earlier version has kept has no kind.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ApiUnreachable => "api-unreachable",
            Self::Forced => "forced",
            Self::None | Self::Other => "other",
        }
    }

    /// Answers of before were marked `"Forced": true`, or not at all.
    fn or_forced<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Forced(bool),
            Kind(SkipKind),
        }
        Ok(match Form::deserialize(from)? {
            Form::Forced(true) => Self::Forced,
            Form::Forced(false) => Self::None,
            Form::Kind(kind) => kind,
        })
    }
}

/// What a key of `Repairs` is: these words, or a stale taint as `node.kubernetes.io/unreachable:NoExecute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepairKind {
    Taint,
    Cordon,
    Pod,
}

impl RepairKind {
    pub const OWN_CORDON: &str = "own cordon of an earlier boot";
    pub const FORMER_POD: &str = "pod of the former boot";

    pub fn of(key: &str) -> Self {
        match key {
            Self::OWN_CORDON => Self::Cordon,
            Self::FORMER_POD => Self::Pod,
            _ => Self::Taint,
        }
    }

    /// The word for metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Taint => "taint",
            Self::Cordon => "cordon",
            Self::Pod => "pod",
        }
    }
}

/// Whose cordon is on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CordonOwner {
    /// Nobody's.
    #[default]
    None,
    /// Ours: removed by us.
    Ours,
    /// Somebody else's: kept.
    Foreign,
}

/// Pods of an attempt by state; `Total` is the sum of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct PodCounts {
    /// All pods that leave.
    pub total: u32,
    /// No longer there.
    pub gone: u32,
    /// Asked to end, not yet gone.
    pub going: u32,
    /// Not yet asked, or asked again soon.
    pub waiting: u32,
    /// Held back.
    pub blocked: u32,
}

/// What one request was told last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Answer {
    /// Who asked.
    pub requested_by: Requester,
    /// When it asked.
    pub requested_at: GoTime,
    /// What for.
    pub context: String,
    /// How far its drain is.
    pub status: DrainStatus,
    /// Why the drain was left out, or empty.
    pub skip: String,
    /// The same for programs.
    #[serde(alias = "Forced", deserialize_with = "SkipKind::or_forced")]
    pub skip_kind: SkipKind,
    /// When this answer was given.
    pub at: GoTime,
}

impl Answer {
    /// Why its drain was left out; `None` where it was not.
    pub fn skipped(&self) -> Option<Skip> {
        let kind = if self.skip_kind == SkipKind::None { SkipKind::Other } else { self.skip_kind };
        (!self.skip.is_empty()).then(|| Skip { kind, text: self.skip.clone() })
    }

    /// The request that this answers.
    pub const fn id(&self) -> RequestId {
        RequestId { by: self.requested_by, at: self.requested_at }
    }

    pub(crate) fn cut(&mut self, most: Most) {
        most.text(&mut self.context);
        most.text(&mut self.skip);
    }
}

/// When a request was made. Its `RequestedAt` is its identity, and keeps the time of the wall clock of that moment,
/// which may have been wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct Asked {
    /// Who asked.
    pub requested_by: Requester,
    /// With `RequestedBy` the identity of the request.
    pub requested_at: GoTime,
    /// When that was, by the wall clock as it is now.
    pub at: GoTime,
}

impl Asked {
    /// The request.
    pub const fn id(&self) -> RequestId {
        RequestId { by: self.requested_by, at: self.requested_at }
    }
}

/// A device operation that is wanted and not yet carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceOpPending {
    /// Which operation.
    pub op: DeviceOp,
    /// The controller's counter that asked for it.
    pub counter: u32,
    /// As the controller gave it.
    pub desired_state: bool,
    /// As the controller gave it.
    pub ops_time: String,
    /// How far it is.
    pub state: PendingState,
    /// The boot in which this state was reached.
    #[serde(rename = "BootID")]
    pub boot_id: String,
    /// When the operation was first wanted.
    pub since: GoTime,
    /// When the monotonic clock started, by the wall clock that `Since` was made with; zero when that was in an
    /// earlier boot.
    pub booted_at: GoTime,
    /// When its drain was asked for; zero while none was.
    pub drain_requested_at: GoTime,
    /// How often a drain was asked for.
    pub attempts: u32,
    /// What it waits for, in words.
    pub waiting_for: String,
    /// What a person can do.
    pub next_step: String,
    /// Why it goes without a drain, or empty.
    pub skip: String,
    /// The same for programs.
    pub skip_kind: SkipKind,
    /// The whole-site operation or the person that asks for it, or empty where the controller does.
    pub site: String,
}

topic!(DeviceOpPending: Persistent, key None, cut ops_time boot_id waiting_for next_step skip site);

/// A device operation of the controller.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceOp {
    /// Restart.
    #[default]
    Reboot,
    /// Applications down, power on.
    Shutdown,
}

impl DeviceOp {
    /// The word in requests, keys and reasons.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Shutdown => "shutdown",
        }
    }
}

/// How far a device operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PendingState {
    /// Wanted; something is still in the way.
    #[default]
    Pending,
    /// nodeagent was told; it counts as executed after the next boot.
    Commanded,
}
