//! All nodes lose power at once, at a random write, and come back: in any order, with wrong clocks, and an
//! API without a quorum until two of them are there: before, it does not answer, or answers with its last
//! state, in which all nodes are Ready, and refuses each write.
//!
//! A power cut leaves nothing of `/run`, and the persistent files as they were. The write under way may be
//! done, not done, or a partial temporary file; the model disk of `pubsub` shows that these are all cases.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::device::MachineOperation;
use kubesim::{ScriptedFault, Sim};
use pubsub::store;
use serde_json::{Value, json};
use tokio::sync::Notify;
use topics::{DeviceOpPending, DrainStatus, NodeDrainStatus, PendingState};

use crate::process::Halt;
use crate::{Cluster, Dice, Story, World, reboot_config};

/// Seconds by which a wall clock is wrong: little, an hour, an empty battery, a future year.
const WRONG_BY: [i64; 6] = [0, 2, -3_600, 3_600, -1_700_000_000, 300_000_000];
/// Writes of a node's operation; a cut after the last one hits nodes at rest.
const WRITES: u64 = 90;

/// How long no uncordon may follow from the API's state before the cut.
const LONG_AFTER: Duration = Duration::from_secs(60);

/// A state that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    RebootOfOne,
    ShutdownOfOne,
    RebootOfAll,
    ShutdownOfAll,
}

impl Asked {
    const ALL: [Self; 4] = [Self::RebootOfOne, Self::ShutdownOfOne, Self::RebootOfAll, Self::ShutdownOfAll];

    const fn is_shutdown(self) -> bool {
        matches!(self, Self::ShutdownOfOne | Self::ShutdownOfAll)
    }

    const fn of_all(self) -> bool {
        matches!(self, Self::RebootOfAll | Self::ShutdownOfAll)
    }

    const fn operation(self) -> MachineOperation {
        if self.is_shutdown() { MachineOperation::Shutdown } else { MachineOperation::Reboot }
    }

    const fn word(self) -> &'static str {
        if self.is_shutdown() { "shutdown" } else { "reboot" }
    }
}

