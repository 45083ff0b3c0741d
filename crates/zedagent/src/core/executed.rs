//! Operations that the boot before this one carried out. Pure: no clock, no I/O, no task.

use step::say;
use topics::{BootReason, DeviceOp, DeviceOpPending, DeviceOpsCmd, NodeAgentStatus, PendingState};

use super::facts::Effect;
use super::machine::{OPERATIONS, Zedagent};

impl Zedagent {
    /// Commands of an earlier boot were carried out by the boot in between (goals R3).
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
                    "the record of {} {} was damaged and an older copy is used, by which it is still to be carried out; if \
                     it was carried out already, this is once more",
                    op.word(),
                    pending.counter
                );
            }
        }
    }

    /// An ordered operation has no counter.
    pub(super) fn executed(&mut self, op: DeviceOp, out: &mut Vec<Effect>) {
        let Some(DeviceOpPending { counter, desired_state, ops_time, site, .. }) = self.pending.remove(&op)
        else {
            return;
        };
        if counter != 0 || site.is_empty() {
            let command = DeviceOpsCmd { counter, desired_state, ops_time };
            out.push(Effect::SaveCounter(op, command.clone()));
            self.counters.insert(op, command);
        }
        out.push(Effect::Forget(op));
        say!(out, info, "{} {counter} carried out: the boot after it has come", op.word());
    }
}
