//! The embedded cluster of the demo: one to five nodes and the workloads that affect a drain.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent::Clock;
use anyhow::bail;
use kubesim::{ApiRequest, ScriptedFault, Sim, SimConfig, SimServer};
use outage::site::record::SitePhase;
use outage::turn::record::{HOLDERS, LEASE, MODE};
use serde_json::{Value, json};

use super::nodes::{NODE, NODES, address};
use super::teller::Narrator;

const VIRTUAL_IP: &str = "plndr-cp-lock";
/// The server of an unserved virtual IP.
const NOBODY: &str = "nobody";
const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(super) const MACHINES: usize = 5;
/// A state that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) struct RunningPods {
    /// Node of each running virtual machine, by namespace and name.
    pub(super) machines: BTreeMap<String, String>,
    /// Ready pods, by namespace and application.
    pods: Vec<(String, String)>,
}

pub(super) struct DemoCluster {
    pub(super) sim: Sim,
    pub(super) server: SimServer,
    clock: Clock,
    pub(super) nodes: usize,
    /// Number of requests when the quorum was lost.
    asked: Cell<usize>,
}

impl DemoCluster {
    /// Starts one of so many nodes and waits until everything runs.
    pub(super) async fn start(clock: Clock, nodes: usize) -> anyhow::Result<Self> {
        let config = SimConfig {
            stop_time: Duration::from_millis(700),
            start_time: Duration::from_millis(500),
            renew_every: Duration::from_millis(500),
            ..SimConfig::default()
        };
        let sim = Sim::unchecked(config);
        for (at, (name, uuid)) in NODES.into_iter().take(nodes).enumerate() {
            sim.add_node(name, uuid);
            sim.edit("nodes", "", name, |node| {
                node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address(at) }]);
                let room = json!({ "cpu": "4", "memory": "8Gi", "ephemeral-storage": "50Gi", "pods": "110" });
                (node["status"]["capacity"], node["status"]["allocatable"]) = (room.clone(), room);
            });
        }
        sim.add_deployment("shop", "web", nodes as u64);
        // One pod on each node, also after drains, so that the budget can hold one on each.
        for (kind, name) in [("apps/deployments", "web"), ("apps/replicasets", "web-5f7d")] {
            sim.edit(kind, "shop", name, |it| {
                it["spec"]["template"]["spec"]["affinity"] = json!({ "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname",
                    }],
                } });
            });
        }
        sim.add_budget("shop", "web", "web", &json!({ "minAvailable": nodes }));
        sim.add_stateful_set("shop", "db", 2);
        sim.add_daemon_set("kube-system", "log-agent");
        let server = sim.serve().await?;
        let cluster = Self { sim, server, clock, nodes, asked: Cell::new(0) };
        // The Deployment's and the DaemonSet's, and two of the StatefulSet.
        cluster.all_run(2 * nodes + 2).await?;
        // Last, so that the workloads above are spread over all nodes.
        cluster.sim.add_bare_pod("tools", "debug-shell", NODE);
        cluster.sim.add_bare_pod("tools", "camera-import", NODE);
        cluster.all_run(2 * nodes + 4).await?;
        Ok(cluster)
    }

    async fn all_run(&self, count: usize) -> anyhow::Result<()> {
        self.until("pods", "all pods to run", |pods| pods.len() == count && pods.iter().all(is_ready)).await
    }

    /// From now on the budget allows a disruption.
    pub(super) fn open_budget(&self) {
        self.sim.edit("policy/poddisruptionbudgets", "shop", "web", |budget| {
            budget["spec"]["minAvailable"] = (self.nodes - 1).into();
        });
    }

    /// Adds five virtual machines, each with a volume, and a virtual IP that kube-vip serves on our node;
    /// waits until they run.
    pub(super) async fn add_machines(&self) -> anyhow::Result<()> {
        self.sim.add_virtual_ip(VIRTUAL_IP, NODE);
        for at in 1..=MACHINES {
            let (name, disk) = (format!("vm-{at}"), format!("vm-{at}-disk"));
            self.sim.add_claim("shop", &disk, &format!("pv-{at}"));
            let volumes = json!([{ "name": "disk", "persistentVolumeClaim": { "claimName": disk } }]);
            self.sim.add_machine("shop", &name, "Always");
            self.sim.edit("kubevirt/virtualmachines", "shop", &name, |it| {
                it["spec"]["template"]["spec"]["volumes"] = volumes;
            });
        }
        self.until(GUESTS, "the virtual machines to run", |all| running(all) == MACHINES).await
    }

    /// Adds two migratable virtual machines on our node; waits until they run.
    pub(super) async fn add_moving_machines(&self) -> anyhow::Result<()> {
        self.sim.add_kubevirt("v1.7.3");
        let takes = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
        self.until("nodes", "KubeVirt on all nodes", |all| all.iter().all(takes)).await?;
        for name in ["till", "camera"] {
            let migrates = json!({ "evictionStrategy": "LiveMigrate" });
            self.sim.add_machine_on("shop", name, "Always", NODE, &migrates);
        }
        self.until(GUESTS, "the virtual machines to run", |all| running(all) == 2).await
    }

    /// Tells where each virtual machine of our node goes, until none is left there.
    pub(super) async fn leave(&self, tell: &Narrator) -> anyhow::Result<()> {
        let uids: BTreeMap<String, Value> =
            self.sim.list(GUESTS).iter().map(|it| (named(it), it["metadata"]["uid"].clone())).collect();
        let told = RefCell::new(BTreeSet::new());
        self.until(GUESTS, "the virtual machines to move", |all| {
            for it in all {
                let (name, node) = (named(it), text(&it["status"]["nodeName"]));
                let target = text(&it["status"]["migrationState"]["targetNode"]);
                let what = match (node == NODE, uids.get(&name) == Some(&it["metadata"]["uid"])) {
                    (true, _) if target.is_empty() => continue,
                    (true, _) => format!("{name} moves to {target} while it runs."),
                    (false, true) => format!("{name} has arrived on {node}; it was never stopped."),
                    (false, false) => format!("{name} was NOT moved, but stopped and started again."),
                };
                if told.borrow_mut().insert(what.clone()) {
                    tell.say(&what);
                }
            }
            all.iter().all(|it| it["status"]["nodeName"] != NODE)
        })
        .await
    }

    /// Tells each phase of the whole-site operation with its sentence, until the last one has begun, or it is over.
    pub(super) async fn phases(&self, tell: &Narrator, phases: &[(SitePhase, &str)]) -> anyhow::Result<()> {
        let told = Cell::new(0);
        self.until("coordination/leases", "the next phase of the whole-site operation", |all| {
            let mode = all.iter().find_map(|it| it["metadata"]["annotations"][MODE].as_str());
            let phase = mode.map(|it| serde_json::from_str::<Value>(it).unwrap_or_default()["phase"].clone());
            let phase = phase.map(|it| SitePhase::from(text(&it)));
            let begun = phases.iter().filter(|it| phase.as_ref().is_none_or(|now| it.0 <= *now));
            let begun = begun.count().max(told.get());
            for (_, sentence) in phases.iter().take(begun).skip(told.replace(begun)) {
                tell.say(sentence);
            }
            begun == phases.len()
        })
        .await
    }

    /// Waits until no whole-site operation is in progress, all nodes are schedulable, and all virtual
    /// machines run.
    pub(super) async fn site_over(&self) -> anyhow::Result<()> {
        let lease = |it: &&Value| it["metadata"]["name"] == LEASE;
        self.until("coordination/leases", "the end of the whole-site operation", |all| {
            all.iter().find(lease).is_none_or(|it| it["metadata"]["annotations"][MODE].is_null())
        })
        .await?;
        let takes = |it: &Value| it["spec"]["unschedulable"] != true;
        self.until("nodes", "all nodes to be schedulable", |all| all.iter().all(takes)).await?;
        self.until(GUESTS, "the virtual machines to run", |all| running(all) == MACHINES).await
    }

    /// Refuses all evictions.
    pub(super) fn hold_evictions(&self) {
        let busy = ScriptedFault::status(429, "TooManyRequests");
        self.sim.faults().script("POST", "/eviction", u32::MAX, busy);
    }

    /// The servers lose their quorum: the last state is read, all nodes Ready, and writes fail.
    pub(super) fn without_quorum(&self) {
        self.asked.set(self.sim.faults().requests().len());
        self.sim.quorum(false);
    }

    /// Checks that no node was uncordoned since the quorum was lost.
    pub(super) fn none_let_go(&self) -> anyhow::Result<()> {
        let asked = self.sim.faults().requests().split_off(self.asked.get());
        let lets_go = |it: &&ApiRequest| {
            let body: Value = serde_json::from_slice(&it.body).unwrap_or_default();
            it.uri.contains("/nodes/")
                && body.pointer("/spec/unschedulable").is_some_and(|flag| *flag != true)
        };
        match asked.iter().find(lets_go) {
            None => Ok(()),
            Some(it) => {
                bail!("end the drill: a node was to take pods again before there was a quorum: {}", it.uri)
            }
        }
    }

    pub(super) fn turns(&self) -> String {
        let holders = holders(&self.sim.list("coordination/leases"));
        let held = || format!("held by {}", holders.join(", "));
        if holders.is_empty() { "no node holds one".to_owned() } else { held() }
    }

    pub(super) async fn turns_end(&self) -> anyhow::Result<()> {
        self.until("coordination/leases", "the turn to end", |all| holders(all).is_empty()).await
    }

    pub(super) fn running(&self) -> RunningPods {
        let nodes = |resource: &str, name: &str, of: &dyn Fn(&Value) -> Option<String>| {
            let all = self.sim.list(resource);
            let some = all.iter().filter_map(|it| Some((of(it)?, text(&it[name]["nodeName"]))));
            some.collect::<Vec<(String, String)>>()
        };
        let machine = |it: &Value| (it["status"]["phase"] == "Running").then(|| named(it));
        let app = |it: &Value| {
            // A pod without an owner does not come back.
            let is_kept = is_ready(it) && !it["metadata"]["ownerReferences"].is_null();
            let app = it["metadata"]["labels"]["app"].as_str().filter(|_| is_kept)?;
            Some(format!("{}/{app}", text(&it["metadata"]["namespace"])))
        };
        RunningPods {
            machines: nodes(GUESTS, "status", &machine).into_iter().collect(),
            pods: nodes("pods", "spec", &app),
        }
    }

    /// What ran before and does not run now, one sentence each, except on the node `off`.
    pub(super) fn lacks(&self, before: &RunningPods, off: &str) -> Vec<String> {
        let now = self.running();
        let mut lacks = Vec::new();
        for (machine, _) in before.machines.iter().filter(|it| it.1 != off) {
            let Some(node) = now.machines.get(machine).filter(|it| *it != off) else {
                lacks.push(format!("virtual machine {machine} does not run"));
                continue;
            };
            if !self.has_volume(machine, node) {
                lacks.push(format!(
                    "the volume of virtual machine {machine} is not attached to {node}, where it runs"
                ));
            }
        }
        let count =
            |all: &RunningPods, app: &str| all.pods.iter().filter(|it| it.0 == app && it.1 != off).count();
        let apps: BTreeSet<&String> = before.pods.iter().map(|it| &it.0).collect();
        for app in apps {
            let (wanted, there) = (count(before, app), count(&now, app));
            if there < wanted {
                lacks.push(format!("application {app}: pods Ready: {there} of {wanted}"));
            }
        }
        if [NOBODY, off].contains(&self.server().as_str()) {
            lacks.push(format!("the virtual IP of lease {VIRTUAL_IP} is served by no node with power"));
        }
        lacks
    }

    /// The virtual IP's node, or `nobody`.
    pub(super) fn server(&self) -> String {
        let lease = self.sim.get("coordination/leases", "kube-system", VIRTUAL_IP).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let node = self.sim.get("nodes", "", &holder).unwrap_or_default();
        let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        let is_up = node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready));
        if is_up { holder } else { NOBODY.to_owned() }
    }

    fn has_volume(&self, machine: &str, node: &str) -> bool {
        let claim = format!("{}-disk", machine.trim_start_matches("shop/"));
        let Some(claim) = self.sim.get("persistentvolumeclaims", "shop", &claim) else { return false };
        let is_its = |it: &Value| {
            it["spec"]["source"]["persistentVolumeName"] == claim["spec"]["volumeName"]
                && it["spec"]["nodeName"] == node
                && it["status"]["attached"] == true
        };
        self.sim.list("storage/volumeattachments").iter().any(is_its)
    }

    /// Waits until all that ran before runs again.
    pub(super) async fn all_back(&self, before: &RunningPods, off: &str) {
        self.sim.until("pods", |_| self.lacks(before, off).is_empty()).await;
    }

    /// Waits until our node is schedulable.
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn named(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn running(guests: &[Value]) -> usize {
    guests.iter().filter(|it| it["status"]["phase"] == "Running").count()
}

fn holders(leases: &[Value]) -> Vec<String> {
    let lease = leases.iter().find(|it| it["metadata"]["name"] == LEASE);
    let text = lease.and_then(|it| it["metadata"]["annotations"][HOLDERS].as_str()).unwrap_or("[]");
    let holders: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    holders.iter().filter_map(|it| it["node"].as_str()).map(str::to_owned).collect()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"][0]["status"] == "True"
}
