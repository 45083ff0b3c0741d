//! What is done about one machine, from its facts alone.
//!
//! Not here: when it is looked at again, and calls under way (`engine`). Pure: no clock, no I/O, no task.
//!
//! Limits of the migration of one machine, how it is copied, and how long that is estimated to take. KubeVirt's
//! settings hold where no MigrationPolicy that matches says otherwise, and what a migration that runs says of itself
//! goes before both. Source: KubeVirt's user guide, page "Migration Policies".

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use kubeapi::machines::{MachineAction, MachineSeen, MachineWork, stops};
use kubeapi::names::PodRef;
use kubeapi::objects::{items, text};
use serde_json::Value;

use super::facts::IO_ERROR;
use super::{
    EvictionStrategy, MachineOwner, MachinePolicy, Migratable, Migration, MigrationRequest,
    MigrationSettings, VirtualMachine,
};
use crate::plan::placement::thousandths;
use crate::progress::{BlockCode, MachineState};
use topics::number;

/// Migrations of one machine that may fail in one drain; KubeVirt itself never gives up.
pub const TRIES: usize = 3;
/// A machine that KubeVirt has said nothing about for so long counts as one that cannot be migrated.
const UNREPORTED: Duration = Duration::from_secs(60);
/// A marked machine for which KubeVirt makes no migration for so long, though one could run, is not going to be migrated.
const UNANSWERED: Duration = Duration::from_secs(300);
/// What may end of itself takes the room on the other nodes: so long a machine is not shut down for that.
const ROOM: Duration = Duration::from_secs(300);
/// A migration that waits for its target pod; KubeVirt itself gives that up after 900 s.
const PENDING: Duration = Duration::from_secs(960);

/// The reason of a machine that is paused and resumed again and again.
pub const FLAPPING: &str = "PausedAgainAndAgain";
/// What a person can do about IO errors of a guest.
const TRIM: &str = "a guest that trims its disks while one is rebuilt gets IO errors: stop its fstrim timer (`systemctl stop \
                    fstrim.timer`) and mount without `discard` (/etc/fstab)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Writes on the instance what this drain does with it.
    Mark(MigrationRequest),
    Evict(PodRef),
    ClearMark,
    DeleteMigration(PodRef),
    /// Stops the machine, as is written on it.
    Stop(Box<MachineWork>),
}

/// Where a machine is, and what is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub state: MachineState,
    /// As people read it, without its name.
    pub text: String,
    pub act: Option<Action>,
    /// What is done once that is, without another look.
    pub then: Option<Action>,
    /// What becomes of it in another way than by a migration; empty otherwise.
    pub left: String,
    /// Why it holds the drain up, if it does.
    pub code: Option<BlockCode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainIdentity {
    pub node: String,
    pub request: String,
}

impl DrainIdentity {
    /// The name of the drain in what is written on a machine that it stops.
    #[must_use]
    pub fn id(&self) -> String {
        format!("drain of node {}, {}", self.node, self.request)
    }
}

fn decision(state: MachineState, text: impl Into<String>) -> Decision {
    let code = match state {
        MachineState::Held | MachineState::Failed => Some(BlockCode::CannotMove),
        MachineState::Unreadable => Some(BlockCode::Unreadable),
        MachineState::Waiting
        | MachineState::Asked
        | MachineState::Moving
        | MachineState::Aborting
        | MachineState::ShuttingDown
        | MachineState::Gone => None,
    };
    Decision { state, text: text.into(), act: None, then: None, left: String::new(), code }
}

/// It is not on this node any more.
pub(crate) fn gone() -> Decision {
    decision(MachineState::Gone, "gone")
}

fn acts(state: MachineState, text: impl Into<String>, act: Action) -> Decision {
    Decision { act: Some(act), ..decision(state, text) }
}

