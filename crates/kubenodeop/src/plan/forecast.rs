//! What a drain would do and what it would meet, from one reading of the cluster.
//!
//! Not here: reading (`survey`), printing. It says what is certain: a pod behind a budget that merely has to wait
//! for its turn is no blocker. Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use checks::Finding;
use serde::{Serialize, Serializer};

use crate::calls::volumes::AttachmentFacts;
use crate::machines::MachinesView;
use crate::node::cordon::NodeFacts;
use crate::plan::budget::BudgetFacts;
use crate::plan::copies::{self, PlannedMachine};
use crate::plan::held;
use crate::plan::held::UnhealthyPod;
use crate::plan::placement::{PeerNode, SchedulingNeeds, place};
use crate::plan::residents::{Resident, Residents};
use crate::plan::tier::{self, HOLD_ANNOTATION, Tier};
use crate::plan::{KeepReason, PodClass, PodFacts, PodOwner};
use crate::progress::{BlockCode, Subject};
use crate::storage::{StorageView, is_manager};
use kubeapi::names::{PodRef, PodUid};
use step::{LiteMap, SmallSort as _};
use topics::{Blocker, CordonOwner, GoTime};

type NamespacedName = (String, String);

/// The cluster as it was read.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The node that would be drained.
    pub node: NodeFacts,
    /// All pods on it, those that a drain does not look at included.
    pub pods: Vec<Surveyed>,
    pub budgets: Vec<BudgetFacts>,
    /// After how long an attempt or the drain is given up, whichever is first.
    pub given_up_after: Duration,
    /// What keeps budgets without room from having any, by namespace and name.
    pub hindrances: LiteMap<NamespacedName, Vec<UnhealthyPod>>,
    pub machines: Option<MachinesView>,
    /// Pods whose Deployments are asked for a second copy first, with their names, or why that cannot be read.
    pub copies: Result<LiteMap<PodUid, String>, String>,
    pub peers: Vec<PeerNode>,
    /// The pods that are on nodes.
    pub residents: Residents,
    /// What speaks against the drain and holds up no single pod.
    pub findings: Vec<Finding>,
    pub ending: BTreeSet<String>,
    /// Volumes of claims that are attached to the node.
    pub attached: Vec<AttachmentFacts>,
    /// Volumes with a copy on the node, where there is such storage.
    pub storage: Option<StorageView>,
    /// Resource by resource the version that was read.
    pub versions: BTreeMap<String, String>,
}

/// One pod with what only a forecast asks for.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// As a drain sees it, its `DaemonSet` looked up.
    pub facts: PodFacts,
    /// What it asks of a node.
    pub needs: SchedulingNeeds,
    /// What it takes of a node, and which pods it keeps away from; `None` where it has run to its end.
    pub resident: Option<Resident>,
    /// The name of its priority class, or empty.
    pub priority_class: String,
}

/// What a drain would do and meet. As JSON it is for programs: members are added, never renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Plan {
    pub node: String,
    pub cordon: CordonOwner,
    /// All pods of the node, in the order in which they would be asked; those that stay come last.
    pub pods: Vec<Planned>,
    /// Virtual machines of the node, by name: they leave before the pods.
    pub machines: Vec<PlannedMachine>,
    /// What would hold the drain up, in the order of the pods' names.
    pub blockers: Vec<Blocker>,
    /// Volumes that must be detached afterwards.
    pub volumes: Vec<String>,
    pub peers: Vec<PlannedPeer>,
    /// What speaks against the drain and holds up no single pod.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// What a person should know and that holds up no single pod.
    pub notes: Vec<String>,
    /// Pods by what becomes of them.
    pub counts: PlanCounts,
    /// Tiers that leave, in their order.
    pub tiers: Vec<PlannedTier>,
    /// Resource by resource the version that was read.
    #[serde(rename = "ResourceVersions")]
    pub versions: BTreeMap<String, String>,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PlannedPeer {
    pub node: String,
    /// Why it takes no pods, or empty.
    pub closed: String,
}

