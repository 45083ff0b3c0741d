//! Device operations from the controller's counter to the command for nodeagent, drained in between.
//!
//! Source: lf-edge/eve pkg/pillar/cmd/zedagent. Pure: no clock, no I/O, no task.

use std::time::Duration;

use requester::{
    DeviceClustering, DrainJudgement, Hold, OwnRequest, ProceedReason, UNKNOWN_WAIT, ZedkubeSilence,
};
use step::{Core, Fault, Inserted as _, LiteMap, Mono, planted, say};
use topics::{
    DeviceOp, DeviceOpPending, DeviceOpsCmd, DeviceOrder, DeviceState, DrainStatus, GoTime,
    MaintenanceModeReason, PendingState, Requester, ZedAgentStatus,
};

use super::facts::{DesiredDevice, Effect, Event, SavedDeviceOps, SiteOrder};
use crate::limits::{ASK_AGAIN_MOST, Limits};

/// Operations in the order in which they are served.
pub(super) const OPERATIONS: [DeviceOp; 2] = [DeviceOp::Reboot, DeviceOp::Shutdown];

/// What is in the way of an operation.
pub(super) enum OperationGate {
    Open(ProceedReason),
    /// A drain must be asked for.
    Ask,
    /// The drain failed, for this reason; it is asked for again later.
    Failed(String),
    /// Something else must happen first.
    Wait {
        waiting_for: String,
        next_step: &'static str,
    },
}

impl OperationGate {
    pub(super) fn wait(waiting_for: impl Into<String>, next_step: &'static str) -> Self {
        Self::Wait { waiting_for: waiting_for.into(), next_step }
    }
}

/// The core of zedagent.
#[derive(Debug, Clone, Default)]
pub struct Zedagent {
    pub(super) boot_id: String,
    /// When the monotonic clock started, by the wall clock.
    pub(super) booted_at: GoTime,
    pub(super) wanted: Option<DesiredDevice>,
    pub(super) counters: LiteMap<DeviceOp, DeviceOpsCmd>,
    pub(super) pending: LiteMap<DeviceOp, DeviceOpPending>,
    /// Pending by an older copy of the record, of an earlier boot: nodeagent's word of how that ended is waited for.
    pub(super) older: Vec<DeviceOp>,
    /// Operations that have waited for the test of an image.
    pub(super) tested: Vec<DeviceOp>,
    pub(super) hold: Hold,
    pub(super) silence: ZedkubeSilence,
    /// What zedkube orders for the whole site; `None` before that has been heard.
    #[expect(clippy::option_option, reason = "not heard yet, and nothing ordered, differ")]
    pub(super) site: Option<Option<SiteOrder>>,
    /// What a person at this node wants; `None` before that has been heard.
    #[expect(clippy::option_option, reason = "not heard yet, and nothing wanted, differ")]
    pub(super) person: Option<Option<(DeviceOp, String)>>,
    /// A command that a person has withdrawn, until nodeagent has heard that.
    pub(super) called_off: Option<DeviceOp>,
    /// nodeagent is at an operation that takes the machine down, or was not heard yet.
    pub(super) going_down: bool,
    pub(super) update_in_progress: bool,
    pub(super) image_waits: bool,
    pub(super) status: ZedAgentStatus,
    /// When the last fact was heard: what was due by then has been looked at.
    pub(super) heard: Mono,
}

impl Zedagent {
    /// Starts with what an earlier run left. `booted_at`: when the monotonic clock started, by the wall clock of now.
    pub fn new(limits: &Limits, found: SavedDeviceOps, now: Mono, booted_at: GoTime) -> (Self, Vec<Effect>) {
        let pauses = (limits.ask_again_first(), ASK_AGAIN_MOST);
        let mut hold = Hold::new(Requester::DeviceOp, pauses, found.request.as_ref());
        // One that is on its way out was in a cluster until now: it waits for the end, as for a drain.
        hold.has_to_leave = true;
        hold.pause = found.pause;
        let status = ZedAgentStatus {
            name: "zedagent".to_owned(),
            device_state: DeviceState::Booting,
            maintenance_mode_reasons: Some(vec![MaintenanceModeReason::None]),
            ..ZedAgentStatus::default()
        };
        let mut core = Self {
            boot_id: found.boot_id,
            booted_at,
            counters: found.counters,
            pending: if planted(Fault::A4Lost) { Vec::new() } else { found.pending }
                .into_iter()
                .map(|it| (it.op, it))
                .into_lite(),
            older: found.older,
            hold,
            silence: ZedkubeSilence::new(now),
            going_down: true,
            status,
            heard: now,
            ..Self::default()
        };
        let mut out = core.count_executed();
        core.older.retain(|op| core.pending.get(op).is_some_and(|it| it.boot_id != core.boot_id));
        core.set_clock(booted_at, &mut out);
        if core.pending.is_empty() {
            core.withdraw(&mut out);
        }
        for op in OPERATIONS {
            if let Some(it) = core.pending.get(&op).filter(|it| it.state == PendingState::Commanded) {
                let of_person = it.counter == 0 && DeviceOrder::is_person(&it.site);
                let order = of_person.then(|| (op, it.site.clone()));
                // It may be withdrawn by now: until that is heard, nodeagent is told what it was told last.
                if order.is_none() || found.told {
                    core.command_again(op);
                }
                core.person = order.map(Some).or(core.person);
            }
        }
        out.push(Effect::Publish(Box::new(core.status.clone())));
        (core, out)
    }

