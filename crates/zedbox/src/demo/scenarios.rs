//! The scenarios of the demo.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent::Clock;
use anyhow::Context as _;
use clap::Parser as _;
use pubsub::store;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use topics::DrainStatus;

use super::cluster::DemoCluster;
use super::machine::DemoMachine;
use super::stage::DemoTopics;
use super::teller::Narrator;
use super::typed_drain;
use crate::Exit;
use crate::args::{Scenario, SiteCommand};
use crate::site_cmd;

/// volumemgr's status of a downloaded image.
const LOADED: &str = include_str!("../../../../tests/golden/ContentTreeStatus/loaded.json");
const CONTENT: &str = "5c1f6e0a-3a5e-4a80-9d6f-2b9f5d6e7a01";
const VERSION: &str = "14.5.1-lts-kubevirt-amd64";

pub(super) struct DemoWorld {
    pub(super) clock: Clock,
    pub(super) tell: Narrator,
    pub(super) cluster: DemoCluster,
    pub(super) machines: Vec<DemoMachine>,
    pub(super) root: PathBuf,
}

pub(super) fn title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Reboot => "one drained reboot",
        Scenario::FailedDrain => "a reboot whose drain fails first",
        Scenario::OsUpdate => "an OS update behind a drain",
        Scenario::SiteStop => "a whole site switched off, and on again",
        Scenario::MovingMachines => "virtual machines that move before their node reboots",
    }
}

