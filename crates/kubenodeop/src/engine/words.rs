//! The events and effects of an attempt, and its rules.
//!
//! Not here: how one follows from the other (`attempt`). Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::calls::remove::RemovalCall;
use crate::calls::surge::{SurgeAnswer, SurgeRule};
use crate::calls::volumes::{AttachmentFacts, ClaimName};
use crate::changes::WatchedBlockers;
use crate::machines::kubevirt::MachineChange;
use crate::machines::rules::Action;
use crate::machines::{MachinePolicy, MachinesView};
use crate::node::cordon::NodeFacts;
use crate::plan::PodFacts;
use crate::plan::budget::{BudgetFacts, GuardedPod};
use crate::plan::held::Inspected;
use crate::storage::StorageView;
use kube::core::Selector;
use kubeapi::names::{PodRef, PodUid};
use kubeapi::reply::Reply;
use step::{LogMessage, say};
use topics::{Blocker, DrainMarks};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRules {
    /// After this the attempt has failed (`kubernetes.drain.timeout`).
    pub attempt: Duration,
    /// For all attempts and the pauses between them, from the start of the first, if there is a limit. That the drain
    /// fails is for the caller.
    pub drain: Option<Duration>,
    /// Evictions under way at the same time.
    pub at_once: usize,
    /// Least time between the two lists of the proof.
    pub proof_gap: Duration,
    /// For one pod, from its first eviction call to its end.
    pub pod: Limit,
    /// Which Deployments have a second copy made elsewhere before their only Ready pods are evicted.
    pub surge: SurgeRule,
    /// How long that is waited for.
    pub surge_limit: Duration,
    /// What is done about a pod that was never Ready and that a budget holds.
    pub never_ready: LimitAction,
    /// For volumes whose last healthy copy is here, from the moment that nothing else is waited for.
    pub last_copy: Limit,
    /// Volumes (`pvc-1`) and claims (`shop/data`) whose last healthy copy may go with the node.
    pub last_copy_pass: BTreeSet<String>,
    /// What becomes of a workload whose pods come back to this node.
    pub sticky: LimitAction,
    /// Pods that declare responders are left to them first, where the API server has EvictionRequests.
    pub eviction_requests: bool,
    /// What becomes of virtual machines that name no policy of their own.
    pub machines: MachinePolicy,
}

/// A time, and what is done when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// The time; `None` for none of its own: then only the attempt's limit holds.
    pub after: Option<Duration>,
    pub then: LimitAction,
}

/// A limit in words: `of 300 s for a pod`.
pub(super) fn limit(after: Duration, of: &str) -> String {
    format!("of {} s for {of}", after.as_secs())
}

/// What is done about something that is over its limit of time, or of returns to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LimitAction {
    #[default]
    /// It is named, and waited for all the same.
    Wait,
    /// The attempt fails and names it.
    GiveUp,
    /// The drain gets past it and names it. A pod is deleted with its own grace period, whatever its budgets say; a volume goes
    /// down with its last copy; pods that come back stay and do not count in the proof, as if a `DaemonSet` had made them.
    GetPast,
}

impl Default for AttemptRules {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(24 * 3600),
            drain: None,
            at_once: 32,
            proof_gap: Duration::from_secs(1),
            pod: Limit::default(),
            surge: SurgeRule::Never,
            surge_limit: Duration::from_secs(300),
            never_ready: LimitAction::Wait,
            last_copy: Limit::default(),
            last_copy_pass: BTreeSet::new(),
            sticky: LimitAction::GetPast,
            eviction_requests: false,
            machines: MachinePolicy::MigrateOrShutdown,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    pub reply: Reply,
    /// Which call it was and what happened, for a person.
    pub text: String,
    /// What a person can do about it.
    pub next_step: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The pods of the node as a watch lists them.
    Pods(Vec<PodFacts>),
    /// One pod as it is now.
    Pod(PodFacts),
    PodGone(PodUid),
    /// The answer to [`Effect::Look`] of `turn`: all pods and the node, read from the store, and the
    /// storage where it was asked for and is there.
    Looked {
        turn: u64,
        /// What it saw, or why it saw nothing.
        seen: Result<(Vec<PodFacts>, NodeFacts, Option<StorageView>), CallFailure>,
    },
    /// The answer to [`Effect::Ask`].
    Evicted {
        uid: PodUid,
        reply: Reply,
    },
    /// The other answer to a [`RemovalCall::Request`]: no responder evicts this pod, or no longer.
    Unrequested {
        uid: PodUid,
        /// For the log.
        why: String,
    },
    /// The answer to [`Effect::Surge`].
    Surged {
        uid: PodUid,
        /// What follows, or why that is not known.
        answer: Result<SurgeAnswer, CallFailure>,
    },
    /// The budgets of a namespace as they are now.
    Budgets {
        namespace: String,
        budgets: Vec<BudgetFacts>,
    },
    /// The answer to [`Effect::Inspect`].
    Inspected {
        namespace: String,
        budget: String,
        /// The pods that keep it from having room, or why they are not known.
        found: Result<Inspected, CallFailure>,
    },
    /// The volumes of the claims of the newest [`Effect::FollowVolumes`] that are attached here now. A stream that
    /// fails says [`Event::Trouble`] instead.
    Volumes(Vec<AttachmentFacts>),
    /// The storage as it is now, `None` without such storage; or why that could not be read: another of these follows.
    Storage(Result<Option<StorageView>, CallFailure>),
    /// The answer to [`Effect::AskCopy`].
    CopyAsked {
        volume: String,
        /// Whether it was written, or why not.
        result: Result<(), CallFailure>,
    },
    /// The answer to [`Effect::LookMachines`].
    Machines(Result<MachinesView, CallFailure>),
    MachinesChanged(MachineChange),
    /// The answer to [`Effect::Act`].
    MachineAnswered {
        /// That of the instance.
        uid: PodUid,
        action: Action,
        reply: Reply,
    },
    /// The answer to [`Effect::AskRuntime`]: the pods of the node of which no container lives, or in one sentence why they
    /// are not known.
    Containers(Result<BTreeSet<PodUid>, String>),
    /// Our node as it is now.
    Node(NodeFacts),
    /// Its object is not there any more, in words with what a person can do.
    NodeGone(CallFailure),
    /// The answer to [`Effect::Cordon`]: whether it had to be written.
    Cordoned(Result<bool, CallFailure>),
    /// A watch fails; it continues by itself.
    Trouble(CallFailure),
    Tick,
}

