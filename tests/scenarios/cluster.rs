//! The cluster of a scenario: three nodes, a budget-guarded Deployment, a StatefulSet, a DaemonSet, bare pods.

use kube::Client;
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};

/// Our node, by the name of the golden config's device.
const NODE: &str = "edge-node-1";
const NODES: [(&str, &str); 3] = [
    (NODE, "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
];
const BUDGETS: &str = "policy/poddisruptionbudgets";

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
}

impl Cluster {
    pub(crate) async fn shop() -> Self {
        let config = SimConfig {
            stop_time: std::time::Duration::from_millis(30),
            start_time: std::time::Duration::from_millis(20),
            ..SimConfig::default()
        };
        let sim = Sim::new(config);
        for (name, uuid) in NODES {
            sim.add_node(name, uuid);
        }
        sim.add_deployment("shop", "web", 3);
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 1 }));
        sim.add_stateful_set("shop", "db", 2);
        sim.add_daemon_set("kube-system", "log-agent");
        let cluster = Self { sim };
        cluster.running(8).await;
        // Last, so that the workloads above are spread over all nodes.
        cluster.sim.add_bare_pod("tools", "debug-shell", NODE);
        cluster.running(9).await;
        cluster
    }

    async fn running(&self, count: usize) {
        let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
        self.sim.until("pods", |pods| pods.len() == count && pods.iter().all(ready)).await;
    }

    /// The way in for zedkube, without a network in between.
    pub(crate) fn handle(&self) -> kubeops::Cluster {
        kubeops::Cluster::from_client(Client::new(self.sim.service(), "default"))
    }

    fn node(&self) -> Value {
        self.sim.get("nodes", "", NODE).unwrap()
    }

    pub(crate) fn cordoned(&self) -> bool {
        self.node()["spec"]["unschedulable"] == true
    }

    /// Somebody cordons the node with kubectl.
    pub(crate) fn cordon_by_hand(&self) {
        self.sim.edit("nodes", "", NODE, |node| node["spec"]["unschedulable"] = true.into());
    }

    pub(crate) fn node_down(&self) {
        self.sim.power(NODE, false);
    }

    pub(crate) fn node_up(&self) {
        self.sim.power(NODE, true);
    }

    pub(crate) async fn until_schedulable(&self) {
        self.until_node(|node| node["spec"]["unschedulable"] != true).await;
    }

    pub(crate) async fn until_ready(&self) {
        self.until_node(|node| node["status"]["conditions"][0]["status"] == "True").await;
    }

    async fn until_node(&self, wanted: impl Fn(&Value) -> bool) {
        self.sim
            .until("nodes", |nodes| nodes.iter().any(|it| it["metadata"]["name"] == NODE && wanted(it)))
            .await;
    }

    /// No pod of the Deployment may go.
    pub(crate) fn block(&self) {
        self.sim.edit(BUDGETS, "shop", "web", |budget| budget["spec"]["minAvailable"] = 3.into());
    }

    pub(crate) fn unblock(&self) {
        self.sim.edit(BUDGETS, "shop", "web", |budget| budget["spec"]["minAvailable"] = 1.into());
    }

    /// Pods on our node that a drain takes away.
    pub(crate) fn pods_to_leave(&self) -> Vec<String> {
        let leaves = |pod: &&Value| {
            pod["spec"]["nodeName"] == NODE && pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet"
        };
        self.sim.list("pods").iter().filter(leaves).map(|pod| pod["metadata"]["name"].to_string()).collect()
    }

    /// How many evictions were accepted.
    pub(crate) fn evictions(&self) -> usize {
        self.sim.faults().evicted().len()
    }

    /// UIDs of pods whose eviction was accepted more than once.
    pub(crate) fn evicted_twice(&self) -> Vec<String> {
        let mut all = self.sim.faults().evicted();
        all.sort();
        let mut twice: Vec<String> =
            all.windows(2).filter(|pair| pair[0] == pair[1]).map(|it| it[0].clone()).collect();
        twice.dedup();
        twice
    }
}
