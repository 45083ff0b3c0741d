//! The virtual machines of one attempt: they leave before the first pod is asked, as KubeVirt's own parts on this node serve
//! until the last launcher has left.
//!
//! Everything is decided from what was read last; only the time that a machine has been as it is, and calls under way,
//! are kept. Not here: what is done about one machine (`machines::rules`), calls (`machines::kubevirt`), the cordon and
//! the end of the attempt (`attempt`). Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::names::{PodRef, PodUid};
use kubeapi::pace::Pace;
use kubeapi::reply::{RefusedBy, Reply, ReplyClass};
use step::{LiteMap, Mono, SmallSort as _, say};
use topics::{Blocker, MachineProgress, number};

use super::storage::LastCopyGuard;
use super::words::{CallFailure, Effect};
use crate::calls::volumes::ClaimName;
use crate::machines::rules::{
    Action, Decision, DrainIdentity, FLAPPING, Fate, decide, ends, fate, gone, kept_up,
};
use crate::machines::{MachinesView, Migratable, Migration, MigrationSettings, VirtualMachine, rules};
use crate::progress;
use crate::progress::{BlockCode, MachineState, Subject};

/// Least time between two looks.
const LOOKS_APART: Duration = Duration::from_millis(500);
/// After so long it is looked without a cause.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Calls under way at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Looks {
    #[default]
    NotBegun,
    /// One is under way; whether something has changed since it began.
    Running(bool),
    Due(Mono),
    /// No machine is left.
    Over,
}

#[derive(Debug, Default)]
pub(super) struct MachineTable {
    drain: DrainIdentity,
    looks: Looks,
    looked: Option<Mono>,
    pace: Pace,
    tracks: LiteMap<PodUid, MachineTrack>,
    left: LiteMap<PodRef, String>,
    /// Launchers that were on the node at the beginning.
    launchers: Vec<PodRef>,
    /// Looks that failed in a row, and why the last one did, and since when.
    tries: u32,
    pub(super) trouble: Option<CallFailure>,
    troubled: Mono,
    /// The storage keeps one up, or may.
    asks_storage: bool,
    /// Evictions that the server has accepted.
    pub(super) evicted: u32,
    pub(super) estimate: Option<Mono>,
}

impl MachineTable {
    pub(super) fn new(drain: DrainIdentity, seed: u64) -> Self {
        Self { drain, pace: Pace::new(seed), ..Self::default() }
    }

    /// The pods of the node are known for the first time, and these launchers among them: without any it is over.
    pub(super) fn begin(
        &mut self,
        now: Mono,
        launchers: impl FnOnce() -> Vec<PodRef>,
        out: &mut Vec<Effect>,
    ) {
        if self.looks != Looks::NotBegun {
            return;
        }
        self.launchers = launchers();
        self.looks = if self.launchers.is_empty() { Looks::Over } else { Looks::Due(now) };
        if self.is_active() {
            out.push(Effect::FollowMachines(true));
        }
    }

