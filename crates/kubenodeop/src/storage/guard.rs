//! Whether our node holds the last healthy copy of a volume: one rule for the drain, the leave and a lost API; and what a
//! drain notes of volumes for the time after the outage (R4).
//!
//! Not here: reading (`longhorn`), how long is waited (`engine`). Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kubeapi::slim::longhorn::{Engine, Replica, Shard, Volume, VolumeUser, condition, named};
use serde::{Deserialize, Serialize};
use step::{Inserted as _, Mono, SmallSort as _};

use super::ClosedBudget;
use super::facts::{CopyMark, pass_of};
use super::facts::{NodeDrainPolicy, StorageFacts};
use crate::progress::{BlockCode, Subject};
use kubeapi::names::PASS_ANNOTATION;

/// A volume with a copy or a shard on our node, or one that is attached there and has no replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeFinding {
    pub volume: String,
    /// Namespace and name of its claim; empty without one.
    pub claim: (String, String),
    /// The node where it is attached, or empty.
    pub attached: String,
    /// That is ours: what uses it here would lose it.
    pub here: bool,
    /// Longhorn moves a copy away from our node, and keeps the volume attached where it is until that is done.
    pub moves: bool,
    /// Nodes besides ours with a healthy copy that counts.
    pub elsewhere: Vec<String>,
    /// How far a copy elsewhere is rebuilt.
    pub percent: Option<u8>,
    /// Why a rebuild elsewhere has failed, in Longhorn's words; empty when none has.
    pub failed: String,
    /// Copies, or shards.
    pub wanted: u32,
    pub healthy: u32,
    /// How many shards its data needs; 0 of one that has copies.
    pub needed: u32,
    /// Its shards here that are not healthy: they end with the instance manager, before the drain does.
    pub ended: u32,
    /// We have asked for another one because of our node.
    pub asked: bool,
    /// Why a person lets it go down with our node; empty where nobody does.
    pub passed: String,
    /// Nodes on which the disk with a copy has less than 1 % free.
    pub full: Vec<String>,
    /// Virtual machines that run with it, as `shop/db`.
    pub machines: Vec<String>,
    /// What it means for our node.
    pub state: VolumeState,
}

/// What a volume means for our node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VolumeState {
    /// Nothing is lost when our node goes.
    #[default]
    Safe,
    /// The only healthy copy that counts is here.
    LastCopy(Cause),
    /// No copy anywhere is healthy, or too few shards are: no wait helps, and nothing is lost by our node.
    Faulted,
    /// It has no replica and no shard that is known: what is lost with our node is not known, so it is only named.
    Unknown,
}

/// Why there is no other copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The volume has one copy, on the node where it is used, by its own definition.
    StrictLocal,
    /// There are healthy ones on these nodes, which do not count.
    Behind(Vec<String>),
    /// One cannot be rebuilt, as these nodes' disks are full.
    Full(Vec<String>),
    Rebuilding,
    /// Each other node that could hold one is cordoned.
    AllCordoned,
    NoOtherNode,
    /// The volume is being moved with its virtual machine; Longhorn makes no copy meanwhile.
    Migrating,
    /// Longhorn finds no place, in its words.
    NoPlace(String),
    /// A copy is missing, and Longhorn will rebuild it.
    Degraded,
    /// The volume is attached nowhere, and nothing rebuilds it.
    Detached,
    /// As many copies as are wanted are there: none is to come by itself.
    Enough,
    /// Without its shards here only so many are left, fewer than its data needs; those on nodes that are not there do not count.
    Parity {
        left: u32,
        behind: Vec<String>,
        rebuilds: bool,
    },
}

impl Cause {
    /// The reason for machines; `None` where another copy is under way.
    pub const fn code(&self) -> Option<BlockCode> {
        match self {
            Self::Rebuilding | Self::Migrating | Self::Degraded | Self::Parity { rebuilds: true, .. } => None,
            Self::StrictLocal => Some(BlockCode::StrictLocal),
            Self::AllCordoned => Some(BlockCode::AllCordoned),
            Self::NoPlace(_) => Some(BlockCode::NoRoom),
            Self::Full(_) => Some(BlockCode::VolumeFull),
            Self::Behind(_)
            | Self::NoOtherNode
            | Self::Detached
            | Self::Enough
            | Self::Parity { rebuilds: false, .. } => Some(BlockCode::LastCopy),
        }
    }
}