/// A tier that leaves, and pods in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PlannedTier {
    pub tier: Tier,
    pub pods: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Planned {
    /// As `Pod` and `UID`.
    #[serde(flatten, serialize_with = "pod_members")]
    pub pod: PodRef,
    pub class: PlanClass,
    pub tier: Tier,
    /// Lower ones leave first within a tier.
    pub priority: i32,
    /// The name of its priority class, or empty.
    pub priority_class: String,
    /// Kind and name of its controller, or empty.
    pub workload: String,
    /// Names of the budgets that guard it.
    pub budgets: Vec<String>,
    /// Names of the claims that it mounts.
    pub claims: Vec<String>,
    /// What is to be known about it, or empty.
    pub note: String,
}

step::named! {
    pub enum PlanClass {
        Evict = "evict",
        /// Evicted, and no other node is one of those that it asks for.
        Pinned = "pinned",
        /// Evicted, and a replacement pod may be scheduled here again.
        TolerateCordon = "tolerates-cordon",
        /// Evicted: its `DaemonSet` is gone.
        Orphan = "orphan",
        /// It has run to its end, and is removed.
        Finished = "finished",
        /// Its end has begun.
        Going = "going",
        /// It stays, as its `DaemonSet` would put it back.
        KeepDaemonSet = "keep-daemonset",
        /// It stays, as the kubelet runs it from a file.
        KeepMirror = "keep-mirror",
        /// It stays, as one of [`crate::plan::KEPT_APPS`].
        KeepExcluded = "keep-excluded",
    }
}

impl PlanClass {
    pub const fn stays(self) -> bool {
        matches!(self, Self::KeepDaemonSet | Self::KeepMirror | Self::KeepExcluded)
    }
}

fn pod_members<S: Serializer>(pod: &PodRef, out: S) -> Result<S::Ok, S::Error> {
    BTreeMap::from([("Pod", pod.to_string()), ("UID", pod.uid.to_string())]).serialize(out)
}

impl Serialize for PlanClass {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(out)
    }
}

/// Pods by what becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PlanCounts {
    pub total: u32,
    pub leave: u32,
    pub going: u32,
    pub keep: u32,
    /// Of those that leave, certain to be held up.
    pub blocked: u32,
}

/// Foretells the drain of `survey`'s node.
pub fn forecast(survey: &Survey) -> Plan {
    let mut pods: Vec<(PlanClass, &Surveyed)> =
        survey.pods.iter().map(|pod| (survey.class(pod), pod)).collect();
    // The order in which the engine asks; names only where nothing else decides.
    pods.order_by_key(|(class, pod)| (class.stays(), pod.facts.tier, pod.facts.priority, &pod.facts.pod.uid));
    let foreseen = survey.machines.as_ref().map(|it| copies::foreseen_machines(&survey.node, it));
    let (machines, held, estimate) = foreseen.unwrap_or_default();
    let mut blockers = survey.blockers(&pods);
    blockers.extend(survey.long_graces(&pods, &blockers));
    blockers.extend(held);
    let by_hand = survey.storage.as_ref().map(|it| copies::attached_by_hand(it, &survey.attached));
    blockers.extend(by_hand.unwrap_or_default());
    blockers.order_by(|one, other| one.pod.cmp(&other.pod));
    pods.order_by_key(|(class, pod)| (class.stays(), pod.facts.tier, pod.facts.priority, &pod.facts.pod));

    let number = |of: &dyn Fn(PlanClass) -> bool| count(pods.iter().filter(|(class, _)| of(*class)).count());
    let (total, keep) = (count(pods.len()), number(&PlanClass::stays));
    let going = number(&|class| class == PlanClass::Going);
    let counts =
        PlanCounts { total, leave: total - keep - going, going, keep, blocked: count(blockers.len()) };
    let mut tiers: LiteMap<Tier, u32> = LiteMap::new();
    for (_, pod) in pods.iter().filter(|(class, _)| !class.stays()) {
        *tiers.entry(pod.facts.tier).or_default() += 1;
    }
    let (held, copied) = survey.storage.as_ref().map(copies::foreseen).unwrap_or_default();
    blockers.extend(held);
    let leaving: BTreeSet<NamespacedName> = pods
        .iter()
        .filter(|(class, _)| !class.stays())
        .flat_map(|(_, pod)| {
            let namespace = &pod.facts.pod.namespace;
            pod.facts.claims.iter().map(move |claim| (namespace.clone(), claim.clone()))
        })
        .collect();
    let attached = survey.attached.iter().filter(|it| leaving.contains(&it.claim));
    let mut volumes: Vec<String> = attached.map(ToString::to_string).collect();
    volumes.order();
    Plan {
        node: survey.node.name.to_string(),
        cordon: survey.node.cordon,
        pods: pods.iter().map(|(class, pod)| survey.planned(*class, pod)).collect(),
        machines,
        blockers,
        volumes,
        peers: survey
            .peers
            .iter()
            .map(|it| PlannedPeer { node: it.name.clone(), closed: closed(it) })
            .collect(),
        findings: survey.findings.clone(),
        notes: [survey.notes(), copied, estimate].concat(),
        counts,
        tiers: tiers.into_iter().map(|(tier, pods)| PlannedTier { tier, pods }).collect(),
        versions: survey.versions.clone(),
    }
}

