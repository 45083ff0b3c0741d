//! Keeps agents running: starts them, restarts failed ones, and stops all in order.

use std::pin::pin;
use std::time::Duration;

use agent::watchdog::Watchdog;
use agent::{AgentContext, Clock, Stop, Stopper, device, partitions, wire};
use anyhow::{Context as _, bail};
use pubsub::{Change, TopicRoot, reach};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use topics::ConfigItemValueMap;
use tracing::{error, info, warn};

use crate::Exit;
use crate::args::{Agent, AgentOptions, SystemdService, webhook};
use crate::limits::Limits;
use crate::log::{self, LogLevels};
use crate::notify::Reports;
use crate::panic;

/// Pause before a failed agent restarts; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct AgentsSetup {
    pub(crate) topic_root: TopicRoot,
    pub(crate) clock: Clock,
    pub(crate) device: device::DeviceChoice,
    pub(crate) partitions: partitions::PartitionsChoice,
    pub(crate) current_partition: Option<partitions::Label>,
    pub(crate) boot_id: String,
    pub(crate) limits: Limits,
    pub(crate) cluster: kubeapi::ApiClient,
}

pub(crate) struct Crew {
    stopper: Stopper,
    running: JoinSet<Option<Agent>>,
}

impl Crew {
    /// Starts `agents`; each is kept running until [`Crew::stop`].
    pub(crate) fn start(agents: &[Agent], setting: &AgentsSetup) -> Self {
        let (stopper, stop) = Stop::new();
        let mut running = JoinSet::new();
        for agent in agents {
            running.spawn(keep(*agent, setting.clone(), stop.clone()));
        }
        Self { stopper, running }
    }

    /// Returns an agent that has left without being stopped. Dropping it loses nothing.
    pub(crate) async fn left(&mut self) -> Agent {
        loop {
            match self.running.join_next().await {
                Some(Ok(Some(agent))) => return agent,
                Some(Ok(None)) => {}
                Some(Err(cause)) => error!(error = %cause, "an agent did not leave in order"),
                None => std::future::pending().await,
            }
        }
    }

    /// Drops all agents at any point, as a power cut does.
    #[cfg(feature = "demo")]
    pub(crate) async fn cut(mut self) {
        self.running.shutdown().await;
    }

    /// Stops all agents and waits for their end.
    pub(crate) async fn stop(mut self) {
        self.stopper.stop();
        while let Some(ended) = self.running.join_next().await {
            if let Err(cause) = ended {
                error!(error = %cause, "an agent did not leave in order");
            }
        }
    }
}

/// Until a signal comes.
pub(crate) async fn run(
    agents: &[Agent],
    options: &AgentOptions,
    levels: &LogLevels,
) -> anyhow::Result<Exit> {
    log::never_wait();
    // First: by default these two signals end the process.
    let (mut dump, mut debug) = (
        signal(SignalKind::user_defined1()).context("listen for SIGUSR1")?,
        signal(SignalKind::user_defined2()).context("listen for SIGUSR2")?,
    );
    let clock = Clock::new();
    let topic_root = TopicRoot::open(&options.root)
        .with_context(|| format!("open the root {}", options.root.display()))?;
    if !topic_root.root().is_dir() {
        bail!(
            "open the root {}: there is no such directory; make it, or name another one with --root",
            options.root.display()
        );
    }
    reach::begin(topic_root.root());
    let mut limits = Limits::read(options.limits.as_deref())?;
    limits.zedagent.reboot_required.clone_from(&options.reboot_required);
    limits.zedkube.notify = options.notify.as_ref().map(webhook).transpose()?;
    print_device(&options.device);
    print_partitions(&options.partitions);
    options.device.check().context("use the device")?;
    // Only now: a program that does not start has not survived its panic.
    let alone = if let [agent] = agents { agent.name() } else { "zedbox" };
    panic::leave_traces(&topic_root, alone, clock);
    let boot_id = boot_id(&options.device, &topic_root, clock, agents).await;
    let setting = AgentsSetup {
        cluster: kubeapi::ApiClient::from_kubeconfig(options.kubeconfig()?),
        limits,
        device: options.device.clone(),
        partitions: options.partitions.clone(),
        current_partition: options.current_partition,
        topic_root,
        clock,
        boot_id,
    };
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let (service, names) =
        (SystemdService::of_this_process(), agents.iter().map(|it| it.name()).collect::<Vec<_>>());
    let mut reports = pin!(Reports::new(service.clone(), &names, &setting.topic_root, clock).follow());
    let mut crew = Crew::start(agents, &setting);
    let mut properties = wire::subscription::<ConfigItemValueMap>(&setting.topic_root, "zedagent");
    let left = loop {
        tokio::select! {
            _ = terminate.recv() => { info!("SIGTERM: leaving"); break None }
            _ = interrupt.recv() => { info!("SIGINT: leaving"); break None }
            agent = crew.left() => break Some(agent),
            () = &mut reports => {}
            _ = dump.recv() => info!("SIGUSR1: this program keeps no stacks to show; `zedbox status` shows its state"),
            _ = debug.recv() => info!("SIGUSR2: this program has no debug server"),
            change = properties.next() => {
                // Invalid files are reported by their other subscribers.
                if let Change::Put { key, value, .. } = change && key == wire::GLOBAL {
                    levels.follow(&value);
                }
            }
        }
    };
    if let Err(error) = service.say("STOPPING=1") {
        warn!(%error, "cannot report the stop to systemd");
    }
    crew.stop().await;
    for place in reach::hanging().iter().flat_map(|hanging| hanging.borrow().clone()) {
        warn!(
            "{} does not answer: what waits for it is done by the next start; the kernel keeps this process until it answers",
            place.display()
        );
    }
    match left {
        None => Ok(Exit::Done),
        Some(agent) => bail!(
            "continue: {agent} left, as the machine was ordered down and is still up; power-cycle it, or start \
             this program again to repeat the operation"
        ),
    }
}

