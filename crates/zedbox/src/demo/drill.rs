//! The drill: all nodes of the embedded cluster lose power, one of them within a drained reboot, and
//! get it back node by node. Ends with everything restored and the time of each layer.
//!
//! The same steps for a real site: docs/operate/site.md.

#![expect(clippy::print_stdout, reason = "the drill talks to a person")]

use std::path::Path;
use std::time::Duration;

use agent::{Clock, wire};
use anyhow::{Context as _, bail};
use pubsub::Change;
use step::Mono;
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::{CordonOwner, DrainStatus, NodeDrainProgress};

use super::cluster::DemoCluster;
use super::fresh_root;
use super::machine::DemoMachine;
use super::nodes::NODES;
use super::teller::Narrator;
use crate::args::DrillOptions;

/// How long nodes without a quorum are observed before the next one gets power.
const ALONE: Duration = Duration::from_secs(5);
/// A state that takes longer than this does not come.
const PATIENCE: Duration = Duration::from_mins(3);

/// Times of one node since its power came back.
#[derive(Debug, Clone, Default)]
struct DrillTimes {
    /// Layers of the gate that were closed, and for how long.
    layers: Vec<(String, Mono)>,
    open: Option<Mono>,
    schedulable: Option<Mono>,
}

struct DrillMachine {
    machine: DemoMachine,
    /// When it got power back.
    on: Option<Mono>,
    times: watch::Sender<DrillTimes>,
    follows: JoinSet<()>,
}

impl DrillMachine {
    fn new(dir: &Path, at: usize, nodes: usize) -> anyhow::Result<Self> {
        let (machine, times) = (DemoMachine::new(dir, at, nodes)?, watch::Sender::default());
        Ok(Self { machine, on: None, times, follows: JoinSet::new() })
    }

    async fn cut(&mut self, cluster: &DemoCluster) -> anyhow::Result<()> {
        self.follows.shutdown().await;
        self.machine.cut(cluster).await
    }

    /// Follows zedkube's reports on its recovery.
    fn follow(&mut self, clock: Clock) {
        self.on = Some(clock.now());
        let mut topic =
            self.machine.topic_root.subscription(&wire::name::<NodeDrainProgress>("zedkube"), wire::codec());
        let times = self.times.clone();
        self.follows.spawn(async move {
            loop {
                let Change::Put { value, .. } = topic.next().await else { continue };
                let (value, now): (NodeDrainProgress, _) = (value, clock.now());
                times.send_modify(|times| {
                    let layer = &value.gate.layer;
                    if !layer.is_empty() && times.layers.last().is_none_or(|(last, _)| last != layer) {
                        times.layers.push((layer.clone(), now));
                    }
                    if value.gate.open {
                        times.open.get_or_insert(now);
                        if value.cordon == CordonOwner::None {
                            times.schedulable.get_or_insert(now);
                        }
                    }
                });
            }
        });
    }

    fn row(&self) -> String {
        let Some(on) = self.on else { return format!("{}   stayed off", self.machine.name()) };
        let times = self.times.borrow();
        let secs = |at: Mono| format!("{:.1} s", at.since(on).as_secs_f64());
        let since = |at: Option<Mono>| at.map_or_else(|| "not seen".to_owned(), secs);
        let ends = times.layers.iter().skip(1).map(|it| Some(it.1)).chain([times.open]);
        let layers: Vec<String> = (times.layers.iter().zip(ends))
            .map(|((layer, from), until)| {
                let took = until
                    .map_or_else(|| "?".to_owned(), |it| format!("{:.1} s", it.since(*from).as_secs_f64()));
                format!("{layer} {took}")
            })
            .collect();
        let layers = if layers.is_empty() { "none held it".to_owned() } else { layers.join(", ") };
        format!(
            "{}   gate open after {}, schedulable after {}; layers that held it: {layers}",
            self.machine.name(),
            since(times.open),
            since(times.schedulable)
        )
    }
}

#[derive(Debug)]
struct DrillReport {
    lines: Vec<String>,
    /// What ran before and does not run again, and nodes that are not schedulable.
    lacks: Vec<String>,
}

/// Runs the drill and prints its report. Fails when something that ran before the power cut does not run
/// again.
pub(crate) async fn run(options: &DrillOptions) -> anyhow::Result<()> {
    drill(options, |_| ()).await?.end()
}

impl DrillReport {
    fn end(self) -> anyhow::Result<()> {
        println!();
        for line in self.lines {
            println!("{line}");
        }
        if !self.lacks.is_empty() {
            bail!("bring everything back: {}", self.lacks.join("; "));
        }
        Ok(())
    }
}

/// In which order the nodes get their power back.
fn order(options: &DrillOptions) -> anyhow::Result<Vec<usize>> {
    let nodes = usize::from(options.nodes);
    let mut order = options.order.clone();
    if order.is_empty() {
        order.extend(0..nodes);
    }
    order.retain(|it| Some(*it) != options.missing);
    let mut all: Vec<usize> = order.iter().copied().chain(options.missing).collect();
    all.sort_unstable();
    if !all.into_iter().eq(0..nodes) {
        bail!("start the drill: --order names each node of --nodes {nodes} once");
    }
    if order.len() <= nodes / 2 {
        bail!("start the drill: without a node of {nodes} there is no quorum; use --nodes 3 or more");
    }
    Ok(order)
}

