//! Wires zedagent's topics and files to its facts, and its effects to topics and files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::wire::GLOBAL;
use agent::{AgentContext, Error, Hands, Tasks, Troubles, Weight, force, publication, wire};
use pubsub::{Change, Publication};
use topics::{
    DEVICE_ORDER, DeviceOp, DeviceOpPending, DrainStatus, FORCE_FILE, NodeAgentStatus, NodeDrainRequest,
    NodeDrainStatus, NodeLeave, Requester, SiteOperation, ZbootStatus, ZedAgentStatus,
};
use tracing::{debug, warn};

use crate::config::ConfigTopics;
use crate::core::{Effect, Event, SavedDeviceOps};
use crate::{CONFIG, NAME, config, follow};

/// The hands of the core.
pub(crate) struct Shell {
    context: AgentContext,
    pub(crate) tasks: Tasks<Event>,
    request: Publication<NodeDrainRequest>,
    pending: Publication<DeviceOpPending>,
    status: Publication<ZedAgentStatus>,
    /// A force file lets the operation of this agent go ahead.
    forced: Arc<AtomicBool>,
    /// It was used, and the command that it lets go ahead is not published yet.
    used: bool,
}

impl Shell {
    /// Becomes the publisher of this agent's topics. Returns what an earlier run left.
    /// Errors: a topic or file of an earlier run cannot be had.
    pub(crate) fn open(context: &AgentContext, tasks: Tasks<Event>) -> Result<(Self, SavedDeviceOps), Error> {
        let topic_root = &context.topic_root;
        let shell = Self {
            request: publication(topic_root, NAME)?,
            pending: publication(topic_root, NAME)?,
            status: publication(topic_root, NAME)?,
            context: context.clone(),
            tasks,
            forced: Arc::default(),
            used: false,
        };
        let is_older = |(key, _): &(&str, &DeviceOpPending)| shell.pending.was_older(key);
        let found = SavedDeviceOps {
            older: shell.pending.iter().filter(is_older).map(|(_, pending)| pending.op).collect(),
            counters: config::counters(topic_root)?,
            pending: shell.pending.iter().map(|(_, pending)| pending.clone()).collect(),
            request: shell.request.get(GLOBAL).cloned(),
            told: shell.status.get(NAME).is_some_and(|it| it.reboot_cmd || it.poweroff_cmd),
            pause: None,
            boot_id: context.boot_id.clone(),
        };
        Ok((shell, found))
    }

    /// Follows what this agent hears of.
    pub(crate) fn follow(&mut self, config: ConfigTopics, troubles: &Troubles) {
        let topic_root = self.context.topic_root.clone();
        self.tasks.follow_wall(self.context.clock, Event::Wall);
        let clock = self.context.clock;
        self.tasks.events(format!("follow {CONFIG}"), move |outbox| config.follow(clock, outbox));
        let of_zedkube = topic_root.clone();
        self.tasks.events("follow zedkube", move |outbox| {
            requester::follow(of_zedkube, outbox, follow::of_zedkube)
        });
        let mut told = false;
        self.tasks
            .follow::<NodeLeave>(&topic_root, "zedkube", move |change| follow::leave(&change, &mut told));
        self.tasks.follow::<NodeAgentStatus>(&topic_root, "nodeagent", |change| {
            change.put().map(|it| Event::Nodeagent(Box::new(it)))
        });
        self.tasks.follow::<ZbootStatus>(&topic_root, "baseosmgr", |change| match change {
            Change::Put { value, .. } if !value.current_partition => {
                Some(Event::ImageWaits(value.partition_state == "updating"))
            }
            // baseosmgr was started again without partitions.
            Change::Gone { old, .. } if !old.current_partition => Some(Event::ImageWaits(false)),
            Change::Put { .. }
            | Change::Gone { .. }
            | Change::Synced
            | Change::Restarted(_)
            | Change::Bad(_) => None,
        });
        let mut heard = false;
        self.tasks
            .follow::<SiteOperation>(&topic_root, "zedkube", move |change| follow::site(change, &mut heard));
        let (boot_id, troubles) = (self.context.boot_id.clone(), troubles.clone());
        self.tasks.follow_file(
            &topic_root,
            topic_root.path(DEVICE_ORDER),
            agent::operator::WORD,
            move |file| Some(Event::Person(follow::person(file, &boot_id, &troubles))),
        );
        let lets_go = Arc::clone(&self.forced);
        self.tasks.follow_force(&self.context, move |order| {
            let order = forced(order);
            lets_go.store(
                order.is_some_and(|it| {
                    it.status == DrainStatus::Complete && it.requested_by == Requester::DeviceOp
                }),
                Ordering::Relaxed,
            );
            Event::Forced(order)
        });
    }

