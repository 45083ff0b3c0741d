//! Wires the election to its topics and to the API server.

use std::time::Duration;

use agent::{Error, Hands, Inbox, Outbox, Station, Stop, Tasks, Troubles, Weight, publication, turn};
use kubeops::lease::{self, Said};
use kubeops::{Cluster, NodeName};
use pubsub::{Change, Publication};
use step::Core as _;
use tokio::sync::watch;
use topics::{KubeLeaderElectInfo, ZedAgentStatus};
use tracing::{info, warn};

use super::core::{Candidate, Effect, Event, Leadership};
use super::door::Door;
use crate::limits::Limits;
use crate::target::Target;
use crate::{GLOBAL, NAME};

/// Name of the task that asks the API server; there is one at a time.
const CALL: &str = "call";

/// This node's part in the election, to be run beside the drain.
pub struct Leader {
    station: Station,
    core: Candidate,
    desk: Desk,
    inbox: Inbox<Event>,
    outbox: Outbox<Event>,
    clear: watch::Receiver<bool>,
    leads: watch::Receiver<Leadership>,
    release_limit: Duration,
}

impl Leader {
    /// Becomes the publisher of `KubeLeaderElectInfo`.
    pub(crate) fn open(
        station: &Station,
        limits: &Limits,
        cluster: Cluster,
        target: Target,
    ) -> Result<Self, Error> {
        let (outbox, inbox) = turn::inbox();
        // Nothing is known of an earlier run's lease, and nobody waits before the first turn.
        let (clear, cleared) = watch::channel(true);
        let (leads, leadership) = watch::channel(Leadership::default());
        let desk = Desk {
            station: station.clone(),
            cluster,
            target,
            tasks: Tasks::new(outbox.clone()),
            info: publication(&station.bus, NAME)?,
            leads,
            clear,
        };
        Ok(Self {
            station: station.clone(),
            core: Candidate::new(limits.lease_times(), limits.config_patience()),
            desk,
            inbox,
            outbox,
            clear: cleared,
            leads: leadership,
            release_limit: limits.lease_release(),
        })
    }

    /// The way in for the drain.
    pub(crate) fn door(&self) -> Door {
        Door::new(self.outbox.clone(), self.clear.clone(), self.station.clock, self.release_limit)
    }

    /// Who acts as the leader looks here, see [`Leadership::holds`].
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leads.clone()
    }

    /// Takes part until the station says stop; then the lease is given back.
    ///
    /// # Errors
    /// None of its effects has one.
    pub(crate) async fn run(mut self, troubles: &Troubles) -> Result<(), Error> {
        let mut door = self.door();
        let mut stop = self.station.stop.clone();
        // Whatever a killed run has left published is not so.
        let first = self.core.step(self.station.clock.now(), Candidate::tick());
        self.desk.follow();
        // It goes on after the stop, until it has given the lease back.
        let (_stopper, unstopped) = Stop::new();
        let station = Station { stop: unstopped, ..self.station.clone() };
        let turns = turn::beside((self.core, first), self.desk, self.inbox, &station, troubles);
        tokio::select! {
            ended = turns => ended,
            () = async { stop.stopped().await; door.leave().await } => Ok(()),
        }
    }
}

/// The hands of the election.
struct Desk {
    station: Station,
    cluster: Cluster,
    target: Target,
    tasks: Tasks<Event>,
    info: Publication<KubeLeaderElectInfo>,
    leads: watch::Sender<Leadership>,
    clear: watch::Sender<bool>,
}

impl Desk {
    fn follow(&mut self) {
        let bus = self.station.bus.clone();
        self.tasks.follow::<ZedAgentStatus>(&bus, "zedagent", |change| match change {
            Change::Put { value, .. } => Some(Event::Config(Some(value.config_get_status))),
            Change::Gone { .. } => Some(Event::Config(None)),
            Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
        });
        let mut names = self.target.values();
        self.tasks.events("follow the node's name", move |outbox| async move {
            loop {
                let (node, _) = names.next().await;
                if !outbox.send(named(&node)).await {
                    return;
                }
            }
        });
    }
}

fn named(node: &NodeName) -> Event {
    let name = node.to_string();
    // FNV-1a: nodes that start at the same moment do not look at the same moment.
    let mixed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Event::Named(name, mixed)
}

impl Hands for Desk {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Publish(_) => Weight::status("KubeLeaderElectInfo"),
            Effect::Leadership(_)
            | Effect::Clear(_)
            | Effect::Read(_)
            | Effect::Write(..)
            | Effect::Say(_) => Weight::plain(),
        }
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Leadership(leadership) => drop(self.leads.send_replace(leadership)),
            Effect::Publish(info) => {
                // The wall clock first: whoever judges how fresh this is takes it for older, never for newer.
                let latest_change = self.station.clock.wall();
                let holds = self.leads.borrow().holds(self.station.clock.now());
                let info = KubeLeaderElectInfo {
                    latest_change,
                    is_stats_leader: info.is_stats_leader && holds,
                    ..info
                };
                self.info.publish(GLOBAL, &info).map_err(Error::pubsub("KubeLeaderElectInfo"))?;
            }
            Effect::Clear(clear) => drop(self.clear.send_replace(clear)),
            Effect::Read(id) => {
                let cluster = self.cluster.clone();
                self.tasks.start(CALL, async move {
                    let read = lease::read(&cluster).await;
                    let read = read.map_err(|error| format!("{} ({})", error.line(), error.next_step()));
                    Some(Event::Lease(lease::Event::Read(id, read)))
                });
            }
            Effect::Write(id, order) => {
                let (cluster, wall) = (self.cluster.clone(), self.station.clock.wall().to_timestamp());
                self.tasks.start(CALL, async move {
                    Some(Event::Lease(lease::Event::Wrote(id, lease::write(&cluster, &order, wall).await)))
                });
            }
            Effect::Say(said) => say(&said),
        }
        Ok(())
    }
}

fn say(said: &Said) {
    match said {
        Said::Leads => info!(lease = lease::NAME, "leader election: this node leads"),
        Said::Lost(why) => warn!(lease = lease::NAME, why, "leader election: this node leads no longer"),
        Said::Released => info!(lease = lease::NAME, "leader election: lease given back"),
        Said::NotReleased => {
            warn!(lease = lease::NAME, "leader election: lease not given back, it has run out by now");
        }
        Said::Answers => info!(lease = lease::NAME, "leader election: the cluster answers"),
        Said::Silent(why) => {
            warn!(lease = lease::NAME, error = why, "leader election: the cluster does not answer");
        }
    }
}