/// For a person: `shop/data (pvc-1)`.
impl fmt::Display for VolumeFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&named(&self.claim.0, &self.claim.1, &self.volume))
    }
}

impl VolumeFinding {
    /// Whether as many copies are healthy as are wanted.
    pub const fn is_whole(&self) -> bool {
        self.healthy >= self.wanted
    }

    /// Whether more copies are healthy than are wanted.
    pub const fn is_over_number(&self) -> bool {
        self.wanted > 0 && self.healthy > self.wanted
    }

    /// Whether our node holds the last copy of it.
    pub const fn is_last(&self) -> bool {
        matches!(self.state, VolumeState::LastCopy(_))
    }

    /// Why it is one of [`Self::is_last`], in short.
    pub const fn loss(&self) -> &'static str {
        if self.needed > 0 { "its shards here cannot be spared" } else { "its last healthy copy is here" }
    }

    /// Whether a policy that names `word` means it: a volume `pvc-1`, or a claim `shop/data`.
    pub fn is_named(&self, word: &str) -> bool {
        word == self.volume || word.split_once('/') == Some((&self.claim.0, &self.claim.1))
    }

    /// What is the matter, as the end of a sentence; empty when it is safe.
    pub fn words(&self, policy: &NodeDrainPolicy) -> String {
        let cause = match &self.state {
            VolumeState::Safe if self.here && self.moves => {
                return "Longhorn moves its copy away from this node, and gives it to no other node before"
                    .to_owned();
            }
            VolumeState::Safe => return String::new(),
            VolumeState::Faulted if self.needed > 0 => {
                let (healthy, needed) = (self.healthy, self.needed);
                return format!("too few of its shards are healthy: {healthy}, and {needed} are needed");
            }
            VolumeState::Faulted => return "no copy is healthy on any node".to_owned(),
            VolumeState::Unknown => {
                return "no replica and no shard of it is known, so it is not known whether its data survives without this node"
                    .to_owned();
            }
            VolumeState::LastCopy(cause) => cause,
        };
        let more = match cause {
            Cause::StrictLocal => "it is strict-local and cannot have another".to_owned(),
            Cause::Behind(nodes) => format!("the other copies cannot be used: {}", nodes.join(", ")),
            Cause::Full(nodes) => {
                format!("another cannot be rebuilt, as its disk is full: {}", nodes.join(", "))
            }
            Cause::Rebuilding => match self.percent {
                Some(percent) => format!("another is being rebuilt, {percent} %"),
                None => "another is being rebuilt".to_owned(),
            },
            Cause::AllCordoned => {
                "all other nodes are cordoned, so none can take another copy: uncordon one, this does not end by itself"
                    .to_owned()
            }
            Cause::NoOtherNode => "no other node takes copies".to_owned(),
            Cause::Migrating => "it moves with its virtual machine, and is copied after that".to_owned(),
            Cause::NoPlace(text) => format!("Longhorn finds no place for another: {text}"),
            Cause::Degraded if self.asked => "another was asked for".to_owned(),
            Cause::Degraded => "another is missing; Longhorn rebuilds it, after up to 600 s".to_owned(),
            Cause::Detached if policy.copies_by_cordon() => {
                "it is detached; Longhorn attaches it to copy it".to_owned()
            }
            Cause::Detached => "it is detached, and Longhorn copies attached volumes only".to_owned(),
            Cause::Enough if policy.copies_by_cordon() => {
                "Longhorn makes another as the node is cordoned".to_owned()
            }
            Cause::Enough => "numberOfReplicas asks for no other copy".to_owned(),
            Cause::Parity { left, behind, rebuilds } => {
                let more = match (rebuilds, self.percent) {
                    (true, Some(percent)) => format!("one is being rebuilt, {percent} %"),
                    (true, None) => "one is being rebuilt".to_owned(),
                    (false, _) if !behind.is_empty() => format!("not counted: {}", behind.join(", ")),
                    (false, _) if *policy == NodeDrainPolicy::EvictAll => {
                        "Longhorn moves shards of a healthy group only".to_owned()
                    }
                    (false, _) => "a cordon moves shards under node-drain-policy block-for-eviction only".to_owned(),
                };
                let (wanted, needed) = (self.wanted, self.needed);
                return format!(
                    "its shards here cannot be spared: {left} of {wanted} would be left, and {needed} are needed; {more}"
                );
            }
        };
        let rebuilds = matches!(cause, Cause::Rebuilding | Cause::Degraded);
        let failed = if rebuilds && !self.failed.is_empty() {
            format!("; a rebuild has failed: {}", self.failed)
        } else {
            String::new()
        };
        format!("the last healthy copy is here; {more}{failed}")
    }

    /// Whether `pass`, or a person, lets it go down with our node.
    pub fn is_passed(&self, pass: &BTreeSet<String>) -> bool {
        !self.passed.is_empty() || pass.iter().any(|word| self.is_named(word))
    }

    /// Why who uses it on our node is not ended for now, in code and words: its last healthy copy is here, or Longhorn moves
    /// the one here, and gives the volume to no other node before. That is done while it is used; where no other copy can be
    /// made the drain stops there, and nothing is won by ending its user.
    pub fn keeps_user(&self, policy: &NodeDrainPolicy) -> Option<(BlockCode, String)> {
        let code = match &self.state {
            VolumeState::LastCopy(cause) => cause.code().filter(|_| *cause != Cause::Enough),
            VolumeState::Safe if self.moves => None,
            VolumeState::Safe | VolumeState::Faulted | VolumeState::Unknown => return None,
        };
        self.here.then(|| (code.unwrap_or(BlockCode::Copying), self.sentence(policy)))
    }

    /// The same with its name, a sentence without its end.
    pub fn sentence(&self, policy: &NodeDrainPolicy) -> String {
        format!("volume {self}: {}", self.words(policy))
    }

    /// It, as what holds a drain up.
    pub fn subject(&self) -> Subject {
        let (namespace, claim) = self.claim.clone();
        Subject::Volume { namespace, claim, volume: self.volume.clone() }
    }

    pub fn next_step(&self) -> String {
        let kinds = if self.needed > 0 { "shardgroups,shards" } else { "replicas,engines" };
        let show = format!("`kubectl -n longhorn-system get {kinds} -l longhornvolume={}`", self.volume);
        let pass = format!(
            "or let its data go down with the node: `kubectl -n longhorn-system annotate --overwrite \
             volumes.longhorn.io {} {PASS_ANNOTATION}='<node> <why>'`",
            self.volume
        );
        match &self.state {
            VolumeState::Safe if self.here && self.moves => format!("wait: {show}"),
            VolumeState::Safe => String::new(),
            VolumeState::Faulted => format!("bring back the nodes that hold its copies: {show}"),
            VolumeState::Unknown => format!(
                "see how its data is stored before this node goes down: `kubectl -n longhorn-system get \
                 volumes.longhorn.io {} -o yaml`",
                self.volume
            ),
            VolumeState::LastCopy(cause) => match cause {
                Cause::StrictLocal => format!("stop what uses it and set another dataLocality, {pass}"),
                Cause::Behind(_) => {
                    "bring those nodes back, or uncordon them: one node after another".to_owned()
                }
                Cause::AllCordoned => "uncordon one other node: `kubectl uncordon <node>`".to_owned(),
                Cause::NoOtherNode => format!("add a node with storage, {pass}"),
                Cause::NoPlace(_) => format!("make room or fit tags on another node: {show}, {pass}"),
                Cause::Full(_) => format!("{}, {pass}", BlockCode::VolumeFull.next_step("", "")),
                Cause::Detached => format!("start what uses it on any node, {pass}"),
                Cause::Rebuilding | Cause::Degraded if !self.failed.is_empty() => {
                    format!("look at the disk and the network of that node: {show}, {pass}")
                }
                Cause::Rebuilding | Cause::Degraded | Cause::Migrating => format!("wait: {show}"),
                Cause::Enough => format!("wait for another copy: {show}, {pass}"),
                Cause::Parity { behind, .. } if !behind.is_empty() => {
                    format!("bring those nodes back, or uncordon them: {show}, {pass}")
                }
                Cause::Parity { .. } => format!("wait until its failed shards are rebuilt: {show}, {pass}"),
            },
        }
    }
}

