//! The demo that stays: each agent of its machines is a process of its own; machines go down when ordered
//! and come back, until a person ends it.

use std::cell::Cell;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use agent::device::{self, MachineOperation};
use agent::{Clock, Stop};
use anyhow::{Context as _, bail};
use pubsub::{FileRule, store};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::json;
use step::Mono;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use topics::DrainStatus;

use super::machine::{DemoMachine, KUBECONFIG, brisk};
use super::nodes::{NODES, address};
use super::scenarios::DemoWorld;
use super::stage::DemoTopics;
use super::{DemoCluster, Narrator, interrupted, quoted};
use crate::args::{Agent, DemoAgent, Scenario};
use crate::limits::SHORTENED;
use crate::log::LogLevels;
use crate::supervisor;

/// Duration of a boot.
const BOOT: Duration = Duration::from_secs(2);
/// Machines that were switched off are switched on so long after the last one went.
const OFF: Duration = Duration::from_secs(10);
/// Pause before an ended agent is restarted.
const RESTART: Duration = Duration::from_secs(1);
/// Limit for an agent's shutdown.
const LEAVE: Duration = Duration::from_secs(5);
/// Between two looks for the page.
const LOOK: Duration = Duration::from_millis(100);
/// Tries to find a port that is free for all machines.
const PORTS: usize = 20;

/// What to try. Each indented line works as printed; capitals are filled in.
const GUIDE: &str = include_str!("guide.txt");
/// Each begins with its name here.
const THINGS: &str = include_str!("things.txt");

/// What to try in a cluster of so many nodes.
fn guide(scenario: Scenario, nodes: usize, dir: &str, port: u16) -> String {
    let names = match scenario {
        Scenario::Reboot => ["plan", "budget", "work", "pause", "turns"],
        Scenario::FailedDrain => ["budget", "force", "kill", "install", "plan"],
        Scenario::OsUpdate => ["plan", "pause", "kill", "install", "restart"],
        Scenario::SiteStop => ["off", "restart", "turns", "plan", "site"],
        Scenario::MovingMachines => ["move", "off", "plan", "turns", "work"],
    };
    let thing =
        |name| THINGS.trim_end().split("\n\n").find_map(|it| it.strip_prefix(name)).unwrap_or_default();
    let things = (1..).zip(names).map(|(nth, name)| format!("\n{nth}.{}\n", thing(name)));
    let pages = (0..nodes).map(|at| format!("\n  http://{}:{port}/ of {}", address(at), NODES[at].0));
    let budget = |least: usize| {
        format!("kubectl -n shop patch pdb web --type merge -p '{{\"spec\":{{\"minAvailable\":{least}}}}}'")
    };
    let all = (1..=nodes).map(|it| it.to_string()).collect::<Vec<_>>().join(" ");
    let filled = [
        ("THINGS", things.collect()),
        ("PAGES", pages.collect()),
        ("DIR", dir.to_owned()),
        ("SHUT", budget(nodes)),
        ("OPEN", budget(nodes - 1)),
        ("SECOND", NODES[1.min(nodes - 1)].0.to_owned()),
        ("THIRD", NODES[2.min(nodes - 1)].0.to_owned()),
        ("ALL", all),
    ];
    filled.into_iter().fold(GUIDE.to_owned(), |text, (what, with)| text.replace(what, &with))
}

/// Runs one agent of the demo, which ends with the demo in any case.
pub(crate) async fn agent(command: &DemoAgent, levels: &LogLevels) -> anyhow::Result<crate::Exit> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("end with the demo")?;
    let Some(agent) = Agent::ALL.into_iter().find(|it| it.name() == command.agent) else {
        bail!("run the agent {}: there is none", command.agent);
    };
    supervisor::run(&[agent], &command.options, levels).await
}

