//! What a drain says about itself.
//!
//! Not here: how it comes to it (`engine`). Sources: goals O1, O2; the counts and blockers of `NodeDrainProgress`.
//! Pure: no clock, no I/O, no task.

mod code;

use std::collections::BTreeMap;
use std::fmt;

use step::Mono;
use topics::{Blocker, DrainMarks, DrainPhase, GoTime, MachineProgress, PodCounts, StorageWait};

use crate::plan::tier::Tier;
use kubeapi::names::PodRef;
use kubeapi::slim::longhorn::named;

pub use code::BlockCode;
pub(crate) use code::VIRT_API;

/// One attempt at one moment. Equal values mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// `idle` before its first report.
    pub phase: DrainPhase,
    /// Which pods leave now, while some do.
    pub tier: Option<Tier>,
    pub counts: PodCounts,
    /// Virtual machines of the node, by name.
    pub machines: Vec<MachineProgress>,
    /// What holds the drain up, in the order of the pods' names; `Since` as in [`blocker`].
    pub blockers: Vec<Blocker>,
    /// Volumes of pods that have left, still attached here, as `shop/data (pv pvc-1)`; by the claim alone while
    /// attachments have not been heard of; with `, over its 600 s` when they are late.
    pub volumes: Vec<String>,
    /// Volumes with no healthy copy elsewhere, or none anywhere.
    pub storage: Vec<StorageWait>,
    /// What stays or went in another way than by eviction and proof, because a rule says so, as `shop/web-0: why`.
    pub left: Vec<String>,
    /// When the attempt is expected to be done, where that can be told.
    pub estimate: Option<Mono>,
    /// What a restart must not forget.
    pub marks: DrainMarks,
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

/// Something that does not leave, why, and since when: there by a clock that was at [`GoTime::ZERO`] when the drain's was at its
/// start.
pub fn blocker(subject: &Subject, code: BlockCode, reason: String, since: Mono) -> Blocker {
    let next_step = match (code, subject) {
        (BlockCode::Webhook, Subject::Machine(_)) => VIRT_API.to_owned(),
        (code, subject) => code.next_step(subject.namespace(), subject.name()),
    };
    Blocker {
        pod: subject.to_string(),
        uid: subject.uid().to_owned(),
        code: code.text().to_owned(),
        reason,
        next_step,
        since: GoTime::ZERO.plus(since.since_start()),
    }
}

/// The worst first, then by name.
pub(crate) fn sort(blockers: &mut [Blocker]) {
    blockers.sort_by_cached_key(|it| (BlockCode::rank_of(&it.code), it.pod.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::names::PodUid;

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
    }
}