/// All volumes with a copy or a shard on the node `own`, that are kept attached there for a move, or that are attached there
/// and have no replica, by name.
pub fn judge(facts: &StorageFacts, own: &str) -> Vec<VolumeFinding> {
    let mut names: Vec<&str> = present(facts)
        .filter(|(_, it)| {
            it.spec.node == own && (!it.spec.healthy_at.is_empty() || !it.spec.failed_at.is_empty())
        })
        .map(|(_, it)| it.spec.volume_name.as_str())
        .chain(facts.kept_for_moves(own))
        .chain(without_replicas(facts, own))
        .collect();
    names.order();
    names.dedup();
    names.into_iter().map(|volume| of_volume(facts, own, volume)).collect()
}

/// The volumes with a shard on `own` that was ever used, and those attached there of which there is no replica.
fn without_replicas<'a>(facts: &'a StorageFacts, own: &'a str) -> impl Iterator<Item = &'a str> {
    let shards = facts.shards.values().filter(move |it| it.spec.node == own && !it.status.state.is_empty());
    let bare = move |(name, it): &(&String, &Volume)| {
        it.status.current_node == own && !facts.replicas.values().any(|it| it.spec.volume_name == **name)
    };
    let attached = facts.volumes.iter().filter(bare).map(|(name, _)| name.as_str());
    shards.map(|it| it.spec.shard_group_name.as_str()).chain(attached)
}

