//! The course of an operation: what is called for, what is taken up, how far it goes.
//!
//! Pure: no clock, no I/O, no task.

use agent::device::{self, MachineOperation};
use requester::{completes, undone};
use step::{Fault, Mono, planted, say};
use topics::{Answer, NodeDrainStatus, OutageKind, OutageRole, Requester, SkipKind};

use super::machine::{due, over};
use super::phase::{LatchedOrder, OrderPhase};
use super::{Effect, MachineOrder, NodeAgent, OrderCause, RequiredReading, Resumed, Took, order};
use crate::limits::{ANSWER_LIMIT, LAST_SYNC, NO_CONTROLLER_TURN, OWN_SETTLING, OWN_TURN};

impl NodeAgent {
    /// The operation that the facts call for, strongest first; a shutdown leaves the power on, so it comes last.
    fn called_for(&self, now: Mono) -> Option<(MachineOrder, OrderCause)> {
        let wish = &self.wish;
        let command = |operation| {
            Some((order::commanded(operation, &wish.reason, wish.boot_reason), OrderCause::Command))
        };
        // A node in no cluster has nothing to drain, so it skips nothing.
        let undrained = if self.has_drain() { " without a drain" } else { "" };
        if wish.reboot {
            command(MachineOperation::Reboot)
        } else if wish.poweroff {
            command(MachineOperation::Poweroff)
        } else if let Some((label, version)) = self.partitions.to_try() {
            Some((order::update(label, version), OrderCause::Update))
        } else if let Some(over) = over(self.fallback_at(), now) {
            Some((order::fallback(self.waits.fallback, over, undrained), OrderCause::Fallback))
        } else if let Some(over) =
            over(self.vault.shut_for(self.waits.vault), now).filter(|_| self.partitions.in_test())
        {
            let order = order::vault(self.waits.vault, over, self.vault.mismatching(), undrained);
            Some((order, OrderCause::Vault))
        } else if let Some(over) = over(self.controller.lost_for(self.waits.no_controller), now) {
            Some((order::disconnect(self.waits.no_controller, over, undrained), OrderCause::Disconnect))
        } else if wish.shutdown {
            command(MachineOperation::Shutdown)
        } else {
            None
        }
    }

    /// Takes up what is called for, unless another operation is in the way.
    pub(super) fn latch(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let called_for = self.called_for(now);
        let own = called_for.as_ref().is_some_and(|(_, why)| why.skips_drain());
        if !own && !self.going_down() {
            self.talk.withdraw();
        }
        let Some((mut order, why)) = called_for else { return };
        if !order::may_follow(self.latched.as_ref().map(|it| it.order.operation), order.operation) {
            return;
        }
        if own {
            let limit = match why {
                OrderCause::Disconnect => NO_CONTROLLER_TURN,
                OrderCause::Command | OrderCause::Update | OrderCause::Fallback | OrderCause::Vault => {
                    OWN_TURN
                }
            };
            if !self.may_restart(now, limit, out) {
                return;
            }
            order.reason.push_str(&std::mem::take(&mut self.talk.note));
        }
        let MachineOrder { operation, reason, boot_reason } = &order;
        if why.skips_drain() && self.has_drain() {
            say!(
                out,
                warn,
                "drain skipped: {reason}. No drain is asked for, as the limit means that the device cannot be helped \
                 while it is up"
            );
        }
        let operation = operation.word();
        say!(out, warn, "scheduleNodeOperation: {operation}, {reason} ({why:?}, {boot_reason:?})");
        out.push(Effect::Journal(Resumed { order: order.clone(), done: false }));
        self.flag(order.operation);
        let phase = OrderPhase::Delay { until: now + self.limits.min_reboot_delay() };
        self.latched = Some(LatchedOrder { order, phase });
    }

    /// Our zedagent does not want any more what it commanded: that ends here, unless the device was asked. One of the reference
    /// never takes a command back.
    pub(super) fn call_off(&mut self, out: &mut Vec<Effect>) {
        let wish = &self.wish;
        let is_wanted = |operation| match operation {
            MachineOperation::Reboot => wish.reboot,
            MachineOperation::Shutdown => wish.shutdown,
            MachineOperation::Poweroff => wish.poweroff,
        };
        let commanded = |it: &&MachineOrder| it.drained_for() == Some(Requester::DeviceOp);
        let latched = self.latched.as_ref().filter(|it| wish.ours && !it.is_asked());
        let order = latched.map(|it| &it.order).filter(commanded);
        let Some(order) = order.filter(|it| !is_wanted(it.operation)).cloned() else { return };
        let operation = order.operation.word();
        say!(out, info, "the {operation} was withdrawn before the device was asked");
        out.push(Effect::CallOff(order));
        self.latched = None;
        self.held_by = None;
        self.talk.question.kind = OutageKind::None;
        self.talk.free();
        let status = &mut self.status;
        (status.device_reboot, status.device_shutdown, status.device_poweroff) = (false, false, false);
        status.all_domains_halted = false;
    }

