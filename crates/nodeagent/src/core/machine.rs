//! The core: facts in, decisions out.
//!
//! Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::device::MachineOperation;
use step::{Core, Inserted as _, Mono, say};
use topics::{DrainStatus, MaintenanceModeReason, NodeAgentStatus, NodeDrainStatus, ZbootConfig};

use super::phase::{LatchedOrder, OrderPhase};
use super::talk::Talk;
use super::trial::{Conditions, ImageTrial, KnownPartitions};
use super::vault::{Controller, VaultWatch};
use super::{DeviceCommand, Effect, Event, LABELS, RequiredReading, Resumed, SavedNodeState, Waits, order};
use crate::limits::FIRST_WORD;
use crate::{Limits, NAME};

/// What nodeagent knows and how far it is.
#[derive(Debug, Clone, Default)]
pub struct NodeAgent {
    pub(super) limits: Limits,
    pub(super) waits: Waits,
    pub(super) wish: DeviceCommand,
    pub(super) drain: Option<NodeDrainStatus>,
    pub(super) partitions: KnownPartitions,
    /// Applications that still run.
    pub(super) active: BTreeSet<String>,
    pub(super) heard: BTreeSet<RequiredReading>,
    space: Option<u64>,
    tpm_fails: bool,
    pub(super) controller: Controller,
    pub(super) vault: VaultWatch,
    trial: ImageTrial,
    pub(super) latched: Option<LatchedOrder>,
    /// What the operation was last held for.
    pub(super) held_by: Option<NodeDrainStatus>,
    /// What zedkube is asked before the machine goes down.
    pub(super) talk: Talk,
    pub(super) status: NodeAgentStatus,
    /// The status as it was published in this run.
    said: Option<NodeAgentStatus>,
    /// Until then the first status waits for the facts that it speaks of.
    silent_until: Option<Mono>,
    /// The verdicts as they are published, of an earlier run too.
    verdicts: BTreeMap<String, bool>,
    /// Verdicts that stand on disk from this run.
    verdicts_said: BTreeMap<String, bool>,
    /// To be said at the first step.
    opening: Vec<Effect>,
}

impl NodeAgent {
    /// Starts at `now` from what was found. An operation that an earlier run was at begins again, with its
    /// waits: they serve others, who may have seen this agent go and come.
    pub fn new(limits: Limits, waits: Waits, found: SavedNodeState, now: Mono) -> Self {
        let (last, said) = (found.last_boot, found.said.unwrap_or_default());
        // What depends on facts stays as it was published until they arrive; the operation is as journaled.
        let going = found.resumed.is_some();
        let status = NodeAgentStatus {
            name: NAME.to_owned(),
            cur_part: said.cur_part,
            update_inprogress: said.update_inprogress,
            wait_drain_in_progress: said.wait_drain_in_progress,
            device_reboot: going && said.device_reboot,
            device_shutdown: going && said.device_shutdown,
            device_poweroff: going && said.device_poweroff,
            reboot_reason: last.reason,
            boot_reason: last.boot_reason,
            reboot_stack: last.stack,
            reboot_time: last.time,
            reboot_image: last.image,
            restart_counter: last.restart_counter,
            hv_type_kube: found.hv_type_kube,
            ..NodeAgentStatus::default()
        };
        let mut core = Self {
            limits,
            waits,
            controller: Controller::new(now),
            talk: Talk::new(found.question),
            status,
            silent_until: Some(now + FIRST_WORD),
            verdicts: LABELS
                .iter()
                .map(|label| ((*label).to_owned(), found.tested.contains(*label)))
                .into_map(),
            ..Self::default()
        };
        if let Some(Resumed { order, done }) = found.resumed {
            core.flag(order.operation);
            let (operation, reason) = (order.operation.word(), &order.reason);
            say!(core.opening, warn, "continues with {operation} after a restart of this agent: {reason}");
            core.status.all_domains_halted |= done;
            let until = now + limits.min_reboot_delay();
            let phase = if done { OrderPhase::Down } else { OrderPhase::Delay { until } };
            core.latched = Some(LatchedOrder { order, phase });
        }
        core
    }