/// What is done about `machine` that has been as it is for `since`. `others` of the cluster's migrations run.
#[must_use]
pub fn decide(drain: &DrainIdentity, machine: &VirtualMachine, since: Duration, others: usize) -> Decision {
    let it = machine;
    if let Some(why) = it.unread.as_ref().filter(|_| !it.launchers.is_empty()) {
        return decision(MachineState::Unreadable, format!("cannot be read: {why}"));
    }
    if it.launchers.is_empty() && (it.over || !it.here) {
        return gone();
    }
    if it.over || it.ending || it.launchers.iter().all(|it| it.ending) {
        return decision(MachineState::ShuttingDown, "its guest is shutting down");
    }
    if !it.here {
        return decision(MachineState::Moving, format!("runs on node {}; its pod here is ending", it.node));
    }
    let asked = it.asked.as_ref();
    // What another drain gave up counts no longer: it may have come back since.
    if let Some(asked) = asked.filter(|it| !it.gave_up.is_empty() && it.request == drain.request) {
        return given_up(drain, it, &asked.gave_up);
    }
    if it.marked || it.migration.is_some() {
        return under_way(drain, it, since, others);
    }
    if let MachineOwner::Machine(Some(seen)) = &it.owner
        && has_stopped(drain, seen)
    {
        return stop(drain, it, seen, "it was stopped for this drain");
    }
    if it.policy == MachinePolicy::Shutdown {
        return shut_down(drain, it, &format!("its policy is shutdown ({})", it.policy_from));
    }
    match (it.strategy, &it.migratable) {
        (EvictionStrategy::None, _) => {
            cannot_move(drain, it, "its eviction strategy is None, so KubeVirt does not migrate it")
        }
        (_, Migratable::Unknown) if since < UNREPORTED => {
            decision(MachineState::Waiting, "KubeVirt has not reported yet whether it can be migrated")
        }
        (_, Migratable::Unknown) => {
            cannot_move(drain, it, "KubeVirt does not report whether it can be migrated")
        }
        (_, Migratable::No(reason, text)) => cannot_move(drain, it, &refused(it, reason, text)),
        (_, Migratable::Yes) => match &it.target {
            Err(why) if it.lacks_room && it.policy == MachinePolicy::MigrateOrShutdown && since < ROOM => {
                Decision {
                    code: Some(BlockCode::NoOtherNode),
                    ..decision(
                        MachineState::Waiting,
                        format!("waits up to {} s for room on another node: {why}", ROOM.as_secs()),
                    )
                }
            }
            Err(why) => cannot_move(drain, it, &format!("no other node can take it: {why}")),
            Ok(_) if let Some(why) = &it.crowded => decision(
                MachineState::Waiting,
                format!(
                    "waits for those that leave before it: beside them no other node has room for it: {why}"
                ),
            ),
            Ok(target) => match it.disks.iter().find(|it| it.rebuilds).filter(|_| !it.although_rebuilding) {
                Some(disk) => Decision {
                    code: Some(BlockCode::Rebuilding),
                    ..decision(MachineState::Waiting, format!("is not migrated yet: {disk}; {TRIM}"))
                },
                None => ask(drain, it, target),
            },
        },
    }
}

/// Whether this drain has begun to stop it.
fn has_stopped(drain: &DrainIdentity, seen: &MachineSeen) -> bool {
    seen.mark.as_ref().is_some_and(|mark| mark.id == drain.id() && mark.uid == seen.uid)
}

/// Whether what was decided about `machine` begins to end its guest: then its volumes are asked first.
pub(crate) fn ends(drain: &DrainIdentity, machine: &VirtualMachine, found: &Decision) -> bool {
    let begun = matches!(&machine.owner, MachineOwner::Machine(Some(seen)) if has_stopped(drain, seen));
    found.state == MachineState::ShuttingDown && found.act.is_some() && !begun
}

/// Its volumes keep it up, for this reason; without a code that is not known yet.
pub(crate) fn kept_up((code, why): (Option<BlockCode>, String)) -> Decision {
    let state = if code.is_some() { MachineState::Held } else { MachineState::Waiting };
    Decision { code, ..decision(state, format!("is not shut down yet: {why}")) }
}

/// What a drain would do about a machine, whatever the time that it has been so.
#[derive(Debug, Clone)]
pub struct Fate {
    pub state: MachineState,
    act: Option<Discriminant<Action>>,
    /// It waits for the rebuild of a volume.
    pub rebuilds: bool,
    /// It depends on the room on other nodes.
    pub lacks_room: bool,
    /// As people read it, without its name.
    pub text: String,
}

/// The words may differ: amounts in them change by the minute.
impl PartialEq for Fate {
    fn eq(&self, other: &Self) -> bool {
        (self.state, self.act) == (other.state, other.act)
    }
}

impl Eq for Fate {}

/// What a drain would do about `machine` if each time limit of it were over and no other one moved.
#[must_use]
pub fn fate(drain: &DrainIdentity, machine: &VirtualMachine) -> Fate {
    let found = decide(drain, machine, Duration::MAX, 0);
    let rebuilds = found.code == Some(BlockCode::Rebuilding);
    let lacks_room = needs_target(machine) && (machine.target.is_err() || machine.crowded.is_some());
    Fate {
        state: found.state,
        act: found.act.as_ref().map(discriminant),
        rebuilds,
        lacks_room,
        text: found.text,
    }
}

