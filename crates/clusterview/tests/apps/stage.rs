//! A node's task of the applications, with configs in files and a pipe that is read.

use std::ops::Deref;
use std::time::Duration;

use agent::{AgentContext, Stopper};
use clusterview::apps::{self, Pipe};
use pubsub::store;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::{ENClusterAppStatus, go_json};

use super::Said;
use crate::stage::{self, APPS, own_node};

/// A native application: its pods begin with `web-d4f3a-0`.
pub(crate) const WEB: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
pub(crate) const POD: &str = "web-d4f3a-0-x7k2p";
/// A virtual machine: its launchers begin with `virt-launcher-ubuntu-b3e2f-0`.
pub(crate) const VM: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
pub(crate) const LAUNCHER: &str = "virt-launcher-ubuntu-b3e2f-0ab1cd-x7k2p";

pub(crate) struct Stage {
    node: stage::Stage,
    pub(crate) said: Said,
    agent: Option<(Stopper, JoinSet<()>)>,
}

impl Deref for Stage {
    type Target = stage::Stage;

    fn deref(&self) -> &stage::Stage {
        &self.node
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let node = stage::Stage::new();
        std::fs::create_dir_all(node.context.topic_root.path("run/zedagent/AppInstanceConfig")).unwrap();
        Self { node, said: Said::default(), agent: None }
    }

    /// The native application is configured, its designated node is this one, and its pod is here.
    pub(crate) fn of_web() -> Self {
        let stage = Self::new();
        stage.configure(WEB, "Web", 4, true);
        stage.pod(POD, "n1", "Running", &["web"]);
        stage
    }

    /// The same, and its status was published.
    pub(crate) async fn web() -> Self {
        let mut stage = Self::of_web();
        stage.start();
        stage.until("the application to run", |_| stage.kube_status(WEB) == Some(4)).await;
        stage
    }

    /// The config of an application; mode 4 is native.
    pub(crate) fn configure(&self, uuid: &str, display: &str, mode: u8, designated: bool) {
        let config = json!({
            "UUIDandVersion": { "UUID": uuid, "Version": "1" }, "DisplayName": display,
            "FixedResources": { "VirtualizationMode": mode, "VncDisplay": 1 },
            "IsDesignatedNodeID": designated,
        });
        self.write(&format!("run/zedagent/AppInstanceConfig/{uuid}.json"), &config);
    }

    pub(crate) fn unconfigure(&self, uuid: &str) {
        let file = format!("run/zedagent/AppInstanceConfig/{uuid}.json");
        assert!(store::remove(&self.context.topic_root.path(&file)).unwrap());
    }

    pub(crate) fn pod(&self, name: &str, node: &str, phase: &str, containers: &[&str]) {
        let (beside, containers): (Vec<&str>, Vec<&str>) =
            containers.iter().partition(|it| **it == "guest-console-log");
        let list =
            |names: &[&str]| names.iter().map(|it| json!({ "name": it, "image": "i" })).collect::<Vec<_>>();
        self.sim.apply(
            "pods",
            json!({
                "metadata": { "name": name, "namespace": APPS },
                "spec": { "nodeName": node, "containers": list(&containers), "initContainers": list(&beside) },
                "status": { "phase": phase },
            }),
        );
        for container in beside.iter().chain(&containers) {
            self.run(name, container, 0);
        }
    }

    /// The pod's status reports this run of the container.
    pub(crate) fn run(&self, pod: &str, container: &str, restarts: u32) {
        self.sim.run_container(APPS, pod, container, restarts, &json!({ "running": {} }));
    }

    pub(crate) fn start(&mut self) {
        let pipe = Pipe::new(self.said.clone());
        self.start_into(pipe);
    }

    pub(crate) fn start_into(&mut self, pipe: Pipe) {
        let (stopper, context) = AgentContext::alone(&self.context.topic_root, self.context.clock, "b1");
        let (cluster, troubles, wanted) = (self.cluster(), self.troubles.clone(), watch::Sender::default());
        let mut task = JoinSet::new();
        task.spawn(async move {
            apps::run(&context, &troubles, cluster, own_node("n1"), wanted, pipe).await.unwrap();
        });
        self.agent = Some((stopper, task));
    }

    /// Kills it at any await.
    pub(crate) async fn kill(&mut self) {
        let (_stopper, mut task) = self.agent.take().unwrap();
        task.shutdown().await;
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn leave(&mut self) {
        let (stopper, mut task) = self.agent.take().unwrap();
        stopper.stop();
        task.join_next().await.unwrap().unwrap();
    }

    pub(crate) fn published(&self, uuid: &str) -> Option<String> {
        self.text(&format!("run/zedkube/ENClusterAppStatus/{uuid}.json"))
    }

    pub(crate) fn status(&self, uuid: &str) -> Option<ENClusterAppStatus> {
        self.published(uuid).map(|text| go_json::from_slice(text.as_bytes()).unwrap())
    }

    pub(crate) fn kube_status(&self, uuid: &str) -> Option<u8> {
        self.status(uuid).map(|status| status.app_kube_status.number())
    }

    pub(crate) async fn until_status(&self, uuid: &str, number: u8) -> Duration {
        self.until(&format!("status {number}"), |_| self.kube_status(uuid) == Some(number)).await
    }
}