#[derive(Debug, Clone, Default)]
struct LastWrite {
    path: String,
    before: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct PowerLog {
    held: BTreeMap<String, Option<Vec<u8>>>,
    last: LastWrite,
}

struct Node {
    world: World,
    asked: bool,
    heard: Arc<Mutex<PowerLog>>,
    /// State at the cut: whether the device was commanded, and asked.
    at_cut: (bool, usize),
}

struct Site {
    nodes: Vec<Node>,
    asked: Asked,
    foreign: Option<usize>,
    reads: bool,
    left: Arc<AtomicU64>,
    cut: Arc<Notify>,
}

pub async fn folders_of_a_device() -> Vec<PathBuf> {
    let mut world = World::new().await;
    Story::Reboot.play(&mut world).await;
    world.kill_all().await;
    world.folders()
}

/// One run: an operation, a cut during it, recovery. Returns a description.
pub async fn power_lost(mut dice: Dice, folders: &[PathBuf]) -> String {
    let asked = *dice.one_of(&Asked::ALL);
    let after = dice.below(if asked.of_all() { 3 * WRITES } else { WRITES });
    let mut site = Site::new(asked, &mut dice, folders).await;
    let (foreign, reads) = (site.foreign, site.reads);
    let what = format!(
        "{asked:?}, cut after {after} writes, foreign cordon {foreign:?}, read without a quorum: {reads}"
    );
    site.begin(after).await;
    let cut = site.cut.clone();
    // Whichever is first; when all is done before, the cut hits nodes at rest.
    tokio::select! {
        () = cut.notified() => {}
        () = site.finish() => {}
    }
    let seen = site.lose_power(&mut dice).await;
    let what = format!("{what}; {seen}");
    site.come_back(&mut dice, &what).await;
    site.finish().await;
    site.check(&what).await;
    what
}

impl Site {
    async fn new(asked: Asked, dice: &mut Dice, folders: &[PathBuf]) -> Self {
        let one = usize::try_from(dice.below(3)).unwrap();
        let foreign = (dice.below(2) == 0).then(|| usize::try_from(dice.below(3)).unwrap());
        let mut site = Self {
            nodes: Vec::new(),
            asked,
            foreign,
            reads: dice.below(2) == 0,
            left: Arc::new(AtomicU64::new(u64::MAX)),
            cut: Arc::default(),
        };
        for (number, cluster) in Cluster::embedded_of_three().await.into_iter().enumerate() {
            let mut world = World::on(cluster);
            world.limits["zedkube"]["proof_gap_ms"] = 50.into();
            // Each node alone: with turns the others would wait for the one that is off.
            world.limits["zedkube"]["take_turns"] = false.into();
            // How long a clock that is behind keeps the gate closed.
            world.limits["zedkube"]["gate_clock_limit_ms"] = 5_000.into();
            world.put("persist/status/shutdownConfig", r#"{"Counter":1,"DesiredState":true,"OpsTime":""}"#);
            world.config(&config(6, 1));
            if foreign == Some(number) {
                world.cluster.cordon_by_hand().await;
            }
            let heard = Arc::default();
            site.nodes.push(Node {
                world,
                asked: asked.of_all() || number == one,
                heard,
                at_cut: (false, 0),
            });
        }
        let halts: Vec<_> = site.nodes.iter().map(|node| node.world.halt()).collect();
        for node in &mut site.nodes {
            let (heard, left, cut) = (node.heard.clone(), site.left.clone(), site.cut.clone());
            let topic_root = node.world.topic_root.clone();
            let halts = halts.clone();
            let hear = move |path: Option<&str>, _: &crate::Processes| {
                let Some(path) = path else { return };
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                let now = std::fs::read(topic_root.path(path)).ok();
                let before = heard.held.insert(path.to_owned(), now).flatten();
                heard.last = LastWrite { path: path.to_owned(), before };
                let counted =
                    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                // All three stop at once, at any point.
                if counted.is_err() {
                    halts.iter().for_each(Halt::now);
                    cut.notify_one();
                }
            };
            node.world.follow_writes(folders, hear);
        }
        site
    }

    /// All agents at rest, then the controller orders. From there on writes are counted.
    async fn begin(&mut self, after: u64) {
        for node in &mut self.nodes {
            node.world.start_all();
        }
        for node in &self.nodes {
            node.world.status(DrainStatus::NotRequested).await;
        }
        self.left.store(after, Ordering::SeqCst);
        for node in self.nodes.iter().filter(|it| it.asked) {
            let asked = if self.asked.is_shutdown() { config(6, 2) } else { config(7, 1) };
            node.world.config(&asked);
        }
    }

    /// Every node carries out its order and is at rest again.
    async fn finish(&mut self) {
        let asked = self.asked;
        futures::future::join_all(self.nodes.iter_mut().map(|node| node.finish(asked))).await;
    }

    async fn lose_power(&mut self, dice: &mut Dice) -> String {
        self.left.store(u64::MAX, Ordering::SeqCst);
        let mut seen = Vec::new();
        for node in &mut self.nodes {
            node.world.kill_all().await;
        }
        // Evictions under way outlive the agents here, which are tasks.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let sim = self.nodes[0].world.cluster.sim().clone();
        if self.reads {
            sim.quorum(false);
        } else {
            for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
                sim.faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
            }
        }
        for node in &mut self.nodes {
            node.world.cluster.power(false).await;
            node.tear(dice.below(3)).await;
            let pending: Option<DeviceOpPending> = node
                .world
                .read(&format!("persist/status/zedagent/DeviceOpPending/{}.json", self.asked.word()));
            let status: Option<NodeDrainStatus> = node.world.read("run/zedkube/NodeDrainStatus/global.json");
            let state = pending.map(|it| it.state);
            node.at_cut = (state == Some(PendingState::Commanded), node.world.recorded().len());
            let status = status.map_or_else(|| "no status".to_owned(), |it| format!("{:?}", it.status));
            seen.push(format!("{status}, {state:?}, asked {}", node.at_cut.1));
            node.world.lose_run();
            node.world.clock_off_by(*dice.one_of(&WRONG_BY));
        }
        seen.join(" | ")
    }