/// Asks for one migration. What is written on the instance comes first: a restart knows by it that the mark is ours.
fn ask(drain: &DrainIdentity, it: &VirtualMachine, target: &str) -> Decision {
    let text = format!("is asked to migrate; node {target} can take it; {}", words(it));
    let evict = it.launchers.iter().find(|it| !it.ending).map(|it| Action::Evict(it.pod.clone()));
    let (act, then) = if it.asked.as_ref().is_some_and(|it| it.request == drain.request) {
        (evict, None)
    } else {
        let asked = MigrationRequest {
            node: drain.node.clone(),
            request: drain.request.clone(),
            failed_before: it.failed.iter().map(|(uid, _)| uid.clone()).collect(),
            gave_up: String::new(),
        };
        (Some(Action::Mark(asked)), evict)
    };
    Decision { act, then, ..decision(MachineState::Waiting, text) }
}

/// A migration was asked for, by us or by somebody else.
fn under_way(drain: &DrainIdentity, it: &VirtualMachine, since: Duration, others: usize) -> Decision {
    let before = it.asked.as_ref().map(|it| it.failed_before.as_slice()).unwrap_or_default();
    let failed: Vec<&(String, String)> = it.failed.iter().filter(|(uid, _)| !before.contains(uid)).collect();
    let tried = match failed.len() {
        0 => String::new(),
        tries => format!("; {tries} of {TRIES} tries failed"),
    };
    let give_up = |why: String| {
        let asked = it.asked.clone().unwrap_or_default();
        let asked = MigrationRequest {
            node: drain.node.clone(),
            request: drain.request.clone(),
            gave_up: why.clone(),
            ..asked
        };
        acts(MachineState::Aborting, format!("is not migrated: {why}"), Action::Mark(asked))
    };
    let limit = stalled_after(it, others);
    let over = limit.filter(|limit| since >= *limit);
    if let Some(migration) = &it.migration {
        let Migration { phase, target, post_copy, .. } = migration;
        let to = if target.is_empty() { String::new() } else { format!(" to node {target}") };
        let phase = if phase.is_empty() { "new" } else { phase };
        let text = format!("migrates{to}, phase {phase}{tried}; {}", words(it));
        if *post_copy {
            return decision(MachineState::Moving, format!("{text}; in post-copy it cannot be ended"));
        }
        if let Migratable::No(reason, text) = &it.migratable
            && reason == FLAPPING
        {
            return give_up(refused(it, reason, text));
        }
        if let Some(limit) = over {
            return give_up(format!("its migration is in phase {phase} for over {} s", limit.as_secs()));
        }
        if failed.len() >= TRIES {
            return give_up(last_failure(&failed));
        }
        return decision(MachineState::Moving, text);
    }
    if failed.len() >= TRIES {
        return give_up(last_failure(&failed));
    }
    if let Migratable::No(reason, text) = &it.migratable {
        return give_up(refused(it, reason, text));
    }
    match over {
        Some(limit) => give_up(format!("KubeVirt has made no migration for {} s", limit.as_secs())),
        None => decision(MachineState::Asked, format!("waits for its migration{tried}")),
    }
}

fn last_failure(failed: &[&(String, String)]) -> String {
    let why = failed.first().map(|(_, why)| why.as_str()).unwrap_or_default();
    format!("{} failed, the last one: {why}", number(failed.len(), "migration"))
}

/// How long a machine may be as it is until its migration counts as stalled; `None` for ever. Where others run, one that
/// does not run yet waits for them.
fn stalled_after(it: &VirtualMachine, others: usize) -> Option<Duration> {
    let Some(migration) = &it.migration else { return Some(UNANSWERED).filter(|_| others == 0) };
    if migration.post_copy {
        return None;
    }
    match migration.phase.as_str() {
        "" | "Pending" => Some(PENDING).filter(|_| others == 0),
        "Scheduling" => Some(PENDING),
        "Running" => {
            // KubeVirt ends it by itself at its limit; this limit holds where KubeVirt does not.
            Some(longest(it)?.saturating_add(it.limits.progress.unwrap_or_default()))
        }
        _ => it.limits.progress,
    }
}

