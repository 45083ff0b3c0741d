//! The embedded cluster of the demo: three nodes and the kinds of workload that a drain meets.

use std::time::Duration;

use agent::Clock;
use anyhow::bail;
use kubesim::{Server, Sim, SimConfig};
use serde_json::{Value, json};

/// Our node: the name that the golden config's device gets.
const NODE: &str = "edge-node-1";
/// Nodes with the UUIDs of their devices, as in the golden config.
const NODES: [(&str, &str); 3] = [
    (NODE, "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
];
/// A state that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The cluster, served over HTTP on loopback.
pub(super) struct Cluster {
    sim: Sim,
    server: Server,
    clock: Clock,
}

impl Cluster {
    /// Starts it and waits until everything runs.
    pub(super) async fn start(clock: Clock) -> anyhow::Result<Self> {
        let config = SimConfig {
            stop_time: Duration::from_millis(700),
            start_time: Duration::from_millis(500),
            renew_every: Duration::from_millis(500),
            ..SimConfig::default()
        };
        let sim = Sim::unchecked(config);
        for (name, uuid) in NODES {
            sim.add_node(name, uuid);
        }
        sim.add_deployment("shop", "web", 3);
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 3 }));
        sim.add_stateful_set("shop", "db", 2);
        sim.add_daemon_set("kube-system", "log-agent");
        let server = sim.serve().await?;
        let cluster = Self { sim, server, clock };
        cluster.all_run(8).await?;
        // Last, so that the workloads above are spread over all nodes.
        cluster.sim.add_bare_pod("tools", "debug-shell", NODE);
        cluster.sim.add_bare_pod("tools", "camera-import", NODE);
        cluster.all_run(10).await?;
        Ok(cluster)
    }

    async fn all_run(&self, count: usize) -> anyhow::Result<()> {
        self.until("pods", "all pods to run", |pods| pods.len() == count && pods.iter().all(is_ready)).await
    }

    /// A kubeconfig that leads to it.
    pub(super) fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// The web Deployment can spare a pod from now on.
    pub(super) fn open_budget(&self) {
        self.sim.edit("policy/poddisruptionbudgets", "shop", "web", |budget| {
            budget["spec"]["minAvailable"] = 2.into();
        });
    }

    /// Our node loses its power.
    pub(super) fn node_down(&self) {
        self.sim.power(NODE, false);
    }

    /// Our node gets its power back.
    pub(super) fn node_up(&self) {
        self.sim.power(NODE, true);
    }

    /// Until pods may be scheduled on our node again.
    pub(super) async fn schedulable(&self) -> anyhow::Result<()> {
        self.until("nodes", "the node to be schedulable", |nodes| {
            nodes.iter().any(|node| node["metadata"]["name"] == NODE && node["spec"]["unschedulable"] != true)
        })
        .await
    }

    async fn until(
        &self,
        resource: &str,
        what: &str,
        wanted: impl Fn(&[Value]) -> bool,
    ) -> anyhow::Result<()> {
        tokio::select! {
            () = self.sim.until(resource, wanted) => Ok(()),
            () = self.clock.sleep_until(Some(self.clock.now() + PATIENCE)) => {
                let seen: Vec<String> = self.sim.list(resource).iter().map(|it| {
                    format!("{} {}", it["metadata"]["name"], it["status"]["phase"])
                }).collect();
                bail!("finish the demo: waited {} s for {what}; there is {}", PATIENCE.as_secs(), seen.join(", "))
            }
        }
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}