/// Keeps the machines until a person ends it.
pub(super) async fn run(place: &mut DemoWorld, scenario: Scenario) -> anyhow::Result<()> {
    let port = free_port()?;
    for machine in &mut place.machines {
        machine.limits = brisk();
        machine.limits["zedkube"]["server_port"] = port.into();
        if !machine.topic_root.path("persist/config/edge-dev-config.json").exists() {
            machine.order(6)?;
        }
    }
    let (dir, clock, tell, cluster) = (quoted(&place.root), place.clock, &place.tell, &place.cluster);
    let stages: Vec<DemoTopics> = place.machines.iter().map(|it| it.stage(clock)).collect();
    let (stopper, stop) = Stop::new();
    let last_off = Cell::new(None);
    let site = DemoShared { clock, tell, cluster, last_off: &last_off };
    let machines = place.machines.iter_mut().map(async |machine| {
        let kept = Box::pin(site.keep(machine, stop.clone())).await;
        // Without one of them the others end too.
        stopper.stop();
        kept
    });
    let shown = async {
        for (at, stage) in stages.iter().enumerate() {
            stage.status(&[DrainStatus::NotRequested]).await?;
            while TcpStream::connect((address(at), port)).await.is_err() {
                clock.sleep_until(Some(clock.now() + LOOK)).await;
            }
        }
        tell.show(&guide(scenario, stages.len(), &dir, port));
        interrupted().await
    };
    let until = async {
        let mut halt = stop.clone();
        let ended = tokio::select! {
            ended = shown => ended,
            asked = interrupted() => asked,
            () = halt.stopped() => Ok(()),
        };
        stopper.stop();
        ended
    };
    let (ended, kept) = tokio::join!(until, futures::future::join_all(machines));
    kept.into_iter().chain([ended]).collect()
}

/// A port that is free at each machine's address.
fn free_port() -> anyhow::Result<u16> {
    for _ in 0..PORTS {
        let first = TcpListener::bind((address(0), 0)).context("find a free port")?;
        let port = first.local_addr().context("find a free port")?.port();
        if (1..NODES.len()).all(|at| TcpListener::bind((address(at), port)).is_ok()) {
            return Ok(port);
        }
    }
    bail!("find a port for the status pages that is free at 127.0.0.1 to 127.0.0.5")
}

#[derive(Clone, Copy)]
struct DemoShared<'a> {
    clock: Clock,
    tell: &'a Narrator,
    cluster: &'a DemoCluster,
    last_off: &'a Cell<Option<Mono>>,
}

impl DemoShared<'_> {
    /// Keeps a machine running, boot after boot, until it is to stop.
    async fn keep(self, machine: &mut DemoMachine, mut stop: Stop) -> anyhow::Result<()> {
        loop {
            let Some(operation) = self.boot(machine, stop.clone()).await? else { return Ok(()) };
            machine.cut(self.cluster).await?;
            if operation == MachineOperation::Reboot {
                self.tell.say(&format!("{} reboots (only written down).", machine.name()));
                self.pause(BOOT, &mut stop).await;
            } else {
                self.tell.say(&format!("{} is switched off.", machine.name()));
                self.last_off.set(Some(self.clock.now()));
                while let Some(at) = self.last_off.get().filter(|at| *at + OFF > self.clock.now())
                    && !stop.is_stopped()
                {
                    self.pause((at + OFF).since(self.clock.now()), &mut stop).await;
                }
                self.tell.say(&format!("{} is switched on again.", machine.name()));
            }
        }
    }

    async fn pause(self, length: Duration, stop: &mut Stop) {
        tokio::select! {
            () = self.clock.sleep_until(Some(self.clock.now() + length)) => {}
            () = stop.stopped() => {}
        }
    }

    /// One boot of a machine; returns the ordered operation, or `None` when it is to stop. No agent runs
    /// then.
    async fn boot(
        self,
        machine: &mut DemoMachine,
        mut stop: Stop,
    ) -> anyhow::Result<Option<MachineOperation>> {
        machine.power_on(self.cluster)?;
        let network = json!({ "Ports": [{
            "IfName": "lo", "Logicallabel": "eth1", "ClusterIPAddr": machine.address(), "Up": true, "IsL3Port": true,
            "InvalidConfig": false, "Dhcp": 1, "AddrInfoList": null,
        }] });
        let file = machine.topic_root.path("run/nim/DeviceNetworkStatus/global.json");
        store::replace(&file, network.to_string().as_bytes())?;
        store::replace(&machine.topic_root.path("demo-limits.json"), machine.limits.to_string().as_bytes())?;
        let known = device::recorded(&machine.topic_root)?.len();
        let mut record = machine
            .topic_root
            .file(machine.topic_root.path(device::RECORD), FileRule { limit_bytes: 1 << 20, order: false });
        let _show = self.tell.follow_node(&machine.topic_root, machine.name());
        let mut agents = Vec::new();
        for agent in Agent::ALL {
            agents.push((agent, start(machine, agent)?));
        }
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => {
                    leave(&mut agents).await?;
                    return Ok(None);
                }
                _ = record.next() => {
                    let all = device::recorded(&machine.topic_root)?;
                    if let Some(last) = all.last().filter(|_| all.len() > known) {
                        for (_, child) in &mut agents {
                            child.kill().await.context("end an agent")?;
                        }
                        return Ok(Some(last.operation));
                    }
                }
                at = ended(&mut agents) => {
                    let agent = agents[at].0;
                    let status = agents[at].1.wait().await.context("wait for an agent")?;
                    let name = machine.name();
                    self.tell.say(&format!("{agent} of {name} ended ({status}); it is started again."));
                    self.pause(RESTART, &mut stop).await;
                    agents[at].1 = start(machine, agent)?;
                }
            }
        }
    }
}