/// No migration is waited for any more: what there is of one is ended, then the policy holds.
fn given_up(drain: &DrainIdentity, it: &VirtualMachine, why: &str) -> Decision {
    let aborting = |text: String, act| Decision { act, ..decision(MachineState::Aborting, text) };
    if it.migration.as_ref().is_some_and(|it| it.post_copy) {
        return decision(MachineState::Moving, "migrates; in post-copy it cannot be ended");
    }
    if it.marked && it.clearable {
        return aborting(format!("is not migrated: {why}"), Some(Action::ClearMark));
    }
    // For each that is ended, KubeVirt makes another one as long as its mark is there.
    if let Some(migration) = it.migration.as_ref().filter(|_| !it.marked) {
        let act = (!migration.ending).then(|| Action::DeleteMigration(migration.object.clone()));
        return aborting(format!("its migration is ended: {why}"), act);
    }
    cannot_move(drain, it, why)
}

/// It cannot be migrated: its policy holds.
fn cannot_move(drain: &DrainIdentity, it: &VirtualMachine, why: &str) -> Decision {
    let stays = |state| {
        decision(
            state,
            format!("cannot move: {why}; its policy is {} ({})", it.policy.text(), it.policy_from),
        )
    };
    match it.policy {
        MachinePolicy::MigrateOrShutdown | MachinePolicy::Shutdown => {
            shut_down(drain, it, &format!("cannot move: {why}"))
        }
        MachinePolicy::MigrateOrHold => stays(MachineState::Held),
        MachinePolicy::Fail => stays(MachineState::Failed),
    }
}

/// Why KubeVirt does not migrate it; with the state of its volumes where these may be the cause.
fn refused(it: &VirtualMachine, reason: &str, text: &str) -> String {
    if reason != IO_ERROR && reason != FLAPPING {
        return format!("{reason}: {text}");
    }
    let disks = it.disks.iter().map(ToString::to_string);
    let all = [format!("{reason}: {text}")].into_iter().chain(disks).chain([TRIM.to_owned()]);
    all.collect::<Vec<_>>().join("; ")
}

/// Whether an eviction ends the guest in place of migrating it.
fn eviction_ends(it: &VirtualMachine) -> bool {
    match it.strategy {
        EvictionStrategy::None => true,
        // KubeVirt knows nothing of the two reasons that are ours, and would migrate it.
        EvictionStrategy::LiveMigrateIfPossible => {
            matches!(&it.migratable, Migratable::No(reason, _) if reason != IO_ERROR && reason != FLAPPING)
        }
        EvictionStrategy::LiveMigrate | EvictionStrategy::External => false,
    }
}

/// Whether what becomes of it depends on where it can go.
#[must_use]
pub fn needs_target(it: &VirtualMachine) -> bool {
    let busy = it.over || it.ending || it.marked || it.migration.is_some() || it.unread.is_some();
    if busy || !it.here || it.launchers.iter().all(|it| it.ending) {
        return false;
    }
    let gave_up = it.asked.as_ref().is_some_and(|it| !it.gave_up.is_empty());
    let asked = it.policy != MachinePolicy::Shutdown && it.strategy != EvictionStrategy::None && !gave_up;
    let stays = matches!(it.policy, MachinePolicy::MigrateOrHold | MachinePolicy::Fail);
    let always = |it: &MachineSeen| it.strategy.is_always();
    let again = matches!(&it.owner, MachineOwner::Machine(Some(seen)) if always(seen));
    (asked && it.migratable == Migratable::Yes) || (again && eviction_ends(it) && !stays)
}

fn shut_down(drain: &DrainIdentity, it: &VirtualMachine, why: &str) -> Decision {
    let evict = |left: String| {
        let pod = it.launchers.iter().find(|it| !it.ending).map(|it| Action::Evict(it.pod.clone()));
        Decision { act: pod, left, ..decision(MachineState::ShuttingDown, format!("is shut down: {why}")) }
    };
    let no = |owner: &str| {
        decision(
            MachineState::Held,
            format!("{why}; KubeVirt refuses its eviction ({}) and {owner}", it.strategy.text()),
        )
    };
    match &it.owner {
        MachineOwner::Machine(Some(seen)) => match &it.target {
            Ok(target) if seen.strategy.is_always() && eviction_ends(it) && it.crowded.is_none() => {
                evict(format!("shut down and started again elsewhere, node {target} can take it: {why}"))
            }
            Ok(_) | Err(_) => stop(drain, it, seen, why),
        },
        MachineOwner::Machine(None) => {
            decision(MachineState::Held, format!("{why}; its VirtualMachine cannot be found"))
        }
        MachineOwner::Other(owner) if eviction_ends(it) => {
            evict(format!("shut down, {owner} makes it again: {why}"))
        }
        MachineOwner::Other(owner) => no(&format!("{owner} would make it again")),
        MachineOwner::Nobody if eviction_ends(it) => {
            evict(format!("shut down, and nobody starts it again: {why}"))
        }
        MachineOwner::Nobody => no("nobody would start it again"),
    }
}

