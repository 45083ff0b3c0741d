//! Virtual machines and data in a drain, row by row of the fact sheet: with whole agents, on a paused clock.
//!
//! Rows share a cluster: each is a machine or a volume of its own. For each the plan is made, then the reboot
//! runs to its end and back; plan, drain and page are compared.

mod away;
mod back;
mod kills;
mod machines;
mod real;
mod volumes;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubenodeop::{MachinePolicy, Plan};
use kubesim::{Sim, SimConfig};
use scenarios::{Cluster, World};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use topics::{DrainStatus, NodeDrainProgress};

pub(crate) const NODE: &str = "edge-node-1";
pub(crate) const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(crate) const MACHINES: &str = "kubevirt/virtualmachines";
pub(crate) const MIGRATIONS: &str = "kubevirt/virtualmachineinstancemigrations";
const UNCORDONED: Duration = Duration::from_secs(15);
/// A state that takes longer on the paused clock does not come.
const LONG: Duration = Duration::from_hours(1);

pub(crate) async fn world(config: SimConfig, version: &str) -> World {
    let mut world = World::on(Cluster::some_with(config, 3).await.remove(0));
    world.patience = LONG;
    let sim = world.cluster.sim();
    sim.add_kubevirt(version);
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    until(sim, "nodes", |all| all.iter().all(schedulable)).await;
    world
}

pub(crate) async fn until(sim: &Sim, kind: &str, wanted: impl Fn(&[Value]) -> bool) {
    let in_time = tokio::time::timeout(LONG, sim.until(kind, wanted)).await.is_ok();
    let node = sim.get("nodes", "", NODE).unwrap_or_default();
    let all = Value::from(sim.list(kind));
    assert!(in_time, "{kind} do not become as wanted: {all:#}\n{}", node["metadata"]["annotations"]);
}

/// `count` machines are up, and KubeVirt has reported on each.
pub(crate) async fn up(sim: &Sim, count: usize) {
    let reported = |it: &Value| it["status"]["phase"] == "Running" && !it["status"]["conditions"].is_null();
    until(sim, GUESTS, |all| all.len() == count && all.iter().all(reported)).await;
}

/// The plan of a drain of our node; fails if it writes.
pub(crate) async fn plan(world: &World, policy: MachinePolicy) -> Plan {
    let before = world.cluster.asked_by_agents().len();
    let node = kubeapi::NodeName::parse(NODE).unwrap();
    let rules = kubenodeop::AttemptRules { machines: policy, ..kubenodeop::AttemptRules::default() };
    let plan = kubenodeop::survey::plan(&world.cluster.handle(), &node, &rules).await.unwrap();
    let asked = world.cluster.asked_by_agents();
    assert!(asked[before..].iter().all(|(method, _)| method == "GET"), "a plan writes nothing");
    plan
}

async fn page(world: &World) -> String {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let root = world.topic_root.path("");
    assert!(nodestatus::trial::serve(&root, server).await.unwrap());
    let mut page = String::new();
    client.read_to_string(&mut page).await.unwrap();
    let code = [("<code>", "`"), ("</code>", "`")];
    let letters = [("&quot;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    code.into_iter().chain(letters).fold(page, |page, (from, to)| page.replace(from, to))
}

/// Everything shown during a drain.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// By subject: state or code, and words.
    pub(crate) said: BTreeMap<String, BTreeSet<(String, String)>>,
    pub(crate) met: BTreeSet<(String, String)>,
    pub(crate) left: BTreeSet<String>,
}

impl Course {
    /// Records until `over`, or for ever. The page must show the same.
    pub(crate) async fn follow(&mut self, world: &World, over: impl Fn(&NodeDrainProgress, &Self) -> bool) {
        let mut last = None;
        loop {
            let new = |it: Option<&NodeDrainProgress>| it.is_some() && it != last.as_ref();
            let seen = world.until::<NodeDrainProgress>("zedkube", "progress", new).await.unwrap();
            let mut texts = Vec::new();
            for it in &seen.machines {
                texts.push((it.name.clone(), it.state.clone(), it.reason.clone()));
            }
            for it in &seen.blockers {
                self.met.insert((it.pod.clone(), it.code.clone()));
                texts.push((it.pod.clone(), it.code.clone(), it.reason.clone()));
            }
            for it in &seen.storage {
                texts.push((it.volume.clone(), "storage".to_owned(), it.reason.clone()));
            }
            self.left.extend(seen.left.iter().cloned());
            let mut news = Vec::new();
            for (subject, state, text) in texts {
                if self.said.entry(subject).or_default().insert((state, text.clone())) {
                    news.push(text);
                }
            }
            if !news.is_empty() {
                let page = page(world).await;
                let now: Option<NodeDrainProgress> = world.read("run/zedkube/NodeDrainProgress/global.json");
                if now.as_ref() == Some(&seen) {
                    for text in news {
                        // A blocker's subject is shown first, once.
                        let rest = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest);
                        assert!(page.contains(rest), "not on the page: {text}\n{page}");
                    }
                }
            }
            if over(&seen, self) {
                return;
            }
            last = Some(seen);
        }
    }

    /// Whether these words were shown of `subject`.
    pub(crate) fn has(&self, subject: &str, words: &str) -> bool {
        self.said.get(subject).is_some_and(|all| all.iter().any(|(_, text)| text.contains(words)))
    }
}

pub(crate) fn annotate(sim: &Sim, kind: &str, name: &str, annotation: &str, word: &str) {
    let done = sim.edit(kind, "shop", name, |it| it["metadata"]["annotations"][annotation] = word.into());
    assert!(done, "no {kind} {name}");
}

pub(crate) fn migratable() -> Value {
    json!({ "evictionStrategy": "LiveMigrate" })
}

async fn uncordoned(world: &World, what: &str) {
    let gone = tokio::time::timeout(UNCORDONED, world.cluster.until_schedulable()).await;
    assert!(gone.is_ok(), "{what}: our cordon is there after {UNCORDONED:?}");
}