    /// Takes the operation as far as it goes now.
    pub(super) fn advance(&mut self, now: Mono, out: &mut Vec<Effect>) {
        // What was latched in this step is published before anything of it is done.
        self.publish_changes(now, out);
        while let Some(LatchedOrder { order, phase }) = self.latched.clone() {
            let halted = matches!(phase, OrderPhase::Halting { .. }) && self.all_halted();
            let unwaited = matches!(phase, OrderPhase::Delay { .. }) && self.wish.ours;
            if !(halted || unwaited || phase == OrderPhase::Turning || due(phase.due(), now)) {
                return;
            }
            let next = match phase {
                OrderPhase::Delay { .. } => {
                    if order.operation != MachineOperation::Shutdown {
                        out.push(Effect::Reason { order, image: self.status.cur_part.clone() });
                    }
                    let until = now + self.limits.domain_halt_limit();
                    OrderPhase::Halting { until, tell_at: now }
                }
                OrderPhase::Halting { until, .. } if self.all_halted() || now >= until => {
                    if !self.active.is_empty() {
                        let left = &self.active;
                        say!(out, warn, "applications not halted in time, the operation continues: {left:?}");
                    }
                    self.status.all_domains_halted = true;
                    self.publish_changes(now, out);
                    if order.operation == MachineOperation::Shutdown {
                        sync(now, out)
                    } else {
                        out.push(Effect::Sync);
                        let delay = self.limits.min_reboot_delay();
                        let delay = if self.wish.ours { delay.min(OWN_SETTLING) } else { delay };
                        OrderPhase::Settling { until: now + delay }
                    }
                }
                OrderPhase::Halting { until, .. } => {
                    let (left, secs) = (&self.active, until.since(now).as_secs());
                    say!(out, info, "waits for applications to halt, {secs} s more: {left:?}");
                    OrderPhase::Halting { until, tell_at: now + self.limits.domain_halt_step() }
                }
                OrderPhase::Settling { .. } | OrderPhase::Held { .. } | OrderPhase::Refused { .. } => {
                    sync(now, out)
                }
                OrderPhase::Hooks { trouble, .. } => {
                    let secs = self.limits.hooks_limit().as_secs();
                    let mut why =
                        format!("the hooks before the reboot were waited for no longer after {secs} s");
                    if !trouble.is_empty() {
                        why = format!("{why}: {trouble}");
                    }
                    say!(out, warn, "{why}; the operation continues");
                    out.push(Effect::Mark { order, why });
                    sync(now, out)
                }
                OrderPhase::Syncing { .. } => {
                    let secs = LAST_SYNC.as_secs();
                    say!(out, warn, "the disks are not in sync after {secs} s; the operation continues");
                    self.check(now, order, out)
                }
                OrderPhase::Looking { .. } => self.unanswered(now, out),
                OrderPhase::Turning => {
                    if !self.may_restart(now, OWN_TURN, out) {
                        return;
                    }
                    let note = std::mem::take(&mut self.talk.note);
                    if !note.is_empty() {
                        out.push(Effect::Mark { order: order.clone(), why: note });
                    }
                    self.operate(now, order, out)
                }
                OrderPhase::Asked { .. } | OrderPhase::Obeyed { .. } => {
                    out.push(Effect::Exit(order));
                    OrderPhase::Leaving
                }
                OrderPhase::Checking { .. } | OrderPhase::Down | OrderPhase::Leaving => return,
            };
            self.enter(next);
        }
    }

    /// The operation is in this phase now.
    pub(super) fn enter(&mut self, next: OrderPhase) {
        if let Some(latched) = &mut self.latched {
            latched.phase = next;
        }
    }

    pub(super) fn phase(&self) -> Option<&OrderPhase> {
        self.latched.as_ref().map(|it| &it.phase)
    }

    /// The machine itself is about to go down, irrevocably.
    pub(super) fn going_down(&self) -> bool {
        self.latched.as_ref().is_some_and(|it| it.order.goes_down())
    }

    /// Hears that hooks are called before everything is brought to the disks, and why that has failed so far.
    pub(super) fn hooking(&mut self, now: Mono, trouble: String) {
        let limit = now + self.limits.hooks_limit();
        if let Some(OrderPhase::Hooks { until, .. }) = self.phase() {
            let until = *until;
            self.enter(OrderPhase::Hooks { until, trouble });
        } else if let Some(OrderPhase::Syncing { .. }) = self.phase() {
            self.enter(OrderPhase::Hooks { until: limit, trouble });
        }
    }

    /// Hears that all were called.
    pub(super) fn hooked(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if let Some(OrderPhase::Hooks { .. }) = self.phase() {
            let next = sync(now, out);
            self.enter(next);
        }
    }