fn count(all: usize) -> u32 {
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// Why a node takes no pods at all, or empty.
fn closed(peer: &PeerNode) -> String {
    SchedulingNeeds::default().why_not(peer, false).unwrap_or_default()
}

impl Survey {
    fn class(&self, pod: &Surveyed) -> PlanClass {
        match pod.facts.class() {
            PodClass::Keep(KeepReason::KeptApp) => PlanClass::KeepExcluded,
            PodClass::Keep(KeepReason::DaemonSet) => PlanClass::KeepDaemonSet,
            PodClass::Keep(KeepReason::Mirror) => PlanClass::KeepMirror,
            PodClass::Await => PlanClass::Going,
            PodClass::Leave if pod.facts.owner == PodOwner::VanishedDaemonSet => PlanClass::Orphan,
            PodClass::Leave if pod.facts.finished => PlanClass::Finished,
            PodClass::Leave if pod.needs.is_pinned(&self.peers) => PlanClass::Pinned,
            PodClass::Leave if pod.facts.tolerates_cordon => PlanClass::TolerateCordon,
            PodClass::Leave => PlanClass::Evict,
        }
    }

    /// Why no other node can take the pod, when none can.
    pub(super) fn homeless(&self, pod: &Surveyed) -> Option<String> {
        place(&self.peers, |peer| pod.needs.why_not(peer, pod.facts.tolerates_cordon)).err()
    }

    /// The same with what the pods that are there leave: it may change by the minute, and blocks nothing.
    pub(super) fn crowded_out(&self, pod: &Surveyed) -> Option<String> {
        let near = |it: &Resident| Resident { beside: Vec::new(), ..it.clone() };
        // Those that it must be near to may leave with it.
        let alone = pod.resident.as_ref().map(near);
        let why_not = |peer: &PeerNode| {
            let fixed = pod.needs.why_not(peer, pod.facts.tolerates_cordon);
            fixed.or_else(|| self.residents.why_not(alone.as_ref()?, peer))
        };
        place(&self.peers, why_not).err()
    }

    fn guards(&self, pod: &PodFacts) -> Vec<&BudgetFacts> {
        let here = self.budgets.iter().filter(|budget| budget.namespace == pod.pod.namespace);
        here.filter(|budget| budget.guards(&pod.labels)).collect()
    }

    /// Goes through the pods as the engine asks them.
    fn blockers(&self, pods: &[(PlanClass, &Surveyed)]) -> Vec<Blocker> {
        let mut found = Vec::new();
        // Room that budgets have had from the start and lose for good, as what leaves by it comes up nowhere.
        let mut lost: LiteMap<NamespacedName, Vec<(PodRef, String)>> = LiteMap::new();
        for (class, pod) in pods {
            if class.stays() || *class == PlanClass::Going {
                continue;
            }
            // It has left with its machine before the first pod is asked.
            if self.machines.is_some() && tier::is_machine(&pod.facts.labels) && !pod.facts.finished {
                continue;
            }
            let name = &pod.facts.pod;
            let mut foresee =
                |code, reason| found.push(held::foreseen(&Subject::Pod(name.clone()), code, reason));
            if self.ending.contains(&name.namespace) {
                let text = format!("namespace {} is being deleted", name.namespace);
                foresee(BlockCode::NamespaceEnding, held::by_namespace(name, &text));
                continue;
            }
            if let Some(hold) = pod.facts.hold.as_ref().filter(|it| it.ahead.is_ok() && !pod.facts.finished) {
                let reason =
                    format!("pod {name} is not evicted before {}, as {HOLD_ANNOTATION} says", hold.text);
                foresee(BlockCode::HeldUntil, reason);
                continue;
            }
            let guards = self.guards(&pod.facts);
            let ready = pod.facts.ready;
            let passes = pod.facts.pending || pod.facts.finished || guards.iter().all(|it| it.passes(ready));
            // Its budget opens by being removed; what keeps it are volumes, which are foreseen themselves.
            let manager = self.storage.is_some() && is_manager(&pod.facts);
            if guards.is_empty() || passes || manager {
                continue;
            }
            // The second copy opens them, where a node can take it.
            if self.copy_of(pod).is_some() && self.homeless(pod).is_none() {
                continue;
            }
            if guards.iter().any(|budget| !budget.admits(ready)) {
                let (code, reason) = self.held_now(&pod.facts, &guards);
                let one = held::foreseen(&Subject::Pod(name.clone()), code, reason);
                found.push(held::advised(one, &pod.facts, &guards));
                continue;
            }
            let key = |budget: &BudgetFacts| (budget.namespace.clone(), budget.name.clone());
            let used_up = guards.iter().find_map(|budget| {
                let gone = lost.get(&key(budget))?;
                (i32::try_from(gone.len()).unwrap_or(i32::MAX) >= budget.allowed)
                    .then(|| gone.first())
                    .flatten()
            });
            if let Some((other, why)) = used_up {
                let numbers = guards.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let reason = format!(
                    "pod {name} will be held: {numbers}; no other node can take what replaces pod {other} ({why})"
                );
                foresee(BlockCode::NoOtherNode, reason);
            } else if let Some(why) = self.homeless(pod) {
                for budget in guards {
                    lost.entry(key(budget)).or_default().push((name.clone(), why.clone()));
                }
            }
        }
        found
    }

    /// Pods that may take longer to end than the drain lasts, but for those that are held as it is.
    fn long_graces(&self, pods: &[(PlanClass, &Surveyed)], held: &[Blocker]) -> Vec<Blocker> {
        let most = self.given_up_after;
        let long = pods.iter().filter(|(class, pod)| !class.stays() && pod.facts.grace > most);
        let facts = long.map(|(_, pod)| &pod.facts);
        let free = facts.filter(|it| !it.finished && held.iter().all(|held| held.uid != it.pod.uid.as_str()));
        free.map(|facts| {
            let reason = format!(
                "pod {} may take its grace period of {} s to end, and the drain is given up after {} s",
                facts.pod,
                facts.grace.as_secs(),
                most.as_secs()
            );
            held::foreseen(&Subject::Pod(facts.pod.clone()), BlockCode::LongGrace, reason)
        })
        .collect()
    }

    /// The Deployment that is asked for a second copy before the pod is evicted.
    fn copy_of(&self, pod: &Surveyed) -> Option<&String> {
        self.copies.as_ref().ok()?.get(&pod.facts.pod.uid)
    }

    fn held_now(&self, pod: &PodFacts, guards: &[&BudgetFacts]) -> (BlockCode, String) {
        let full = guards.iter().filter(|budget| !budget.admits(pod.ready));
        let hindrances: Vec<&UnhealthyPod> = full
            .filter_map(|budget| self.hindrances.get(&(budget.namespace.clone(), budget.name.clone())))
            .flatten()
            .collect();
        let code = if guards.len() > 1 { BlockCode::ManyBudgets } else { BlockCode::Budget };
        held::by_budgets(pod, guards, &hindrances, code)
    }

    fn planned(&self, class: PlanClass, pod: &Surveyed) -> Planned {
        let facts = &pod.facts;
        let guards = self.guards(facts);
        let mut notes = Vec::new();
        if class == PlanClass::Pinned {
            let why = self.homeless(pod).unwrap_or_default();
            notes.push(format!("no other node is one of those it asks for: {why}"));
        } else if !class.stays()
            && facts.owner == PodOwner::Other
            && !facts.finished
            && let Some(why) = self.crowded_out(pod)
        {
            notes.push(format!("no other node can take it: {why}"));
        }
        if !facts.daemon_group.is_empty() && class.stays() {
            notes.push(format!("made by a DaemonSet of {}", facts.daemon_group));
        }
        if facts.tolerates_cordon && !class.stays() {
            notes.push("it tolerates a cordon, so a replacement pod may be scheduled here again".to_owned());
        }
        if matches!(class, PlanClass::Evict | PlanClass::Pinned | PlanClass::TolerateCordon)
            && facts.owner == PodOwner::Nobody
        {
            notes.push("nobody creates it again".to_owned());
        }
        if let Some(deployment) = self.copy_of(pod).filter(|_| !class.stays()) {
            let shut: Vec<String> =
                guards.iter().filter(|it| !it.has_room()).map(ToString::to_string).collect();
            let opens =
                if shut.is_empty() { String::new() } else { format!(", which opens {}", shut.join(", ")) };
            notes.push(format!("Deployment {deployment} makes a second copy elsewhere first (surge){opens}"));
        }
        if facts.has_many(&guards) && !class.stays() {
            notes.push("it has more than one budget, and leaves when all have room".to_owned());
        }
        Planned {
            pod: facts.pod.clone(),
            class,
            tier: facts.tier,
            priority: facts.priority,
            priority_class: pod.priority_class.clone(),
            workload: facts.workload.clone(),
            budgets: guards.iter().map(|budget| budget.name.clone()).collect(),
            claims: facts.claims.clone(),
            note: notes.join("; "),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let name = &self.node.name;
        match (self.node.cordon, &self.node.annotation) {
            (CordonOwner::None, _) => {}
            (CordonOwner::Ours, Some(owner)) => {
                let asked = &owner.requested_at;
                let at = asked.parse().map_or_else(|_| asked.clone(), GoTime::shown);
                let what = owner.purpose();
                notes.push(format!("node {name} is cordoned already, for {what} requested {at}"));
            }
            (CordonOwner::Ours, None) | (CordonOwner::Foreign, _) => {
                notes.push(format!("node {name} is cordoned by somebody else, and stays so after a drain"));
            }
        }
        if !self.node.ready {
            notes.push(format!("node {name} is not Ready: its kubelet may end no pod"));
        }
        if let Err(why) = &self.copies {
            notes.push(format!("second copies of Deployments are not counted on: {why}"));
        }
        if self.peers.is_empty() {
            notes.push(
                "there is no other node: what is evicted runs nowhere until this one is back".to_owned(),
            );
        } else if self.peers.iter().all(|peer| !closed(peer).is_empty()) {
            notes.push("no other node takes pods now".to_owned());
        }
        let leaving = || self.pods.iter().filter(|it| !self.class(it).stays()).map(|it| &it.facts);
        notes.extend(leaving().filter_map(PodFacts::hold_refused));
        notes.extend(tier::undisturbed(leaving()));
        notes
    }
}

#[cfg(test)]
pub(crate) mod tests;