/// A volume without replicas: how many of its shards are left when our node goes.
fn of_shards(facts: &StorageFacts, own: &str, name: &str) -> VolumeFinding {
    let volume = facts.volumes.get(name);
    let attached = volume.map(|it| it.status.current_node.clone()).unwrap_or_default();
    let found = VolumeFinding { here: attached == own, attached, ..known_of(volume, own, name) };
    let of_it = |it: &&Shard| it.spec.shard_group_name == name && it.metadata.deletion_timestamp.is_none();
    let all: Vec<&Shard> = facts.shards.values().filter(of_it).collect();
    let group = facts.shard_groups.get(name).filter(|it| it.spec.data_chunks > 0 && !all.is_empty());
    let Some(group) = group else {
        let healthy = volume.is_some_and(|it| it.status.robustness == "healthy");
        return VolumeFinding { state: VolumeState::Unknown, wanted: 1, healthy: healthy.into(), ..found };
    };
    let (needed, rebuilds) = (group.spec.data_chunks, group.status.rebuild_in_progress);
    let wanted = needed.saturating_add(group.spec.parity_chunks);
    let (here, others): (Vec<&Shard>, Vec<&Shard>) =
        all.iter().copied().filter(|it| it.status.state == "normal").partition(|it| it.spec.node == own);
    let (elsewhere, mut behind) = usable(facts, others.iter().map(|it| &it.spec.node));
    behind.order();
    behind.dedup();
    let number = |all: usize| u32::try_from(all).unwrap_or(u32::MAX);
    // The group may know of more that have failed than their own objects say.
    let healthy = number(here.len() + others.len()).min(wanted.saturating_sub(group.status.failed_count));
    let left = number(elsewhere.len()).min(healthy.saturating_sub(number(here.len())));
    let state = if group.status.state == "offline" || healthy < needed {
        VolumeState::Faulted
    } else if here.is_empty() || left >= needed {
        VolumeState::Safe
    } else {
        VolumeState::LastCopy(Cause::Parity { left, behind, rebuilds })
    };
    let ended = all.iter().filter(|it| it.spec.node == own).count() - here.len();
    let leaves = |it: &&Shard| it.spec.eviction_requested || facts.policy == NodeDrainPolicy::EvictAll;
    let percent = all.iter().filter(|it| it.status.state == "replacing").map(|it| it.status.rebuild_progress);
    VolumeFinding {
        moves: here.iter().any(leaves) || facts.kept_for_moves(own).any(|it| it == name),
        percent: percent.map(|it| it.min(100)).max().filter(|_| rebuilds),
        elsewhere,
        wanted,
        healthy,
        needed,
        ended: number(ended),
        state,
        ..found
    }
}

/// Of these nodes those whose copies count, and why those of the others do not.
fn usable<'a>(facts: &StorageFacts, nodes: impl Iterator<Item = &'a String>) -> (Vec<String>, Vec<String>) {
    let (mut counted, mut others) = (Vec::new(), Vec::new());
    for it in nodes {
        match facts.unusable(it) {
            None => counted.push(it.clone()),
            Some(why) => others.push(format!("node {it} {why}")),
        }
    }
    (counted, others)
}