    /// Everything is on the disks.
    pub(super) fn synced(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(LatchedOrder { order, phase: OrderPhase::Syncing { .. } }) = self.latched.clone() else {
            return;
        };
        let next = self.check(now, order, out);
        self.enter(next);
    }

    /// The last look before the device is asked, where a drain has made way for it.
    fn check(&mut self, now: Mono, order: MachineOrder, out: &mut Vec<Effect>) -> OrderPhase {
        if order.drained_for().is_some() && !planted(Fault::LastLook) {
            out.push(Effect::Check);
            OrderPhase::Checking { unasked: String::new() }
        } else if order.drained_for().is_none() && self.needs_turn() {
            OrderPhase::Turning
        } else {
            self.operate(now, order, out)
        }
    }

    pub(super) fn operate(&mut self, now: Mono, order: MachineOrder, out: &mut Vec<Effect>) -> OrderPhase {
        // A stand-in stays up, and so would this.
        self.talk.free();
        self.talk.publish_question(out);
        let leaves = order.operation != MachineOperation::Shutdown;
        out.push(Effect::Operate(order));
        OrderPhase::Asked { leave_at: leaves.then_some(now + self.limits.hard_exit()) }
    }

    /// What zedkube says right now: the device is asked, unless the node is not drained any more for whom it was.
    pub(super) fn checked(
        &mut self,
        now: Mono,
        answers: &[Answer],
        forced: Option<NodeDrainStatus>,
        ours: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(LatchedOrder { order, phase: OrderPhase::Checking { unasked } }) = self.latched.clone()
        else {
            return;
        };
        let by = order.drained_for();
        let held = by.and_then(|by| undone(by, self.drain, answers, forced));
        let released = by.is_some_and(|by| {
            forced.is_some_and(|it| completes(it, by))
                || answers.iter().any(|it| it.requested_by == by && it.skip_kind == SkipKind::Forced)
        });
        let next = match held {
            None if ours && !released && unasked.is_empty() && self.talk.role() != OutageRole::None => {
                self.talk.ask(now, OutageKind::LastLook, order.operation, by);
                OrderPhase::Looking { until: now + ANSWER_LIMIT }
            }
            None => {
                if !unasked.is_empty() {
                    out.push(Effect::Mark { order: order.clone(), why: unasked });
                }
                self.operate(now, order, out)
            }
            Some(status) => {
                if self.held_by != Some(status) {
                    let operation = order.operation.word();
                    say!(
                        out,
                        warn,
                        "{operation} held back: the node is not drained any more, NodeDrainStatus {status}; \
                         continues once it is COMPLETE"
                    );
                }
                OrderPhase::Held { again_at: now + self.limits.refused_retry() }
            }
        };
        self.enter(next);
        self.held_by = held;
    }

    /// zedkube says something else: whoever is held looks again, and whoever has asked did so about another state of the
    /// node.
    pub(super) fn drain_moved(&mut self, now: Mono) {
        if let Some(OrderPhase::Held { .. } | OrderPhase::Looking { .. }) = self.phase() {
            self.enter(OrderPhase::Held { again_at: now });
        }
    }

    fn all_halted(&self) -> bool {
        self.active.is_empty() && self.heard.contains(&RequiredReading::Applications)
    }

    pub(super) fn operated(
        &mut self,
        now: Mono,
        operation: MachineOperation,
        outcome: Result<Took, String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(LatchedOrder { order, phase: OrderPhase::Asked { leave_at } }) = self.latched.clone() else {
            return;
        };
        // An answer to a shutdown may come when a reboot has taken its place.
        if order.operation != operation {
            return;
        }
        let (word, path) = (operation.word(), device::RECORD);
        match &outcome {
            Ok(Took::Machine) => say!(out, info, "the device obeys: {word}"),
            Ok(Took::StandIn) => {
                say!(out, warn, "the stand-in device wrote {word} to {path}; this machine stays up");
            }
            Err(reason) => {
                let secs = self.limits.refused_retry().as_secs();
                say!(out, error, "the device refused {word}: {reason}; it is asked again in {secs} s");
            }
        }
        self.enter(match (outcome, leave_at) {
            (Ok(Took::Machine), Some(leave_at)) => OrderPhase::Obeyed { leave_at },
            (Ok(_), _) => {
                out.push(Effect::Journal(Resumed { order, done: true }));
                OrderPhase::Down
            }
            (Err(_), _) => OrderPhase::Refused { again_at: now + self.limits.refused_retry() },
        });
    }
}

/// Before the last look: it may take long, and what was seen before it would be old by its end.
fn sync(now: Mono, out: &mut Vec<Effect>) -> OrderPhase {
    out.push(Effect::LastSync);
    OrderPhase::Syncing { until: now + LAST_SYNC }
}
