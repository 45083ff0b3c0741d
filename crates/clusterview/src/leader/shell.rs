//! Connects the election with its topics and the API server.

use std::time::Duration;

use agent::turn::{self, AgentCore};
use agent::{AgentContext, Clock, Error, Hands, Stop, Tasks, Troubles, Weight, publication, wire};
use kubeapi::{ApiClient, NodeName, OwnNode};
use pubsub::Publication;
use step::Core as _;
use tokio::sync::watch;
use topics::{GoTime, KubeLeaderElectInfo, ZedAgentStatus};
use tracing::warn;

use super::candidate::{Candidacy, Candidate, Effect, Event, Leadership};
use crate::{DutyLimits, GLOBAL, NAME, lease};

/// The task for calls; there is one at a time.
const CALL: &str = "call";

/// Runs beside the drain.
#[derive(Clone)]
pub struct Leader {
    context: AgentContext,
    limits: DutyLimits,
    cluster: ApiClient,
    own_node: OwnNode,
    candidacy: watch::Sender<Option<Candidacy>>,
    clear: watch::Sender<bool>,
    leads: watch::Sender<Leadership>,
}

impl Leader {
    pub(crate) fn new(
        context: &AgentContext,
        limits: DutyLimits,
        cluster: ApiClient,
        own_node: OwnNode,
    ) -> Self {
        Self {
            context: context.clone(),
            limits,
            cluster,
            own_node,
            candidacy: watch::Sender::new(None),
            // An earlier run's lease is unknown, and no task waits before the first turn.
            clear: watch::Sender::new(true),
            leads: watch::Sender::new(Leadership::default()),
        }
    }

    pub(crate) fn door(&self) -> Door {
        let (candidacy, clear) = (self.candidacy.clone(), self.clear.subscribe());
        Door { candidacy, clear, clock: self.context.clock, patience: self.limits.release }
    }

    /// For parts that act as the leader, see [`Leadership::holds`].
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leads.subscribe()
    }

    /// Takes part until `context` says stop, then releases the lease. It may be run again after a failure: in
    /// between this node does not lead, and the drain waits for no lease.
    pub(crate) async fn run(&self, troubles: &Troubles) -> Result<(), Error> {
        let ended = self.take_part(troubles).await;
        self.leads.send_replace(Leadership::default());
        self.clear.send_replace(true);
        ended
    }

    async fn take_part(&self, troubles: &Troubles) -> Result<(), Error> {
        let (outbox, inbox) = agent::inbox();
        let mut hands = ElectionHands {
            leader: self.clone(),
            tasks: Tasks::new(outbox.clone()),
            info: publication(&self.context.topic_root, NAME)?,
            changed_by: self.context.clock.booted_at(),
        };
        let mut core = Candidate::new(self.limits.times, self.limits.config_patience);
        // The published state of a killed run is outdated.
        let first = core.step(self.context.clock.now(), Candidate::tick());
        hands.follow();
        let mut stop = self.context.stop.clone();
        let mut clear = self.clear.subscribe();
        let (clock, patience) = (self.context.clock, self.limits.release);
        // It continues after the stop until the lease is released.
        let (_stopper, unstopped) = Stop::new();
        let context = AgentContext { stop: unstopped, ..self.context.clone() };
        let leave = async {
            stop.stopped().await;
            if outbox.send(Event::Leaving).await {
                cleared(&mut clear, clock, patience, "leaving").await;
            }
        };
        tokio::select! {
            ended = turn::run(AgentCore::Second, (core, first), hands, inbox, &context, troubles) => ended,
            () = leave => Ok(()),
        }
    }
}

struct ElectionHands {
    leader: Leader,
    tasks: Tasks<Event>,
    info: Publication<KubeLeaderElectInfo>,
    /// Clock that `LatestChange` was made by.
    changed_by: GoTime,
}

