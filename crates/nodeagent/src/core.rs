//! What nodeagent decides: whether a device operation is on its way and how far it is, the test of a new image,
//! and what it says of the drain.
//!
//! Not here: files, the device. Source: lf-edge/eve pkg/pillar/cmd/nodeagent. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use agent::settings::{self, Properties};
use step::{Core, Mono};
use topics::{
    BootReason, ConfigGetStatus, DrainStatus, NodeAgentStatus, NodeDrainStatus, Requester, ZbootConfig,
    ZbootStatus, ZedAgentStatus,
};

use crate::limits::Limits;

/// A fact for nodeagent.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// NodeDrainStatus, or that there is none.
    Drain(Option<NodeDrainStatus>),
    /// ZedAgentStatus as it is now.
    Zedagent(Box<ZedAgentStatus>),
    /// A partition as it is now.
    Partition(ZbootStatus),
    /// How many applications run; known once domainmgr's topic was read.
    Applications(usize),
    /// Config properties.
    Properties(Properties),
    /// The device has answered.
    Answered(Result<(), String>),
    /// Time has passed.
    Tick,
}

/// Something for the shell to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Publish NodeAgentStatus.
    Publish(Box<NodeAgentStatus>),
    /// Publish what was found out about an image.
    Image(ZbootConfig),
    /// Keep why the device goes down, unless an earlier reason is kept already.
    Keep {
        /// In words.
        reason: String,
        /// As a number.
        boot_reason: BootReason,
    },
    /// Bring the disks to rest, then ask the device. It answers with [`Event::Answered`].
    Operate {
        /// What for.
        operation: Operation,
        /// Why.
        reason: String,
    },
    /// Write to the log.
    Say(Said),
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A drain for a device operation runs or has failed.
    DrainInProgress(NodeDrainStatus),
    /// The drain for a device operation is complete.
    DrainComplete(NodeDrainStatus),
    /// An operation was taken on.
    Scheduled(Operation, String),
    /// It goes without a drain, for this reason.
    Undrained(String),
    /// Applications did not halt in time.
    NotHalted(usize),
    /// The device refused.
    Refused(String),
}

/// What can be done to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Applications down, power on.
    Shutdown,
    /// Restart.
    Reboot,
    /// Power off.
    PowerOff,
}

/// Why an operation is done.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    operation: Operation,
    reason: String,
    boot_reason: BootReason,
}

/// How far the operation is. It only moves forward.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Flow {
    Idle,
    /// Applications are told; the reason is written at the end of this wait.
    Announced(Cause, Mono),
    /// Until no application runs, or until then.
    Halting(Cause, Mono),
    /// Applications are down; the operation comes at the end of this wait.
    Halted(Cause, Mono),
    /// The device was asked and has not answered.
    Asked(Cause),
    /// The device has refused; it is asked again then.
    Refused(Cause, Mono),
    /// Applications are down and stay so; power stays on.
    Down,
    /// The machine is about to go.
    Gone,
}

/// The test of the image that this boot runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    /// Not begun: no controller yet, or nothing to test.
    Idle,
    /// Begun then.
    Since(Mono),
    /// Passed.
    Passed,
}

/// The core of nodeagent.
#[derive(Debug, Clone)]
pub struct NodeAgent {
    limits: Limits,
    properties: Properties,
    status: NodeAgentStatus,
    flow: Flow,
    test: Test,
    next_told: Mono,
    applications: usize,
    partitions: BTreeMap<String, ZbootStatus>,
    /// Since when the config is not to be had; `None` while it is.
    no_config_since: Option<Mono>,
}

impl NodeAgent {
    /// Starts with what is known of the last boot.
    #[must_use]
    pub fn new(limits: Limits, last: NodeAgentStatus, now: Mono) -> Self {
        let status = NodeAgentStatus {
            name: "nodeagent".to_owned(),
            device_reboot: false,
            device_shutdown: false,
            device_poweroff: false,
            all_domains_halted: false,
            hv_type_kube: true,
            ..last
        };
        Self {
            limits,
            properties: Properties::default(),
            status,
            flow: Flow::Idle,
            test: Test::Idle,
            next_told: now,
            applications: 0,
            partitions: BTreeMap::new(),
            no_config_since: Some(now),
        }
    }

    /// The status as it stands.
    #[must_use]
    pub const fn status(&self) -> &NodeAgentStatus {
        &self.status
    }

