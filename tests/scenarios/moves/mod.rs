//! What becomes of virtual machines and of data in a drain, row by row of the fact sheet: by whole agents, on a clock that
//! stands still while nobody waits for it.
//!
//! Rows share a cluster: each is a machine or a volume of its own. For each the plan is asked before, then the reboot is
//! played to the end and back; what the plan foretells, the drain meets and the page shows is compared (goal O5).

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
/// What takes longer does not come, on a clock that stands still meanwhile.
const LONG: Duration = Duration::from_hours(1);

/// A device on a cluster of three nodes with this KubeVirt; no agent runs.
pub(crate) async fn world(config: SimConfig, version: &str) -> World {
    let mut world = World::on(Cluster::embedded_with(config).await);
    world.patience = LONG;
    let sim = world.cluster.sim();
    sim.add_kubevirt(version);
    let schedulable = |it: &Value| it["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
    until(sim, "nodes", |all| all.iter().all(schedulable)).await;
    world
}

/// Waits until the objects of a kind are as wanted, but not for ever.
pub(crate) async fn until(sim: &Sim, kind: &str, wanted: impl Fn(&[Value]) -> bool) {
    let in_time = tokio::time::timeout(LONG, sim.until(kind, wanted)).await.is_ok();
    let node = sim.get("nodes", "", NODE).unwrap_or_default();
    let all = Value::from(sim.list(kind));
    assert!(in_time, "{kind} do not become as wanted: {all:#}\n{}", node["metadata"]["annotations"]);
}

/// Machines of these names are up, and KubeVirt has reported about each.
pub(crate) async fn up(sim: &Sim, count: usize) {
    let reported = |it: &Value| it["status"]["phase"] == "Running" && !it["status"]["conditions"].is_null();
    until(sim, GUESTS, |all| all.len() == count && all.iter().all(reported)).await;
}

/// What a drain of our node would do now; it is seen to write nothing.
pub(crate) async fn plan(world: &World, policy: MachinePolicy) -> Plan {
    let before = world.cluster.asked_by_agents().len();
    let node = kubeapi::NodeName::parse(NODE).unwrap();
    let rules = kubenodeop::AttemptRules { machines: policy, ..kubenodeop::AttemptRules::default() };
    let plan = kubenodeop::survey::plan(&world.cluster.handle(), &node, &rules).await.unwrap();
    let asked = world.cluster.asked_by_agents();
    assert!(asked[before..].iter().all(|(method, _)| method == "GET"), "a plan writes nothing");
    plan
}

/// The page at `/` as it is now.
async fn page(world: &World) -> String {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    client.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let root = world.topic_root.path("");
    assert!(nodestatus::trial::serve(&root, server).await.unwrap());
    let mut page = String::new();
    client.read_to_string(&mut page).await.unwrap();
    // Commands in a text are shown as such.
    let code = [("<code>", "`"), ("</code>", "`")];
    let letters = [("&quot;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    code.into_iter().chain(letters).fold(page, |page, (from, to)| page.replace(from, to))
}

/// All that was shown in the course of a drain.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// By subject, state or code, and words.
    pub(crate) said: BTreeMap<String, BTreeSet<(String, String)>>,
    pub(crate) met: BTreeSet<(String, String)>,
    /// What was left, or went another way.
    pub(crate) left: BTreeSet<String>,
}

impl Course {
    /// Takes in what is shown until `over`, or for ever. The page shows the same.
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
                        // Of a blocker the subject is shown in front, once.
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

/// Agents at rest, then the reboot is asked for.
pub(crate) async fn asked(world: &mut World, counter: u32) {
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.ask_reboot(counter);
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