/// `meanwhile` is called while the power is off.
async fn drill(options: &DrillOptions, meanwhile: impl Fn(&DemoCluster)) -> anyhow::Result<DrillReport> {
    let (order, nodes) = (order(options)?, usize::from(options.nodes));
    let off = options.missing.map_or("", |at| NODES[at].0);
    let dir = fresh_root(&options.dir)?;
    let clock = Clock::new();
    let tell = Narrator::new(clock, false);
    println!(
        "zedbox site drill: a simulation, nothing of this site is touched; without power: {}; files in {}",
        topics::number(options.nodes, "node"),
        dir.display()
    );
    let cluster = DemoCluster::start(clock, nodes).await.context("start the embedded cluster")?;
    cluster.open_budget();
    cluster.add_machines().await?;
    let mut machines =
        (0..nodes).map(|at| DrillMachine::new(&dir, at, nodes)).collect::<anyhow::Result<Vec<_>>>()?;
    for machine in &mut machines {
        machine.machine.order(6)?;
        machine.machine.start(&cluster, clock)?;
    }
    for machine in &machines {
        machine.machine.stage(clock).idle_with_counter(6).await?;
    }
    cluster.hold_evictions();
    machines[0].machine.order(7)?;
    tell.say(&format!(
        "{} is ordered a reboot, takes its turn, is cordoned and drained.",
        machines[0].machine.name()
    ));
    machines[0].machine.stage(clock).status(&[DrainStatus::Cordoned]).await?;

    let before = cluster.running();
    cluster.without_quorum();
    for machine in &mut machines {
        machine.cut(&cluster).await?;
    }
    tell.say("Power is lost everywhere.");
    meanwhile(&cluster);
    let wrong = clock.off_by(options.clock.max(-clock.wall().to_timestamp().as_second()));
    let started = clock.now();
    for (nth, at) in order.iter().enumerate() {
        if nth == nodes / 2 {
            clock.sleep_until(Some(clock.now() + ALONE)).await;
            cluster.none_let_go()?;
            tell.say(&format!("{nth} of {nodes} are no quorum: what is cordoned stays so."));
            cluster.sim.quorum(true);
        }
        let machine = &mut machines[*at];
        machine.machine.start(&cluster, wrong)?;
        machine.follow(clock);
        tell.say(&format!("{} has its power back.", machine.machine.name()));
    }
    let back = order.iter().map(|at| async {
        let machine = &machines[*at];
        let mut times = machine.times.subscribe();
        if times.wait_for(|it| it.schedulable.is_some()).await.is_ok() {
            tell.say(&format!("{} takes pods again.", machine.machine.name()));
        }
    });
    let mut all = patiently(clock, futures::future::join_all(back)).await;
    if all && options.missing.is_none() {
        reboots(&mut machines[0], &cluster, wrong, &tell).await?;
    }
    let turn = cluster.turns();
    all &= patiently(clock, cluster.all_back(&before, off)).await;
    let took = clock.now().since(started).as_secs_f64();
    let closed = order.iter().map(|at| &machines[*at]).filter(|it| it.times.borrow().schedulable.is_none());
    let mut lacks: Vec<String> =
        closed.map(|it| format!("node {} takes no pods", it.machine.name())).collect();
    lacks.extend(cluster.lacks(&before, off));
    for machine in &mut machines {
        machine.follows.shutdown().await;
        machine.machine.stop().await;
    }
    let mut lines = vec![if all {
        format!("Everything that has power is back, {took:.1} s after the first node got it. Since power on:")
    } else {
        format!("Not everything is back, {took:.1} s after the first node got its power. Since power on:")
    }];
    lines.extend(order.iter().copied().chain(options.missing).map(|at| format!("  {}", machines[at].row())));
    let stayed: Vec<&str> = before.machines.iter().filter(|it| it.1 == off).map(|it| it.0.as_str()).collect();
    lines.push(format!(
        "  virtual machines: {} of {} run, each with its volume{}",
        before.machines.len()
            - stayed.len()
            - lacks.iter().filter(|it| it.contains("virtual machine")).count(),
        before.machines.len(),
        if stayed.is_empty() { String::new() } else { format!("; off with {off}: {}", stayed.join(", ")) }
    ));
    lines.push(format!("  virtual IP: served by {}", cluster.server()));
    lines.push(format!("  turns: {turn}"));
    lines.extend(lacks.iter().map(|it| format!("  NOT BACK: {it}")));
    Ok(DrillReport { lines, lacks })
}

/// The reboot that the power cut interrupted is carried out once, after a drain of its own.
async fn reboots(
    machine: &mut DrillMachine,
    cluster: &DemoCluster,
    clock: Clock,
    tell: &Narrator,
) -> anyhow::Result<()> {
    cluster.sim.faults().clear();
    machine.machine.stage(clock).recorded_reboot().await?;
    tell.say(&format!("{}: its reboot of before is carried out, drained again.", machine.machine.name()));
    machine.cut(cluster).await?;
    machine.machine.start(cluster, clock)?;
    let stage = machine.machine.stage(clock);
    stage.idle_with_counter(7).await?;
    stage.settled().await?;
    tell.say(&format!("{} is back from it, and takes pods.", machine.machine.name()));
    cluster.turns_end().await
}