    /// What this status says of a drain for a device operation.
    ///
    /// A failed drain leaves the operation waiting, as it is asked for again. A node without a drain, be it that
    /// the request was taken back or that the cluster was left, waits for none (D-N1).
    fn drain(&mut self, drain: Option<NodeDrainStatus>, out: &mut Vec<Effect>) {
        let Some(drain) = drain else { return };
        let waits = match (drain.status, drain.requested_by) {
            (DrainStatus::NotSupported | DrainStatus::NotRequested, _) => false,
            (_, Requester::Unset | Requester::None | Requester::Update | Requester::Stranger(_))
            | (DrainStatus::Unknown | DrainStatus::Stranger(_), Requester::DeviceOp) => return,
            (
                DrainStatus::Requested
                | DrainStatus::Starting
                | DrainStatus::Cordoned
                | DrainStatus::FailedCordon
                | DrainStatus::DrainRetrying
                | DrainStatus::FailedDrain,
                Requester::DeviceOp,
            ) => true,
            (DrainStatus::Complete, Requester::DeviceOp) => false,
        };
        if waits != self.status.wait_drain_in_progress {
            let said = if waits { Said::DrainInProgress } else { Said::DrainComplete };
            out.push(Effect::Say(said(drain)));
        }
        self.status.wait_drain_in_progress = waits;
    }

    fn zedagent(&mut self, now: Mono, status: &ZedAgentStatus, out: &mut Vec<Effect>) {
        match status.config_get_status {
            // A copy of the last good config is a config: only its absence counts as an outage.
            ConfigGetStatus::Success | ConfigGetStatus::TemporaryFail | ConfigGetStatus::ReadSaved => {
                self.no_config_since = None;
            }
            ConfigGetStatus::Never | ConfigGetStatus::Fail | ConfigGetStatus::Stranger(_) => {
                self.no_config_since.get_or_insert(now);
            }
        }
        let wanted = [
            (status.poweroff_cmd, Operation::PowerOff),
            (status.reboot_cmd, Operation::Reboot),
            (status.shutdown_cmd, Operation::Shutdown),
        ];
        for (_, operation) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            let cause = Cause {
                operation,
                reason: status.requested_reboot_reason.clone(),
                boot_reason: status.requested_boot_reason,
            };
            self.take_on(now, cause, out);
        }
    }

    /// Takes an operation on. The first one counts; only after a shutdown, which leaves the power on, another
    /// one can follow.
    fn take_on(&mut self, now: Mono, cause: Cause, out: &mut Vec<Effect>) {
        let free = match self.flow {
            Flow::Idle => true,
            Flow::Down => cause.operation != Operation::Shutdown,
            Flow::Announced(..)
            | Flow::Halting(..)
            | Flow::Halted(..)
            | Flow::Asked(_)
            | Flow::Refused(..)
            | Flow::Gone => false,
        };
        if !free {
            return;
        }
        match cause.operation {
            Operation::Reboot => self.status.device_reboot = true,
            Operation::Shutdown => self.status.device_shutdown = true,
            Operation::PowerOff => self.status.device_poweroff = true,
        }
        out.push(Effect::Say(Said::Scheduled(cause.operation, cause.reason.clone())));
        self.flow = Flow::Announced(cause, now + self.limits.min_reboot_delay());
    }

    fn on_its_own(&mut self, now: Mono, reason: String, boot_reason: BootReason, out: &mut Vec<Effect>) {
        if self.flow == Flow::Idle {
            out.push(Effect::Say(Said::Undrained(reason.clone())));
            self.take_on(now, Cause { operation: Operation::Reboot, reason, boot_reason }, out);
        }
    }

    fn partition(&mut self, partition: ZbootStatus, out: &mut Vec<Effect>) {
        if partition.current_partition {
            self.status.cur_part.clone_from(&partition.partition_label);
            self.status.update_inprogress = partition.partition_state == "inprogress";
            if !self.status.update_inprogress {
                self.test = Test::Idle;
                self.status.remaining_test_time = 0;
            }
            if partition.test_complete {
                out.push(Effect::Image(ZbootConfig {
                    partition_label: partition.partition_label.clone(),
                    test_complete: false,
                }));
            }
        }
        self.partitions.insert(partition.partition_label.clone(), partition);
    }

    /// A new image waits in the other partition. Its drain is behind it: baseosmgr switches only after it.
    fn new_image(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let waiting =
            self.partitions.values().find(|it| !it.current_partition && it.partition_state == "updating");
        if let Some(partition) = waiting {
            let reason = format!(
                "NORMAL: baseos-update({}) to EVE version {} reboot",
                partition.partition_label, partition.short_version
            );
            let cause = Cause { operation: Operation::Reboot, reason, boot_reason: BootReason::Update };
            self.take_on(now, cause, out);
        }
    }

    fn test(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if !self.status.update_inprogress {
            return;
        }
        if self.test == Test::Idle && self.no_config_since.is_none() {
            self.test = Test::Since(now);
        }
        let Test::Since(begun) = self.test else { return };
        let left = self.properties.time(settings::TEST_BASE_IMAGE).saturating_sub(now.since(begun));
        if left.is_zero() {
            self.test = Test::Passed;
            self.status.remaining_test_time = 0;
            out.push(Effect::Image(ZbootConfig {
                partition_label: self.status.cur_part.clone(),
                test_complete: true,
            }));
        } else if now >= self.next_told {
            self.next_told = now + self.limits.tick();
            self.status.remaining_test_time = i64::try_from(left.as_nanos()).unwrap_or(i64::MAX);
        }
    }

    fn no_config(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let Some((at, fallback)) = self.no_config_until() else { return };
        if now < at {
            return;
        }
        if fallback {
            let reason = "NORMAL: no config while a new image is in test: fall back".to_owned();
            self.on_its_own(now, reason, BootReason::Fallback, out);
        } else {
            self.on_its_own(now, "NORMAL: no config for too long".to_owned(), BootReason::Disconnect, out);
        }
    }

    /// When the missing config takes the device down, and whether that is a fallback.
    fn no_config_until(&self) -> Option<(Mono, bool)> {
        let since = self.no_config_since?;
        let fallback = self.status.update_inprogress;
        let limit = if fallback { settings::UPDATE_FALLBACK } else { settings::REBOOT_NO_NETWORK };
        Some((since + self.properties.time(limit), fallback))
    }

    /// Moves the operation on as far as time and facts allow.
    fn flow(&mut self, now: Mono, out: &mut Vec<Effect>) {
        loop {
            let flow = std::mem::replace(&mut self.flow, Flow::Gone);
            let (next, moved) = match flow {
                Flow::Announced(cause, until) if now >= until => {
                    if cause.operation != Operation::Shutdown {
                        let (reason, boot_reason) = (cause.reason.clone(), cause.boot_reason);
                        out.push(Effect::Keep { reason, boot_reason });
                    }
                    (Flow::Halting(cause, now + self.limits.domain_halt_limit()), true)
                }
                Flow::Halting(cause, until) if self.applications == 0 || now >= until => {
                    if self.applications > 0 {
                        out.push(Effect::Say(Said::NotHalted(self.applications)));
                    }
                    self.status.all_domains_halted = true;
                    let wait = match cause.operation {
                        Operation::Shutdown => now,
                        Operation::Reboot | Operation::PowerOff => now + self.limits.min_reboot_delay(),
                    };
                    (Flow::Halted(cause, wait), true)
                }
                Flow::Halted(cause, until) | Flow::Refused(cause, until) if now >= until => {
                    // What is published stands before what cannot be undone.
                    out.push(Effect::Publish(Box::new(self.status.clone())));
                    out.push(Effect::Operate { operation: cause.operation, reason: cause.reason.clone() });
                    (Flow::Asked(cause), false)
                }
                flow @ (Flow::Idle
                | Flow::Announced(..)
                | Flow::Halting(..)
                | Flow::Halted(..)
                | Flow::Asked(_)
                | Flow::Refused(..)
                | Flow::Down
                | Flow::Gone) => (flow, false),
            };
            self.flow = next;
            if !moved {
                return;
            }
        }
    }

    fn answered(&mut self, now: Mono, answer: Result<(), String>, out: &mut Vec<Effect>) {
        self.flow = match (std::mem::replace(&mut self.flow, Flow::Gone), answer) {
            (Flow::Asked(cause), Ok(())) => match cause.operation {
                Operation::Shutdown => Flow::Down,
                Operation::Reboot | Operation::PowerOff => Flow::Gone,
            },
            (Flow::Asked(cause), Err(reason)) => {
                out.push(Effect::Say(Said::Refused(reason)));
                Flow::Refused(cause, now + self.limits.min_reboot_delay().max(self.limits.tick()))
            }
            (flow, _) => flow,
        };
    }
}