    fn hear(&mut self, now: Mono, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Drain(status) => self.hear_drain(now, status, out),
            Event::Checked { status, answers, forced, ours } => {
                if let Some(status) = status {
                    self.hear_drain(now, status, out);
                }
                self.checked(now, &answers, forced, ours, out);
            }
            Event::Answer(answer) => self.answered(now, answer, out),
            Event::Wish(wish) => {
                self.controller.hear(now, wish.contact);
                self.wish = wish;
                self.call_off(out);
            }
            Event::Partition(value) => self.partitions.hear(value),
            Event::Application { key, active: true } => drop(self.active.insert(key)),
            Event::Application { key, active: false } => drop(self.active.remove(&key)),
            Event::Vault(said) => self.vault.hear(said),
            Event::Space(left) => self.space = left,
            Event::Tpm { fails } => self.tpm_fails = fails,
            Event::Waits(waits) => self.waits = waits,
            Event::Heard(source) => drop(self.heard.insert(source)),
            Event::Hooking(trouble) => self.hooking(now, trouble),
            Event::Hooked => self.hooked(now, out),
            Event::Synced => self.synced(now, out),
            Event::Operated { operation, outcome } => self.operated(now, operation, outcome, out),
            Event::Tick => {}
        }
    }

    fn hear_drain(&mut self, now: Mono, status: NodeDrainStatus, out: &mut Vec<Effect>) {
        if self.drain.replace(status) == Some(status) {
            return;
        }
        self.drain_moved(now);
        if let Some((waits, note)) = order::waits(status) {
            // That an idle node is idle is no news.
            if waits || self.status.wait_drain_in_progress || status.status == DrainStatus::Complete {
                out.push(Effect::Say(note));
            }
            self.status.wait_drain_in_progress = waits;
        }
    }

    /// What follows from the facts but for operations.
    fn judge(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if let Some((label, _)) = self.partitions.running() {
            if self.trial == ImageTrial::Idle && self.verdicts.get(label) == Some(&true) {
                self.trial = ImageTrial::Passed;
            }
            self.status.cur_part = label.to_owned();
            self.status.update_inprogress = self.partitions.in_test();
        }
        let on = self.conditions();
        let before = self.trial;
        self.trial = before.update(now, &on);
        let image = self.status.cur_part.clone();
        let runs = |trial| matches!(trial, ImageTrial::Running { .. });
        if matches!(before, ImageTrial::Idle | ImageTrial::Held) && runs(self.trial) {
            let secs = self.waits.image_test.as_secs();
            say!(out, info, "tests the new image {image} for {secs} s");
        } else if runs(before) && self.trial == ImageTrial::Passed {
            say!(out, info, "the new image {image} has passed its test");
        }
        let remaining = self.trial.remaining(&on).as_nanos();
        self.status.remaining_test_time = i64::try_from(remaining).unwrap_or(i64::MAX);

        self.vault.update(now, self.controller.had());
        // Without an image to fall back from, only a person can help.
        if !on.in_test && due(self.vault.shut_for(self.waits.vault), now) {
            self.vault.lock_up();
            let secs = self.waits.vault.as_secs();
            say!(out, warn, "the vault stays shut for {secs} s: maintenance mode");
        }
        let holding = [
            (self.vault.locked_up(), MaintenanceModeReason::VaultLockedUp),
            (self.space == Some(0), MaintenanceModeReason::LowDiskSpace),
            (self.tpm_fails, MaintenanceModeReason::TpmEncryptFailure),
            (self.wish.certs_refused, MaintenanceModeReason::EdgeNodeCertsRefused),
        ]
        .into_iter()
        .filter_map(|(holds, reason)| holds.then_some(reason));
        let holding: Vec<_> = holding.collect();
        // In the order in which they came; an empty list says that there were some.
        let before = self.status.local_maintenance_mode_reasons.take();
        let known = before.is_some();
        let mut reasons: Vec<_> = before.unwrap_or_default();
        reasons.retain(|it| holding.contains(it));
        let new: Vec<_> = holding.into_iter().filter(|it| !reasons.contains(it)).collect();
        reasons.extend(new);
        self.status.local_maintenance_mode = !reasons.is_empty();
        self.status.local_maintenance_mode_reasons = (known || !reasons.is_empty()).then_some(reasons);
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            in_test: self.partitions.in_test(),
            taken: self.partitions.running().is_some_and(|(_, it)| it.test_complete),
            going_down: self.going_down(),
            contact: self.controller.contact(),
            time: self.waits.image_test,
            tick: self.limits.test_tick(),
        }
    }

    pub(super) fn fallback_at(&self) -> Option<Mono> {
        self.controller.lost_for(self.waits.fallback).filter(|_| self.partitions.in_test())
    }

    pub(super) fn has_drain(&self) -> bool {
        self.drain.is_none_or(|drain| drain.status != DrainStatus::NotSupported)
    }

    pub(super) fn flag(&mut self, operation: MachineOperation) {
        match operation {
            MachineOperation::Reboot => self.status.device_reboot = true,
            MachineOperation::Shutdown => self.status.device_shutdown = true,
            MachineOperation::Poweroff => self.status.device_poweroff = true,
        }
    }

    /// Publishes what differs from what was published. Nothing new once the machine was asked to go down.
    pub(super) fn publish_changes(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.latched.as_ref().is_some_and(|it| it.is_asked() && it.order.goes_down())
            && self.said.is_some()
        {
            return;
        }
        self.talk.publish_question(out);
        self.publish_verdicts(out);
        if let Some(until) = self.silent_until {
            let partitions =
                self.partitions.running().is_some() || self.heard.contains(&RequiredReading::Partitions);
            let known = partitions && self.heard.contains(&RequiredReading::Drain);
            let late = now >= until;
            if !known && !late && self.latched.is_none() {
                return;
            }
            if !known && late {
                say!(out, warn, "publishes without word from baseosmgr or zedkube; check that they run");
            }
            self.silent_until = None;
        }
        if self.said.as_ref() != Some(&self.status) {
            self.said = Some(self.status.clone());
            out.push(Effect::Publish(Box::new(self.status.clone())));
        }
    }

    fn publish_verdicts(&mut self, out: &mut Vec<Effect>) {
        if let Some((running, _)) = self.partitions.running() {
            for (label, verdict) in &mut self.verdicts {
                *verdict = label == running && self.trial.passed();
            }
        }
        for (label, verdict) in &self.verdicts {
            if self.verdicts_said.insert(label.clone(), *verdict) != Some(*verdict) {
                out.push(Effect::Zboot(ZbootConfig {
                    partition_label: label.clone(),
                    test_complete: *verdict,
                }));
            }
        }
    }
}