/// The identity of this boot, retried while the disk does not give it: ending would not help.
async fn boot_id(
    device: &device::DeviceChoice,
    topic_root: &TopicRoot,
    clock: Clock,
    agents: &[Agent],
) -> String {
    let mut told = false;
    let mut watchdogs: Vec<_> = agents.iter().map(|it| Watchdog::new(it.name(), topic_root, clock)).collect();
    loop {
        watchdogs.iter_mut().for_each(Watchdog::touch);
        match device.boot_id(topic_root) {
            Ok(boot_id) => return boot_id,
            Err(_) if told => {}
            Err(cause) => {
                told = true;
                error!(error = %step::chain(&cause), "the identity of this boot cannot be learnt, no agent starts; tried again every second");
            }
        }
        clock.sleep_until(Some(clock.now() + FIRST_PAUSE)).await;
    }
}

fn print_device(device: &device::DeviceChoice) {
    match device {
        device::DeviceChoice::Record => warn!(
            "device RECORD: no reboot, shutdown or power-off will happen; each is only written to <root>/{}. \
             Use --device systemd on a real device",
            device::RECORD
        ),
        device::DeviceChoice::Systemd | device::DeviceChoice::Exec(_) => {
            warn!(%device, "this process can take this machine down");
        }
    }
}

fn print_partitions(partitions: &partitions::PartitionsChoice) {
    match partitions {
        // Only baseosmgr needs them; it reports that itself.
        partitions::PartitionsChoice::None => {}
        partitions::PartitionsChoice::Record => warn!(
            "partitions RECORD: no OS image is installed; files under <root>/{} stand in for both partitions, and an \
             update that is reported as done is one on these files. Not for a real device",
            partitions::FOLDER
        ),
        partitions::PartitionsChoice::Gpt(_) | partitions::PartitionsChoice::Exec(_) => {
            warn!(%partitions, "this process can write OS images and choose what this machine boots");
        }
    }
}

/// Keeps `agent` running until it is to stop. Returns an agent that leaves without being stopped.
async fn keep(agent: Agent, setting: AgentsSetup, mut stop: Stop) -> Option<Agent> {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = setting.clock.now();
        let Err(cause) = Box::pin(once(agent, &setting, stop.clone())).await else {
            return (!stop.is_stopped()).then_some(agent);
        };
        // One that ran for long has recovered.
        if setting.clock.now().since(began) > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        // The machine stays up during the restart; but another process of this name touches its own file.
        if !matches!(cause, agent::Error::Already { .. }) {
            Watchdog::new(agent.name(), &setting.topic_root, setting.clock).touch();
        }
        error!(agent = %agent, error = %step::chain(&cause), pause_secs = pause.as_secs(), "failed, starts again");
        tokio::select! {
            () = stop.stopped() => return None,
            () = setting.clock.sleep_until(Some(setting.clock.now() + pause)) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn once(agent: Agent, setting: &AgentsSetup, stop: Stop) -> Result<(), agent::Error> {
    let context = AgentContext {
        topic_root: setting.topic_root.clone(),
        clock: setting.clock,
        stop,
        boot_id: setting.boot_id.clone(),
    };
    let limits = setting.limits.clone();
    info!(agent = %agent, boot = context.boot_id, "starts");
    match agent {
        Agent::Zedagent => zedagent::run(context, limits.zedagent).await,
        Agent::Baseosmgr => {
            let open = || setting.partitions.open(&setting.topic_root, setting.current_partition);
            baseosmgr::run(context, limits.baseosmgr, open).await
        }
        Agent::Nodeagent => {
            let device = setting.device.open(&setting.topic_root, setting.clock);
            nodeagent::run(context, limits.nodeagent, device).await
        }
        Agent::Zedkube => zedkube::run(context, limits.zedkube, setting.cluster.clone()).await,
    }
}