/// Something to do for the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// List the pods; answer with [`Event::Looked`] of the same turn.
    Look {
        turn: u64,
        /// The storage is to be read too.
        storage: bool,
        /// The node is to be read too; otherwise as it is known, where it is.
        node: bool,
    },
    /// Ask for a second copy of the Deployment of this pod, look how far that is, or give it up; answer with
    /// [`Event::Surged`].
    Surge {
        pod: PodFacts,
        /// So long was waited for: what was asked for is given up.
        over: Option<Duration>,
    },
    /// Ask this pod to leave by this call.
    Ask(RemovalCall, GuardedPod),
    /// Take a [`RemovalCall::Request`] back: the pod is not to leave for now.
    Withdraw(PodRef),
    Cordon,
    /// Follow the budgets of this namespace.
    FollowBudgets(String),
    /// Read which pods keep this budget from having room, and have it counted again if its numbers are behind.
    Inspect {
        namespace: String,
        budget: String,
        selector: Selector,
        /// It guards pods that other budgets guard too: only then its numbers can be behind for long.
        shared: bool,
    },
    /// Follow the attachments of the volumes of these claims, and of no others any more.
    FollowVolumes(BTreeSet<ClaimName>),
    /// Ask for another copy of a volume of which so many are wanted; answer with [`Event::CopyAsked`].
    AskCopy {
        volume: String,
        /// Copies that are wanted of it.
        wanted: u32,
    },
    /// Notice what may change the fate of the machines of the node, or no more.
    FollowMachines(bool),
    /// Read them; answer with [`Event::Machines`].
    LookMachines,
    /// This call, about this instance; answer with [`Event::MachineAnswered`].
    Act(PodRef, Action),
    /// Ask the container runtime which pods of the node have no live container; answer with [`Event::Containers`].
    AskRuntime,
    Say(LogMessage),
    End(AttemptOutcome),
}

/// How an attempt ended.
pub type AttemptOutcome = Result<DrainSuccess, Box<AttemptFailure>>;

/// Two lists at least the proof gap apart showed nothing left on a cordoned node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSuccess {
    /// From the start of the attempt.
    pub took: Duration,
    /// Evictions that were accepted.
    pub evicted: u32,
    /// How often the cordon had to be renewed.
    pub recordons: u32,
    /// What was left in place or skipped by a rule, as `shop/web-0: why`.
    pub left: Vec<String>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// In one sentence, with the pods' names.
    pub reason: String,
    /// What held it up at the end.
    pub blockers: Vec<Blocker>,
    /// What was last known of all that can hold it up: a change of it is worth another attempt.
    pub watched: WatchedBlockers,
    /// What the next attempt may take over.
    pub marks: DrainMarks,
}

impl From<kubeapi::Error> for CallFailure {
    fn from(error: kubeapi::Error) -> Self {
        Self { reply: error.reply(), text: error.line(), next_step: error.next_step() }
    }
}

/// A line of the log about one pod, in the reference's words.
pub(super) fn say_gone(pod: &PodRef, effects: &mut Vec<Effect>) {
    say!(effects, info, "nodedrain-step:pod-evict-progress pod is gone: {pod}, uid {}", pod.uid);
}

/// The same of one that is held, for a reason that is not the one of last time.
pub(super) fn say_held(pod: &PodRef, why: &str, effects: &mut Vec<Effect>) {
    say!(effects, warn, "nodedrain-step:pod-evict-err pod is held: {pod}, uid {}: {why}", pod.uid);
}

/// The same of one that stays, by this rule.
pub(super) fn say_left(pod: &PodRef, rule: &str, effects: &mut Vec<Effect>) {
    say!(effects, warn, "nodedrain-step:pod-evict-progress pod stays: {pod}, uid {}: {rule}", pod.uid);
}