/// Stops a machine; what it had is written on it, and it is started again after the boot.
fn stop(drain: &DrainIdentity, it: &VirtualMachine, seen: &MachineSeen, why: &str) -> Decision {
    let work = stops(&drain.id(), &drain.node, std::slice::from_ref(seen)).pop();
    let manager = it.manager.as_ref();
    let manager =
        manager.map(|it| format!(" (it belongs to {it}, which may start it before)")).unwrap_or_default();
    let left = format!("shut down, and started again once node {} is back{manager}: {why}", drain.node);
    let act = work.filter(|it| !matches!(it.turn, MachineAction::Later)).map(|it| Action::Stop(Box::new(it)));
    Decision { act, left, ..decision(MachineState::ShuttingDown, format!("is shut down: {why}")) }
}

const GIBIBYTE: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationLimits {
    /// It may take so long for each GiB; none for ever.
    pub completion_per_gib: Option<Duration>,
    /// So long may it have no progress; none for ever.
    pub progress: Option<Duration>,
    /// Bytes in a second; none without a limit.
    pub bandwidth: Option<u64>,
    /// The guest is slowed down so that the copy ends.
    pub auto_converge: bool,
    /// At its limit the guest is switched over before all is copied.
    pub post_copy: bool,
    /// At its limit the guest is paused or switched over, and has as much time again.
    pub disrupts: bool,
}

impl MigrationLimits {
    /// These, with what `said` says otherwise: the settings of KubeVirt, a policy, or a migration of itself.
    #[must_use]
    pub fn with(mut self, said: &Value) -> Self {
        let limit =
            |name: &str| said[name].as_u64().map(|secs| (secs > 0).then(|| Duration::from_secs(secs)));
        let bandwidth = said["bandwidthPerMigration"].as_str().and_then(thousandths).map(|it| it / 1000);
        let flag = |name: &str| said[name].as_bool();
        self.completion_per_gib = limit("completionTimeoutPerGiB").unwrap_or(self.completion_per_gib);
        self.progress = limit("progressTimeout").unwrap_or(self.progress);
        self.bandwidth = bandwidth.map_or(self.bandwidth, |it| Some(it).filter(|it| *it > 0));
        self.auto_converge = flag("allowAutoConverge").unwrap_or(self.auto_converge);
        let post_copy = flag("allowPostCopy");
        self.disrupts = flag("allowWorkloadDisruption").or(post_copy).unwrap_or(self.disrupts);
        self.post_copy = post_copy.unwrap_or(self.post_copy);
        self
    }
}

/// The policy that KubeVirt takes for `guest`: of those whose labels all match the one with the most labels, then with the
/// most labels of the instance, then the first by name.
#[must_use]
pub fn policy<'a>(policies: &'a [Value], guest: &Value, namespace: &Value) -> Option<&'a Value> {
    let count = |selector: &Value, labels: &Value| {
        let mut wanted = selector.as_object().into_iter().flatten();
        let count = selector.as_object().map_or(0, serde_json::Map::len);
        wanted.all(|(key, value)| labels.get(key) == Some(value)).then_some(count)
    };
    let score = |it: &Value| {
        let selectors = Some(&it["spec"]["selectors"]).filter(|it| it.is_object())?;
        let of = |name: &str, object: &Value| count(&selectors[name], &object["metadata"]["labels"]);
        let (guest, namespace) =
            (of("virtualMachineInstanceSelector", guest)?, of("namespaceSelector", namespace)?);
        Some((guest + namespace, guest))
    };
    let matching = policies.iter().filter_map(|it| Some((it, score(it)?)));
    let first = |it: &Value| std::cmp::Reverse(text(&it["metadata"]["name"]));
    matching.max_by_key(|(it, score)| (*score, first(it))).map(|it| it.0)
}

