//! The embedded cluster of the demo: three nodes and the kinds of workload that a drain meets.

use std::cell::Cell;
use std::time::Duration;

use agent::Clock;
use anyhow::bail;
use kubesim::{Fault, Server, Sim, SimConfig};
use outage::turn::record::{HOLDERS, LEASE};
use serde_json::{Value, json};

/// Our node: the name that the golden config's device gets.
const NODE: &str = "edge-node-1";
/// Nodes with the UUIDs of their devices, as in the golden config.
pub(super) const NODES: [(&str, &str); 3] = [
    (NODE, "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
];
const GUESTS: &str = "kubevirt/virtualmachineinstances";
/// How many virtual machines the drill has.
const MACHINES: usize = 5;
/// A state that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The cluster, served over HTTP on loopback.
pub(super) struct Cluster {
    sim: Sim,
    server: Server,
    clock: Clock,
    /// How much had been asked when the quorum was lost.
    asked: Cell<usize>,
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
        let cluster = Self { sim, server, clock, asked: Cell::new(0) };
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
        self.power(NODE, false);
    }

    /// Our node gets its power back.
    pub(super) fn node_up(&self) {
        self.power(NODE, true);
    }

    /// A node loses its power, or gets it back.
    pub(super) fn power(&self, node: &str, on: bool) {
        self.sim.power(node, on);
    }

    /// Five virtual machines, each with a volume of its own; waits until they run.
    pub(super) async fn add_machines(&self) -> anyhow::Result<()> {
        for at in 1..=MACHINES {
            let (name, disk) = (format!("vm-{at}"), format!("vm-{at}-disk"));
            self.sim.add_claim("shop", &disk, &format!("pv-{at}"));
            let volumes = json!([{ "name": "disk", "persistentVolumeClaim": { "claimName": disk } }]);
            self.sim.apply(
                "kubevirt/virtualmachines",
                json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "metadata": { "name": name, "namespace": "shop" },
                    "spec": { "runStrategy": "Always", "template": { "spec": { "volumes": volumes } } },
                }),
            );
        }
        self.until(GUESTS, "the virtual machines to run", |all| running(all) == MACHINES).await
    }

    /// No pod may be evicted.
    pub(super) fn hold_evictions(&self) {
        self.sim.faults().script("POST", "/eviction", u32::MAX, Fault::status(429, "TooManyRequests"));
    }

    /// Every pod may.
    pub(super) fn let_go(&self) {
        self.sim.faults().clear();
    }

    /// The API answers nobody, as with less than half of the members of etcd.
    pub(super) fn without_quorum(&self) {
        self.sim.faults().clear();
        self.asked.set(self.sim.faults().seen().len());
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
            self.sim.faults().script(method, "/", u32::MAX, Fault::Cut);
        }
    }

    /// It answers again, but lets no pod be evicted.
    pub(super) fn with_quorum(&self) {
        self.sim.faults().clear();
        self.hold_evictions();
    }

    /// Nobody has tried to write anything since there is no quorum.
    pub(super) fn none_written(&self) -> anyhow::Result<()> {
        let asked = self.sim.faults().seen().split_off(self.asked.get());
        match asked.iter().find(|it| it.method != "GET") {
            None => Ok(()),
            Some(it) => bail!("end the drill: {} {} before there was a quorum", it.method, it.uri),
        }
    }

    /// Who holds a turn.
    pub(super) fn turns(&self) -> String {
        let holders = holders(&self.sim.list("coordination/leases"));
        if holders.is_empty() {
            "no node holds one".to_owned()
        } else {
            format!("held by {}", holders.join(", "))
        }
    }

    /// Until nobody does.
    pub(super) async fn turns_end(&self) -> anyhow::Result<()> {
        self.until("coordination/leases", "the turn to end", |all| holders(all).is_empty()).await
    }

    /// Until everything runs; what was on a node that stays off stays there.
    pub(super) async fn all_back(&self, missing: Option<usize>) {
        let off = missing.map_or("", |at| NODES[at].0);
        let there = |it: &&Value| it["spec"]["nodeName"] != off && it["status"]["nodeName"] != off;
        self.sim.until("pods", |all| all.iter().filter(there).all(is_ready)).await;
        self.sim.until(GUESTS, |all| all.iter().filter(there).count() == running(all)).await;
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

/// How many guests run.
fn running(guests: &[Value]) -> usize {
    guests.iter().filter(|it| it["status"]["phase"] == "Running").count()
}

/// The nodes that hold a turn.
fn holders(leases: &[Value]) -> Vec<String> {
    let lease = leases.iter().find(|it| it["metadata"]["name"] == LEASE);
    let text = lease.and_then(|it| it["metadata"]["annotations"][HOLDERS].as_str()).unwrap_or("[]");
    let holders: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    holders.iter().filter_map(|it| it["node"].as_str()).map(str::to_owned).collect()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}