    /// Whether machines are still to be waited for.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.looks, Looks::Running(_) | Looks::Due(_))
    }

    /// Whether a call is under way: it is awaited, as nobody else knows of it.
    pub(super) fn is_busy(&self) -> bool {
        self.tracks.values().any(|it| it.busy)
    }

    fn here(&self) -> impl Iterator<Item = &MachineTrack> {
        self.tracks.values().filter(|it| it.decision.state != MachineState::Gone)
    }

    /// The answer to the look that is under way.
    pub(super) fn seen(
        &mut self,
        now: Mono,
        seen: Result<MachinesView, CallFailure>,
        guard: &LastCopyGuard,
        out: &mut Vec<Effect>,
    ) {
        let again = self.looks == Looks::Running(true);
        self.looks = Looks::Due(now + if again { LOOKS_APART } else { LOOK_AGAIN });
        match seen {
            Ok(view) => self.take_view(now, &view, guard, out),
            // There is no KubeVirt, whatever the label of the pod says.
            Err(CallFailure { reply: Reply::NotFound { .. }, .. }) => self.finish(out),
            Err(failure) => {
                if self.trouble.is_none() {
                    self.troubled = now;
                }
                self.tries = self.tries.saturating_add(1);
                self.looks = Looks::Due(now + self.pace.pause(self.tries, failure.reply.retry_after()));
                self.trouble = Some(failure);
            }
        }
    }

    fn take_view(&mut self, now: Mono, view: &MachinesView, guard: &LastCopyGuard, out: &mut Vec<Effect>) {
        (self.tries, self.trouble, self.asks_storage) = (0, None, false);
        let mut before = std::mem::take(&mut self.tracks);
        let running_here = |it: &VirtualMachine| it.migration.as_ref().is_some_and(Migration::runs);
        for seen in &view.machines {
            let machine = seen;
            let old = before.remove(&machine.guest.uid);
            let is_as_before = |it: &&MachineTrack| key(&it.machine) == key(machine);
            let since = old.as_ref().filter(is_as_before).map_or(now, |it| it.since);
            let others = view.running.saturating_sub(usize::from(running_here(machine)));
            // Without what only this attempt has seen: who watches it afterwards has not.
            let fate = fate(&self.drain, machine);
            let flips = flips(now, old.as_ref(), machine);
            let machine = &flapping(machine, &flips);
            let mut new = decide(&self.drain, machine, now.since(since), others);
            let asks = !machine.claims.is_empty() && ends(&self.drain, machine, &new);
            self.asks_storage |= asks;
            let claims = if asks { machine.claims.as_slice() } else { &[] };
            let kept = guard.keeps(&machine.guest.namespace, claims);
            let kept_for = if kept.is_some() { claims.to_vec() } else { Vec::new() };
            new = kept.map_or(new, kept_up);
            let same = old.as_ref().is_some_and(|it| it.decision.state == new.state);
            if !same {
                say_state(&machine.guest, &new, out);
            }
            let keeps = old.as_ref().is_some_and(|it| it.last == new.act);
            let state_since = old.as_ref().filter(|_| same).map_or(now, |it| it.state_since);
            let mut track = MachineTrack {
                machine: seen.clone(),
                since,
                fate,
                state_since,
                flips,
                busy: old.as_ref().is_some_and(|it| it.busy),
                kept: kept_for,
                tries: old.as_ref().filter(|_| keeps).map_or(0, |it| it.tries),
                not_before: old.as_ref().filter(|_| keeps).map_or(now, |it| it.not_before),
                last: old.as_ref().and_then(|it| it.last.clone()),
                refusal: old.and_then(|it| it.refusal).filter(|_| keeps),
                decision: new,
            };
            if !track.decision.left.is_empty() {
                let left = format!("virtual machine {}: {}", machine.guest, track.decision.left);
                self.left.insert(machine.guest.clone(), left);
            }
            if track.busy {
                // Its answer is awaited; then it is looked at again.
                (track.decision.act, track.decision.then) = (None, None);
            }
            self.tracks.insert(machine.guest.uid.clone(), track);
        }
        for (uid, mut track) in before {
            let was_here = track.decision.state != MachineState::Gone;
            // A call under way outlives its machine.
            track.decision = gone();
            if was_here {
                say_state(&track.machine.guest, &track.decision, out);
            }
            self.tracks.insert(uid, track);
        }
        self.estimate = self.estimated(now, &view.settings);
        if self.here().next().is_none() && !self.is_busy() {
            self.finish(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Effect>) {
        self.looks = Looks::Over;
        out.push(Effect::FollowMachines(false));
    }

    pub(super) fn answered(&mut self, now: Mono, uid: &PodUid, action: &Action, reply: Reply) {
        if matches!((action, &reply), (Action::Evict(_), Reply::Done)) {
            self.evicted += 1;
        }
        // What an eviction did is seen on the machine: a refusal may be the mark that was asked for.
        let wait = self.pace.pause(self.tracks.get(uid).map_or(1, |it| it.tries + 1), reply.retry_after());
        if let Some(track) = self.tracks.get_mut(uid) {
            track.busy = false;
            let done = matches!(reply, Reply::Done | Reply::NotFound { .. } | Reply::UidChanged);
            track.tries = if done { 0 } else { track.tries + 1 };
            track.not_before = if done { now } else { now + wait };
            track.refusal = (!done).then_some(reply);
            track.decision.act = track.decision.then.take().filter(|_| done);
        }
        self.changed(now);
    }

    /// What the storage says of them may be something else now.
    pub(super) fn storage_changed(&mut self, now: Mono) {
        if self.asks_storage {
            self.changed(now);
        }
    }

    /// Something of them has changed since the last look.
    pub(super) fn changed(&mut self, now: Mono) {
        let soon = self.looked.map_or(now, |it| it + LOOKS_APART);
        self.looks = match self.looks {
            Looks::Running(_) => Looks::Running(true),
            Looks::Due(at) if self.tries == 0 => Looks::Due(at.min(soon.max(now))),
            other @ (Looks::Due(_) | Looks::NotBegun | Looks::Over) => other,
        };
    }

    /// Starts the calls and the look that are due.
    pub(super) fn act(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Looks::Due(look) = self.looks else { return };
        let mut free = AT_ONCE.saturating_sub(self.tracks.values().filter(|it| it.busy).count());
        for (_, track) in self.tracks.iter_mut().filter(|(_, it)| !it.busy && it.not_before <= now) {
            if free > 0
                && self.trouble.is_none()
                && let Some(act) = track.decision.act.take()
            {
                free -= 1;
                (track.busy, track.last) = (true, Some(act.clone()));
                out.push(Effect::Act(track.machine.guest.clone(), act));
            }
        }
        if look <= now {
            (self.looks, self.looked) = (Looks::Running(false), Some(now));
            out.push(Effect::LookMachines);
        }
    }

    /// When [`MachineTable::act`] has something to do, as far as time decides it.
    pub(super) fn next_due(&self) -> Option<Mono> {
        let Looks::Due(look) = self.looks else { return None };
        let busy = self.tracks.values().filter(|it| it.busy).count();
        let calls = self.tracks.values().filter(|it| it.decision.act.is_some() && !it.busy);
        let calls = calls.map(|it| it.not_before).min();
        calls.filter(|_| self.trouble.is_none() && busy < AT_ONCE).into_iter().chain([look]).min()
    }

    /// When the last machine is estimated to have left; none while one waits for a person, shuts down, or has no limit of
    /// its bandwidth.
    fn estimated(&self, now: Mono, settings: &MigrationSettings) -> Option<Mono> {
        let mut rest = Vec::new();
        for it in self.here() {
            if !matches!(
                it.decision.state,
                MachineState::Waiting | MachineState::Asked | MachineState::Moving
            ) {
                return None;
            }
            let copies = it.machine.migration.as_ref().is_some_and(|it| it.phase == "Running");
            let done = if copies { now.since(it.since) } else { Duration::ZERO };
            rest.push(rules::estimate(&it.machine)?.saturating_sub(done));
        }
        (!rest.is_empty()).then(|| now + rules::together(settings, &rest))
    }

    /// What a reader sees of each machine.
    pub(super) fn shown(&self) -> Vec<MachineProgress> {
        let shown = |it: &MachineTrack| MachineProgress {
            name: it.machine.guest.to_string(),
            state: it.decision.state.text().to_owned(),
            reason: it.decision.text.clone(),
        };
        let mut all: Vec<MachineProgress> = self.tracks.values().map(shown).collect();
        all.order_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// What holds them, the worst first.
    pub(super) fn blockers(&self) -> Vec<Blocker> {
        let mut all: Vec<Blocker> = self.tracks.values().filter_map(blocker).collect();
        if let Some(failure) = self.refusal() {
            all.extend(self.launchers.iter().map(|pod| {
                let reason = format!("pod {pod} stays: its virtual machine cannot be read: {}", failure.text);
                let code = BlockCode::of(&failure.reply);
                progress::blocker(&Subject::Pod(pod.clone()), code, reason, self.troubled)
            }));
        }
        progress::sort(&mut all);
        all
    }

    /// Why the attempt fails on them, if it does.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.tracks.values().find(|it| it.decision.state == MachineState::Failed);
        let failed = failed.map(|it| format!("virtual machine {} {}", it.machine.guest, it.decision.text));
        failed.or_else(|| Some(format!("virtual machines cannot be read: {}", self.refusal()?.text)))
    }

    /// Names of those that are left.
    pub(super) fn names(&self) -> Vec<String> {
        self.here().map(|it| it.machine.guest.to_string()).collect()
    }

    /// What went in another way than by a migration.
    pub(super) fn left(&self) -> impl Iterator<Item = String> {
        self.left.values().cloned()
    }

    /// Whether nothing but their volumes keeps those that are left.
    pub(super) fn only_kept(&self) -> bool {
        let mut here = self.here().peekable();
        here.peek().is_some() && here.all(|it| !it.kept.is_empty())
    }

    /// Whether one that uses this claim is not ended as the storage needs it.
    pub(super) fn stays_for(&self, (namespace, claim): &ClaimName) -> bool {
        self.tracks.values().any(|it| it.machine.guest.namespace == *namespace && it.kept.contains(claim))
    }

    /// What would be done about those that are left, and for whom.
    pub(super) fn fates(&self) -> (DrainIdentity, Vec<(PodRef, Fate)>) {
        (self.drain.clone(), self.here().map(|it| (it.machine.guest.clone(), it.fate.clone())).collect())
    }

    /// Why they are not read for good, and who refuses that.
    fn refusal(&self) -> Option<&CallFailure> {
        self.trouble.as_ref().filter(|it| it.reply.class() == ReplyClass::Permanent)
    }

    pub(super) fn refused_by(&self) -> Option<RefusedBy> {
        if let Reply::Permanent { by, .. } = self.trouble.as_ref()?.reply { Some(by) } else { None }
    }
}

/// A line of the log about one that is in another state than before.
fn say_state(guest: &PodRef, now: &Decision, out: &mut Vec<Effect>) {
    let (state, text) = (now.state.text(), &now.text);
    if matches!(
        now.state,
        MachineState::Held
            | MachineState::Failed
            | MachineState::Unreadable
            | MachineState::Aborting
            | MachineState::ShuttingDown
    ) {
        say!(out, warn, "virtual machine {guest}, now {state}: {text}");
    } else {
        say!(out, info, "virtual machine {guest}, now {state}: {text}");
    }
}

/// A machine that is paused or resumed more often in so long is not migrated.
const FLIPS: usize = 3;
const FLIPS_WITHIN: Duration = Duration::from_secs(600);

/// What is kept of one machine.
#[derive(Debug)]
struct MachineTrack {
    /// As it was seen last, and since when it has been in what its time limits count for.
    machine: VirtualMachine,
    since: Mono,
    decision: Decision,
    fate: Fate,
    /// When it was paused or resumed in the last minutes.
    flips: Vec<Mono>,
    /// Since when it has been in that state.
    state_since: Mono,
    busy: bool,
    /// Its claims, where nothing but its volumes keeps it up.
    kept: Vec<String>,
    /// Calls that failed in a row, and when the next one is.
    tries: u32,
    not_before: Mono,
    /// The last call, and how it was refused.
    last: Option<Action>,
    refusal: Option<Reply>,
}

/// When a machine was paused or resumed in the last minutes, as far as it was seen.
fn flips(now: Mono, old: Option<&MachineTrack>, machine: &VirtualMachine) -> Vec<Mono> {
    let Some(old) = old else { return Vec::new() };
    let count = match (&old.machine.paused, &machine.paused) {
        (before, after) if before == after => 0,
        // Resumed and paused again between two looks.
        (Some(_), Some(_)) => 2,
        (None, _) | (_, None) => 1,
    };
    let recent = old.flips.iter().copied().filter(|at| now.since(*at) <= FLIPS_WITHIN);
    recent.chain(std::iter::repeat_n(now, count)).collect()
}

/// One that is paused and resumed too often is not migratable.
fn flapping(machine: &VirtualMachine, flips: &[Mono]) -> VirtualMachine {
    let mut machine = machine.clone();
    if flips.len() > FLIPS {
        let times = number(flips.len(), "time");
        let text = format!("it was paused and resumed {times} within {} s", FLIPS_WITHIN.as_secs());
        machine.migratable = Migratable::No(FLAPPING.to_owned(), text);
    }
    machine
}

/// In what a machine is while its limits are counted.
fn key(machine: &VirtualMachine) -> (String, String) {
    match &machine.migration {
        Some(it) => (it.object.uid.to_string(), it.phase.clone()),
        None => (
            format!("{} {}", machine.marked, machine.failed.len()),
            format!("{:?} {}", machine.migratable, machine.lacks_room),
        ),
    }
}

fn blocker(it: &MachineTrack) -> Option<Blocker> {
    let tries = it.tries;
    let subject = Subject::Machine(it.machine.guest.clone());
    let named = |code, reason, since| Some(progress::blocker(&subject, code, reason, since));
    let text = format!("virtual machine {} {}", it.machine.guest, it.decision.text);
    if let Some(refusal) = &it.refusal {
        // Up to KubeVirt 1.4 the budget refuses each eviction: only where no mark follows does it hold anything up.
        let is_usual = |it: &BlockCode| *it == BlockCode::Budget && tries < 2;
        let code = Some(BlockCode::of(refusal)).filter(|it| *it != BlockCode::Moving && !is_usual(it))?;
        return named(code, format!("{text}; {}", refusal.text()), it.state_since);
    }
    it.decision.code.and_then(|code| named(code, text, it.state_since))
}
