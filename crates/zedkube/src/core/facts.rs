//! What zedkube's core hears and says. Pure: no clock, no I/O, no task.

use std::time::Duration;

use agent::force::OrderedBy;
use agent::settings::Properties;
use kubenodeop::node::boot::{GateReport, NodeAtRest};
use kubenodeop::{AttemptOutcome, Progress, WatchedBlockers};
use step::{LogMessage, Mono, say};
use topics::{
    Blocker, CordonOwner, DrainHistory, DrainJournal, DrainMarks, GoTime, NodeDrainProgress,
    NodeDrainRequest, NodeDrainStatus, OperationPause, OutageAnswer, OutageQuestion, RequestId, Requester,
    Skip, SkipKind,
};

use clusterview::leader::Candidacy;
use nodestatus::Membership;
use outage::keeper::Ask;
use outage::turn::event::{TurnState, Unconfirmed};

/// Number of a run: results of another one are not listened to.
pub type RunId = u64;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Whether this node is in a cluster.
    Member(Membership),
    /// The name of our Node object and the UUID of this device are known.
    NodeKnown {
        /// Name of the Node object.
        name: String,
    },
    /// A requester's request, or that there is none.
    Request(Requester, Option<NodeDrainRequest>),
    /// The topic of a requester has been read once.
    RequestsRead(Requester),
    /// Who wrote the force file that is heard of next, where that can be had.
    ForceBy(Option<OrderedBy>),
    Force(Force),
    /// Whether a fault-injection file of root's asks to hold a drain that is done.
    Hold(bool),
    Properties(Properties),
    /// Answer to [`Effect::Probe`]: that the API is there, or how it is not.
    Probed(RunId, Result<(), String>),
    /// Answer to [`Effect::Preflight`]: the pods that would not leave, or why the drain cannot start at all.
    Preflighted(RunId, Result<Vec<Blocker>, StartObstacle>),
    /// Findings of that look which a person has it pass, who and why.
    Passed(RunId, String),
    /// Answer to [`Effect::Cordon`]: whose cordon it is, or why there is none.
    Cordoned(RunId, Result<CordonOwner, CordonFailure>),
    /// How far [`Effect::Drain`] is.
    Draining(RunId, Box<Progress>),
    /// Whether the API answers: while [`Effect::Drain`] has trouble with it, and with each [`Effect::Probe`]. Throttled or
    /// refused, or with a certificate that is not accepted, it does.
    Away(RunId, Option<Box<UnansweredCall>>),
    /// Answer to [`Effect::Drain`].
    Drained(RunId, AttemptOutcome),
    /// Answer to [`Effect::Await`]: what has changed, in words.
    BlockerChanged(RunId, String),
    /// Answer to [`Effect::Look`]: whose cordon is on the node now, or why that is not known.
    Looked(u64, Result<NodeLook, String>),
    /// Answer to [`Effect::Guard`]: what has happened, in words.
    NodeActivity(String),
    /// How the gate after the boot is, and what was fixed; as long as [`Effect::Gate`] says.
    Gate(Box<GateReport>),
    /// Answer to [`Effect::Taints`]: these taints of an outage are on our node.
    Tainted(Vec<String>),
    /// The cordon of our node, and whether the API answers, as long as [`Effect::Taints`] says; with [`Effect::Gate`] it
    /// comes in the report.
    AtRest(NodeAtRest),
    /// Why what a drain of our node has asked of virtual machines and volumes is not taken back, and what a person can do;
    /// empty once it is. As long as [`Effect::Leftovers`] says.
    Leftovers(String, String),
    /// Where this node stands with its turn to be down.
    Turn(Box<TurnState>),
    /// Answer to [`Ask::Confirm`]: the turn is still ours, or why not.
    TurnConfirmed(Result<(), Unconfirmed>),
    /// What was read of the cluster now.
    Learned(Box<Learned>),
    /// The other servers that have a turn to be down, as the Lease of turns was seen last.
    ServersOut(Vec<String>),
    /// Answer to [`Effect::Margin`]: why etcd can spare this node, or why not.
    Spared(RunId, Result<String, String>),
    /// What a shutdown or reboot of the whole site holds this node to.
    Site(SiteHold),
    /// What an update of k3s that is handed over says of this node.
    K3s(K3sHold),
    /// While [`Effect::Cordon`]: this hook is called before it.
    Hooking(RunId, String),
    /// Answer to [`Effect::Cordon`] in the place of [`Event::Cordoned`]: hooks were called, and nothing else was done; or
    /// which of them stops it, and why.
    Hooked(RunId, Result<(), String>),
    /// What an earlier run of this agent left to be done about hooks.
    HooksLeft {
        /// Those before a drain were called in this boot.
        in_place: bool,
        /// Those after the boot were not.
        after_boot: bool,
    },
    /// Answer to [`Effect::UndoHooks`].
    HooksUndone,
    /// What came of hooks, for a reader.
    HookNotes(Vec<String>),
    /// Why no drain may start now by the windows that are set; `None` when one may.
    Window(Option<ClosedWindow>),
    /// A person's word that a drain starts outside of the windows.
    WindowPass(Option<Pass>),
    /// A person's pause on this node, or none.
    Pause(Option<OperationPause>),
    /// Whether our node is a control-plane node or a member of etcd.
    Server(bool),
    /// What nodeagent asks before the machine goes down.
    Question(OutageQuestion),
    /// Answer to [`Ask::LastLook`] of this number.
    LookedLast(u64, Result<(), Unconfirmed>),
    /// When the monotonic clock started, by the wall clock as it is now.
    Wall(GoTime),
    Tick,
}

