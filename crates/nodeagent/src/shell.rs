//! Wires nodeagent's topics to its facts, and its effects to topics, files and the device.

use std::collections::BTreeSet;

use agent::device::Device;
use agent::settings::Properties;
use agent::{Error, Hands, Station, Tasks, publication, report};
use pubsub::{Change, Publication};
use topics::{
    ConfigItemValueMap, DomainStatus, NodeAgentStatus, NodeDrainStatus, ZbootConfig, ZbootStatus,
    ZedAgentStatus,
};
use tracing::{error, info, warn};

use crate::core::{Effect, Event, Operation, Said};
use crate::{NAME, saved};

/// The hands of the core.
pub(crate) struct Shell {
    station: Station,
    tasks: Tasks<Event>,
    device: Box<dyn Device>,
    status: Publication<NodeAgentStatus>,
    images: Publication<ZbootConfig>,
    answers: u64,
}

impl Shell {
    /// Becomes the publisher of this agent's topics and follows those of others. Returns what is known of the
    /// last boot: from the files at the first start in a boot, from the own topic at a later one.
    pub(crate) fn open(
        station: &Station,
        device: Box<dyn Device>,
        tasks: Tasks<Event>,
    ) -> Result<(Self, NodeAgentStatus), Error> {
        let status: Publication<NodeAgentStatus> = publication(&station.bus, NAME)?;
        let last = match status.get(NAME) {
            Some(status) => status.clone(),
            None => saved::take_last(station)?,
        };
        let images = publication(&station.bus, NAME)?;
        let mut shell = Self { station: station.clone(), tasks, device, status, images, answers: 0 };
        shell.follow();
        Ok((shell, last))
    }

    fn follow(&mut self) {
        let bus = self.station.bus.clone();
        self.tasks.follow::<NodeDrainStatus>(&bus, "zedkube", |change| match change {
            Change::Put { value, .. } => Some(Event::Drain(Some(value))),
            Change::Gone { .. } => Some(Event::Drain(None)),
            Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
        self.tasks.follow::<ZedAgentStatus>(&bus, "zedagent", |change| match change {
            Change::Put { value, .. } => Some(Event::Zedagent(Box::new(value))),
            Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
        self.tasks.follow::<ZbootStatus>(&bus, "baseosmgr", |change| match change {
            Change::Put { value, .. } => Some(Event::Partition(value)),
            Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
        let mut running = BTreeSet::new();
        self.tasks.follow::<DomainStatus>(&bus, "domainmgr", move |change| {
            match change {
                Change::Put { key, value, .. } if value.activated => {
                    running.insert(key);
                }
                Change::Put { key, .. } | Change::Gone { key, .. } => {
                    running.remove(&key);
                }
                Change::Synced | Change::Restarted(_) | Change::Bad(_) => {}
            }
            Some(Event::Applications(running.len()))
        });
        let mut last = Properties::default();
        self.tasks.follow::<ConfigItemValueMap>(&bus, "zedagent", move |change| match change {
            Change::Put { value, .. } => {
                let (now, refused) = Properties::from_map(&value, &last);
                for line in refused {
                    warn!("config property {line}");
                }
                last = now.clone();
                Some(Event::Properties(now))
            }
            Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
    }

    fn operate(&mut self, operation: Operation, reason: &str) -> Result<(), String> {
        self.device.sync().map_err(|error| report::chain(&error))?;
        let done = match operation {
            Operation::Shutdown => self.device.shutdown(reason),
            Operation::Reboot => self.device.reboot(reason),
            Operation::PowerOff => self.device.power_off(reason),
        };
        done.map_err(|error| report::chain(&error))
    }
}

impl Hands for Shell {
    type Effect = Effect;

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Publish(status) => {
                self.status.publish(NAME, &status).map_err(Error::pubsub("NodeAgentStatus"))?;
            }
            Effect::Image(image) => {
                self.images.publish(&image.partition_label, &image).map_err(Error::pubsub("ZbootConfig"))?;
            }
            Effect::Keep { reason, boot_reason } => {
                let image = self.status.get(NAME).map(|it| it.cur_part.clone()).unwrap_or_default();
                saved::keep(&self.station, &reason, boot_reason, &image)?;
            }
            Effect::Operate { operation, reason } => {
                warn!(?operation, reason, "asks the device");
                let answer = self.operate(operation, &reason);
                self.answers += 1;
                self.tasks
                    .start(format!("answer {}", self.answers), async move { Some(Event::Answered(answer)) });
            }
            Effect::Say(said) => say(&said),
        }
        Ok(())
    }
}

fn say(said: &Said) {
    match said {
        Said::DrainInProgress(status) => {
            info!(%status, "nodedrain-step:drain-inprogress-handler NodeDrainStatus {status}");
        }
        Said::DrainComplete(status) => {
            info!(%status, "nodedrain-step:drain-complete-handler NodeDrainStatus {status}");
        }
        Said::Scheduled(operation, reason) => info!(?operation, reason, "takes a device operation on"),
        Said::Undrained(reason) => {
            warn!(reason, "drain skipped: nodeagent takes the device down on its own for this reason");
        }
        Said::NotHalted(count) => warn!(count, "applications have not halted in time, goes on without them"),
        Said::Refused(reason) => error!(reason, "the device refused, it is asked again"),
    }
}
