//! Nodes with their agents, the network between them, and an onlooker. Work for one node only, which starts elsewhere once it
//! may: a machine and a StatefulSet's pod, each with a volume.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::Clock;
use agent::device::DeviceChoice;
use kubeapi::NodeName;
use kubenodeop::plan::failover::hung;
use kubesim::{Sim, SimConfig};
use outage::calls::{self, NodeListing, Pulses};
use outage::failover::rule::{FailoverFacts, FailoverRule, holds};
use outage::failover::{DeclaredNode, FailoverState, calls as failover_calls, record, silence};
use outage::operator;
use outage::turn::pulses::Pulse;
use scenarios::{Agent, Cluster, World, reboot_config};
use serde_json::{Value, json};
use tokio::time::sleep;
use topics::{AgentTrouble, DrainStatus, Trouble};

use super::links::Links;
use super::onlooker::Onlooker;
use crate::etcd::reachable;

const GUESTS: &str = "kubevirt/virtualmachineinstances";

/// What takes longer does not come.
const PATIENCE: Duration = Duration::from_mins(30);
pub(super) const SILENT: &str = "silent, it may be dead";

pub(super) struct Site {
    pub(super) worlds: Vec<World>,
    pub(super) sim: Sim,
    pub(super) links: Links,
    pub(super) seen: Onlooker,
    /// Nodes that are ordered to reboot.
    pub(super) ordered: BTreeSet<usize>,
}

/// Lets time pass.
pub(super) async fn pass(secs: u64) {
    sleep(Duration::from_secs(secs)).await;
}

impl Site {
    /// The work is on the first node.
    pub(super) async fn of(servers: usize, workers: usize) -> Self {
        // A kubelet's lease and condition as a real cluster has them.
        let config = SimConfig {
            renew_every: Duration::from_secs(10),
            not_ready_after: Duration::from_secs(50),
            unreachable_after: Duration::from_secs(50),
            ..SimConfig::default()
        };
        let clusters = Cluster::some_with(config, servers + workers).await;
        let sim = clusters[0].sim().clone();
        sim.add_kubevirt("v1.7.3");
        let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
        sim.until("nodes", |all| all.iter().all(schedulable)).await;
        let names: Vec<String> = clusters.iter().map(|it| it.device_name().to_owned()).collect();
        for name in &names[servers..] {
            let role = "node-role.kubernetes.io/control-plane";
            sim.edit("nodes", "", name, |it| {
                drop(it["metadata"]["labels"].as_object_mut().unwrap().remove(role));
            });
        }
        let volume =
            |claim: &str| json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
        for (claim, on) in [("disk", "pv-disk"), ("data", "pv-data")] {
            sim.add_claim("shop", claim, on);
        }
        sim.add_machine_on("shop", "till", "Always", &names[0], &json!({ "volumes": volume("disk") }));
        let others_take = |is: bool| {
            for name in &names[1..] {
                sim.edit("nodes", "", name, |it| it["spec"]["unschedulable"] = (!is).into());
            }
        };
        others_take(false);
        let app = json!({ "app": "books" });
        sim.apply(
            "apps/statefulsets",
            json!({
                "metadata": { "name": "books", "namespace": "shop" },
                "spec": { "replicas": 1, "selector": { "matchLabels": app }, "template": {
                    "metadata": { "labels": app },
                    "spec": { "containers": [{ "name": "c", "image": "i" }], "volumes": volume("data") },
                } },
            }),
        );
        let runs = |it: &Value| it["status"]["phase"] == "Running";
        sim.until("pods", |all| all.iter().any(|it| it["metadata"]["name"] == "books-0" && runs(it))).await;
        sim.until(GUESTS, |all| all.len() == 1 && all.iter().all(runs)).await;
        others_take(true);
        let mut worlds: Vec<World> = clusters.into_iter().map(World::on).collect();
        let links = Links::between(&worlds).await;
        for world in &mut worlds {
            world.patience = PATIENCE;
            // How long a clock that is behind keeps the gate closed; all else as on a device.
            world.limits = json!({ "zedkube": { "gate_clock_limit_ms": 5_000 } });
        }
        let seen = Onlooker::on(&sim);
        let mut site = Self { worlds, sim, links, seen, ordered: BTreeSet::new() };
        for nth in 0..names.len() {
            site.starts(nth);
        }
        for world in &site.worlds {
            world.status(DrainStatus::NotRequested).await;
        }
        let renews = |it: &Value| it["metadata"]["namespace"] == "kube-node-lease";
        site.sim
            .until("coordination/leases", |all| all.iter().filter(|it| renews(it)).count() == names.len())
            .await;
        site
    }

    pub(super) fn name(&self, nth: usize) -> &str {
        self.worlds[nth].cluster.device_name()
    }