/// What the force file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Force {
    #[default]
    Absent,
    Order(NodeDrainStatus),
    /// It is refused, for this reason.
    Refused(String),
}

/// What one look at the cluster has shown, for times without an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// Our node has the control plane or etcd.
    pub server: bool,
    /// There is no other node.
    pub alone: bool,
    pub servers: Vec<String>,
    /// A Longhorn volume whose last healthy replica is here, or `none`; empty where that cannot be known.
    pub volume: String,
    pub addresses: Vec<String>,
}

/// The turn that a cordon was made in; the default where nodes take no turns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CordonTurn {
    /// Number of the grant.
    pub fence: u32,
    pub lease_uid: String,
}

/// Why a try to cordon failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CordonFailure {
    pub why: String,
    /// What a person can do, or empty.
    pub next_step: String,
}

impl From<&str> for CordonFailure {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), next_step: String::new() }
    }
}

/// What keeps a drain from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartObstacle {
    pub why: String,
    /// What a person can do.
    pub next_step: String,
    /// It is that the API does not answer, or has too much to do: that passes by itself.
    pub away: bool,
    /// It keeps the node from being cordoned, rather than its pods from leaving.
    pub of_node: bool,
}

/// The API did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredCall {
    pub asked: Mono,
    /// Its address, or where that comes from.
    pub address: String,
    pub why: String,
}

/// How much of what drains of our node have asked for is to be taken back now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UndoScope {
    /// Nothing: a drain needs it.
    #[default]
    Nothing,
    /// Migrations of virtual machines.
    Migrations,
    /// These, copies of volumes and of Deployments; and machines that drains have stopped start again.
    All,
}

/// Our node after a look at it, in which a cordon of ours that had to go was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeLook {
    Open,
    /// Cordoned by somebody else, or a tie-breaker, which stays as it is.
    Foreign,
    Ours,
    /// Cordoned, and there are pods that would have to leave.
    HasPods(CordonOwner, Vec<RemainingPod>),
    /// Cordoned by us in an earlier boot, and the gate is shut or the node not Ready.
    NotReady,
    /// There is no such Node object, so no cordon of ours; in words, with what a person can do.
    Gone(String),
}

/// A pod on our node that would have to leave, unless a rule leaves it in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingPod {
    pub namespace: String,
    pub name: String,
    /// Its controller, as `ReplicaSet/web-5f7d`, or empty.
    pub workload: String,
    /// It is terminating, and whether a container of it runs is not known.
    pub unknown: bool,
}

/// What a whole-site operation holds this node to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SiteHold {
    #[default]
    None,
    /// It is held to nothing yet: in this order the nodes of a restart go, this one among them.
    Queued(String),
    /// No drain begins, and the cordon stays; which operation it is.
    Kept(String),
    /// Its machine goes down now, with its pods; which operation it is.
    Go(String),
}

