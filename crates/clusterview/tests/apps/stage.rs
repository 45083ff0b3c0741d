//! A node's task of the applications on an embedded cluster, with configs in files and a pipe that is read.

use std::time::Duration;

use agent::{AgentContext, Clock, Stopper, Troubles};
use clusterview::apps::{Apps, Pipe};
use kube::Client;
use kubeapi::NodeName;
use kubeapi::OwnNode;
use kubesim::{Sim, SimConfig};
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use step::Mono;
use tempfile::TempDir;
use tokio::task::JoinSet;
use topics::{ENClusterAppStatus, go_json};
use tracing::subscriber::DefaultGuard;

use super::Said;
use crate::stats::Lines;

pub(crate) const APPS: &str = "eve-kube-app";
/// A native application: its pods begin with `web-d4f3a-0`.
pub(crate) const WEB: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
pub(crate) const POD: &str = "web-d4f3a-0-x7k2p";
/// A virtual machine: its launchers begin with `virt-launcher-ubuntu-b3e2f-0`.
pub(crate) const VM: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
pub(crate) const LAUNCHER: &str = "virt-launcher-ubuntu-b3e2f-0ab1cd-x7k2p";
/// A state that takes longer on the paused clock does not come.
const PATIENCE: Duration = Duration::from_mins(20);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) topic_root: TopicRoot,
    clock: Clock,
    pub(crate) lines: Lines,
    _ear: DefaultGuard,
    pub(crate) said: Said,
    agent: Option<(Stopper, JoinSet<()>)>,
    _root: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (lines, ear) = Lines::open();
        let stage = Self {
            sim: Sim::new(SimConfig::default()),
            topic_root,
            clock: Clock::new(),
            lines,
            _ear: ear,
            said: Said::default(),
            agent: None,
            _root: root,
        };
        std::fs::create_dir_all(stage.topic_root.path("run/zedagent/AppInstanceConfig")).unwrap();
        stage
    }

    /// The native application is configured, its designated node is this one, and it runs here.
    pub(crate) async fn web() -> Self {
        let mut stage = Self::new();
        stage.configure(WEB, "Web", 4, true);
        stage.pod(POD, "n1", "Running", &["web"]);
        stage.start();
        stage.until("the application to run", |stage| stage.kube_status(WEB) == Some(4)).await;
        stage
    }

    fn write(&self, path: &str, value: &Value) {
        store::replace(&self.topic_root.path(path), value.to_string().as_bytes()).unwrap();
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
        let file = self.topic_root.path(&format!("run/zedagent/AppInstanceConfig/{uuid}.json"));
        assert!(store::remove(&file).unwrap());
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
        let (stopper, context) = AgentContext::alone(&self.topic_root, self.clock, "b1");
        let cluster = kubeapi::ApiClient::from_client(Client::new(self.sim.service(), "default"));
        let own_node = OwnNode::default();
        own_node.set(NodeName::parse("n1").unwrap(), String::new());
        let troubles = Troubles::open(&self.topic_root, self.clock, "zedkube");
        let apps = Apps::open(&context, &troubles, cluster, own_node, tokio::sync::watch::Sender::default())
            .unwrap();
        let mut task = JoinSet::new();
        task.spawn(apps.run(pipe));
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

    pub(crate) fn now(&self) -> Mono {
        self.clock.now()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(Some(self.now() + time)).await;
    }

    pub(crate) fn text(&self, uuid: &str) -> Option<String> {
        let file = self.topic_root.path(&format!("run/zedkube/ENClusterAppStatus/{uuid}.json"));
        std::fs::read_to_string(file).ok()
    }

    pub(crate) fn status(&self, uuid: &str) -> Option<ENClusterAppStatus> {
        self.text(uuid).map(|text| go_json::from_slice(text.as_bytes()).unwrap())
    }

    pub(crate) fn kube_status(&self, uuid: &str) -> Option<u8> {
        self.status(uuid).map(|status| status.app_kube_status.number())
    }

    /// Waits until it is as wanted; returns the time.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) -> Duration {
        let began = self.now();
        while !wanted(self) {
            let said = self.said.messages();
            assert!(self.now() < began + PATIENCE, "waited for {what}: {said:?}\n{}", self.lines.text());
            self.pass(LOOK).await;
        }
        self.now().since(began)
    }

    /// Requests so far whose path holds `path`, and how many of them were no watch.
    pub(crate) fn requests(&self, path: &str) -> (usize, usize) {
        let seen: Vec<_> =
            self.sim.faults().requests().into_iter().filter(|it| it.uri.contains(path)).collect();
        (seen.len(), seen.iter().filter(|it| !it.uri.contains("watch=true")).count())
    }
}