    /// One node of three is no quorum of etcd: until the second one is there the API writes nothing, and no
    /// node may try to remove a cordon, whatever the API answers.
    async fn come_back(&mut self, dice: &mut Dice, what: &str) {
        let sim = self.nodes[0].world.cluster.sim().clone();
        let (left, asked) = (cordons(&sim), sim.faults().requests().len());
        let tried: Vec<usize> = self.nodes.iter().map(|it| it.world.cluster.uncordoned()).collect();
        let mut order = vec![0, 1, 2];
        let mut up = 0;
        while !order.is_empty() {
            let next = order.swap_remove(usize::try_from(dice.below(order.len() as u64)).unwrap());
            self.nodes[next].world.cluster.power(true).await;
            if up == 1 {
                // The first one has asked: without an answer, or with one from before the cut.
                let has_asked = async {
                    while sim.faults().requests().len() == asked {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                let in_time = tokio::time::timeout(PATIENCE, has_asked).await.is_ok();
                assert!(in_time, "{what}: the first node up never asks the API");
                if self.reads {
                    tokio::time::sleep(LONG_AFTER).await;
                } else {
                    let asked = sim.faults().requests().split_off(asked);
                    let writes: Vec<_> = asked.iter().filter(|it| it.method != "GET").collect();
                    assert!(writes.is_empty(), "{what}: writes before there is a quorum: {writes:?}");
                }
                let now: Vec<usize> = self.nodes.iter().map(|it| it.world.cluster.uncordoned()).collect();
                assert_eq!(now, tried, "{what}: uncordons before there is a quorum");
                assert_eq!(cordons(&sim), left, "{what}: cordons before there is a quorum");
                sim.faults().clear();
                sim.quorum(true);
            }
            let world = &mut self.nodes[next].world;
            world.start_all();
            up += 1;
            for _ in 0..dice.below(300) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn check(&mut self, what: &str) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if self.foreign == Some(number) {
                node.world.cluster.until_ready().await;
                assert!(node.world.cluster.cordoned().await, "{what}: a foreign cordon is gone");
            } else {
                node.world.cluster.until_schedulable().await;
            }
            assert_eq!(node.world.cluster.owner(), None, "{what}: a mark of ours is left on node {number}");
            let recorded = node.world.recorded();
            let most = usize::from(node.asked);
            assert!(recorded.len() <= most, "{what}: node {number} was asked again: {recorded:?}");
            // Any boot after the command fulfils it, also when the power cut was faster than the device.
            let done = recorded.len() == most || node.at_cut == (true, 0);
            assert!(done, "{what}: the operation of node {number} is lost");
            assert!(recorded.iter().all(|it| it.operation == self.asked.operation()), "{what}: {recorded:?}");
            assert_eq!(node.world.cluster.evicted_twice(), [""; 0], "{what}");
            node.world.unfollow_writes();
            node.world.kill_all().await;
        }
    }
}

/// Unschedulable nodes with their cordon's owner.
pub fn cordons(sim: &Sim) -> Vec<(Value, Value, Value)> {
    let seen = |node: Value| {
        let owner = node["metadata"]["annotations"]["pillar-rs/cordon-owner"].clone();
        (node["metadata"]["name"].clone(), node["spec"]["unschedulable"].clone(), owner)
    };
    sim.list("nodes").into_iter().map(seen).collect()
}

impl Node {
    async fn finish(&mut self, asked: Asked) {
        if self.asked {
            let known = self.world.recorded().len();
            if known == 0 {
                tokio::select! {
                    () = self.world.recorded_count(1) => {}
                    // Power was lost just before the device was asked: the boot since then counts.
                    () = self.world.carried_out(asked.word()) => {}
                }
            }
            if !self.world.is_carried_out(asked.word()) {
                self.world.reboot().await;
                self.world.start_all();
            }
            self.world.carried_out(asked.word()).await;
        }
        self.world.status(DrainStatus::NotRequested).await;
    }

    /// What a cut does to the last write, if nothing followed.
    async fn tear(&self, how: u64) {
        self.world.heard_all().await;
        let LastWrite { path, before } =
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).last.clone();
        if !path.starts_with("persist/") || path.starts_with("persist/config/") {
            return;
        }
        let file = self.world.topic_root.path(&path);
        match (how, before) {
            (0, Some(before)) => store::replace(&file, &before).unwrap(),
            (0, None) => drop(std::fs::remove_file(&file)),
            (1, _) => {
                let held = std::fs::read(&file).unwrap_or_default();
                let piece = &held[..held.len() / 2];
                let mut torn = File::create(file.with_file_name("tmp01234567890123456789")).unwrap();
                torn.write_all(piece).unwrap();
            }
            _ => {}
        }
    }
}

fn config(reboot: u32, shutdown: u32) -> Value {
    let mut config = reboot_config(reboot);
    config["shutdown"] = json!({ "counter": shutdown, "desiredState": true });
    config
}

impl World {
    /// Whether no `operation` is pending, and its counter is the next one.
    fn is_carried_out(&self, operation: &str) -> bool {
        let (file, pending) = counter_files(operation);
        self.text(&file).is_some_and(|it| is_next(operation, &it)) && self.text(&pending).is_none()
    }

    async fn carried_out(&self, operation: &str) {
        let (file, pending) = counter_files(operation);
        let what = format!("the {operation} to count as executed");
        self.until_file(&file, &what, |text| text.is_some_and(|it| is_next(operation, it))).await;
        self.until_file(&pending, "nothing pending", |text| text.is_none()).await;
    }
}

fn counter_files(operation: &str) -> (String, String) {
    let pending = format!("persist/status/zedagent/DeviceOpPending/{operation}.json");
    (format!("persist/status/{operation}Config"), pending)
}

/// Whether these are the counters of the ordered operation.
fn is_next(operation: &str, text: &str) -> bool {
    text.contains(if operation == "reboot" { "\"Counter\":7," } else { "\"Counter\":2," })
}