/// What a volume says of itself.
fn known_of(volume: Option<&Volume>, own: &str, name: &str) -> VolumeFinding {
    let claimed = volume.map(|it| it.status.kubernetes_status.clone()).unwrap_or_default();
    let runs = |it: &&VolumeUser| it.workload_type == "VirtualMachineInstance" && it.pod_status == "Running";
    let machines = claimed.workloads_status.iter().filter(runs);
    let machines = machines.map(|it| format!("{}/{}", claimed.namespace, it.workload_name)).collect();
    VolumeFinding {
        volume: name.to_owned(),
        claim: (claimed.namespace, claimed.pvc_name),
        machines,
        passed: volume.map(|it| pass_of(it, own)).unwrap_or_default(),
        wanted: volume.map_or(0, |it| it.spec.number_of_replicas),
        asked: volume.and_then(CopyMark::of).is_some_and(|it| it.node == own),
        ..VolumeFinding::default()
    }
}

/// Copies that are not being deleted and have a node.
fn present(facts: &StorageFacts) -> impl Iterator<Item = (&String, &Replica)> {
    let there = |it: &Replica| it.metadata.deletion_timestamp.is_none() && !it.spec.node.is_empty();
    facts.replicas.iter().filter(move |(_, it)| there(it))
}

fn of_volume(facts: &StorageFacts, own: &str, name: &str) -> VolumeFinding {
    let replicas: Vec<(&String, &Replica)> =
        present(facts).filter(|(_, it)| it.spec.volume_name == name).collect();
    if replicas.is_empty() {
        return of_shards(facts, own, name);
    }
    let engine = engine(facts, name);
    let healthy = |(copy, it): &(&String, &Replica)| match engine {
        Some(engine) => engine.status.replica_mode_map.get(*copy).is_some_and(|mode| mode == "RW"),
        None => !it.spec.healthy_at.is_empty() && it.spec.failed_at.is_empty(),
    };
    let full = replicas.iter().filter(|(copy, it)| facts.is_on_full_disk(copy, &it.spec.node));
    let full: Vec<(&String, &Replica)> = full.copied().collect();
    let failed = replicas.iter().filter(|(_, it)| it.spec.node != own).find_map(|(_, it)| {
        let failed = condition(&it.status.conditions, "RebuildFailed").filter(|it| it.status == "True")?;
        let why = failed.message.clone().or_else(|| failed.reason.clone()).unwrap_or_default();
        Some(format!("node {}: {why}", it.spec.node))
    });
    let volume = facts.volumes.get(name);
    // The cordon asks for it within seconds; without a place for another copy nothing is moved.
    let asked = |it: &Replica| it.spec.eviction_requested || facts.policy == NodeDrainPolicy::EvictAll;
    let leaves = replicas.iter().any(|(_, it)| it.spec.node == own && asked(it))
        && volume.is_some_and(|it| {
            condition(&it.status.conditions, "Scheduled").is_none_or(|it| it.status != "False")
        });
    let moves = leaves || facts.kept_for_moves(own).any(|it| it == name);
    let (here, others): (Vec<_>, Vec<_>) =
        replicas.into_iter().filter(healthy).partition(|(_, it)| it.spec.node == own);
    let (elsewhere, behind) = usable(facts, others.iter().map(|(_, it)| &it.spec.node));
    let (rebuilds, percent) = engine.map_or((false, None), |engine| rebuilt(facts, engine, own));
    let state = if here.is_empty() && others.is_empty() {
        VolumeState::Faulted
    } else if here.is_empty() || !elsewhere.is_empty() {
        VolumeState::Safe
    } else {
        // What a rebuild reads from, or writes to; a healthy copy elsewhere, or one that nobody rebuilds, is neither.
        let written = |copy: &str| {
            engine.is_some_and(|it| it.status.replica_mode_map.get(copy).is_some_and(|mode| mode == "WO"))
        };
        let target =
            |(copy, it): &(&String, &Replica)| written(copy) || (!rebuilds && !it.spec.failed_at.is_empty());
        let stuck =
            full.iter().filter(|it| if it.1.spec.node == own { failed.is_some() } else { target(it) });
        let stuck: Vec<String> = stuck.map(|(_, it)| format!("node {}", it.spec.node)).collect();
        let copies = (here.len() + others.len(), behind, stuck);
        VolumeState::LastCopy(cause(facts, own, volume, (engine, rebuilds), copies))
    };
    let attached = engine.and(volume).map(|it| it.status.current_node.clone()).unwrap_or_default();
    VolumeFinding {
        full: full.iter().map(|(_, it)| it.spec.node.clone()).collect(),
        here: attached == own,
        moves,
        attached,
        elsewhere,
        percent,
        failed: failed.unwrap_or_default(),
        healthy: u32::try_from(here.len() + others.len()).unwrap_or(u32::MAX),
        state,
        ..known_of(volume, own, name)
    }
}

