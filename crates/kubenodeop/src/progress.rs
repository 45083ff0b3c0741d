//! What a drain says about itself.
//!
//! Not here: how it comes to it (`engine`). Sources: goals O1, O2; the counts and blockers of `NodeDrainProgress`.
//! Pure: no clock, no I/O, no task.

mod code;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use step::Mono;

use crate::plan::tier::Tier;
use kubeapi::names::{PodRef, PodUid};
use kubeapi::slim::longhorn::named;

pub use code::BlockCode;
pub(crate) use code::VIRT_API;

/// One attempt at one moment. Equal values mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    pub phase: AttemptPhase,
    /// Which pods leave now, while some do.
    pub tier: Option<Tier>,
    pub counts: Counts,
    /// Virtual machines of the node, by name.
    pub machines: Vec<MachineShown>,
    /// What holds the drain up, in the order of the pods' names.
    pub blockers: Vec<AttemptBlocker>,
    /// Volumes of pods that have left, still attached here, as `shop/data (pv pvc-1)`; by the claim alone while
    /// attachments have not been heard of; with `, over its 600 s` when they are late.
    pub volumes: Vec<String>,
    /// Volumes with no healthy copy elsewhere, or none anywhere.
    pub storage: Vec<VolumeWait>,
    /// What stays or went in another way than by eviction and proof, because a rule says so.
    pub left: Vec<Left>,
    /// When the attempt is expected to be done, where that can be told.
    pub estimate: Option<Mono>,
    /// What a restart must not forget.
    pub marks: Marks,
    /// Evictions that the server has accepted.
    pub evicted: u32,
    /// Answers to calls that ask pods to leave, counted by [`kubeapi::Reply::word`].
    pub replies: BTreeMap<&'static str, u32>,
    /// How often the node was found uncordoned and cordoned again.
    pub recordons: u32,
    /// The newest trouble with the API that has not passed, or empty.
    pub trouble: String,
    /// What a person can do about that trouble.
    pub trouble_step: String,
    /// Why the container runtime cannot say whether pods past their grace period still run; empty when it can, and while
    /// nobody asks it.
    pub runtime: String,
}

/// Since when the limits of an attempt run, so that a restart in the same boot does not start them again, and what
/// was learned about workloads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    pub attempt: Option<Mono>,
    /// When the first attempt of this drain began.
    pub drain: Option<Mono>,
    /// Since when volumes are waited for.
    pub volumes: Option<Mono>,
    /// Since when nothing but the storage is waited for.
    pub storage: Option<Mono>,
    /// Pods that have been held for longer than half a minute, and since when they are being asked to leave. At
    /// most 64.
    pub pods: BTreeMap<PodUid, Mono>,
    /// How often pods of a workload (namespace, kind/name) have come back, where they have. At most 64.
    pub returns: BTreeMap<(String, String), u32>,
    /// Claims (namespace, name) of all pods that leave or have left, also in an earlier attempt: their volumes have
    /// to be detached whoever finds the pods gone.
    pub claims: BTreeSet<(String, String)>,
    /// Deployments that were asked for a second copy, as `shop/web`, also in an earlier attempt. After a restart their own
    /// records say so.
    pub surged: BTreeSet<String>,
}

/// A volume with a copy here and no healthy one elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeWait {
    /// As `shop/data (pvc-1)`.
    pub volume: String,
    /// What is the matter with it.
    pub words: String,
    pub next_step: String,
    /// How far a copy elsewhere is rebuilt.
    pub percent: Option<u8>,
    /// The node where it is attached, or empty.
    pub attached: String,
}

/// Something that a rule lets pass, in words and by name; never silently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// What: a pod as `shop/web-0`, or a volume as in [`Progress::volumes`].
    pub what: String,
    /// Why, and by which rule.
    pub why: String,
}

/// For a person: `shop/web-0: why`.
impl fmt::Display for Left {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.what, self.why)
    }
}

step::named! {
    pub enum MachineState {
        /// Nothing was asked yet.
        Waiting = "waiting",
        /// A migration was asked for and none runs yet.
        Asked = "asked",
        /// It is being migrated.
        Moving = "moving",
        /// Its migration is being ended.
        Aborting = "aborting",
        /// Its guest is shut down, or about to be.
        ShuttingDown = "shutting-down",
        /// It stays, and the drain waits.
        Held = "held",
        /// Its objects cannot be read: nothing is done about it.
        Unreadable = "unreadable",
        /// It stays, and the attempt fails.
        Failed = "failed",
        /// Nothing of it is on this node any more.
        Gone = "gone",
    }
}

