//! The scenarios of the demo.

use std::path::PathBuf;
use std::process::Stdio;

use agent::Clock;
use anyhow::Context as _;
use outage::site::record::SitePhase;
use pubsub::store;
use serde_json::{Value, json};
use sheet::text::number;
use tokio::task::JoinSet;
use topics::DrainStatus;

use super::cluster::{DemoCluster, MACHINES};
use super::machine::DemoMachine;
use super::stage::DemoTopics;
use super::teller::Narrator;
use crate::args::Scenario;

const LOADED: &str = include_str!("../../../../tests/golden/ContentTreeStatus/loaded.json");
const CONTENT: &str = "5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01";
const VERSION: &str = "14.5.1-lts-kubevirt-amd64";
/// Seconds of a drain that fails, until it is given up.
const DRAIN_LIMIT: u64 = 10;
/// Seconds then until the next try.
const PAUSE: u64 = 5;
/// Seconds of a new image's test: the shortest possible. Until its end the machine does not go down for anything else.
const TEST: u64 = 30;
const DOWN: [(SitePhase, &str); 4] = [
    (SitePhase::Cordoning, "All nodes are cordoned: nothing new starts anywhere."),
    (SitePhase::Stopping, "The virtual machines are stopped, and after them what else has a disk."),
    (SitePhase::Detaching, "The disks are detached from the nodes."),
    (SitePhase::ServersGoing, "Nothing writes any more: the nodes switch themselves off, one after another."),
];
const UP: [(SitePhase, &str); 2] = [
    (SitePhase::Uncordoning, "All nodes are healthy again and take pods."),
    (SitePhase::Restoring, "What was stopped is started again."),
];

pub(super) struct DemoWorld {
    pub(super) clock: Clock,
    pub(super) tell: Narrator,
    pub(super) cluster: DemoCluster,
    pub(super) machines: Vec<DemoMachine>,
    pub(super) root: PathBuf,
}

impl DemoWorld {
    /// Shows the scenario; at its end all machines are up and idle, and the budget allows a disruption.
    pub(super) async fn show(&mut self, scenario: Scenario) -> anyhow::Result<()> {
        match scenario {
            Scenario::Reboot => self.reboot().await,
            Scenario::FailedDrain => self.failed_drain().await,
            Scenario::OsUpdate => self.os_update().await,
            Scenario::SiteStop => self.site_stop().await,
            Scenario::MovingMachines => self.moving_machines().await,
        }
    }

    async fn reboot(&mut self) -> anyhow::Result<()> {
        self.tell.say(&format!("{}: 1 pod of web on each, a database, tools.", self.nodes_run("a shop")));
        let show = self.begin(0).await?;
        self.order_reboot().await?;
        self.held().await?;
        self.make_room("An operator");
        self.boots(show, 7).await?;
        Ok(())
    }

    async fn failed_drain(&mut self) -> anyhow::Result<()> {
        let limits = &mut self.machines[0].limits;
        limits["zedkube"]["drain_limit_ms"] = (DRAIN_LIMIT * 1_000).into();
        limits["zedagent"] = json!({ "ask_again_first_ms": PAUSE * 1_000 });
        let show = self.begin(0).await?;
        self.order_reboot().await?;
        self.held().await?;
        let stage = self.stage(0);
        let failed = stage.status(&[DrainStatus::FailedDrain]);
        self.tell.count(DRAIN_LIMIT, "the drain is given up", failed).await?;
        self.cluster.schedulable().await?;
        self.typed(&["status"]).await?;
        self.tell.say(&format!(
            "Nobody changes that, so the drain is given up after {DRAIN_LIMIT} s: {} stays up, and takes pods.",
            self.name()
        ));
        self.make_room(&format!("The next try is in {PAUSE} s; meanwhile an operator"));
        self.tell.count(PAUSE, "the next try", self.cordoned(" again")).await?;
        self.boots(show, 7).await?;
        Ok(())
    }

    async fn os_update(&mut self) -> anyhow::Result<()> {
        self.cluster.open_budget();
        let show = self.begin(0).await?;
        let machine = &self.machines[0];
        let mut image: Value = serde_json::from_str(LOADED)?;
        (image["ContentID"], image["DisplayName"]) = (CONTENT.into(), VERSION.into());
        let file = machine.topic_root.path(&format!("run/volumemgr/ContentTreeStatus/{CONTENT}.json"));
        store::replace(&file, image.to_string().as_bytes()).context("bring the image")?;
        let mut config = machine.config(6)?;
        config["baseos"] = json!({ "contentTreeUuid": CONTENT, "activate": true, "baseOsVersion": VERSION });
        let test = json!([{ "key": "timer.test.baseimage.update", "value": TEST.to_string() }]);
        config["configItems"] = test;
        self.tell.say(&format!("The controller wants {} to run version {VERSION} of its OS.", self.name()));
        machine.feed(&config)?;
        self.cordoned("").await?;
        let stage = self.boots(show, 6).await?;
        stage.updated(VERSION).await?;
        stage.tested(false).await?;
        self.tell.say(&format!(
            "It runs {VERSION}, which has to hold for {TEST} s; else the old version comes back."
        ));
        self.tell.count(TEST, "the new version is kept", stage.tested(true)).await?;
        self.tell.say(&format!("Version {VERSION} has held, and is kept."));
        Ok(())
    }

    async fn moving_machines(&mut self) -> anyhow::Result<()> {
        self.cluster.open_budget();
        self.cluster.add_moving_machines().await?;
        let name = self.name();
        self.tell
            .say(&format!("{name} runs two virtual machines, shop/camera and shop/till, and some pods."));
        let show = self.begin(0).await?;
        self.order_reboot().await?;
        self.cluster.leave(&self.tell).await?;
        self.boots(show, 7).await?;
        Ok(())
    }