/// What an update of k3s that is handed over says of this node; the default when there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct K3sHold {
    /// What it waits for, or empty.
    pub what: String,
    /// What a person can do.
    pub next_step: String,
    /// It was not carried out in time.
    pub failed: bool,
}

/// Why no drain starts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedWindow {
    /// In words: which window, when it opens by its own zone, and in how long.
    pub why: String,
    /// When it opens, where that is known.
    pub opens: Option<GoTime>,
}

/// A person's word that the drain for one request starts outside of the windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// For this request alone.
    pub of: RequestId,
    /// Who says so, and why.
    pub by: String,
}

/// Something for the shell to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Journal(Box<DrainJournal>),
    History(Box<DrainHistory>),
    /// Publish what is going on; before the status, so that a reader of the status finds the answer.
    Progress(Box<NodeDrainProgress>),
    Status(NodeDrainStatus),
    /// What this drain leaves to the election. Once closed, the lease is released before the next effect,
    /// or that takes too long.
    Candidacy(Candidacy),
    /// Publish what nodeagent is answered.
    OutageAnswer(Box<OutageAnswer>),
    /// Ask whether the API is there.
    Probe(RunId),
    /// Look for what would keep the drain from starting.
    Preflight(RunId),
    /// Ask etcd and the agents of its members whether it can spare this node, without the API.
    Margin {
        /// To be repeated in the answer.
        run: RunId,
        /// Without etcd on this node there is no quorum to keep.
        lacks_etcd: bool,
        /// How the API does not answer.
        trouble: String,
    },
    /// Ask the keeper of this node's turn.
    Turn(Ask),
    /// Cordon the node in the name of this request, in this turn.
    Cordon(RunId, NodeDrainRequest, CordonTurn),
    /// Drain the node: one attempt, at most so long, from these marks on.
    Drain(RunId, (NodeDrainRequest, CordonTurn), Duration, Box<DrainMarks>),
    /// Wait for a change of what held the failed attempt up.
    Await(RunId, Box<WatchedBlockers>),
    /// End whatever task is at work on the cluster, a look and a guard too.
    Cancel,
    /// Watch the drained node until something happens there.
    Guard,
    /// Look at the node and, while it is kept, at its pods; `uncordon` removes a cordon of ours.
    Look {
        /// To be repeated in the answer.
        nth: u64,
        /// Whether a cordon of ours has to go.
        uncordon: bool,
        /// The gate after the boot is open: that may be one of an earlier boot.
        gate_open: bool,
    },
    /// Watch over the gate after the boot and remove stale taints, or do so no longer.
    Gate(bool),
    /// Watch the node for its cordon and until taints of an outage are on it, or do so no longer.
    Taints(bool),
    /// Take back so much of what drains of our node asked for, beside all else; what was begun of another scope ends.
    Leftovers(UndoScope),
    /// Undo what hooks have done before a drain that has ended without a boot.
    UndoHooks,
    /// Call the hooks that come after a boot.
    HooksAfterBoot,
    /// Our cordon was removed, which is counted.
    CordonRemoved,
    Say(LogMessage),
}

/// The drain is left out, for this reason.
pub(crate) fn say_skipped(skip: &Skip, out: &mut Vec<Effect>) {
    let is_away = skip.kind == SkipKind::ApiUnreachable;
    let away = if is_away { " isExtendedKubeAPIUnreachable" } else { "" };
    say!(out, warn, "nodedrain-step:drain-complete drain skipped:{away} {}", skip.text);
}

pub(crate) fn say_given_up(why: &str, out: &mut Vec<Effect>) {
    say!(out, error, "nodedrain-step:drain-failure-givingup {why}");
}

pub(crate) fn say_waits_for_turn(why: &str, out: &mut Vec<Effect>) {
    say!(out, info, "waits for its turn to be down: {why}");
}

pub(crate) fn say_blocker_changed(what: &str, out: &mut Vec<Effect>) {
    say!(out, info, "a blocker has changed, the drain is tried again now: {what}");
}

/// Whose cordon it is, in a word.
pub(crate) const fn whose(owner: CordonOwner) -> &'static str {
    match owner {
        CordonOwner::None => "nobody's",
        CordonOwner::Ours => "ours",
        CordonOwner::Foreign => "somebody else's, which is kept",
    }
}