#[derive(clap::Parser)]
struct SiteLine {
    #[command(flatten)]
    site: SiteCommand,
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
        let show = self.begin(0).await?;
        self.order_reboot()?;
        self.stage(0).blocked().await?;
        self.tell.say("demo", "an operator makes room: the budget shop/web wants 2 of 3 from now on");
        self.cluster.open_budget();
        self.boots(show, 7).await?;
        self.tell.say("demo", "the node is back, healthy and schedulable; reboot 7 counts as executed");
        Ok(())
    }

    async fn failed_drain(&mut self) -> anyhow::Result<()> {
        let limits = &mut self.machines[0].limits;
        limits["zedkube"]["drain_limit_ms"] = 10_000.into();
        limits["zedagent"] = json!({ "ask_again_first_ms": 5_000 });
        let show = self.begin(0).await?;
        self.order_reboot()?;
        self.stage(0).blocked().await?;
        self.tell.say("demo", "nobody opens the budget; a drain may take 10 s here (drain_limit_ms)");
        self.stage(0).status(DrainStatus::FailedDrain).await?;
        self.cluster.schedulable().await?;
        self.status().await?;
        self.tell.say(
            "demo",
            "the drain failed: the machine stays up, and its node takes pods; after 5 s zedagent requests a drain again",
        );
        self.tell
            .say("demo", "meanwhile an operator makes room: the budget shop/web wants 2 of 3 from now on");
        self.cluster.open_budget();
        self.boots(show, 7).await?;
        self.tell
            .say("demo", "the second drain was complete; the node is back, and reboot 7 counts as executed");
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
        // The shortest possible test; until its end the machine does not go down for anything else.
        config["configItems"] = json!([{ "key": "timer.test.baseimage.update", "value": "30" }]);
        self.tell.say("demo", &format!("the controller wants OS image {VERSION} activated"));
        machine.feed(&config)?;
        let stage = self.boots(show, 6).await?;
        stage.updated(VERSION).await?;
        stage.tested(false).await?;
        self.tell.say("demo", &format!("the machine runs {VERSION}, which is tested for 30 s"));
        stage.tested(true).await?;
        let done = format!("the image {VERSION} has passed its test; the node is healthy and schedulable");
        self.tell.say("demo", &done);
        Ok(())
    }

    async fn moving_machines(&mut self) -> anyhow::Result<()> {
        self.cluster.open_budget();
        self.cluster.add_moving_machines().await?;
        let show = self.begin(0).await?;
        let before = self.cluster.guests();
        self.tell.say("demo", &format!("virtual machines: {}", places(&before)));
        self.order_reboot()?;
        self.stage(0).recorded_reboot().await?;
        let after = self.cluster.guests();
        let is_moved = |(name, guest): (&String, &(String, String))| {
            after.get(name).is_some_and(|it| it.0 == guest.0 && it.1 != guest.1)
        };
        let how =
            if before.iter().all(is_moved) { "moved while they ran" } else { "NOT moved while they ran" };
        self.tell.say("demo", &format!("{how}: {}", places(&after)));
        self.boots(show, 7).await?;
        self.tell.say("demo", "the node is back, healthy and schedulable; reboot 7 counts as executed");
        Ok(())
    }

    async fn site_stop(&mut self) -> anyhow::Result<()> {
        self.cluster.open_budget();
        self.cluster.add_machines().await?;
        let mut shows = JoinSet::new();
        for at in 0..self.machines.len() {
            shows = join(shows, self.begin(at).await?);
        }
        self.tell.show("\n$ zedbox site shutdown --reason \"work on the mains\"\n");
        let (kubeconfig, root) = (self.root.join("kubeconfig"), self.machines[0].topic_root.path(""));
        let words = ["site", "shutdown", "--reason", "work on the mains"].map(std::ffi::OsStr::new);
        let place = ["--kubeconfig".as_ref(), kubeconfig.as_os_str(), "--root".as_ref(), root.as_os_str()];
        let line = SiteLine::try_parse_from(words.into_iter().chain(place))?;
        anyhow::ensure!(site_cmd::run(&line.site).await == Exit::Done, "shut the site down");
        self.tell.show("\n");
        let (clock, tell, cluster) = (self.clock, &self.tell, &self.cluster);
        let each = self.machines.iter_mut().map(async |machine| {
            DemoTopics::open(&machine.topic_root, clock).recorded_reboot().await?;
            tell.say(machine.name(), "is switched off");
            machine.stop().await;
            machine.cut(cluster).await
        });
        futures::future::try_join_all(each).await?;
        drop(shows);
        self.tell.say("demo", "all machines are off; somebody switches them on again");
        for machine in &mut self.machines {
            machine.start(&self.cluster, self.clock)?;
        }
        self.cluster.site_over().await?;
        for at in 0..self.machines.len() {
            self.stage(at).idle_with_counter(6).await?;
            self.stage(at).settled().await?;
            self.machines[at].stop().await;
        }
        self.tell.say("demo", "the site is back: all nodes take pods, all virtual machines run");
        Ok(())
    }

    fn stage(&self, at: usize) -> DemoTopics {
        DemoTopics::open(&self.machines[at].topic_root, self.clock)
    }

    /// The controller asks for reboot 7 of the first machine.
    fn order_reboot(&self) -> anyhow::Result<()> {
        self.tell.say(
            "demo",
            "the controller asks for a reboot: counter 6 becomes 7 in persist/config/edge-dev-config.json",
        );
        self.machines[0].feed(&self.machines[0].config(7)?)
    }

    /// Starts a machine and waits until it is idle. The first one is followed in detail.
    async fn begin(&mut self, at: usize) -> anyhow::Result<JoinSet<()>> {
        let machine = &mut self.machines[at];
        // Reboot 6 is past: the first counter is recorded, not executed.
        machine.feed(&machine.config(6)?)?;
        machine.start(&self.cluster, self.clock)?;
        let (topic_root, name) = (&machine.topic_root, machine.name());
        let show =
            if at == 0 { self.tell.follow(topic_root) } else { self.tell.follow_node(topic_root, name) };
        self.stage(at).idle_with_counter(6).await?;
        Ok(show)
    }

    /// `zedbox drain status`.
    async fn status(&self) -> anyhow::Result<()> {
        self.tell.show("\n$ zedbox drain status\n");
        typed_drain(&self.machines[0], "status").await?;
        self.tell.show("\n");
        Ok(())
    }

    /// Waits until the first machine has gone down by its order and booted: its node is schedulable and
    /// `counter` counts as executed.
    async fn boots(&mut self, show: JoinSet<()>, counter: u32) -> anyhow::Result<DemoTopics> {
        self.stage(0).recorded_reboot().await?;
        self.tell.say("demo", "stand-in reboot: the node goes away, run/ is wiped, a new boot begins");
        let machine = &mut self.machines[0];
        machine.stop().await;
        drop(show);
        machine.cut(&self.cluster).await?;
        machine.start(&self.cluster, self.clock)?;
        let (stage, show) =
            (DemoTopics::open(&machine.topic_root, self.clock), self.tell.follow(&machine.topic_root));
        stage.idle_with_counter(counter).await?;
        self.cluster.schedulable().await?;
        stage.settled().await?;
        drop(show);
        Ok(stage)
    }
}

fn places(guests: &BTreeMap<String, (String, String)>) -> String {
    guests.iter().map(|(name, (_, node))| format!("{name} on {node}")).collect::<Vec<_>>().join(", ")
}

fn join(mut all: JoinSet<()>, one: JoinSet<()>) -> JoinSet<()> {
    all.spawn(async move {
        one.join_all().await;
    });
    all
}