    /// The controller's counters against what was carried out and what is pending.
    pub(super) fn evaluate(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some(wanted) = self.wanted.clone() else { return };
        for op in OPERATIONS {
            let commanded = self.pending.get(&op).is_some_and(|it| it.state == PendingState::Commanded);
            if commanded || wanted.unclear.contains(&op) {
                continue;
            }
            if self.is_ordered(op) {
                // One boot carries out both.
                let newer = wanted.commands.get(&op).zip(self.counters.get(&op));
                if let Some((command, _)) = newer.filter(|(command, saved)| command.counter != saved.counter)
                {
                    self.want(now, op, command, out);
                }
                continue;
            }
            match (wanted.commands.get(&op), self.counters.get(&op)) {
                (None, saved) => {
                    if saved.is_some() {
                        out.push(Effect::DropCounter(op));
                        self.counters.remove(&op);
                    }
                    self.take_back(op, out);
                }
                (Some(command), None) => {
                    // A journal without a counter file: the wish is older than this config.
                    if !self.pending.contains_key(&op) {
                        out.push(Effect::SaveCounter(op, command.clone()));
                        say!(
                            out,
                            info,
                            "first counter {} of {} on this device: recorded, not carried out",
                            command.counter,
                            op.word()
                        );
                        self.counters.insert(op, command.clone());
                    }
                }
                (Some(command), Some(saved)) if command.counter == saved.counter => {
                    if !planted(Fault::A4Lost) {
                        self.take_back(op, out);
                    }
                }
                (Some(command), Some(_)) => self.want(now, op, command, out),
            }
        }
    }

    pub(super) fn want(&mut self, now: Mono, op: DeviceOp, command: &DeviceOpsCmd, out: &mut Vec<Effect>) {
        let known = self.pending.get(&op);
        if known.is_some_and(|it| it.counter == command.counter) {
            return;
        }
        say!(out, info, "scheduleDeviceOperation: {} {} wanted", op.word(), command.counter);
        let before = known.cloned().unwrap_or_default();
        let pending = DeviceOpPending {
            op,
            counter: command.counter,
            desired_state: command.desired_state,
            ops_time: command.ops_time.clone(),
            state: PendingState::Pending,
            boot_id: self.boot_id.clone(),
            since: self.wall(now),
            booted_at: self.booted_at,
            waiting_for: "its turn".to_owned(),
            ..before
        };
        if planted(Fault::A4Lost) {
            out.push(Effect::SaveCounter(op, command.clone()));
            self.counters.insert(op, command.clone());
        }
        out.push(Effect::Journal(pending.clone()));
        self.pending.insert(op, pending);
    }

    pub(super) fn take_back(&mut self, op: DeviceOp, out: &mut Vec<Effect>) {
        let Some(pending) = self.pending.remove(&op) else { return };
        say!(out, info, "scheduleDeviceOperation: {} withdrawn", pending.words());
        self.forget_drain(op, out);
        out.push(Effect::Forget(op));
    }

    /// No drain is wanted any more for `op`.
    pub(super) fn forget_drain(&mut self, op: DeviceOp, out: &mut Vec<Effect>) {
        if self.hold.own.as_ref().is_some_and(|it| it.context == op.word()) {
            self.withdraw(out);
        }
        self.hold.failure = None;
    }