/// Limits that hold for `guest`, and who says so; `migration` is the UID of its migration that runs.
#[must_use]
pub fn of(
    settings: &MigrationSettings,
    policies: &[Value],
    (guest, namespace): (&Value, &Value),
    migration: Option<&str>,
) -> (MigrationLimits, String) {
    let state = &guest["status"]["migrationState"];
    let own = &state["migrationConfiguration"];
    if own.is_object() && migration.is_some_and(|it| state["migrationUid"] == it) {
        return (settings.limits.with(own), "its migration".to_owned());
    }
    match policy(policies, guest, namespace) {
        Some(it) => {
            let name = text(&it["metadata"]["name"]);
            (settings.limits.with(&it["spec"]), format!("MigrationPolicy {name}"))
        }
        None => (settings.limits, "KubeVirt".to_owned()),
    }
}

/// Memory of the guest in bytes.
fn memory(guest: &Value) -> u64 {
    let domain = &guest["spec"]["domain"];
    let memory =
        domain["memory"]["guest"].as_str().or_else(|| domain["resources"]["requests"]["memory"].as_str());
    memory.and_then(thousandths).unwrap_or_default() / 1000
}

/// Bytes of the disks that a block migration copies too: those that no other node can mount.
fn disks(guest: &Value) -> u64 {
    let is_shared = |claim: &Value| items(&claim["accessModes"]).iter().any(|it| it == "ReadWriteMany");
    let size = |disk: &Value| {
        let claim = &disk["persistentVolumeClaimInfo"];
        let capacity = || claim["capacity"]["storage"].as_str().and_then(thousandths).map(|it| it / 1000);
        (!is_shared(claim)).then(|| disk["size"].as_u64().or_else(capacity).unwrap_or_default())
    };
    items(&guest["status"]["volumeStatus"]).iter().filter_map(size).fold(0, u64::saturating_add)
}

/// Whether its disks are copied too.
#[must_use]
pub fn copies_disks(guest: &Value) -> bool {
    guest["status"]["migrationMethod"] == "BlockMigration"
}

/// What a migration copies, in bytes.
#[must_use]
pub fn bytes(guest: &Value) -> u64 {
    memory(guest).saturating_add(if copies_disks(guest) { disks(guest) } else { 0 })
}

/// How long the copy of `it` may take until KubeVirt ends it; none for ever.
#[must_use]
pub fn longest(it: &VirtualMachine) -> Option<Duration> {
    let begun = u32::try_from(it.bytes.div_ceil(GIBIBYTE)).unwrap_or(u32::MAX).max(1);
    let whole = it.limits.completion_per_gib?.saturating_mul(begun);
    Some(if it.limits.disrupts { whole.saturating_mul(2) } else { whole })
}

/// How long one copy of `it` takes at its bandwidth, and no longer than it may; none without a limit of the bandwidth, as
/// nothing is known of the network.
#[must_use]
pub fn estimate(it: &VirtualMachine) -> Option<Duration> {
    let copy = Duration::from_secs(it.bytes.div_ceil(it.limits.bandwidth?));
    Some(longest(it).map_or(copy, |longest| copy.min(longest)))
}

/// How long `machines` take together, each with what is left of it, as many at the same time as the settings allow.
#[must_use]
pub fn together(settings: &MigrationSettings, machines: &[Duration]) -> Duration {
    let places = settings.at_once.min(settings.from_node).max(1);
    let sum = machines.iter().fold(Duration::ZERO, |sum, it| sum.saturating_add(*it));
    machines.iter().copied().max().unwrap_or_default().max(sum / places)
}

/// How `it` is migrated, for a person.
#[must_use]
pub fn words(it: &VirtualMachine) -> String {
    let mut out = if it.copies_disks { "block migration" } else { "live migration" }.to_owned();
    out.push_str(if it.limits.post_copy { ", pre-copy then post-copy" } else { ", pre-copy" });
    if it.limits.auto_converge {
        out.push_str(", auto-converge");
    }
    let mebibytes = it.bytes.div_ceil(1 << 20);
    let bandwidth = it.limits.bandwidth.unwrap_or_default().div_ceil(1 << 20);
    let time = match estimate(it) {
        Some(time) => format!("estimated {} s for {mebibytes} MiB at {bandwidth} MiB/s", time.as_secs()),
        None => format!("{mebibytes} MiB, no estimate as the bandwidth has no limit"),
    };
    let most = longest(it).map(|it| format!(", at most {} s", it.as_secs())).unwrap_or_default();
    format!("{out}; {time}{most} (limits of {})", it.limits_of)
}
