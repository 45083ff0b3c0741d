//! The stage of whole drains: a cluster of three nodes with controllers, and an attempt with what can be seen of it.

pub(crate) mod machines;
pub(crate) mod order;

use std::pin::Pin;
use std::time::Duration;

use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::node::LastSeen;
use kubenodeop::node::boot::BootWatch;
use kubenodeop::node::gate::LayerLimits;
use kubenodeop::{
    AttemptFailure, AttemptOutcome, AttemptRules, Cordoned, DrainSuccess, Progress, WatchedBlockers, drain,
    node, until_changed,
};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub(crate) use order::{DEVICE, clock, n1, order, owner};

/// n1 after a boot of its device.
pub(crate) fn boot(device_uuid: &str) -> BootWatch {
    BootWatch {
        node: n1(),
        device_uuid: device_uuid.to_owned(),
        boot_id: "b2".to_owned(),
        limits: LayerLimits::default(),
        lost: Vec::new(),
        addresses: vec!["10.0.0.1".to_owned()],
        seen: LastSeen::default(),
    }
}

pub(crate) fn on_n1(pods: &[Value]) -> Vec<String> {
    let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == "n1");
    here.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

pub(crate) fn are_ready(pods: &[Value], count: usize) -> bool {
    pods.len() == count && pods.iter().all(|pod| pod["status"]["conditions"][0]["status"] == "True")
}

/// Three nodes, with a Deployment behind a budget, a `StatefulSet`, a `DaemonSet` and, on n1, two bare pods.
pub(crate) async fn cluster(least: u64) -> (Sim, ApiClient) {
    cluster_with(least, SimConfig::default()).await
}

pub(crate) async fn cluster_with(least: u64, config: SimConfig) -> (Sim, ApiClient) {
    let sim = Sim::new(config);
    sim.add_nodes(3);
    sim.add_deployment("shop", "web", 3);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": least }));
    sim.add_stateful_set("shop", "db", 3);
    sim.add_daemon_set("kube-system", "agent");
    sim.until("pods", |pods| are_ready(pods, 9)).await;
    sim.add_bare_pod("tools", "shell", "n1");
    sim.add_bare_pod("tools", "import", "n1");
    sim.until("pods", |pods| are_ready(pods, 11)).await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

pub(crate) struct Attempt {
    pub(crate) future: Pin<Box<dyn Future<Output = AttemptOutcome> + Send>>,
    pub(crate) progress: watch::Receiver<Progress>,
}

impl Attempt {
    pub(crate) fn start(cluster: &ApiClient) -> Self {
        Self::by(cluster, AttemptRules::default())
    }

    pub(crate) fn by(cluster: &ApiClient, rules: AttemptRules) -> Self {
        let (sender, progress) = watch::channel(Progress::default());
        let cluster = cluster.clone();
        let order = order(rules);
        let future = async move { drain(&cluster, &order, clock(), &sender).await };
        Self { future: Box::pin(future), progress }
    }

    pub(crate) async fn until(&mut self, so: impl FnMut(&Progress) -> bool) -> Progress {
        tokio::select! {
            outcome = &mut self.future => panic!("ended too early: {outcome:?}"),
            seen = self.progress.wait_for(so) => seen.unwrap().clone(),
        }
    }

    pub(crate) async fn pass(&mut self, time: Duration) {
        tokio::select! {
            outcome = &mut self.future => panic!("ended too early: {outcome:?}"),
            () = sleep(time) => {}
        }
    }

    /// It fails: why, and with what it knew at its end.
    pub(crate) async fn failed(self) -> AttemptFailure {
        *self.future.await.unwrap_err()
    }

    pub(crate) async fn success(self) -> DrainSuccess {
        self.future.await.unwrap_or_else(|failure| panic!("{}", failure.reason))
    }

    pub(crate) async fn drained(self) -> (u32, u32) {
        let DrainSuccess { evicted, recordons, .. } = self.success().await;
        (evicted, recordons)
    }

    /// Drained, with what a rule has left in place.
    pub(crate) async fn left(self) -> Vec<String> {
        self.success().await.left
    }
}

/// What wakes the next attempt within so long of this change; for `quiet` before it nothing has.
pub(crate) async fn woken(
    cluster: &ApiClient,
    watched: &WatchedBlockers,
    quiet: u64,
    change: impl FnOnce(),
    within: u64,
) -> String {
    let node = n1();
    let woken = until_changed(cluster, &node, watched);
    tokio::pin!(woken);
    assert!(timeout(Duration::from_secs(quiet), &mut woken).await.is_err(), "nothing has changed");
    change();
    timeout(Duration::from_secs(within), woken).await.unwrap()
}

pub(crate) async fn cordoned(cluster: &ApiClient) {
    assert_eq!(node::cordon(cluster, &n1(), DEVICE, &owner()).await.unwrap(), Cordoned::Written);
}
