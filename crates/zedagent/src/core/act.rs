//! What follows once it is decided: a drain is asked for, an operation waits, or nodeagent gets the command.
//!
//! Pure: no clock, no I/O, no task.

use requester::{DrainJudgement, ProceedReason};
use step::{Fault, Mono, planted, say};
use topics::{BootReason, DeviceOp, DrainStatus, GoTime, PendingState, SkipKind};

use super::facts::Effect;
use super::machine::{OperationGate, Zedagent};

/// What a commanded operation waits for, and what shows how far it is.
const CARRIED_OUT: (&str, &str) = ("nodeagent to carry it out, and the boot after it", "");

/// Why an operation goes without the drain that was asked for.
const LEFT: &str = "the node is in no cluster any more";

impl Zedagent {
    pub(super) fn ask(&mut self, now: Mono, op: DeviceOp, out: &mut Vec<Effect>) {
        let request = self.hold.request(self.wall(now), op.word().to_owned());
        if let Some(pending) = self.pending.get_mut(&op) {
            pending.drain_requested_at = request.requested_at;
            pending.attempts = pending.attempts.saturating_add(1);
            "zedkube to accept the drain request".clone_into(&mut pending.waiting_for);
            pending.next_step.clear();
            out.push(Effect::Journal(pending.clone()));
            deferred(op, &pending.waiting_for, out);
        }
        out.push(Effect::Request(request));
    }

    /// The drain for `op`, which is in `state`, failed: it is requested again after a pause. The failed request stays until
    /// then: zedkube drains for it again by itself once the cause has ended, and nodeagent continues waiting.
    pub(super) fn failed(
        &mut self,
        now: Mono,
        (op, state): (DeviceOp, PendingState),
        reason: &str,
        out: &mut Vec<Effect>,
    ) {
        if let Some(failure) = self.hold.fail(now, reason) {
            let (op, secs) = (op.word(), failure.wait_secs);
            say!(
                out,
                error,
                "nodedrain-step:drain-failed-handler NodeDrainStatus {reason}; {op} asks again in {secs} s"
            );
        }
        match self.ask_gate(now) {
            OperationGate::Wait { waiting_for, next_step } => {
                self.record_wait(op, state, &waiting_for, next_step, out);
            }
            OperationGate::Open(_) | OperationGate::Ask | OperationGate::Failed(_) => self.ask(now, op, out),
        }
    }

    /// What is commanded needs the node drained until the machine goes down. zedkube drains again by itself when
    /// COMPLETE does not hold any more; nodeagent waits for that.
    pub(super) fn stay_drained(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(op) = self.commanded().filter(|_| self.hold.own.is_some()) else { return };
        let under_way = self.hold.heard.status.is_some_and(|it| it.status.is_under_way());
        let forced = self.hold.forced.take();
        let judgement = self.hold.judge(|_| true);
        self.hold.forced = forced;
        match judgement {
            DrainJudgement::Failed(_) if planted(Fault::CommandedOnce) => {}
            DrainJudgement::Failed(reason) => self.failed(now, (op, PendingState::Commanded), &reason, out),
            DrainJudgement::Open(ProceedReason::Complete { .. }) => {
                self.record_wait(op, PendingState::Commanded, CARRIED_OUT.0, CARRIED_OUT.1, out);
            }
            DrainJudgement::Wait | DrainJudgement::Unanswered(_) if under_way => {
                let words = self.hold.own.as_ref().map(|own| self.hold.heard.words(own)).unwrap_or_default();
                let waiting_for = format!("the node to be drained again: {words}");
                self.record_wait(op, PendingState::Commanded, &waiting_for, "", out);
            }
            DrainJudgement::Open(_)
            | DrainJudgement::Ask
            | DrainJudgement::Wait
            | DrainJudgement::Unanswered(_)
            | DrainJudgement::Silent
            | DrainJudgement::Stranger(_)
            | DrainJudgement::Held(_) => {}
        }
    }

    /// What an operation waits for while nobody who knows a cluster has spoken.
    pub(super) fn silent_words(&self) -> OperationGate {
        let waiting_for = format!("zedkube to say how this {} is", self.kind());
        if self.says_not_supported() {
            let why = ": it says NOTSUPPORTED, while the device config names a cluster";
            return OperationGate::wait(waiting_for + why, "compare run/eve-hv-type with the device config");
        }
        OperationGate::wait(waiting_for, "check that zedkube runs")
    }

    /// That it drains nothing, on a node that the config puts into a cluster.
    fn says_not_supported(&self) -> bool {
        self.wanted.as_ref().is_none_or(|it| it.clustered)
            && self.hold.heard.status.is_some_and(|it| it.status == DrainStatus::NotSupported)
    }