/// The running engine of a volume that knows its copies; while a machine moves, the one that serves it.
fn engine<'a>(facts: &'a StorageFacts, volume: &str) -> Option<&'a Engine> {
    let runs = |it: &&Engine| {
        it.spec.volume_name == volume
            && it.status.current_state == "running"
            && !it.status.replica_mode_map.is_empty()
    };
    facts.engines.values().filter(runs).max_by_key(|it| it.spec.active)
}

/// Whether a copy outside of `own` is being rebuilt, and how far.
fn rebuilt(facts: &StorageFacts, engine: &Engine, own: &str) -> (bool, Option<u8>) {
    let status = &engine.status;
    let written = status.replica_mode_map.iter().filter(|(_, mode)| *mode == "WO");
    let mut others =
        written.filter(|(copy, _)| facts.replicas.get(*copy).is_none_or(|it| it.spec.node != own)).peekable();
    let rebuilds = others.peek().is_some();
    let percent = others.filter_map(|(copy, _)| {
        let address = status.current_replica_address_map.get(copy)?;
        Some(status.rebuild_status.get(&format!("tcp://{address}"))?.progress.min(100))
    });
    (rebuilds, percent.max())
}

fn cause(
    facts: &StorageFacts,
    own: &str,
    volume: Option<&Volume>,
    (engine, rebuilds): (Option<&Engine>, bool),
    (healthy, behind, full): (usize, Vec<String>, Vec<String>),
) -> Cause {
    let none = Volume::default();
    let volume = volume.unwrap_or(&none);
    let scheduled = condition(&volume.status.conditions, "Scheduled");
    if volume.spec.data_locality == "strict-local" {
        Cause::StrictLocal
    } else if rebuilds && full.is_empty() {
        Cause::Rebuilding
    } else if facts.all_others_cordoned(own) {
        Cause::AllCordoned
    } else if !behind.is_empty() {
        Cause::Behind(behind)
    } else if !full.is_empty() {
        Cause::Full(full)
    } else if facts.others(own).next().is_none() {
        Cause::NoOtherNode
    } else if !volume.spec.migration_node.is_empty() {
        Cause::Migrating
    } else if let Some(no) = scheduled.filter(|it| it.status == "False") {
        Cause::NoPlace(no.message.clone().or_else(|| no.reason.clone()).unwrap_or_default())
    } else if engine.is_none() {
        Cause::Detached
    } else if healthy < usize::try_from(volume.spec.number_of_replicas).unwrap_or(usize::MAX) {
        Cause::Degraded
    } else {
        Cause::Enough
    }
}