    /// The node where the machine is.
    pub(super) fn busy(&self) -> usize {
        let guest = self.sim.list(GUESTS).pop().unwrap();
        self.worlds.iter().position(|it| guest["status"]["nodeName"] == it.cluster.device_name()).unwrap()
    }

    /// Its power goes.
    pub(super) async fn dies(&mut self, nth: usize) {
        self.seen.note(&format!("power of {} goes", self.name(nth)));
        self.sim.power(self.name(nth), false);
        self.worlds[nth].kill_all().await;
    }

    /// The wall clocks of these are wrong by so much from now on, those of others right.
    pub(super) async fn clocks(&mut self, secs: i64, wrong: &[usize]) {
        for (nth, world) in self.worlds.iter_mut().enumerate() {
            world.kill_all().await;
            world.clock_off_by(if wrong.contains(&nth) { secs } else { 0 });
            world.start(Agent::Zedagent);
            world.start(Agent::Zedkube);
        }
    }

    /// In another boot, with its agents.
    pub(super) fn boots(&mut self, nth: usize) {
        self.seen.note(&format!("{} boots", self.name(nth)));
        self.worlds[nth].lose_run();
        self.starts(nth);
    }

    fn starts(&mut self, nth: usize) {
        let at = self.links.own[nth];
        let world = &mut self.worlds[nth];
        std::fs::create_dir_all(world.topic_root.path("run/nim/DeviceNetworkStatus")).unwrap();
        reachable(world, at, 6);
        self.config(nth);
        let world = &mut self.worlds[nth];
        self.sim.boot(world.cluster.device_name(), &DeviceChoice::Record.boot_id(&world.topic_root).unwrap());
        world.start(Agent::Zedagent);
        world.start(Agent::Zedkube);
    }

    /// Gives it its config. All are members: others would be deleted.
    pub(super) fn config(&self, nth: usize) {
        let mut config = reboot_config(6 + u32::from(self.ordered.contains(&nth)));
        let uuids =
            self.sim.list("nodes").into_iter().map(|it| it["metadata"]["labels"]["node-uuid"].clone());
        config["cluster"]["masterNodeUuids"] = uuids.collect();
        config["cluster"]["clusterIpPrefix"] = format!("{}/8", self.links.own[nth].ip()).into();
        self.worlds[nth].config(&config);
    }

    /// What the agent of node `by` says of `of` now; empty for nothing.
    pub(super) fn says(&self, by: usize, of: usize) -> String {
        let held: Option<AgentTrouble> = self.worlds[by].read("run/zedkube/AgentTrouble/global.json");
        let what = format!("node {}", self.name(of));
        let told = held.and_then(|it| it.troubles.into_iter().find(|it| it.what == what));
        told.map(|it| it.error).unwrap_or_default()
    }

    /// What `by` says of `of` once that has these words; nothing for none.
    pub(super) async fn told(&self, by: usize, of: usize, words: &str) -> Option<Trouble> {
        let found = |it: Option<&AgentTrouble>| {
            let all = it.map(|it| it.troubles.as_slice()).unwrap_or_default();
            all.iter().find(|it| it.what == format!("node {}", self.name(of))).cloned()
        };
        let is = |it: Option<&AgentTrouble>| match found(it) {
            Some(told) => !words.is_empty() && told.error.contains(words),
            None => words.is_empty(),
        };
        let what = format!("{}: {words}", self.name(of));
        found(self.worlds[by].until::<AgentTrouble>("zedkube", &what, is).await.as_ref())
    }

    /// It dies, and all others tell it; what the last one says.
    pub(super) async fn falls_silent(&mut self, nth: usize) -> Trouble {
        self.dies(nth).await;
        let mut told = None;
        for by in self.but(&[nth]).into_iter().filter(|it| self.worlds[*it].runs()) {
            told = self.told(by, nth, SILENT).await;
        }
        told.unwrap()
    }

    /// The nodes but these.
    pub(super) fn but(&self, left: &[usize]) -> Vec<usize> {
        (0..self.worlds.len()).filter(|it| !left.contains(it)).collect()
    }