pub(super) fn due(at: Option<Mono>, now: Mono) -> bool {
    over(at, now).is_some()
}

/// For how long `at` has been over; `None` until it comes.
pub(super) fn over(at: Option<Mono>, now: Mono) -> Option<Duration> {
    at.filter(|at| *at <= now).map(|at| now.since(at))
}

impl Core for NodeAgent {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let mut out = std::mem::take(&mut self.opening);
        self.hear(now, event, &mut out);
        self.judge(now, &mut out);
        self.latch(now, &mut out);
        self.advance(now, &mut out);
        self.publish_changes(now, &mut out);
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        // What a turn is waited for is due, and stays so.
        let open = |at: Option<Mono>| at.filter(|_| !self.going_down() && !self.talk.waits());
        [
            self.phase().and_then(OrderPhase::due),
            self.talk.due(),
            self.silent_until.filter(|_| self.latched.is_none()),
            self.trial.due(&self.conditions()),
            open(self.fallback_at()),
            open(self.controller.lost_for(self.waits.no_controller)),
            open(self.vault.shut_for(self.waits.vault)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

impl Default for Waits {
    /// The defaults of the controller's properties.
    fn default() -> Self {
        Self {
            image_test: Duration::from_mins(10),
            fallback: Duration::from_mins(5),
            no_controller: Duration::from_hours(168),
            vault: Duration::from_mins(5),
        }
    }
}
