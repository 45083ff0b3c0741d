//! One machine of the embedded cluster: its files, its power, and its agents as tasks of this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use agent::{Clock, device, partitions};
use anyhow::Context as _;
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::DemoCluster;
use super::nodes::{NODES, address};
use super::stage::DemoTopics;
use crate::limits::Limits;
use crate::supervisor::{AgentsSetup, Crew};

/// The reference's command of the controller: reboot counter 7.
const REBOOT: &str = include_str!("../../../../tests/golden/EdgeDevConfig/cluster-reboot.json");
/// Below the root of each machine.
pub(super) const KUBECONFIG: &str = "run/.kube/k3s/k3s.yaml";

/// A device's waits, shortened so that the demo ends within half a minute, as a limits file. Rules and counts
/// stay.
pub(super) fn brisk() -> Value {
    json!({
        "nodeagent": { "min_reboot_delay_ms": 1_000 },
        "zedkube": { "uncordon_poll_ms": 500, "gate_hold_ms": 500, "gate_clock_limit_ms": 5_000, "site_step_ms": 500 },
    })
}

pub(super) struct DemoMachine {
    /// Index in [`NODES`].
    pub(super) at: usize,
    /// Nodes of its cluster.
    nodes: usize,
    root: PathBuf,
    pub(super) topic_root: TopicRoot,
    /// Its agents' limits file.
    pub(super) limits: Value,
    crew: Option<Crew>,
}

impl DemoMachine {
    /// Switched off, and never run before.
    pub(super) fn new(dir: &Path, at: usize, nodes: usize) -> anyhow::Result<Self> {
        let root = dir.join(NODES[at].0);
        // The gate after a boot reads it.
        store::replace(&root.join("dev/kmsg"), b"")?;
        store::replace(&root.join("etc/eve-release"), b"14.5.0-lts-kubevirt-amd64")?;
        let topic_root =
            TopicRoot::open(&root).with_context(|| format!("open the root {}", root.display()))?;
        Ok(Self { at, nodes, root, topic_root, limits: brisk(), crew: None })
    }

    pub(super) fn name(&self) -> &'static str {
        NODES[self.at].0
    }

    /// In the cluster.
    pub(super) fn address(&self) -> String {
        address(self.at)
    }

    /// The controller's config of this machine, with reboot `counter`.
    pub(super) fn config(&self, counter: u32) -> anyhow::Result<Value> {
        let mut config: Value = serde_json::from_str(REBOOT)?;
        (config["deviceName"], config["id"]["uuid"]) = (self.name().into(), NODES[self.at].1.into());
        config["reboot"]["counter"] = counter.into();
        config["cluster"]["clusterIpPrefix"] = format!("{}/8", self.address()).into();
        config["cluster"]["masterNodeUuids"] = NODES.iter().take(self.nodes).map(|it| it.1).collect();
        config["cluster"]["joinServerIp"] = address(0).into();
        Ok(config)
    }

    /// The controller wants reboot `counter`.
    pub(super) fn order(&self, counter: u32) -> anyhow::Result<()> {
        self.feed(&self.config(counter)?)
    }

    pub(super) fn stage(&self, clock: Clock) -> DemoTopics {
        DemoTopics::open(&self.topic_root, clock)
    }

    pub(super) fn feed(&self, config: &Value) -> anyhow::Result<()> {
        let file = self.topic_root.path("persist/config/edge-dev-config.json");
        store::replace(&file, config.to_string().as_bytes()).context("write the device config")
    }

    /// Starts a boot.
    pub(super) fn power_on(&mut self, cluster: &DemoCluster) -> anyhow::Result<()> {
        store::replace(&self.topic_root.path(KUBECONFIG), cluster.server.kubeconfig().as_bytes())?;
        cluster.sim.power(self.name(), true);
        Ok(())
    }

    pub(super) fn start(&mut self, cluster: &DemoCluster, clock: Clock) -> anyhow::Result<()> {
        self.power_on(cluster)?;
        let device = device::DeviceChoice::Record;
        let setting = AgentsSetup {
            boot_id: device.boot_id(&self.topic_root)?,
            cluster: kubeapi::ApiClient::from_kubeconfig(self.topic_root.path(KUBECONFIG)),
            limits: Limits::of(self.limits.clone())?,
            topic_root: self.topic_root.clone(),
            clock,
            device,
            partitions: partitions::PartitionsChoice::Record,
            current_partition: None,
        };
        self.crew = Some(Crew::start(&crate::args::Agent::ALL, &setting));
        Ok(())
    }

    /// Runs this program with these words on it; returns whether it ended with 0.
    pub(super) async fn typed(&self, words: &[&str], shown: Stdio) -> anyhow::Result<bool> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(words).arg("--root").arg(&self.root).env_remove("KUBECONFIG").stdout(shown);
        let ended = command.status().await.with_context(|| format!("run zedbox {}", words.join(" ")))?;
        Ok(ended.success())
    }

    /// Stops its agents; power stays on.
    pub(super) async fn stop(&mut self) {
        if let Some(crew) = self.crew.take() {
            crew.stop().await;
        }
    }

    /// Without any clean-up, and `/run` is lost.
    pub(super) async fn cut(&mut self, cluster: &DemoCluster) -> anyhow::Result<()> {
        if let Some(crew) = self.crew.take() {
            crew.cut().await;
        }
        cluster.sim.power(self.name(), false);
        fs::remove_dir_all(self.root.join("run")).context("wipe run/ as a power cut does")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_gets_a_config_of_its_own_that_wants_what_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let config = DemoMachine::new(dir.path(), 1, 3).unwrap().config(6).unwrap();
        assert_eq!((&config["deviceName"], &config["reboot"]["counter"]), (&"edge-node-2".into(), &6.into()));
        assert_eq!(config["cluster"]["clusterIpPrefix"], "127.0.0.2/8");
        assert!(Limits::of(brisk()).is_ok());
    }
}
