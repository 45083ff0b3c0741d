//! The machines of one attempt: what is asked for when, until none is left on the node.
//!
//! Everything is decided from what was read last; only the time that a machine has been as it is, and calls under way, are
//! kept. Not here: what is done about one machine (`rules`), calls (`kubevirt`). Source: spec/vm-storage.md A10; goal D12.
//! Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::names::{PodRef, PodUid};
use kubeapi::pace::Pace;
use kubeapi::reply::{RefusedBy, Reply, ReplyClass};
use step::{Core, Mono};
use topics::{Blocker, MachineProgress, StorageWait};

use super::rules::{Action, Decision, DrainIdentity, FLAPPING, Fate, decide, ends, fate, gone, kept_up};
use super::{MachinesView, Migratable, MigrationSettings, VirtualMachine, limits};
use crate::calls::volumes::ClaimName;
use crate::changes::WatchedBlockers;
use crate::engine::{CallFailure, LastCopyGuard};
use crate::progress;
use crate::progress::{BlockCode, MachineState, Subject};
use crate::storage::StorageView;

/// Least time between two looks.
const LOOKS_APART: Duration = Duration::from_millis(500);
/// After so long it is looked without a cause.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Calls under way at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug)]
pub enum Event {
    Looked(Result<MachinesView, CallFailure>),
    /// Something of it has changed since.
    Changed,
    Answered(PodUid, Action, Reply),
    /// The node was cordoned, or not.
    Cordoned(Result<bool, Reply>),
    /// The storage as it is now, once it is followed.
    Storage(Result<Option<StorageView>, CallFailure>),
    /// What became of [`Effect::AskCopy`].
    CopyAsked(String, Result<(), CallFailure>),
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Look,
    /// This call, about this instance.
    Act(PodRef, Action),
    Cordon,
    /// A machine is to be ended that has volumes: whether they keep it is followed from now on.
    FollowStorage,
    /// Another copy of this volume is asked for, of which so many are wanted.
    AskCopy(String, u32),
    /// What a machine does now, for the log.
    Say(PodRef, MachineState, String),
    /// The stage is over: no machine is left, or the attempt fails and why.
    End(Result<(), String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    /// Under way; whether something has changed since it began.
    Running(bool),
    Due(Mono),
}

#[derive(Debug)]
pub struct MachineStage {
    drain: DrainIdentity,
    guard: LastCopyGuard,
    follows_storage: bool,
    /// When time alone changes what the guard says.
    guard_due: Option<Mono>,
    end: Mono,
    pace: Pace,
    tracks: BTreeMap<PodUid, MachineTrack>,
    left: BTreeMap<PodRef, String>,
    look: NextLook,
    looked: Option<Mono>,
    /// Launchers that were on the node at the beginning.
    launchers: Vec<PodRef>,
    /// Looks that failed in a row, and why the last one did, and since when.
    tries: u32,
    trouble: Option<CallFailure>,
    troubled: Mono,
    cordoning: bool,
    recordons: u32,
    evicted: u32,
    over: bool,
    estimate: Option<Mono>,
}

impl MachineStage {
    /// Ends at `end` at the latest. It looks at once.
    pub(crate) fn new(
        (drain, guard): (DrainIdentity, LastCopyGuard),
        launchers: Vec<PodRef>,
        (now, end): (Mono, Mono),
        seed: u64,
    ) -> Self {
        Self {
            drain,
            guard,
            follows_storage: false,
            guard_due: None,
            launchers,
            end,
            pace: Pace::new(seed),
            tracks: BTreeMap::new(),
            left: BTreeMap::new(),
            look: NextLook::Due(now),
            looked: None,
            tries: 0,
            trouble: None,
            troubled: now,
            cordoning: false,
            recordons: 0,
            evicted: 0,
            over: false,
            estimate: None,
        }
    }