    async fn site_stop(&mut self) -> anyhow::Result<()> {
        self.cluster.open_budget();
        self.cluster.add_machines().await?;
        let what = format!("{MACHINES} virtual machines, each with a disk of its own");
        self.tell.say(&format!("{}.", self.nodes_run(&what)));
        let mut shows = Vec::new();
        for at in 0..self.machines.len() {
            shows.push(self.begin(at).await?);
        }
        self.tell.say("An operator shuts the whole site down, for work on the mains.");
        let is_begun = self.typed(&["site", "shutdown", "--reason", "work on the mains"]).await?;
        anyhow::ensure!(is_begun, "shut the site down");
        self.cluster.phases(&self.tell, &DOWN).await?;
        let (clock, cluster) = (self.clock, &self.cluster);
        let each = self.machines.iter_mut().map(async |machine| {
            machine.stage(clock).recorded_reboot().await?;
            machine.stop().await;
            machine.cut(cluster).await
        });
        futures::future::try_join_all(each).await?;
        drop(shows);
        self.tell.say("All nodes are off, and somebody switches them on again.");
        for machine in &mut self.machines {
            machine.start(&self.cluster, self.clock)?;
        }
        self.cluster.phases(&self.tell, &UP).await?;
        self.cluster.site_over().await?;
        for at in 0..self.machines.len() {
            self.stage(at).idle_with_counter(6).await?;
            self.stage(at).settled().await?;
            self.machines[at].stop().await;
        }
        self.tell.say("The site is back: all nodes take pods, and all virtual machines run.");
        Ok(())
    }

    fn stage(&self, at: usize) -> DemoTopics {
        self.machines[at].stage(self.clock)
    }

    fn name(&self) -> &'static str {
        self.machines[0].name()
    }

    fn nodes_run(&self, what: &str) -> String {
        let count = self.machines.len();
        format!("{count} {} {what}", if count == 1 { "node runs" } else { "nodes run" })
    }

    /// The controller asks for reboot 7 of the first machine, which is cordoned.
    async fn order_reboot(&self) -> anyhow::Result<()> {
        self.tell.say(&format!("The controller wants {} to reboot.", self.name()));
        self.machines[0].order(7)?;
        self.cordoned("").await
    }

    async fn cordoned(&self, when: &str) -> anyhow::Result<()> {
        use DrainStatus::{Complete, Cordoned, DrainRetrying};
        self.stage(0).status(&[Cordoned, DrainRetrying, Complete]).await?;
        self.tell.say(&format!("{} is cordoned{when}: no new pod starts there.", self.name()));
        Ok(())
    }

    /// A budget holds a pod.
    async fn held(&self) -> anyhow::Result<()> {
        let progress = self.stage(0).blocked().await?;
        let (counts, all) = (progress.counts, self.machines.len());
        let pod = progress.blockers.first().map_or("one", |it| &it.pod);
        self.tell.say(&format!(
            "{} of {} have left; {pod} may not: its budget requires {all} of {all}.",
            counts.gone,
            number(counts.total, "pod")
        ));
        Ok(())
    }

    fn make_room(&self, who: &str) {
        let all = self.machines.len();
        self.tell.say(&format!("{who} lowers the budget: {} of {all} will do.", all - 1));
        self.cluster.open_budget();
    }

    /// Starts a machine and waits until it is idle. The first one is followed in detail.
    async fn begin(&mut self, at: usize) -> anyhow::Result<JoinSet<()>> {
        let machine = &mut self.machines[at];
        // Reboot 6 is past: the first counter is recorded, not executed.
        machine.order(6)?;
        machine.start(&self.cluster, self.clock)?;
        let (topic_root, name) = (&machine.topic_root, machine.name());
        let show =
            if at == 0 { self.tell.follow(topic_root) } else { self.tell.follow_node(topic_root, name) };
        self.stage(at).idle_with_counter(6).await?;
        Ok(show)
    }

    /// Runs this program with these words on the first machine; shown with `--verbose`.
    async fn typed(&self, words: &[&str]) -> anyhow::Result<bool> {
        let shown = if self.tell.verbose { Stdio::inherit() } else { Stdio::null() };
        if self.tell.verbose {
            self.tell.show(&format!("\n$ zedbox {}\n", words.join(" ")));
        }
        self.machines[0].typed(words, shown).await
    }

    /// Waits until the first machine has gone down by its order and booted: its node is schedulable and
    /// `counter` counts as executed.
    async fn boots(&mut self, show: JoinSet<()>, counter: u32) -> anyhow::Result<DemoTopics> {
        let name = self.name();
        self.stage(0).status(&[DrainStatus::Complete]).await?;
        self.tell.say(&format!("All pods that have to leave have left, and {name} is proved empty."));
        self.stage(0).recorded_reboot().await?;
        self.tell.say(&format!(
            "{name} reboots (only written down: the demo stops its agents, and starts them again)."
        ));
        let machine = &mut self.machines[0];
        machine.stop().await;
        drop(show);
        machine.cut(&self.cluster).await?;
        machine.start(&self.cluster, self.clock)?;
        let (stage, show) = (machine.stage(self.clock), self.tell.follow(&machine.topic_root));
        stage.idle_with_counter(counter).await?;
        self.cluster.schedulable().await?;
        stage.settled().await?;
        drop(show);
        self.tell.say(&format!("{name} is healthy again, and open: it takes pods."));
        Ok(stage)
    }
}
