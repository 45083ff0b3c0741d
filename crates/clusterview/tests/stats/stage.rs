//! A node's task of the statistics on an embedded cluster: who leads is in the hand of the test.

use std::sync::Arc;
use std::time::Duration;

use agent::{Clock, Troubles};
use clusterview::leader::Leadership;
use clusterview::stats;
use kube::Client;
use kubesim::{Sim, SimConfig};
use pubsub::TopicRoot;
use step::Mono;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::{EdgeNodeClusterConfig, KubeClusterInfo, KubeStatsState, go_json};
use tracing::subscriber::DefaultGuard;

use super::Lines;

const INFO: &str = "run/zedkube/KubeClusterInfo/global.json";
const STATE: &str = "run/zedkube/KubeStatsState/global.json";
/// A state that takes longer on the paused clock does not come.
const PATIENCE: Duration = Duration::from_hours(1);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) topic_root: TopicRoot,
    clock: Clock,
    leading: watch::Sender<Leadership>,
    pub(crate) config: watch::Sender<Option<Arc<EdgeNodeClusterConfig>>>,
    pub(crate) lines: Lines,
    _ear: DefaultGuard,
    task: JoinSet<()>,
    _root: TempDir,
}

impl Stage {
    /// The task runs, and another node leads.
    pub(crate) fn new() -> Self {
        Self::on(Sim::new(SimConfig::default()))
    }

    /// The same on the cluster of the reference's samples.
    pub(crate) fn golden() -> Self {
        let stage = Self::new();
        super::seeds::golden(&stage.sim);
        stage
    }

    pub(crate) fn on(sim: Sim) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let (leading, _) = watch::channel(Leadership::default());
        let (config, _) = watch::channel(Some(Arc::default()));
        let (lines, ear) = Lines::open();
        let (clock, task) = (Clock::new(), JoinSet::new());
        let mut stage = Self { sim, topic_root, clock, leading, config, lines, _ear: ear, task, _root: root };
        stage.start();
        stage
    }

    pub(crate) fn start(&mut self) {
        let cluster = kubeapi::ApiClient::from_client(Client::new(self.sim.service(), "default"));
        let (leading, config) = (self.leading.subscribe(), self.config.subscribe());
        let (clock, troubles) = (self.clock, Troubles::open(&self.topic_root, self.clock, "zedkube"));
        self.task.spawn(async move { stats::run(&troubles, cluster, clock, leading, config).await.unwrap() });
    }

    /// Drops the task, as the end of its agent does.
    pub(crate) async fn stop(&mut self) {
        self.task.shutdown().await;
    }

    pub(crate) fn now(&self) -> Mono {
        self.clock.now()
    }

    pub(crate) fn lead(&self, time: Duration) {
        self.leading.send_replace(Leadership { until: Some(self.now() + time) });
    }

    pub(crate) fn lose(&self) {
        self.leading.send_replace(Leadership::default());
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(Some(self.now() + time)).await;
    }

    pub(crate) fn text(&self) -> Option<String> {
        std::fs::read_to_string(self.topic_root.path(INFO)).ok()
    }

    pub(crate) fn info(&self) -> Option<KubeClusterInfo> {
        self.text().map(|text| go_json::from_slice(text.as_bytes()).unwrap())
    }

    pub(crate) fn state(&self) -> KubeStatsState {
        let text = std::fs::read_to_string(self.topic_root.path(STATE)).unwrap();
        go_json::from_slice(text.as_bytes()).unwrap()
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&KubeClusterInfo) -> bool,
    ) -> KubeClusterInfo {
        let end = self.now() + PATIENCE;
        loop {
            if let Some(info) = self.info()
                && wanted(&info)
            {
                return info;
            }
            assert!(
                self.now() < end,
                "waited for {what}; published is {:?}, {:?}",
                self.text(),
                self.state()
            );
            self.pass(LOOK).await;
        }
    }

    pub(crate) async fn until_state(&self, what: &str, wanted: impl Fn(&KubeStatsState) -> bool) {
        let end = self.now() + PATIENCE;
        while !wanted(&self.state()) {
            assert!(self.now() < end, "waited for {what}; told is {:?}", self.state());
            self.pass(LOOK).await;
        }
    }

    pub(crate) fn requests(&self) -> (usize, usize) {
        let seen = self.sim.faults().requests();
        (seen.len(), seen.iter().filter(|it| !it.uri.contains("watch=true")).count())
    }
}