async fn patiently(clock: Clock, wait: impl Future) -> bool {
    tokio::select! {
        _ = wait => true,
        () = clock.sleep_until(Some(clock.now() + PATIENCE)) => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Exit;
    use crate::args::SiteCommand;
    use crate::site_cmd;

    #[derive(clap::Parser)]
    struct DrillLine {
        #[command(flatten)]
        site: SiteCommand,
    }

    #[derive(clap::Parser)]
    struct DrillOptionsLine {
        #[command(flatten)]
        options: DrillOptions,
    }

    async fn report(args: &[&str], meanwhile: impl Fn(&DemoCluster)) -> DrillReport {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("drill");
        let line = ["drill", "--dir", dir.to_str().unwrap()].into_iter().chain(args.iter().copied());
        drill(&DrillOptionsLine::parse_from(line).options, meanwhile).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn v4_the_drill_ends_with_all_five_machines_and_the_times_of_each_layer() {
        let order = "edge-node-2,edge-node-1,edge-node-3";
        let report = report(&["--order", order, "--clock", "1970"], |_| ()).await;
        let text = report.lines.join("\n");
        for words in [
            "Everything that has power is back",
            "edge-node-1   gate open after ",
            "layers that held it: clock ",
            "node-lease ",
            "virtual machines: 5 of 5 run, each with its volume",
            "virtual IP: served by edge-node-",
            "turns: no node holds one",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(report.lacks, [""; 0]);
        report.end().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn v4_a_machine_or_a_volume_that_does_not_come_back_fails_the_drill_and_is_named() {
        let report = report(&[], |cluster| {
            for kind in ["kubevirt/virtualmachines", "kubevirt/virtualmachineinstances"] {
                assert!(cluster.sim.remove(kind, "shop", "vm-3"));
            }
            assert!(cluster.sim.remove("persistentvolumeclaims", "shop", "vm-5-disk"));
        })
        .await;
        let text = report.lines.join("\n");
        assert!(text.starts_with("Not everything is back"), "{text}");
        assert!(text.contains("virtual machines: 3 of 5 run"), "{text}");
        assert!(text.contains("NOT BACK: virtual machine shop/vm-3 does not run"), "{text}");
        assert!(text.contains("NOT BACK: the volume of virtual machine shop/vm-5"), "{text}");
        let failed = report.end().unwrap_err().to_string();
        assert!(
            failed.starts_with("bring everything back: virtual machine shop/vm-3 does not run; "),
            "{failed}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn v4_a_virtual_ip_that_nobody_serves_keeps_the_gate_shut_and_fails_the_drill() {
        let report = report(&[], |cluster| {
            cluster.sim.serve_virtual_ip("plndr-cp-lock", false);
            cluster.sim.edit("coordination/leases", "kube-system", "plndr-cp-lock", |it| {
                it["spec"]["holderIdentity"] = "".into();
            });
        })
        .await;
        let text = report.lines.join("\n");
        assert!(text.contains("virtual IP: served by nobody"), "{text}");
        for lack in
            ["the virtual IP of lease plndr-cp-lock is served by no node", "node edge-node-1 takes no pods"]
        {
            assert!(text.contains(&format!("NOT BACK: {lack}")), "{lack}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn v4_one_to_five_nodes_come_back_and_what_has_no_quorum_is_refused() {
        for nodes in ["1", "2", "4", "5"] {
            let report = report(&["--nodes", nodes], |_| ()).await;
            assert_eq!(report.lacks, [""; 0], "{nodes}: {:#?}", report.lines);
            assert_eq!(
                report.lines.iter().filter(|it| it.contains("gate open after ")).count().to_string(),
                nodes
            );
        }
        for (words, why) in [
            (&["--nodes", "2", "--missing", "edge-node-2"][..], "without a node of 2 there is no quorum"),
            (
                &["--nodes", "2", "--order", "edge-node-1,edge-node-3"],
                "--order names each node of --nodes 2 once",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let line =
                ["drill", "--dir", dir.path().to_str().unwrap()].into_iter().chain(words.iter().copied());
            let refused = drill(&DrillOptionsLine::parse_from(line).options, |_| ()).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn v4_the_command_ends_with_0_also_when_a_node_that_stays_off_keeps_what_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("drill");
        let line =
            ["site", "drill", "--missing", "edge-node-3", "--clock", "+400d", "--dir", dir.to_str().unwrap()];
        let done = Box::pin(site_cmd::run(&DrillLine::parse_from(line).site)).await;
        assert_eq!(done.unwrap(), Exit::Done);
        let occupied = dir.parent().unwrap().to_str().unwrap();
        let line = ["site", "drill", "--dir", occupied];
        assert!(Box::pin(site_cmd::run(&DrillLine::parse_from(line).site)).await.is_err());
    }
}
