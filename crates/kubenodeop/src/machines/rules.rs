//! What is done about one machine, from its facts alone.
//!
//! Not here: when it is looked at again, and calls under way (`engine`). Source: spec/vm-storage.md A2, A3, A6 to A8; goal
//! D12. Pure: no clock, no I/O, no task.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use kubeapi::machines::{MachineAction, MachineSeen, MachineWork, stops};
use kubeapi::names::PodRef;

use super::facts::IO_ERROR;
use super::{
    EvictionStrategy, MachineOwner, MachinePolicy, Migratable, Migration, MigrationRequest, VirtualMachine,
    limits,
};
use crate::progress::{BlockCode, MachineState};

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
    let text = format!("is asked to migrate; node {target} can take it; {}", limits::words(it));
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
        let text = format!("migrates{to}, phase {phase}{tried}; {}", limits::words(it));
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
    format!("{} migrations failed, the last one: {why}", failed.len())
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
            Some(limits::longest(it)?.saturating_add(it.limits.progress.unwrap_or_default()))
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