/// Starts an agent as a process, out of reach of the terminal's Ctrl-C.
fn start(machine: &DemoMachine, agent: Agent) -> anyhow::Result<Child> {
    let doing = || format!("start {agent} of {}", machine.name());
    let path = |relative: &str| machine.topic_root.path(relative);
    std::fs::create_dir_all(path("log")).with_context(doing)?;
    let log =
        File::options().create(true).append(true).open(path("log").join(agent.name())).with_context(doing)?;
    let mut command = std::process::Command::new(std::env::current_exe().context("find this program")?);
    command.args(["demo-agent", agent.name(), "--log", "info,kube_client=off", "--root"]).arg(path(""));
    command.arg("--kubeconfig").arg(path(KUBECONFIG)).arg("--limits").arg(path("demo-limits.json"));
    command.args(["--device", "record", "--partitions", "record"]).env_clear().env(SHORTENED, "1");
    command.stdin(Stdio::null()).stdout(log.try_clone().with_context(doing)?).stderr(log).process_group(0);
    Command::from(command).kill_on_drop(true).spawn().with_context(doing)
}

/// Returns the agent that ended.
async fn ended(agents: &mut [(Agent, Child)]) -> usize {
    let each = agents.iter_mut().map(|(_, child)| Box::pin(child.wait()));
    futures::future::select_all(each).await.1
}

/// Stops all; one that does not end is killed.
async fn leave(agents: &mut [(Agent, Child)]) -> anyhow::Result<()> {
    for (_, child) in &*agents {
        if let Some(pid) = child.id().and_then(|it| Pid::from_raw(it.cast_signed())) {
            kill_process(pid, Signal::TERM).context("end an agent")?;
        }
    }
    for (agent, child) in agents {
        if tokio::time::timeout(LEAVE, child.wait()).await.is_err() {
            child.kill().await.with_context(|| format!("end {agent}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn x1_each_scenario_has_five_things_to_try_on_any_number_of_nodes() {
        for scenario in Scenario::value_variants() {
            for nodes in 1..=5 {
                let text = guide(*scenario, nodes, "/demo", 80);
                for nth in 1..=5 {
                    let begins = |it: &&str| it.starts_with(&format!("{nth}. "));
                    assert_eq!(text.lines().filter(begins).count(), 1, "{scenario:?} {nth}: {text}");
                }
                let beyond = format!("edge-node-{}", nodes + 1);
                let capitals = |it: &str| it.len() > 3 && it.chars().all(|it| it.is_ascii_uppercase());
                let left: Vec<&str> =
                    text.split(|it: char| !it.is_alphanumeric()).filter(|it| capitals(it)).collect();
                assert!(
                    !text.contains(&beyond) && left.iter().all(|it| ["PATH", "KUBECONFIG"].contains(it)),
                    "{text}"
                );
            }
        }
    }
}
