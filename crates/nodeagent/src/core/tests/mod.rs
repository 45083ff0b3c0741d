//! The core on virtual time.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the effects it is about")]

mod any_order;
mod held;
mod last_look;
mod limits;
mod operations;
mod stories;

use std::time::Duration;

use agent::device::MachineOperation;
use step::{Core as _, Mono};
use topics::{
    Answer, BootReason, ConfigGetStatus, DrainStatus, NodeAgentStatus, NodeDrainStatus, Requester,
    ZbootConfig, ZbootStatus,
};

use super::*;
use crate::Limits;

/// A core with its clock, and all that it asked for with the time of it.
#[derive(Debug, Clone)]
struct Bench {
    core: NodeAgent,
    now: Mono,
    done: Vec<(u64, Effect)>,
    ours: bool,
}

impl Bench {
    /// A device that runs good image A, with everything heard and nothing going on.
    fn new() -> Self {
        let mut bench = Self::with(SavedNodeState::default());
        bench.facts();
        bench.done.clear();
        bench
    }

    fn with(found: SavedNodeState) -> Self {
        let core = NodeAgent::new(Limits::default(), Waits::default(), found, Mono::START);
        Self { core, now: Mono::START, done: Vec::new(), ours: false }
    }

    fn facts(&mut self) {
        self.hear(Event::Heard(RequiredReading::Drain));
        self.hear(Event::Heard(RequiredReading::Applications));
        self.partition("IMGA", "active", true);
        self.partition("IMGB", "unused", false);
        self.contact(ConfigGetStatus::Success);
    }

    /// The disks are quick, and what zedkube says right now is what it said last.
    fn hear(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = self.core.step(self.now, event);
        if effects.contains(&Effect::LastSync) {
            effects.extend(self.core.step(self.now, Event::Synced));
        }
        if let Some(at) = effects.iter().position(|effect| *effect == Effect::Check) {
            effects.remove(at);
            let checked = Event::Checked { status: None, answers: Vec::new(), forced: None, ours: self.ours };
            effects.extend(self.core.step(self.now, checked));
        }
        let at = self.now.since_start().as_secs();
        self.done.extend(effects.iter().map(|effect| (at, effect.clone())));
        effects
    }

    /// Time passes as it does for the loop of an agent: it wakes when the core wants to be woken.
    fn wait(&mut self, secs: u64) {
        self.wait_for(Duration::from_secs(secs));
    }

    fn wait_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.core.next_wake().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.hear(Event::Tick);
            let next = self.core.next_wake();
            assert!(next.is_none_or(|next| next > self.now), "due again at once: {:?}", self.core);
        }
        self.now = end;
    }

    fn partition(&mut self, label: &str, state: &str, current: bool) -> Vec<Effect> {
        self.hear(partition(label, state, current, false))
    }

    fn contact(&mut self, contact: ConfigGetStatus) -> Vec<Effect> {
        self.hear(Event::Wish(DeviceCommand { contact, ..DeviceCommand::default() }))
    }

    fn command(&mut self, operation: MachineOperation) -> Vec<Effect> {
        self.hear(command(&[operation]))
    }

    fn drain(&mut self, status: DrainStatus, requested_by: Requester) -> Vec<Effect> {
        self.hear(Event::Drain(NodeDrainStatus { status, requested_by }))
    }

    /// Operations that the device was asked for, with the second of it.
    fn operations(&self) -> Vec<(u64, MachineOperation, BootReason)> {
        let order = |(at, effect): &(u64, Effect)| match effect {
            Effect::Operate(order) => Some((*at, order.operation, order.boot_reason)),
            _ => None,
        };
        self.done.iter().filter_map(order).collect()
    }

    /// How often the log was given a line with these words.
    fn said(&self, words: &str) -> usize {
        self.done.iter().filter(|(_, it)| is_said(it, words)).count()
    }

    fn status(&self) -> NodeAgentStatus {
        self.published().pop().expect("nothing was published")
    }

    fn published(&self) -> Vec<NodeAgentStatus> {
        let status = |(_, effect): &(u64, Effect)| match effect {
            Effect::Publish(status) => Some((**status).clone()),
            _ => None,
        };
        self.done.iter().filter_map(status).collect()
    }

    fn verdicts(&self) -> Vec<(u64, String, bool)> {
        let verdict = |(at, effect): &(u64, Effect)| match effect {
            Effect::Zboot(ZbootConfig { partition_label, test_complete }) => {
                Some((*at, partition_label.clone(), *test_complete))
            }
            _ => None,
        };
        self.done.iter().filter_map(verdict).collect()
    }

    /// The kinds of what was done, in order, with the second of it.
    fn kinds(&self) -> Vec<(u64, &'static str)> {
        self.done.iter().map(|(at, effect)| (*at, kind(effect))).filter(|(_, kind)| *kind != "say").collect()
    }
}

fn is_said(effect: &Effect, words: &str) -> bool {
    matches!(effect, Effect::Say(it) if it.text.contains(words))
}

fn kind(effect: &Effect) -> &'static str {
    match effect {
        Effect::Say(_) => "say",
        Effect::Journal(Resumed { done: false, .. }) => "journal",
        Effect::Journal(Resumed { done: true, .. }) => "journal done",
        Effect::CallOff(_) => "call off",
        Effect::Publish(_) => "publish",
        Effect::Zboot(_) => "verdict",
        Effect::Reason { .. } => "reason",
        Effect::Check => "check",
        Effect::Question(_) => "question",
        Effect::Mark { .. } => "mark",
        Effect::Sync => "sync",
        Effect::LastSync => "last sync",
        Effect::Operate(_) => "operate",
        Effect::Exit(_) => "exit",
    }
}

fn partition(label: &str, state: &str, current: bool, test_complete: bool) -> Event {
    Event::Partition(ZbootStatus {
        partition_label: label.into(),
        partition_state: state.into(),
        short_version: "14.5.0-k".into(),
        current_partition: current,
        test_complete,
        ..ZbootStatus::default()
    })
}

/// zedagent wants `operations`, the controller is in reach.
fn command(operations: &[MachineOperation]) -> Event {
    Event::Wish(wish(operations))
}

fn wish(operations: &[MachineOperation]) -> DeviceCommand {
    DeviceCommand {
        reboot: operations.contains(&MachineOperation::Reboot),
        shutdown: operations.contains(&MachineOperation::Shutdown),
        poweroff: operations.contains(&MachineOperation::Poweroff),
        reason: "NORMAL: controller reboot".into(),
        boot_reason: BootReason::RebootCmd,
        contact: ConfigGetStatus::Success,
        certs_refused: false,
        ours: false,
    }
}

fn application(key: &str, active: bool) -> Event {
    Event::Application { key: key.into(), active }
}

fn order(operation: MachineOperation) -> MachineOrder {
    let (reason, boot_reason) = ("NORMAL: controller reboot".into(), BootReason::RebootCmd);
    MachineOrder { operation, reason, boot_reason }
}
