//! A machine that goes down with the whole site, or because a person at it wants that: an operation like the controller's,
//! with the same way to the device, and ordered for one boot.
//!
//! It goes before what the controller wants, and takes no counter of the controller with it but one that it carries out
//! as well. Not here: when the machine's turn has come (`outage::site`). Pure: no clock, no I/O, no task.

use requester::{Orderer, Paused};
use step::{Mono, say};
use topics::{BootReason, DeviceOp, DeviceOpPending, DeviceOpsCmd, NodeAgentStatus, PendingState};

use super::facts::{Effect, SiteOrder};
use super::machine::{OPERATIONS, OperationGate, Zedagent};

impl Zedagent {
    /// Hears what zedkube orders; an order of an earlier boot was carried out by the boot, and so was what the controller
    /// had ordered of the same kind before that.
    pub(super) fn site_heard(&mut self, order: Option<SiteOrder>, out: &mut Vec<Effect>) {
        if let Some(SiteOrder { op, .. }) = order.as_ref().filter(|it| it.back || it.boot_id != self.boot_id)
            && self.pending.get(op).is_some_and(|it| it.boot_id != self.boot_id)
        {
            self.executed(*op, out);
            self.forget_drain(*op, out);
        }
        self.site = Some(order.filter(|it| it.go && it.boot_id == self.boot_id));
    }

    pub(super) fn nodeagent(&mut self, status: &NodeAgentStatus) {
        self.update_in_progress = status.update_inprogress;
        self.going_down = status.device_reboot || status.device_poweroff;
    }

    /// Hears what a person wants. What is withdrawn after its command is called off, unless the controller wants it as well:
    /// nodeagent says whether the device was asked before it heard that.
    pub(super) fn person_heard(&mut self, order: Option<&(DeviceOp, String)>) {
        let Some((op, by)) = self.person.replace(order.cloned()).flatten() else { return };
        let is_it =
            |it: &&DeviceOpPending| it.state == PendingState::Commanded && it.site == by && it.counter == 0;
        let (Some(_), None) = (self.pending.get(&op).filter(is_it), self.called_off) else { return };
        if order == Some(&(op, by)) {
            self.command_again(op);
        } else {
            self.called_off = Some(op);
            (self.status.reboot_cmd, self.status.poweroff_cmd) = (false, false);
            self.status.requested_reboot_reason.clear();
            self.status.requested_boot_reason = BootReason::default();
        }
    }

    /// Whether the site or a person asks for this operation.
    pub(super) fn is_ordered(&self, op: DeviceOp) -> bool {
        self.pending.get(&op).is_some_and(|it| !it.site.is_empty())
    }

    /// What keeps this operation waiting by a person's pause; a drain that was asked for it alone is taken back where that
    /// refuses what has started.
    pub(super) fn paused(&mut self, op: DeviceOp, out: &mut Vec<Effect>) -> Option<OperationGate> {
        let of_site = self.site.iter().flatten().any(|it| it.op == op);
        let from = match (self.is_ordered(op), of_site) {
            (true, true) => Orderer::Site,
            (true, false) => Orderer::Person,
            (false, _) => Orderer::Controller,
        };
        let Paused { waiting_for, next_step, withdraws } = self.hold.paused(self.own_for(op), from)?;
        if withdraws && self.commanded().is_none() {
            self.withdraw(out);
        }
        Some(OperationGate::Wait { waiting_for, next_step })
    }

    /// What is ordered is pending; what is ordered no longer is not. The site goes before a person at one node.
    pub(super) fn settle_ordered(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if !self.going_down
            && let Some(op) = self.called_off.take()
        {
            self.take_back(op, out);
        }
        let Some(site) = self.site.clone() else { return };
        // Nothing is withdrawn of which it is not known whether it is still wanted.
        let withdraws = site.is_some() || self.person.is_some();
        let order = site.map(|it| (it.op, it.id)).or_else(|| self.person.clone().flatten());
        for op in [DeviceOp::Reboot, DeviceOp::Shutdown].into_iter().filter(|_| withdraws) {
            let wanted = order.as_ref().is_some_and(|it| it.0 == op);
            let commanded = self.pending.get(&op).is_some_and(|it| it.state == PendingState::Commanded);
            if self.is_ordered(op) && !wanted && !commanded {
                self.take_back(op, out);
            }
        }
        let Some((op, by)) = order else { return };
        // A reboot of the controller is the same; its shutdown leaves the power on.
        let same = op == DeviceOp::Reboot && self.pending.contains_key(&op);
        if same || self.is_ordered(op) {
            return;
        }
        say!(out, info, "scheduleDeviceOperation: {} wanted by {by}", op.word());
        let before = self.pending.get(&op).cloned().unwrap_or_default();
        let pending = DeviceOpPending {
            op,
            state: PendingState::Pending,
            boot_id: self.boot_id.clone(),
            since: self.wall(now),
            booted_at: self.booted_at,
            waiting_for: "its turn".to_owned(),
            site: by,
            ..before
        };
        out.push(Effect::Journal(pending.clone()));
        self.pending.insert(op, pending);
    }
}

impl Zedagent {
    /// Commands of an earlier boot were carried out by the boot in between.
    pub(super) fn count_executed(&mut self) -> Vec<Effect> {
        let mut out = Vec::new();
        for op in OPERATIONS {
            // Any boot will do: a machine with an order to go down was off.
            let went = |it: &DeviceOpPending| it.state == PendingState::Commanded || !it.site.is_empty();
            if self.pending.get(&op).is_some_and(|it| went(it) && it.boot_id != self.boot_id) {
                self.executed(op, &mut out);
            }
        }
        out
    }

    /// Pending operations of an older copy were commanded later if the boot before this one ended by the
    /// command.
    pub(super) fn settle_older(&mut self, status: &NodeAgentStatus, out: &mut Vec<Effect>) {
        for op in std::mem::take(&mut self.older) {
            if op == DeviceOp::Reboot && status.boot_reason == BootReason::RebootCmd {
                self.executed(op, out);
            } else if let Some(pending) = self.pending.get(&op) {
                say!(
                    out,
                    warn,
                    "the record of {} was damaged and an older copy is used, by which it is still to be carried out; if \
                     it was carried out already, this is once more",
                    pending.words()
                );
            }
        }
    }

    /// An ordered operation has no counter.
    pub(super) fn executed(&mut self, op: DeviceOp, out: &mut Vec<Effect>) {
        let Some(pending) = self.pending.remove(&op) else { return };
        let words = pending.words();
        let DeviceOpPending { counter, desired_state, ops_time, site, .. } = pending;
        if counter != 0 || site.is_empty() {
            let command = DeviceOpsCmd { counter, desired_state, ops_time };
            out.push(Effect::SaveCounter(op, command.clone()));
            self.counters.insert(op, command);
        }
        out.push(Effect::Forget(op));
        say!(out, info, "{words} carried out: the boot after it has come");
    }
}
