//! A node's task of the statistics: who leads is in the hand of the test.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use clusterview::leader::Leadership;
use clusterview::stats;
use kubesim::Sim;
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::{EdgeNodeClusterConfig, KubeClusterInfo, KubeStatsState, go_json};

use crate::stage;

pub(crate) const INFO: &str = "run/zedkube/KubeClusterInfo/global.json";
const STATE: &str = "run/zedkube/KubeStatsState/global.json";

pub(crate) struct Stage {
    node: stage::Stage,
    leading: watch::Sender<Leadership>,
    pub(crate) config: watch::Sender<Option<Arc<EdgeNodeClusterConfig>>>,
    task: JoinSet<()>,
}

impl Deref for Stage {
    type Target = stage::Stage;

    fn deref(&self) -> &stage::Stage {
        &self.node
    }
}

impl Stage {
    /// The task runs, and another node leads.
    pub(crate) fn new() -> Self {
        Self::of(stage::Stage::new())
    }

    /// The same on the cluster of the reference's samples.
    pub(crate) fn golden() -> Self {
        let stage = Self::new();
        super::seeds::golden(&stage.sim);
        stage
    }

    pub(crate) fn on(sim: Sim) -> Self {
        Self::of(stage::Stage::on(sim))
    }

    fn of(mut node: stage::Stage) -> Self {
        node.patience = Duration::from_hours(1);
        let (leading, config) = (watch::Sender::default(), watch::Sender::new(Some(Arc::default())));
        let mut stage = Self { node, leading, config, task: JoinSet::new() };
        stage.start();
        stage
    }

    pub(crate) fn start(&mut self) {
        let (cluster, clock, troubles) = (self.cluster(), self.context.clock, self.troubles.clone());
        let (leading, config) = (self.leading.subscribe(), self.config.subscribe());
        self.task.spawn(async move { stats::run(&troubles, cluster, clock, leading, config).await.unwrap() });
    }

    /// Drops the task, as the end of its agent does.
    pub(crate) async fn stop(&mut self) {
        self.task.shutdown().await;
    }

    pub(crate) fn lead(&self, time: Duration) {
        self.leading.send_replace(Leadership { until: Some(self.now() + time) });
    }

    pub(crate) fn lose(&self) {
        self.leading.send_replace(Leadership::default());
    }

    pub(crate) fn info(&self) -> Option<KubeClusterInfo> {
        self.text(INFO).map(|text| go_json::from_slice(text.as_bytes()).unwrap())
    }

    pub(crate) fn state(&self) -> KubeStatsState {
        go_json::from_slice(self.text(STATE).unwrap().as_bytes()).unwrap()
    }

    pub(crate) async fn until_info(
        &self,
        what: &str,
        wanted: impl Fn(&KubeClusterInfo) -> bool,
    ) -> KubeClusterInfo {
        self.until(what, |_| self.info().is_some_and(|info| wanted(&info))).await;
        self.info().unwrap()
    }

    /// Leads, and waits for the first publication.
    pub(crate) async fn reports(&self, time: Duration) -> KubeClusterInfo {
        self.lead(time);
        self.until_info("the cluster", |_| true).await
    }

    pub(crate) async fn until_state(&self, what: &str, wanted: impl Fn(&KubeStatsState) -> bool) {
        self.until(what, |_| wanted(&self.state())).await;
    }
}