    pub(super) fn withdraw(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.hold.withdraw().then_some(Effect::Withdraw));
    }

    /// Moves the first pending operation on as far as facts allow.
    pub(super) fn proceed(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.stay_drained(now, out);
        // Either takes the machine down; only the controller's shutdown leaves it on.
        if self.commanded().is_some_and(|it| it == DeviceOp::Reboot || self.is_ordered(it)) {
            return;
        }
        // What was ordered may have been withdrawn as long as that has not been heard.
        let heard = self.site.is_some() && self.person.is_some();
        let is_pending = |op: &DeviceOp| {
            self.pending.get(op).is_some_and(|it| it.state == PendingState::Pending)
                && (heard || !self.is_ordered(*op))
        };
        let of_site = OPERATIONS.into_iter().find(|op| is_pending(op) && self.is_ordered(*op));
        let Some(op) = of_site.or_else(|| OPERATIONS.into_iter().find(is_pending)) else { return };
        match self.paused(op, out).unwrap_or_else(|| self.gate(now, op)) {
            OperationGate::Open(why) => self.command(op, why, out),
            OperationGate::Ask => self.ask(now, op, out),
            OperationGate::Failed(reason) => self.failed(now, (op, PendingState::Pending), &reason, out),
            OperationGate::Wait { waiting_for, next_step } => self.wait(op, &waiting_for, next_step, out),
        }
        for later in OPERATIONS.into_iter().filter(|it| *it > op) {
            self.wait(later, "the reboot to be carried out first", "", out);
        }
    }

    pub(super) fn gate(&mut self, now: Mono, op: DeviceOp) -> OperationGate {
        if self.older.contains(&op) {
            return OperationGate::wait(
                "nodeagent to say why this machine has booted: an older copy of the record is used",
                "look at the log of nodeagent",
            );
        }
        if self.update_in_progress {
            if !self.tested.contains(&op) {
                self.tested.push(op);
            }
            let next_step = "RemainingTestTime in NodeAgentStatus says how long";
            return OperationGate::wait("the test of the new image to end", next_step);
        }
        let drained = || OperationGate::Open(ProceedReason::Complete { skip: String::new() });
        if planted(Fault::A5) && self.tested.contains(&op) {
            return drained();
        }
        if planted(Fault::A1) && self.hold.heard.status.is_some_and(|it| it.status == DrainStatus::Cordoned) {
            return drained();
        }
        let shared = self.commanded().is_some();
        match self.hold.judge(|own| shared || own.context == op.word()) {
            DrainJudgement::Open(why) => OperationGate::Open(why),
            DrainJudgement::Ask => self.ask_gate(now),
            // Asked for again in the name of what is commanded.
            DrainJudgement::Failed(_) if self.commanded().is_some() => self.ask_gate(now),
            DrainJudgement::Failed(reason) => OperationGate::Failed(reason),
            DrainJudgement::Silent => self.silent_gate(now),
            DrainJudgement::Held(forced) => OperationGate::wait(
                format!("the forced status {forced} to end"),
                "remove persist/kube-status/force-NodeDrainStatus-global.json",
            ),
            DrainJudgement::Stranger(number) => OperationGate::wait(
                format!("another NodeDrainStatus than {number}, which this version does not know"),
                "",
            ),
            DrainJudgement::Wait | DrainJudgement::Unanswered(_) => {
                let words = self.own_for(op).map(|own| self.hold.heard.words(own));
                OperationGate::wait(words.unwrap_or_default(), "")
            }
        }
    }

    /// Our request, where it is for `op`. What was commanded under one needs the node drained until the next boot; its
    /// drain is shared.
    pub(super) fn own_for(&self, op: DeviceOp) -> Option<&OwnRequest> {
        self.hold.own.as_ref().filter(|own| self.commanded().is_some() || own.context == op.word())
    }

    /// Nobody who knows a cluster has spoken.
    fn silent_gate(&self, now: Mono) -> OperationGate {
        if self.wanted.is_none() {
            let next_step = "put a config at persist/config/edge-dev-config.json";
            return OperationGate::wait("the device config", next_step);
        }
        if now < self.silence.until {
            return self.silent_words();
        }
        OperationGate::Open(ProceedReason::Silent { waited_secs: UNKNOWN_WAIT.as_secs() })
    }

    /// What this node is, for a person.
    pub(super) fn kind(&self) -> &'static str {
        if self.wanted.as_ref().is_none_or(|it| it.clustered) {
            "clustered node"
        } else {
            "node, which has to leave its cluster,"
        }
    }

    pub(super) fn ask_gate(&self, now: Mono) -> OperationGate {
        match &self.hold.failure {
            Some(failure) if now < failure.until || planted(Fault::A4NotAgain) => OperationGate::Wait {
                waiting_for: format!("the next try at {}", self.wall(failure.until).shown()),
                next_step: "`zedbox status` says what to fix; to go ahead without a drain: `zedbox go --past drain \
                            --reason '...'`",
            },
            Some(_) | None => OperationGate::Ask,
        }
    }

    pub(super) fn config(&mut self, wanted: DesiredDevice) {
        self.status.config_get_status = wanted.config_get_status;
        self.status.maintenance_mode = wanted.maintenance;
        let reason = if wanted.maintenance {
            MaintenanceModeReason::UserRequested
        } else {
            MaintenanceModeReason::None
        };
        self.status.maintenance_mode_reasons = Some(vec![reason]);
        self.status.force_fallback_counter = wanted.force_fallback_counter;
        self.hold.cluster =
            if wanted.clustered { DeviceClustering::Clustered } else { DeviceClustering::Single };
        self.wanted = Some(wanted);
    }

    /// The operation that only a boot ends any more.
    pub(super) fn commanded(&self) -> Option<DeviceOp> {
        let commanded =
            |op: &DeviceOp| self.pending.get(op).is_some_and(|it| it.state == PendingState::Commanded);
        OPERATIONS.into_iter().find(commanded)
    }

    pub(super) fn device_state(&self) -> DeviceState {
        if self.status.maintenance_mode {
            DeviceState::Maintenance
        } else if self.image_waits {
            DeviceState::BaseOsUpdating
        } else if self.status.reboot_cmd {
            DeviceState::Rebooting
        } else if self.status.shutdown_cmd || self.status.poweroff_cmd {
            DeviceState::PreparingPoweroff
        } else if self.wanted.is_some() {
            DeviceState::Online
        } else {
            DeviceState::Booting
        }
    }
}