impl ElectionHands {
    fn follow(&mut self) {
        let mut candidacy = self.leader.candidacy.subscribe();
        self.tasks.events("follow the drain", move |outbox| async move {
            loop {
                let now = *candidacy.borrow_and_update();
                let heard = match now {
                    Some(now) => outbox.send(Event::Candidacy(now)).await,
                    None => true,
                };
                if !heard || candidacy.changed().await.is_err() {
                    return;
                }
            }
        });
        self.tasks.follow::<ZedAgentStatus>(&self.leader.context.topic_root, "zedagent", |change| {
            Some(Event::Config(change.latest()?.map(|it| it.config_get_status)))
        });
        let mut names = self.leader.own_node.values();
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
    // FNV-1a: nodes that start together do not ask together.
    let mixed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Event::Named(name, mixed)
}

impl Hands for ElectionHands {
    type Effect = Effect;

    fn weight(&self, effect: &Effect) -> Weight {
        match effect {
            Effect::Publish(_) => Weight::status("KubeLeaderElectInfo"),
            Effect::Leadership(_) | Effect::Clear(_) | Effect::Lease(_) => Weight::plain(),
        }
    }

    fn clock_set(&mut self, now: GoTime) -> Result<(), Error> {
        let Some(info) = self.info.get(GLOBAL).cloned() else { return Ok(()) };
        let info =
            KubeLeaderElectInfo { latest_change: info.latest_change.moved(self.changed_by, now), ..info };
        wire::publish(&mut self.info, GLOBAL, &info)?;
        self.changed_by = now;
        Ok(())
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Leadership(leadership) => drop(self.leader.leads.send_replace(leadership)),
            Effect::Publish(info) => {
                // The wall clock first: readers that judge its age take it for older, never for newer.
                let clock = self.leader.context.clock;
                let latest_change = clock.wall();
                let holds = self.leader.leads.borrow().holds(clock.now());
                let info = KubeLeaderElectInfo {
                    latest_change,
                    is_stats_leader: info.is_stats_leader && holds,
                    ..info
                };
                wire::publish(&mut self.info, GLOBAL, &info)?;
                self.changed_by = clock.booted_at();
            }
            Effect::Clear(clear) => drop(self.leader.clear.send_replace(clear)),
            Effect::Lease(lease::Effect::Read(id)) => {
                let cluster = self.leader.cluster.clone();
                self.tasks.start(CALL, async move {
                    let read = lease::read(&cluster).await.map_err(|error| error.advice());
                    Some(Event::Lease(lease::Event::Read(id, read)))
                });
            }
            Effect::Lease(lease::Effect::Write(id, order)) => {
                let (cluster, clock) = (self.leader.cluster.clone(), self.leader.context.clock);
                let wall = clock.wall().to_timestamp();
                self.tasks.start(CALL, async move {
                    Some(Event::Lease(lease::Event::Wrote(id, lease::write(&cluster, &order, wall).await)))
                });
            }
            Effect::Lease(lease::Effect::Say(message)) => step::log!(message),
        }
        Ok(())
    }
}

/// Passes the drain's candidacy on. The election may be down at any moment: only the release of the lease is
/// waited for, with a limit.
pub struct Door {
    candidacy: watch::Sender<Option<Candidacy>>,
    clear: watch::Receiver<bool>,
    clock: Clock,
    patience: Duration,
}

impl Door {
    /// Passes `candidacy` on. For `Closed`, waits until the lease is released, or until the limit: a finished
    /// drain must not fail because of it. Dropping it ends the wait only.
    pub async fn announce(&mut self, candidacy: Candidacy) {
        self.candidacy.send_replace(Some(candidacy));
        if candidacy == Candidacy::Closed {
            cleared(&mut self.clear, self.clock, self.patience, "the drain").await;
        }
    }
}

/// Waits until the lease is released, with a limit.
async fn cleared(clear: &mut watch::Receiver<bool>, clock: Clock, patience: Duration, what: &str) {
    let late = clock.sleep_until(Some(clock.now() + patience));
    tokio::select! {
        biased;
        // An error means that the election has ended.
        ended = clear.wait_for(|clear| *clear) => drop(ended),
        () = late => warn!(
            secs = patience.as_secs_f32(),
            "the lease could not be released in time, {what} continues without; the others take it once it has run out"
        ),
    }
}