    /// What keeps a person at node `by` from declaring `of` dead, as the command finds it.
    pub(super) async fn holds(&self, by: usize, of: usize) -> Option<(DeclaredNode, Vec<FailoverRule>)> {
        let (cluster, name) = (self.worlds[by].cluster.handle(), NodeName::parse(self.name(of)).unwrap());
        let (clock, mut pulses, mut looked) = (Clock::new(), Pulses::default(), NodeListing::default());
        for _ in 0..17 {
            looked = calls::look(&cluster, &name, &mut pulses, clock.now()).await.ok()?;
            pass(5).await;
        }
        let record = calls::read(&cluster).await.ok()?.map(|it| it.record).unwrap_or_default();
        let node = looked.nodes.iter().find(|it| it.name == name.as_str())?;
        let still: Vec<_> = [node].into_iter().filter(|it| it.pulse == Pulse::Still).collect();
        let port = self.links.own[by].port();
        let heard = failover_calls::heard(self.name(by), &still, &looked.servers, port).await;
        let told = silence::told(&looked.nodes, &record, &still, &heard);
        let facts = FailoverFacts {
            silent: told.into_iter().find(|it| it.node.name == name.as_str()),
            minor: Some(34),
            nodes: looked.nodes.clone(),
            now: clock.wall().to_timestamp(),
            record,
            ..FailoverFacts::default()
        };
        let entry = DeclaredNode {
            node: name.to_string(),
            node_uid: node.uid.clone(),
            boot_id: node.boot_id.clone(),
            who: "operator anna".to_owned(),
            why: "its supply burnt".to_owned(),
            // No day in which it failed before.
            when: String::new(),
            work: hung(&cluster, &name).await.ok()?.work,
            ..DeclaredNode::default()
        };
        Some((entry, holds(name.as_str(), &facts).into_iter().map(|it| it.rule).collect()))
    }

    /// What a person at node `by` writes of one that is off, where nothing but the hour between two of them is against it.
    pub(super) async fn seen_dead(&self, by: usize, of: usize) -> DeclaredNode {
        let (entry, held) = self.holds(by, of).await.unwrap();
        assert!(held.iter().all(|it| *it == FailoverRule::Again), "{held:?}\n{}", self.seen.history());
        entry
    }

    pub(super) async fn declared(&self, by: usize, of: usize) -> DeclaredNode {
        self.write(by, &self.seen_dead(by, of).await).await.unwrap()
    }

    /// The person's word, as the command writes it first, at node `by`.
    pub(super) async fn write(&self, by: usize, entry: &DeclaredNode) -> Option<DeclaredNode> {
        let (cluster, now) = (self.worlds[by].cluster.handle(), Clock::new().wall().to_timestamp());
        let (_, after) = operator::change(&cluster, now, |it| record::declare(it, entry)).await.ok()?;
        record::open(&after).pop()
    }

    pub(super) fn entries(&self) -> Vec<DeclaredNode> {
        let text = |it: &Value| {
            it["metadata"]["annotations"][outage::turn::record::FAILOVER].as_str().map(str::to_owned)
        };
        let all = self.sim.list("coordination/leases");
        all.iter().find_map(text).map(|it| serde_json::from_str(&it).unwrap()).unwrap_or_default()
    }

    /// An entry once it is in one of these states.
    pub(super) async fn until(&self, of: &DeclaredNode, states: &[FailoverState]) -> DeclaredNode {
        let found =
            || self.entries().into_iter().find(|it| it.number == of.number && states.contains(&it.state));
        let there = self.sim.until("coordination/leases", |_| found().is_some());
        let in_time = tokio::time::timeout(PATIENCE, there).await;
        assert!(in_time.is_ok(), "{}\n{:#?}", self.seen.history(), self.entries());
        found().unwrap()
    }

    /// The value of our taint, if it is there.
    pub(super) fn taint(&self, nth: usize) -> String {
        let node = self.sim.get("nodes", "", self.name(nth)).unwrap();
        let mut all = node["spec"]["taints"].as_array().into_iter().flatten();
        let ours = all.find(|it| it["key"] == "node.kubernetes.io/out-of-service");
        ours.map(|it| it["value"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    /// Each node takes pods, and nothing of a failover is left on it; nobody says anything of another one.
    pub(super) async fn is_well(&self, what: &str) {
        let clean = |it: &Value| {
            let (spec, notes) = (&it["spec"], &it["metadata"]["annotations"]);
            let marks = ["pillar-rs/dead-boot", "pillar-rs/cordon-owner"];
            spec["unschedulable"] != true
                && spec["taints"].as_array().is_none_or(Vec::is_empty)
                && marks.iter().all(|mark| notes[*mark].is_null())
        };
        let there = self.sim.until("nodes", |all| all.iter().all(clean));
        let in_time = tokio::time::timeout(PATIENCE, there).await;
        let left: Vec<Value> = self.sim.list("nodes").into_iter().filter(|it| !clean(it)).collect();
        assert!(in_time.is_ok(), "{what}: {left:#?}\n{}", self.seen.history());
        for by in 0..self.worlds.len() {
            for of in self.but(&[by]) {
                self.told(by, of, "").await;
            }
        }
        assert!(self.entries().iter().all(|it| !it.state.is_open()), "{what}: {:#?}", self.entries());
        self.seen.check(what);
    }

    pub(super) async fn ends(mut self) {
        for world in &mut self.worlds {
            world.kill_all().await;
        }
    }
}