impl Core for NodeAgent {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, now: Mono, event: Event) -> Vec<Effect> {
        let before = self.status.clone();
        let mut out = Vec::new();
        match event {
            Event::Drain(drain) => self.drain(drain, &mut out),
            Event::Zedagent(status) => self.zedagent(now, &status, &mut out),
            Event::Partition(partition) => self.partition(partition, &mut out),
            Event::Applications(count) => self.applications = count,
            Event::Properties(properties) => self.properties = properties,
            Event::Answered(answer) => self.answered(now, answer, &mut out),
            Event::Tick => {}
        }
        self.new_image(now, &mut out);
        self.test(now, &mut out);
        self.no_config(now, &mut out);
        let told = out.len();
        self.flow(now, &mut out);
        let published = out[told..].iter().any(|effect| matches!(effect, Effect::Publish(_)));
        if self.status != before && !published {
            // Before the effects of this turn: nobody hears of an operation later than it happens.
            out.insert(0, Effect::Publish(Box::new(self.status.clone())));
        }
        out
    }

    fn next_wake(&self) -> Option<Mono> {
        let flow = match &self.flow {
            Flow::Announced(_, until)
            | Flow::Halting(_, until)
            | Flow::Halted(_, until)
            | Flow::Refused(_, until) => Some(*until),
            Flow::Idle | Flow::Asked(_) | Flow::Down | Flow::Gone => None,
        };
        let test = match self.test {
            Test::Since(begun) => {
                Some((begun + self.properties.time(settings::TEST_BASE_IMAGE)).min(self.next_told))
            }
            Test::Idle | Test::Passed => None,
        };
        let outage = self.no_config_until().filter(|_| self.flow == Flow::Idle).map(|(at, _)| at);
        [flow, test, outage].into_iter().flatten().min()
    }

    fn tick() -> Event {
        Event::Tick
    }
}