    pub(super) fn wait(&mut self, op: DeviceOp, waiting_for: &str, next_step: &str, out: &mut Vec<Effect>) {
        self.record_wait(op, PendingState::Pending, waiting_for, next_step, out);
    }

    /// Writes down what an operation in `state` waits for.
    fn record_wait(
        &mut self,
        op: DeviceOp,
        state: PendingState,
        waiting_for: &str,
        next_step: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(pending) = self.pending.get_mut(&op).filter(|it| it.state == state) else {
            return;
        };
        if pending.waiting_for != waiting_for || pending.next_step != next_step {
            waiting_for.clone_into(&mut pending.waiting_for);
            next_step.clone_into(&mut pending.next_step);
            out.push(Effect::Journal(pending.clone()));
            deferred(op, waiting_for, out);
        }
    }

    /// Tells nodeagent. From here on only a boot ends the operation.
    pub(super) fn command(&mut self, op: DeviceOp, why: ProceedReason, out: &mut Vec<Effect>) {
        let is_forced = matches!(why, ProceedReason::Forced(_))
            || self.own_for(op).is_some_and(|own| self.hold.heard.has_forced(own));
        if why == ProceedReason::Early {
            say!(out, error, "EARLY boot request for {}, zedkube not up yet", op.word());
        }
        // A drain that was asked for in a cluster that the node has left since was not for nothing.
        let asked = self.pending.get(&op).is_some_and(|it| it.attempts > 0);
        let skip = if asked && matches!(why, ProceedReason::NotSupported | ProceedReason::Early) {
            LEFT.to_owned()
        } else if let ProceedReason::Silent { waited_secs } = why {
            let what = if self.says_not_supported() { "NOTSUPPORTED and nothing else" } else { "nothing" };
            format!("zedkube has said {what} about this {} for {waited_secs} s", self.kind())
        } else {
            why.skip()
        };
        if !skip.is_empty() && skip != LEFT {
            say!(out, warn, "drain skipped for {}: {skip}", op.word());
        }
        let Some(pending) = self.pending.get_mut(&op) else { return };
        pending.state = PendingState::Commanded;
        if pending.boot_id != self.boot_id {
            pending.boot_id.clone_from(&self.boot_id);
            pending.booted_at = GoTime::ZERO;
        }
        pending.skip_kind = match skip.is_empty() {
            true => SkipKind::None,
            false if is_forced => SkipKind::Forced,
            false => SkipKind::Other,
        };
        pending.skip = skip;
        CARRIED_OUT.0.clone_into(&mut pending.waiting_for);
        CARRIED_OUT.1.clone_into(&mut pending.next_step);
        out.push(Effect::Journal(pending.clone()));
        self.command_again(op);
        let reason = self.reason(op);
        say!(out, info, "scheduleDeviceOperation: {} commanded, published to nodeagent: {reason}", op.word());
    }

    pub(super) fn reason(&self, op: DeviceOp) -> String {
        let word = match op {
            DeviceOp::Reboot => "Reboot",
            DeviceOp::Shutdown => "Shutdown",
        };
        let pending = self.pending.get(&op);
        let skip = pending.map_or("", |it| it.skip.as_str());
        if !skip.is_empty() {
            format!("Drain skipped ({skip}) and deferred {word} Cmd")
        } else if pending.is_some_and(|it| it.attempts > 0) {
            format!("Drain complete and deferred {word} Cmd")
        } else if self.tested.contains(&op) {
            format!("TestComplete and deferred {word} Cmd")
        } else {
            format!("NORMAL: controller {}", op.word())
        }
    }

    pub(super) fn command_again(&mut self, op: DeviceOp) {
        self.status.requested_reboot_reason = self.reason(op);
        match op {
            DeviceOp::Reboot => {
                self.status.reboot_cmd = true;
                self.status.requested_boot_reason = BootReason::RebootCmd;
            }
            // An ordered shutdown switches the machine off; the controller's leaves the power on.
            DeviceOp::Shutdown if self.is_ordered(op) => {
                self.status.poweroff_cmd = true;
                self.status.requested_boot_reason = BootReason::PoweroffCmd;
            }
            DeviceOp::Shutdown => self.status.shutdown_cmd = true,
        }
    }
}

fn deferred(op: DeviceOp, waiting_for: &str, out: &mut Vec<Effect>) {
    say!(out, info, "shouldDeferForNodeDrain: {} deferred, waits for {waiting_for}", op.word());
}
