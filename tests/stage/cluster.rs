//! The cluster of a scenario: our node among others, and on it a budget-guarded application, a DaemonSet's pod and
//! a bare pod. Everything is done through the API, as another client would.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};

/// Our node, by the name of the golden config's device.
const NODE: &str = "edge-node-1";
const NODES: [(&str, &str); 3] = [
    (NODE, "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
];
/// Namespace of the guarded application and its budget.
const SHOP: &str = "shop";
const BUDGET: &str = "web";

/// A cluster with our node.
pub struct Cluster {
    sim: Sim,
    client: Client,
}

impl Cluster {
    /// The embedded one: three nodes, a Deployment of three behind a budget, a StatefulSet, a DaemonSet, a bare pod.
    pub async fn embedded() -> Self {
        let config = SimConfig {
            stop_time: Duration::from_millis(30),
            start_time: Duration::from_millis(20),
            ..SimConfig::default()
        };
        let sim = Sim::new(config);
        for (name, uuid) in NODES {
            sim.add_node(name, uuid);
        }
        sim.add_deployment(SHOP, "web", 3);
        sim.add_budget(SHOP, BUDGET, "web", &json!({ "minAvailable": 1 }));
        sim.add_stateful_set(SHOP, "db", 2);
        sim.add_daemon_set("kube-system", "log-agent");
        running(&sim, 8).await;
        // Last, so that the workloads above are spread over all nodes.
        sim.add_bare_pod("tools", "debug-shell", NODE);
        running(&sim, 9).await;
        Self { client: Client::new(sim.service(), "default"), sim }
    }

    /// The embedded cluster behind it.
    #[must_use]
    pub const fn sim(&self) -> &Sim {
        &self.sim
    }

    /// The way in for zedkube, without a network in between.
    #[must_use]
    pub fn handle(&self) -> kubeops::Cluster {
        kubeops::Cluster::from_client(self.client.clone())
    }

    async fn node(&self) -> Node {
        Api::all(self.client.clone()).get(NODE).await.unwrap()
    }

    /// Whether our node is unschedulable now.
    pub async fn cordoned(&self) -> bool {
        self.node().await.spec.and_then(|spec| spec.unschedulable).unwrap_or_default()
    }

    /// Somebody cordons our node with kubectl.
    pub async fn cordon_by_hand(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Our node loses power.
    pub fn node_down(&self) {
        self.sim.power(NODE, false);
    }

    /// Our node gets power.
    pub fn node_up(&self) {
        self.sim.power(NODE, true);
    }

    /// Waits until our node is schedulable.
    pub async fn until_schedulable(&self) {
        self.until_node(|node| node["spec"]["unschedulable"] != true).await;
    }

    /// Waits until our node is Ready.
    pub async fn until_ready(&self) {
        self.until_node(|node| node["status"]["conditions"][0]["status"] == "True").await;
    }

    async fn until_node(&self, wanted: impl Fn(&Value) -> bool) {
        self.sim
            .until("nodes", |nodes| nodes.iter().any(|it| it["metadata"]["name"] == NODE && wanted(it)))
            .await;
    }

    async fn want_available(&self, count: u32) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), SHOP);
        let patch = Patch::Merge(json!({ "spec": { "minAvailable": count } }));
        budgets.patch(BUDGET, &PatchParams::default(), &patch).await.unwrap();
    }

    /// No pod of the guarded application may go.
    pub async fn block(&self) {
        self.want_available(3).await;
    }

    /// Two of the guarded application may go.
    pub async fn unblock(&self) {
        self.want_available(1).await;
    }

    /// Pods on our node that a drain takes away.
    pub async fn pods_to_leave(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
        let leaves = |pod: &Pod| pod.owner_references().iter().all(|owner| owner.kind != "DaemonSet");
        pods.list(&here).await.unwrap().items.into_iter().filter(leaves).map(|it| it.name_any()).collect()
    }

    /// How many evictions were accepted.
    #[must_use]
    pub fn evictions(&self) -> usize {
        self.sim.faults().evicted().len()
    }

    /// UIDs of pods whose eviction was accepted more than once.
    #[must_use]
    pub fn evicted_twice(&self) -> Vec<String> {
        let mut all = self.sim.faults().evicted();
        all.sort();
        let mut twice: Vec<String> =
            all.windows(2).filter(|pair| pair[0] == pair[1]).map(|it| it[0].clone()).collect();
        twice.dedup();
        twice
    }
}

async fn running(sim: &Sim, count: usize) {
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    sim.until("pods", |pods| pods.len() == count && pods.iter().all(ready)).await;
}