    /// What this status commands that the last one did not; empty where it commands nothing again.
    fn commands_anew(&self, status: &ZedAgentStatus) -> &'static str {
        let said = self.status.get(NAME);
        let anew = |is: fn(&ZedAgentStatus) -> bool| is(status) && !said.is_some_and(is);
        if anew(|it| it.reboot_cmd) {
            "the command to reboot"
        } else if anew(|it| it.shutdown_cmd) {
            "the command to shut down"
        } else if anew(|it| it.poweroff_cmd) {
            "the command to power off"
        } else {
            ""
        }
    }
}

fn forced(order: Result<Option<NodeDrainStatus>, String>) -> Option<NodeDrainStatus> {
    match order {
        Ok(Some(status)) => {
            warn!(path = FORCE_FILE, %status, "shouldDeferForNodeDrain: the force file overrides NodeDrainStatus");
            Some(status)
        }
        Ok(None) => None,
        Err(reason) => {
            // zedkube says it to people, in its log and in NodeDrainProgress.
            debug!(path = FORCE_FILE, "force file refused: {reason}");
            None
        }
    }
}

/// Where the request is named among what waits.
const REQUEST: &str = "NodeDrainRequest";
/// The same of the status.
const STATUS: &str = "ZedAgentStatus";

impl Hands for Shell {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Journal(pending) => Weight::record(journal(pending.op)),
            Effect::Forget(op) => Weight::record(journal(*op)),
            Effect::SaveCounter(op, _) | Effect::DropCounter(op) => {
                Weight::record(format!("counter of the last {}", op.word()))
            }
            Effect::Request(_) => Weight::promise(REQUEST, "the request for a drain"),
            Effect::Withdraw => Weight::status(REQUEST),
            Effect::Publish(status) => match self.commands_anew(status) {
                "" => Weight::status(STATUS),
                command => Weight::promise(STATUS, command),
            },
            Effect::UseForce => Weight::promise(FORCE_FILE, "the removal of the used force file"),
            Effect::Say(_) => Weight::plain(),
        }
    }

    /// The reboot that a person forces may be what cures the disk.
    fn is_ordered(&self, effect: &Effect) -> bool {
        let forced = self.used || self.forced.load(Ordering::Relaxed);
        matches!(effect, Effect::UseForce) || (forced && matches!(effect, Effect::Publish(_)))
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Journal(pending) => {
                let key = pending.op.word();
                wire::publish(&mut self.pending, key, &pending)
            }
            Effect::Forget(op) => wire::withdraw(&mut self.pending, op.word()),
            Effect::SaveCounter(op, command) => config::keep_counter(&self.context.topic_root, op, &command),
            Effect::DropCounter(op) => config::drop_counter(&self.context.topic_root, op),
            Effect::Request(request) => wire::publish(&mut self.request, GLOBAL, &request),
            Effect::Withdraw => wire::withdraw(&mut self.request, GLOBAL),
            Effect::Publish(status) => {
                wire::publish(&mut self.status, NAME, &status)?;
                self.used = false;
                Ok(())
            }
            Effect::UseForce => {
                self.used = true;
                force::remove(&self.context.topic_root).map(drop)
            }
            Effect::Say(message) => {
                step::log!(message);
                Ok(())
            }
        }
    }
}

fn journal(op: DeviceOp) -> String {
    format!("DeviceOpPending {}", op.word())
}