impl Core for Zedagent {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let before = self.status.clone();
        let mut out = Vec::new();
        self.heard = now;
        match event {
            Event::Config(wanted) => self.config(wanted),
            Event::NoConfig => self.status.config_get_status = topics::ConfigGetStatus::Fail,
            Event::Drain(status) => self.hold.heard.status(status),
            Event::Progress(progress) => self.hold.heard.progress(progress),
            Event::HasToLeave(it) => self.hold.has_to_leave = it,
            Event::Nodeagent(status) => {
                self.nodeagent(&status);
                self.settle_older(&status, &mut out);
                let asked = |op: &DeviceOp| self.hold.own.as_ref().is_some_and(|it| it.context == op.word());
                if planted(Fault::A3)
                    && !status.wait_drain_in_progress
                    && let Some(op) = OPERATIONS.into_iter().find(asked)
                {
                    self.command(op, ProceedReason::Complete { skip: String::new() }, &mut out);
                }
            }
            Event::Forced(forced) => {
                self.hold.forced = forced;
                if planted(Fault::K13) && forced.is_some_and(|it| it.status == DrainStatus::Complete) {
                    out.push(Effect::UseForce);
                }
            }
            Event::Site(order) => self.site_heard(order, &mut out),
            Event::Person(order) => self.person_heard(order.as_ref()),
            Event::Pause(pause) => self.hold.pause = pause,
            Event::ImageWaits(waits) => self.image_waits = waits,
            Event::Wall(booted_at) => self.set_clock(booted_at, &mut out),
            Event::Tick => {}
        }
        self.hold.settle();
        self.silence.settle(now, &self.hold.heard);
        self.settle_ordered(now, &mut out);
        self.evaluate(now, &mut out);
        self.proceed(now, &mut out);
        if self.commanded().is_some() && self.hold.is_used() {
            self.hold.forced = None;
            out.push(Effect::UseForce);
        }
        self.status.device_state = self.device_state();
        if self.status != before {
            out.push(Effect::Publish(Box::new(self.status.clone())));
        }
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        if self.pending.is_empty() {
            return None;
        }
        let silent = !self.hold.heard.is_clustered() && self.wanted.is_some();
        let unknown = silent.then_some(self.silence.until);
        let rests = self.hold.own.as_ref().is_none_or(|own| own.failed);
        let ask = self.hold.failure.as_ref().filter(|_| rests).map(|it| it.until);
        [unknown, ask].into_iter().flatten().filter(|at| *at > self.heard).min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}

/// A smaller move of the clock rewrites nothing.
const SET: Duration = Duration::from_millis(500);

/// Every time for a person is made from a monotonic one, and again when the clock is set; no decision depends on it.
impl Zedagent {
    /// The wall clock's time now of a point in this boot.
    pub(super) fn wall(&self, at: Mono) -> GoTime {
        self.booted_at.plus(at.since_start())
    }

    /// The wall clock was set: times of pending operations are written again.
    pub(super) fn set_clock(&mut self, booted_at: GoTime, out: &mut Vec<Effect>) {
        if booted_at.apart(self.booted_at) >= SET {
            self.booted_at = booted_at;
        }
        for (_, pending) in &mut self.pending {
            let by = pending.booted_at;
            if pending.boot_id == self.boot_id && !by.is_zero() && by.apart(self.booted_at) >= SET {
                pending.since = pending.since.moved(by, self.booted_at);
                pending.booted_at = self.booted_at;
                out.push(Effect::Journal(pending.clone()));
            }
        }
    }
}