/// Why the budget of the instance manager `name` of `own` is closed, and what opens it.
pub(super) fn manager_budget(
    facts: &StorageFacts,
    own: &str,
    name: &str,
    findings: &[VolumeFinding],
) -> ClosedBudget {
    let engines: Vec<&str> = facts
        .managers
        .get(name)
        .map(|it| it.status.instance_engines.0.iter().map(String::as_str).collect())
        .unwrap_or_default();
    let volumes = |names: Vec<String>| kubeapi::listed(&names, ", ");
    if !engines.is_empty() {
        let of = |engine: &&str| {
            facts.engines.get(*engine).map_or((*engine).to_owned(), |it| it.spec.volume_name.clone())
        };
        let names = volumes(engines.iter().map(of).collect());
        let opens =
            "it opens once they are detached: `kubectl -n longhorn-system get volumeattachments.longhorn.io`";
        let why = format!("volumes are attached through it: {names}");
        return ClosedBudget { why, opens: opens.to_owned(), by: Vec::new() };
    }
    let policy = facts.policy.text();
    // It keeps none for shards.
    let last = |it: &&VolumeFinding| it.is_last() && it.needed == 0;
    let kept: BTreeSet<&str> = match &facts.policy {
        NodeDrainPolicy::AlwaysAllow | NodeDrainPolicy::Other(_) => BTreeSet::new(),
        NodeDrainPolicy::EvictAll => {
            let here = present(facts).filter(|(_, it)| it.spec.node == own);
            here.map(|(_, it)| it.spec.volume_name.as_str()).collect()
        }
        NodeDrainPolicy::BlockLast | NodeDrainPolicy::EvictLast => {
            findings.iter().filter(last).map(|it| it.volume.as_str()).collect()
        }
        NodeDrainPolicy::AllowStopped => {
            let stopped = |volume: &str| {
                present(facts)
                    .filter(|(_, it)| it.spec.node == own && it.spec.volume_name == volume)
                    .all(|(_, it)| it.spec.desire_state == "stopped" && it.status.current_state == "stopped")
            };
            let keeps = findings.iter().filter(last).filter(|it| !stopped(&it.volume));
            keeps.map(|it| it.volume.as_str()).collect()
        }
    };
    if kept.is_empty() {
        let opens = "Longhorn removes it within seconds: if not, look at longhorn-manager of this node: `kubectl -n \
                     longhorn-system get pods -l app=longhorn-manager -o wide`";
        let why = "nothing keeps it any more".to_owned();
        return ClosedBudget { why, opens: opens.to_owned(), by: Vec::new() };
    }
    let (why, opens) = if facts.policy == NodeDrainPolicy::EvictAll {
        ("copies are still on this node", "it opens once all of them have moved")
    } else {
        ("last healthy copies are on this node", "it opens once another node has a healthy copy of each")
    };
    let shown = |name: &&str| {
        let found = findings.iter().find(|it| it.volume == **name);
        found.map_or_else(|| (*name).to_owned(), ToString::to_string)
    };
    let names = volumes(kept.iter().map(shown).collect());
    let by = kept.into_iter().map(str::to_owned).collect();
    ClosedBudget { why: format!("node-drain-policy {policy}: {why}: {names}"), opens: opens.to_owned(), by }
}

/// Volumes with a copy on a node before an outage, and whether all their copies were healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumesBefore {
    /// By name, whether all copies were healthy.
    pub volumes: BTreeMap<String, bool>,
    /// Those that a person let go down with the node: their word is used up.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<String>,
    /// The boot in which the cordon went, and when in it, in ms; none while the cordon is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<(String, u64)>,
}

impl VolumesBefore {
    /// Those that are not faulted; `None` without any.
    pub fn of(findings: &[VolumeFinding]) -> Option<Self> {
        let good = findings.iter().filter(|it| it.state != VolumeState::Faulted);
        let all: BTreeMap<String, bool> =
            good.map(|it| (it.volume.clone(), it.healthy + it.ended >= it.wanted)).into_map();
        // Of one that has gone down with its instance manager no copy is healthy any more.
        let passed = findings.iter().filter(|it| it.state != VolumeState::Safe && !it.passed.is_empty());
        let passed: BTreeSet<String> = passed.map(|it| it.volume.clone()).into_set();
        let is_empty = all.is_empty() && passed.is_empty();
        (!is_empty).then_some(Self { volumes: all, passed, opened: None })
    }

    pub(crate) fn opened(self, boot: &str, now: Mono) -> Self {
        let at = now.since_start().as_millis();
        Self { opened: Some((boot.to_owned(), u64::try_from(at).unwrap_or(u64::MAX))), ..self }
    }

    /// Whether it says what was before this boot.
    pub(crate) fn is_before(&self, boot: &str) -> bool {
        self.opened.as_ref().is_none_or(|(of, _)| of == boot)
    }
}

/// Volumes of the cluster that are not well, by their names as a person knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumesSeen {
    /// No copy can be used.
    pub faulted: BTreeMap<String, String>,
    /// A copy is missing.
    pub degraded: BTreeMap<String, String>,
}

#[cfg(test)]
pub(crate) mod tests;