/// A virtual machine of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineShown {
    /// As `shop/db`.
    pub name: String,
    pub state: MachineState,
    /// In words, with its target and why it cannot be migrated.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttemptPhase {
    Machines,
    #[default]
    Draining,
    /// None is left; volumes of those that have left are being detached.
    Detaching,
    /// None is left; a volume has its last healthy copy here, or that is not known.
    Storage,
    /// None is left as far as we know; the lists that prove it are being read.
    Proving,
}

/// Pods by state. `total` is the sum of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All pods of this attempt that leave or have left.
    pub total: u32,
    pub gone: u32,
    /// Evicted or deleted, not yet gone.
    pub going: u32,
    /// Not yet asked, or to be asked again after passing trouble.
    pub waiting: u32,
    /// Held by a budget or an ending namespace, or given up.
    pub blocked: u32,
}

/// What holds a drain up: one object, named. Shown as `shop/web-0`, `virtual machine shop/db` or
/// `volume shop/data (pvc-1)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    Pod(PodRef),
    /// A virtual machine: its instance, by namespace, name and UID.
    Machine(PodRef),
    /// A volume, by the claim that it serves, and its own name.
    Volume {
        namespace: String,
        claim: String,
        /// The volume, as `pvc-1`.
        volume: String,
    },
}

impl Subject {
    pub fn namespace(&self) -> &str {
        match self {
            Self::Pod(it) | Self::Machine(it) => &it.namespace,
            Self::Volume { namespace, .. } => namespace,
        }
    }

    /// Its name in that namespace; of a volume that of its claim.
    pub fn name(&self) -> &str {
        match self {
            Self::Pod(it) | Self::Machine(it) => &it.name,
            Self::Volume { claim, .. } => claim,
        }
    }

    /// Its UID; of a volume its own name.
    pub fn uid(&self) -> &str {
        match self {
            Self::Pod(it) | Self::Machine(it) => it.uid.as_str(),
            Self::Volume { volume, .. } => volume,
        }
    }

    /// The pod, where it is one.
    pub const fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::Pod(it) => Some(it),
            Self::Machine(_) | Self::Volume { .. } => None,
        }
    }
}

impl From<PodRef> for Subject {
    fn from(pod: PodRef) -> Self {
        Self::Pod(pod)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(it) => write!(out, "{it}"),
            Self::Machine(it) => write!(out, "virtual machine {it}"),
            Self::Volume { namespace, claim, volume } => {
                write!(out, "volume {}", named(namespace, claim, volume))
            }
        }
    }
}

/// Something that does not leave, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptBlocker {
    pub subject: Subject,
    pub code: BlockCode,
    /// The reason for a person, in one sentence with names and numbers.
    pub reason: String,
    /// Since when it is held for this reason, on the clock that the drain was given.
    pub since: Mono,
}

impl AttemptBlocker {
    /// What a person can do about it.
    pub fn next_step(&self) -> String {
        match (self.code, &self.subject) {
            (BlockCode::Webhook, Subject::Machine(_)) => VIRT_API.to_owned(),
            (code, subject) => code.next_step(subject.namespace(), subject.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_drain_up_is_named_by_its_kind() {
        let named =
            |name: &str| PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new("u") };
        let volume =
            Subject::Volume { namespace: "shop".into(), claim: "data".into(), volume: "pvc-1".into() };
        let bare = Subject::Volume { namespace: String::new(), claim: String::new(), volume: "pvc-2".into() };
        let all = [Subject::Pod(named("web-0")), Subject::Machine(named("db")), volume, bare];
        let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
        let expected = ["shop/web-0", "virtual machine shop/db", "volume shop/data (pvc-1)", "volume pvc-2"];
        assert_eq!(shown, expected);
        let ids: Vec<&str> = all.iter().map(Subject::uid).collect();
        assert_eq!(ids, ["u", "u", "pvc-1", "pvc-2"]);
        assert_eq!(all.iter().filter(|it| it.pod().is_some()).count(), 1);
    }
}
