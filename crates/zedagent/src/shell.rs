//! Wires zedagent's topics and files to its facts, and its effects to topics and files.

use agent::{Error, Hands, Station, Tasks, force, publication};
use pubsub::{Change, FileRule, Publication};
use topics::{
    DeviceOpPending, FORCE_FILE, NodeAgentStatus, NodeDrainRequest, NodeDrainStatus, NodeLeave, ZbootStatus,
    ZedAgentStatus,
};
use tracing::{error, info, warn};

use crate::config::{CONFIG_BYTES, Config};
use crate::core::{Effect, Event, Found, Said};
use crate::{CONFIG, NAME, follow, saved};

/// Key of topics that have one value.
const GLOBAL: &str = "global";

/// The hands of the core.
pub(crate) struct Shell {
    station: Station,
    tasks: Tasks<Event>,
    request: Publication<NodeDrainRequest>,
    pending: Publication<DeviceOpPending>,
    status: Publication<ZedAgentStatus>,
}

impl Shell {
    /// Becomes the publisher of this agent's topics. Returns what an earlier run left.
    pub(crate) fn open(station: &Station, tasks: Tasks<Event>) -> Result<(Self, Found), Error> {
        let bus = &station.bus;
        let shell = Self {
            request: publication(bus, NAME)?,
            pending: publication(bus, NAME)?,
            status: publication(bus, NAME)?,
            station: station.clone(),
            tasks,
        };
        let found = Found {
            counters: saved::counters(bus)?,
            pending: shell.pending.iter().map(|(_, pending)| pending.clone()).collect(),
            request: shell.request.get(GLOBAL).cloned(),
            boot_id: station.boot_id.clone(),
        };
        Ok((shell, found))
    }

    /// Follows what this agent hears of.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        let bus = self.station.bus.clone();
        self.tasks.follow_wall(self.station.clock, Event::Wall);
        let mut config = Config::open(&bus)?;
        let rule = FileRule { limit_bytes: CONFIG_BYTES, order: true };
        self.tasks.follow_file(&bus, bus.path(CONFIG), rule, move |file| Some(config.take(file)));
        let of_zedkube = bus.clone();
        self.tasks.events("follow zedkube", move |outbox| follow::zedkube(of_zedkube, outbox));
        let mut told = false;
        self.tasks.follow::<NodeLeave>(&bus, "zedkube", move |change| follow::leave(&change, &mut told));
        self.tasks.follow::<NodeAgentStatus>(&bus, "nodeagent", |change| match change {
            Change::Put { value, .. } => Some(Event::Nodeagent(Box::new(value))),
            Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
        self.tasks.follow::<ZbootStatus>(&bus, "baseosmgr", |change| match change {
            Change::Put { value, .. } if !value.current_partition => {
                Some(Event::ImageWaits(value.partition_state == "updating"))
            }
            Change::Put { .. }
            | Change::Gone { .. }
            | Change::Synced
            | Change::Restarted(_)
            | Change::Bad(_) => None,
        });
        self.tasks.follow_force(&bus, |order| Event::Forced(forced(order)));
        Ok(())
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
            error!(path = FORCE_FILE, "force file refused: {reason}");
            None
        }
    }
}

impl Hands for Shell {
    type Effect = Effect;

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Journal(pending) => {
                let key = pending.op.word();
                self.pending.publish(key, &pending).map_err(Error::pubsub("DeviceOpPending")).map(drop)
            }
            Effect::Forget(op) => self.pending.unpublish(op.word()).map_err(Error::pubsub("DeviceOpPending")),
            Effect::SaveCounter(op, command) => saved::keep_counter(&self.station.bus, op, &command),
            Effect::DropCounter(op) => saved::drop_counter(&self.station.bus, op),
            Effect::Request(request) => {
                self.request.publish(GLOBAL, &request).map_err(Error::pubsub("NodeDrainRequest")).map(drop)
            }
            Effect::Withdraw => self.request.unpublish(GLOBAL).map_err(Error::pubsub("NodeDrainRequest")),
            Effect::Publish(status) => {
                self.status.publish(NAME, &status).map_err(Error::pubsub("ZedAgentStatus")).map(drop)
            }
            Effect::UseForce => force::remove(&self.station.bus).map(drop),
            Effect::Say(said) => {
                say(&said);
                Ok(())
            }
        }
    }
}

fn say(said: &Said) {
    match said {
        Said::FirstCounter(op, counter) => {
            info!(op = op.word(), counter, "first counter on this device: recorded, not carried out");
        }
        Said::Wanted(op, counter) => info!(op = op.word(), counter, "scheduleDeviceOperation: wanted"),
        Said::TakenBack(op, counter) => info!(op = op.word(), counter, "scheduleDeviceOperation: taken back"),
        Said::Deferred(op, waiting_for) => {
            info!(op = op.word(), waiting_for, "shouldDeferForNodeDrain: deferred");
        }
        Said::DrainFailed(op, status, pause_secs) => {
            error!(
                op = op.word(),
                pause_secs, "nodedrain-step:drain-failed-handler NodeDrainStatus {status}"
            );
        }
        Said::Early(op) => error!(op = op.word(), "EARLY boot request, zedkube not up yet"),
        Said::Skipped(op, why) => warn!(op = op.word(), why, "drain skipped"),
        Said::Commanded(op, reason) => {
            info!(op = op.word(), reason, "scheduleDeviceOperation: nodeagent is told");
        }
        Said::Executed(op, counter) => {
            info!(op = op.word(), counter, "carried out: the boot after it has come");
        }
    }
}