    fn take_view(&mut self, now: Mono, view: &MachinesView, out: &mut Vec<Effect>) {
        (self.tries, self.trouble) = (0, None);
        if !view.cordoned && !std::mem::replace(&mut self.cordoning, true) {
            out.push(Effect::Cordon);
        }
        let mut before = std::mem::take(&mut self.tracks);
        let running_here = |it: &VirtualMachine| it.migration.as_ref().is_some_and(super::Migration::runs);
        for machine in &view.machines {
            let key = key(machine);
            let old = before.remove(&machine.guest.uid);
            let since = old.as_ref().filter(|it| it.key == key).map_or(now, |it| it.since);
            let others = view.running.saturating_sub(usize::from(running_here(machine)));
            // Without what only this attempt has seen: who watches it afterwards has not.
            let fate = fate(&self.drain, machine);
            let flips = flips(now, old.as_ref(), machine);
            let machine = &flapping(machine, &flips);
            let mut new = decide(&self.drain, machine, now.since(since), others);
            let asks = !machine.claims.is_empty() && ends(&self.drain, machine, &new);
            if asks && !std::mem::replace(&mut self.follows_storage, true) {
                out.push(Effect::FollowStorage);
            }
            let claims = if asks { machine.claims.as_slice() } else { &[] };
            let kept = self.guard.keeps(&machine.guest.namespace, claims);
            let kept_for = if kept.is_some() { claims.to_vec() } else { Vec::new() };
            new = kept.map_or(new, kept_up);
            let same = old.as_ref().is_some_and(|it| it.decision.state == new.state);
            if !same {
                out.push(Effect::Say(machine.guest.clone(), new.state, new.text.clone()));
            }
            let keeps = old.as_ref().is_some_and(|it| it.last == new.act);
            let state_since = old.as_ref().filter(|_| same).map_or(now, |it| it.state_since);
            let mut track = MachineTrack {
                guest: machine.guest.clone(),
                key,
                since,
                fate,
                state_since,
                paused: machine.paused.clone(),
                flips,
                copy: limits::estimate(machine),
                copies: machine.migration.as_ref().is_some_and(|it| it.phase == "Running"),
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
            if track.decision.state != MachineState::Gone {
                out.push(Effect::Say(track.guest.clone(), MachineState::Gone, "gone".to_owned()));
            }
            // A call under way outlives its machine.
            track.decision = gone();
            self.tracks.insert(uid, track);
        }
        self.estimate = self.estimated(now, &view.settings);
        self.wait_for_volumes(now, out);
        let failed = self.tracks.values().find(|it| it.decision.state == MachineState::Failed);
        let failed = failed.map(|it| format!("virtual machine {} {}", it.guest, it.decision.text));
        if let Some(reason) = failed.or_else(|| self.guard.failure()) {
            self.finish(Err(reason), out);
        } else if self.tracks.values().all(|it| !it.busy && it.decision.state == MachineState::Gone) {
            self.finish(Ok(()), out);
        }
    }

    /// Asks for copies, and follows how long nothing but them is waited for.
    fn wait_for_volumes(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let asked = self.guard.ask(now).into_iter();
        out.extend(asked.map(|(volume, wanted)| Effect::AskCopy(volume, wanted)));
        let mut here = self.tracks.values().filter(|it| it.decision.state != MachineState::Gone).peekable();
        let alone = here.peek().is_some() && here.all(|it| !it.kept.is_empty());
        let stays = |(namespace, claim): &ClaimName| {
            self.tracks.values().any(|it| it.guest.namespace == *namespace && it.kept.contains(claim))
        };
        if self.guard.wait(now, alone, stays) {
            // Once its time is over, it keeps no machine up.
            self.changed(now);
        }
        self.guard_due = self.guard.next_due(now);
    }

    fn finish(&mut self, end: Result<(), String>, out: &mut Vec<Effect>) {
        // A call that is on its way is awaited: nobody else knows of it.
        if !self.over && self.tracks.values().all(|it| !it.busy) {
            self.over = true;
            out.push(Effect::End(end));
        }
    }

    fn answered(&mut self, now: Mono, uid: &PodUid, action: &Action, reply: Reply) {
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

    fn changed(&mut self, now: Mono) {
        let soon = self.looked.map_or(now, |it| it + LOOKS_APART);
        self.look = match self.look {
            NextLook::Running(_) => NextLook::Running(true),
            NextLook::Due(at) if self.tries == 0 => NextLook::Due(at.min(soon.max(now))),
            due @ NextLook::Due(_) => due,
        };
    }

    fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.over {
            return;
        }
        if now >= self.end {
            self.look = NextLook::Running(false);
            let here = self.tracks.values().filter(|it| it.decision.state != MachineState::Gone);
            let names: Vec<String> = here.map(|it| it.guest.to_string()).collect();
            let names = kubeapi::listed(&names, ", ");
            self.finish(Err(format!("not done in time, virtual machines left: {names}")), out);
            return;
        }
        let mut free = AT_ONCE.saturating_sub(self.tracks.values().filter(|it| it.busy).count());
        for track in self.tracks.values_mut() {
            if free > 0
                && !track.busy
                && track.not_before <= now
                && self.trouble.is_none()
                && matches!(self.look, NextLook::Due(_))
                && let Some(act) = track.decision.act.take()
            {
                free -= 1;
                (track.busy, track.last) = (true, Some(act.clone()));
                out.push(Effect::Act(track.guest.clone(), act));
            }
        }
        if matches!(self.look, NextLook::Due(at) if at <= now) {
            self.look = NextLook::Running(false);
            self.looked = Some(now);
            out.push(Effect::Look);
        }
    }

    /// When the last machine is estimated to have left; none while one waits for a person, shuts down, or has no limit of
    /// its bandwidth.
    fn estimated(&self, now: Mono, settings: &MigrationSettings) -> Option<Mono> {
        let mut rest = Vec::new();
        for it in self.tracks.values() {
            match it.decision.state {
                MachineState::Waiting | MachineState::Asked | MachineState::Moving => {
                    let done = if it.copies { now.since(it.since) } else { Duration::ZERO };
                    rest.push(it.copy?.saturating_sub(done));
                }
                MachineState::Gone => {}
                MachineState::Aborting
                | MachineState::ShuttingDown
                | MachineState::Held
                | MachineState::Unreadable
                | MachineState::Failed => return None,
            }
        }
        (!rest.is_empty()).then(|| now + limits::together(settings, &rest))
    }

    /// When the last machine is estimated to have left.
    pub const fn estimate(&self) -> Option<Mono> {
        self.estimate
    }

    /// What a reader sees of each machine.
    pub fn shown(&self) -> Vec<MachineProgress> {
        let shown = |it: &MachineTrack| MachineProgress {
            name: it.guest.to_string(),
            state: it.decision.state.text().to_owned(),
            reason: it.decision.text.clone(),
        };
        let mut all: Vec<MachineProgress> = self.tracks.values().map(shown).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    pub fn blockers(&self) -> Vec<Blocker> {
        let mut all: Vec<Blocker> = self.tracks.values().filter_map(blocker).collect();
        if let Some(failure) = &self.trouble
            && failure.reply.class() == ReplyClass::Permanent
        {
            all.extend(self.launchers.iter().map(|pod| {
                let reason = format!("pod {pod} stays: its virtual machine cannot be read: {}", failure.text);
                let code = BlockCode::of(&failure.reply);
                progress::blocker(&Subject::Pod(pod.clone()), code, reason, self.troubled)
            }));
        }
        progress::sort(&mut all);
        all
    }

    /// What went in another way than by a migration.
    pub fn left(&self) -> Vec<String> {
        self.left.values().cloned().collect()
    }

    /// What would be done about those that are left, and for whom.
    pub fn fates(&self) -> (DrainIdentity, Vec<(PodRef, Fate)>) {
        let left = self.tracks.values().filter(|it| it.decision.state != MachineState::Gone);
        (self.drain.clone(), left.map(|it| (it.guest.clone(), it.fate.clone())).collect())
    }

    /// Evictions that were accepted, and cordons that were renewed.
    pub const fn sums(&self) -> (u32, u32) {
        (self.evicted, self.recordons)
    }

    /// Since when nothing but copies of volumes is waited for, and those volumes.
    pub fn volumes(&self) -> (Option<Mono>, Vec<StorageWait>) {
        (self.guard.since(), if self.follows_storage { self.guard.waits() } else { Vec::new() })
    }

    /// What of the storage is worth another attempt when it changes.
    pub fn watched(&self) -> WatchedBlockers {
        self.guard.watched()
    }

    /// Who refuses for good that they are read.
    pub fn refused(&self) -> Option<RefusedBy> {
        if let Reply::Permanent { by, .. } = self.trouble.as_ref()?.reply { Some(by) } else { None }
    }

    /// Why nothing can be read, if that is so.
    pub const fn trouble(&self) -> Option<&CallFailure> {
        self.trouble.as_ref()
    }
}

impl Core for MachineStage {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.guard_due.take_if(|at| *at <= now).is_some() {
            self.changed(now);
        }
        match event {
            Event::Looked(seen) => {
                let again = matches!(self.look, NextLook::Running(true));
                self.look = NextLook::Due(if again { now + LOOKS_APART } else { now + LOOK_AGAIN });
                match seen {
                    Ok(view) => self.take_view(now, &view, &mut out),
                    // There is no KubeVirt, whatever the label of the pod says.
                    Err(CallFailure { reply: Reply::NotFound { .. }, .. }) => self.finish(Ok(()), &mut out),
                    Err(failure) => {
                        if self.trouble.is_none() {
                            self.troubled = now;
                        }
                        self.tries = self.tries.saturating_add(1);
                        let wait = self.pace.pause(self.tries, failure.reply.retry_after());
                        self.look = NextLook::Due(now + wait);
                        if failure.reply.class() == ReplyClass::Permanent {
                            let reason = format!("virtual machines cannot be read: {}", failure.text);
                            self.finish(Err(reason), &mut out);
                        }
                        self.trouble = Some(failure);
                    }
                }
            }
            Event::Changed => self.changed(now),
            Event::Answered(uid, action, reply) => self.answered(now, &uid, &action, reply),
            Event::Cordoned(done) => {
                self.cordoning = false;
                self.recordons += u32::from(done == Ok(true));
                self.changed(now);
            }
            Event::Storage(seen) => {
                self.guard.take_view(seen);
                self.changed(now);
            }
            Event::CopyAsked(volume, result) => {
                self.guard.asked(now, volume, result);
                self.changed(now);
            }
            Event::Tick => {}
        }
        self.advance(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        if self.over {
            return None;
        }
        let look = if let NextLook::Due(at) = self.look { Some(at) } else { None };
        let busy = self.tracks.values().filter(|it| it.busy).count();
        let calls = self.tracks.values().filter(|it| it.decision.act.is_some() && !it.busy);
        let open = look.is_some() && self.trouble.is_none() && busy < AT_ONCE;
        let calls = calls.map(|it| it.not_before).min().filter(|_| open);
        let end = Some(self.end).filter(|_| busy == 0);
        [look, calls, end, self.guard_due].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// A machine that is paused or resumed more often in so long is not migrated.
const FLIPS: usize = 3;
const FLIPS_WITHIN: Duration = Duration::from_secs(600);

/// What is kept of one machine.
#[derive(Debug)]
pub(super) struct MachineTrack {
    pub(super) guest: PodRef,
    /// What it is in whose time limits are counted, and since when.
    pub(super) key: (String, String),
    pub(super) since: Mono,
    pub(super) decision: Decision,
    pub(super) fate: Fate,
    /// How long its copy is estimated to take, and whether it has begun.
    pub(super) copy: Option<Duration>,
    pub(super) copies: bool,
    /// Since when it is paused, and when it was paused or resumed in the last minutes.
    pub(super) paused: Option<String>,
    pub(super) flips: Vec<Mono>,
    /// Since when it has been in that state.
    pub(super) state_since: Mono,
    pub(super) busy: bool,
    /// Its claims, where nothing but its volumes keeps it up.
    pub(super) kept: Vec<String>,
    /// Calls that failed in a row, and when the next one is.
    pub(super) tries: u32,
    pub(super) not_before: Mono,
    /// The last call, and how it was refused.
    pub(super) last: Option<Action>,
    pub(super) refusal: Option<Reply>,
}

/// When a machine was paused or resumed in the last minutes, as far as it was seen.
pub(super) fn flips(now: Mono, old: Option<&MachineTrack>, machine: &VirtualMachine) -> Vec<Mono> {
    let Some(old) = old else { return Vec::new() };
    let count = match (&old.paused, &machine.paused) {
        (before, after) if before == after => 0,
        // Resumed and paused again between two looks.
        (Some(_), Some(_)) => 2,
        (None, _) | (_, None) => 1,
    };
    let recent = old.flips.iter().copied().filter(|at| now.since(*at) <= FLIPS_WITHIN);
    recent.chain(std::iter::repeat_n(now, count)).collect()
}

/// One that is paused and resumed too often is not migratable.
pub(super) fn flapping(machine: &VirtualMachine, flips: &[Mono]) -> VirtualMachine {
    let mut machine = machine.clone();
    if flips.len() > FLIPS {
        let text =
            format!("it was paused and resumed {} times within {} s", flips.len(), FLIPS_WITHIN.as_secs());
        machine.migratable = Migratable::No(FLAPPING.to_owned(), text);
    }
    machine
}

/// In what a machine is while its limits are counted.
pub(super) fn key(machine: &VirtualMachine) -> (String, String) {
    match &machine.migration {
        Some(it) => (it.object.uid.to_string(), it.phase.clone()),
        None => (
            format!("{} {}", machine.marked, machine.failed.len()),
            format!("{:?} {}", machine.migratable, machine.lacks_room),
        ),
    }
}

pub(super) fn blocker(it: &MachineTrack) -> Option<Blocker> {
    let tries = it.tries;
    let subject = Subject::Machine(it.guest.clone());
    let named = |code, reason, since| Some(progress::blocker(&subject, code, reason, since));
    let text = format!("virtual machine {} {}", it.guest, it.decision.text);
    if let Some(refusal) = &it.refusal {
        // Up to KubeVirt 1.4 the budget refuses each eviction: only where no mark follows does it hold anything up.
        let is_usual = |it: &BlockCode| *it == BlockCode::Budget && tries < 2;
        let code = Some(BlockCode::of(refusal)).filter(|it| *it != BlockCode::Moving && !is_usual(it))?;
        return named(code, format!("{text}; {}", refusal.text()), it.state_since);
    }
    it.decision.code.and_then(|code| named(code, text, it.state_since))
}
