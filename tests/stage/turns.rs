//! Nodes that are all ordered to reboot in the same moment, and random troubles with their turns. Checked at
//! every change: how many nodes have our cordon.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use kubesim::Sim;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use topics::DrainStatus;

use crate::cluster::OWNER;
use crate::process::WrongClock;
use crate::{Agent, Cluster, Dice, World, reboot_config};

/// Seconds by which a node's wall clock is wrong.
const CLOCKS: [i64; 4] = [0, 0, -3_600, 3_600];

const LEASES: &str = "coordination/leases";
const NAMESPACE: &str = "eve-kube-app";
const LEASE: &str = "pillar-rs-outage";

/// Durations in seconds.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Longest time from one trouble to the next.
    begin: u64,
    away: u64,
    /// Longest time off.
    off: u64,
    /// By then the last trouble is over; a failed attempt is repeated within minutes.
    patience: u64,
}

/// On a paused clock: hours pass, and cost only their work.
const STILL: Pace = Pace { begin: 60, away: 240, off: 60, patience: 20 * 60 };
/// In real time, with short waits of the agents.
const REAL: Pace = Pace { begin: 10, away: 20, off: 3, patience: 10 * 60 };

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Kill(Agent),
    Power(Duration),
    CutOff(Duration),
}

#[derive(Debug, Clone, Copy)]
enum Stroke {
    LeaseDeleted,
    /// The Lease is restored to its state so long before.
    LeaseRestored(Duration),
    /// A node is deleted, and joins again under its name after so long.
    NodeRejoins(usize, Duration),
}

struct Node {
    world: World,
    name: String,
    troubles: Vec<(Duration, Trouble)>,
    /// Between power off and on.
    off: Duration,
    cuts: JoinSet<()>,
}

/// One run, of agents that are tasks on a paused clock, or processes of `zedbox`. Returns a description.
/// Tasks have wrong clocks, and processes where libfaketime is given.
///
/// # Panics
/// More nodes have our cordon than the limit allows, or one never finishes.
pub async fn turns_in_trouble(mut dice: Dice, zedbox: Option<&Path>, faketime: Option<&Path>) -> String {
    let pace = if zedbox.is_some() { REAL } else { STILL };
    let count = 3 + usize::try_from(dice.below(3)).unwrap();
    let (limit, servers) = (1 + dice.below(2), 1 + usize::try_from(dice.below(2)).unwrap() * 4);
    let clusters = Cluster::embedded_of(count, Duration::from_secs(10)).await;
    let sim = clusters[0].sim().clone();
    sim.apply(
        LEASES,
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": LEASE,
            "namespace": NAMESPACE, "annotations": { "pillar-rs/outage-limit": limit.to_string() } } }),
    );
    let mut nodes = Vec::new();
    for (nth, cluster) in clusters.into_iter().enumerate() {
        let name = cluster.device_name().to_owned();
        if nth >= servers {
            sim.edit("nodes", "", &name, |it| {
                let labels = it["metadata"]["labels"].as_object_mut().unwrap();
                labels.remove("node-role.kubernetes.io/control-plane");
            });
        }
        let mut world = World::on(cluster);
        world.patience = Duration::from_secs(pace.patience);
        world.config(&config(&sim.list("nodes"), 6));
        if let Some(zedbox) = zedbox {
            let clock = faketime.map(|library| WrongClock::new(library, *dice.one_of(&CLOCKS)));
            world.becomes_processes(zedbox, clock).await;
        } else {
            // Files have the machine's times, which set back the clock of a node that is behind: its gate
            // waits for so long, and the nodes after it.
            world.limits = json!({ "zedkube": { "gate_clock_limit_ms": 5_000 } });
            world.clock_off_by(*dice.one_of(&CLOCKS));
        }
        let troubles =
            (0..dice.below(3)).map(|_| (secs(&mut dice, pace.begin), trouble(&mut dice, pace))).collect();
        nodes.push(Node { world, name, troubles, off: secs(&mut dice, pace.off), cuts: JoinSet::new() });
    }
    let strokes: Vec<_> =
        (0..dice.below(3)).map(|_| (secs(&mut dice, pace.begin), stroke(&mut dice, pace, count))).collect();
    let seen =
        nodes.iter().map(|it| format!("{}: {:?}", it.name, it.troubles)).collect::<Vec<_>>().join("; ");
    let what = format!("{count} nodes, {servers} servers at most, limit {limit}; {strokes:?}; {seen}");
    let clock = Clock::new();
    let begun = clock.now();
    for node in &mut nodes {
        node.world.start_all();
    }
    for node in &nodes {
        node.world.status(DrainStatus::NotRequested).await;
    }
    let lives = async {
        let lives = futures::future::join_all(nodes.iter_mut().map(|it| it.life(&sim)));
        futures::future::join(lives, strike(&sim, strokes)).await;
    };
    tokio::select! {
        () = lives => {}
        wrong = lookout(&sim, usize::try_from(limit).unwrap()) => panic!("{wrong}\n{what}"),
    }
    for node in &mut nodes {
        // From the store: a call of the node itself, made while it was cut off, may never be answered.
        let own = |it: &&Value| it["metadata"]["name"] == *node.name;
        let open = |it: &Value| it["spec"]["unschedulable"] != true;
        sim.until("nodes", |all| all.iter().find(own).is_some_and(open)).await;
        assert_eq!(node.world.cluster.owner(), None, "{what}: a mark of ours is left on {}", node.name);
        assert!(node.world.recorded().len() <= 1, "{what}: {} was asked again", node.name);
        node.world.kill_all().await;
    }
    format!("{} s, {} requests: {what}", clock.now().since(begun).as_secs(), sim.faults().requests().len())
}

/// With this counter of reboots, in a cluster whose servers are `nodes`: others would be deleted.
fn config(nodes: &[Value], counter: u32) -> Value {
    let mut config = reboot_config(counter);
    let uuids: Value = nodes.iter().map(|it| it["metadata"]["labels"]["node-uuid"].clone()).collect();
    *config.pointer_mut("/cluster/masterNodeUuids").unwrap() = uuids;
    config
}

fn secs(dice: &mut Dice, most: u64) -> Duration {
    Duration::from_millis(dice.below(1_000 * most))
}

fn trouble(dice: &mut Dice, pace: Pace) -> Trouble {
    match dice.below(3) {
        0 => Trouble::Kill(*dice.one_of(&Agent::ALL)),
        1 => Trouble::Power(secs(dice, pace.away)),
        _ => Trouble::CutOff(secs(dice, pace.away)),
    }
}

fn stroke(dice: &mut Dice, pace: Pace, nodes: usize) -> Stroke {
    match dice.below(3) {
        0 => Stroke::LeaseDeleted,
        1 => Stroke::LeaseRestored(secs(dice, pace.begin)),
        _ => {
            Stroke::NodeRejoins(usize::try_from(dice.below(nodes as u64)).unwrap(), secs(dice, pace.away / 2))
        }
    }
}

/// Returns a description when too many nodes, or two servers, have our cordon.
async fn lookout(sim: &Sim, limit: usize) -> String {
    let wrong = Mutex::new(None);
    sim.until("nodes", |nodes| {
        let ours = |it: &&Value| !it["metadata"]["annotations"][OWNER].is_null();
        let ours: Vec<&Value> = nodes.iter().filter(ours).collect();
        let server =
            |it: &&&Value| !it["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_null();
        let too_many = ours.len() > limit || ours.iter().filter(server).count() > 1;
        if too_many {
            let lease = sim.get(LEASES, NAMESPACE, LEASE);
            let marks: Vec<String> = ours.iter().map(|it| it["metadata"].to_string()).collect();
            *wrong.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(format!("{} nodes are out together: {}\n{lease:?}", ours.len(), marks.join("\n")));
        }
        too_many
    })
    .await;
    wrong.into_inner().unwrap().unwrap()
}

async fn strike(sim: &Sim, strokes: Vec<(Duration, Stroke)>) {
    for (wait, stroke) in strokes {
        let known = if let Stroke::LeaseRestored(before) = stroke {
            sleep(wait.saturating_sub(before)).await;
            let known = sim.get(LEASES, NAMESPACE, LEASE);
            sleep(before.min(wait)).await;
            known
        } else {
            sleep(wait).await;
            None
        };
        match stroke {
            // There may be none since the last time.
            Stroke::LeaseDeleted => drop(sim.remove(LEASES, NAMESPACE, LEASE).then_some(())),
            Stroke::LeaseRestored(_) => {
                sim.edit(LEASES, NAMESPACE, LEASE, |it| {
                    if let Some(known) = known {
                        it["spec"] = known["spec"].clone();
                        it["metadata"]["annotations"] = known["metadata"]["annotations"].clone();
                    }
                });
            }
            Stroke::NodeRejoins(nth, after) => {
                let name = &sim.list("nodes")[nth]["metadata"]["name"].as_str().unwrap().to_owned();
                let labels = sim.get("nodes", "", name).unwrap()["metadata"]["labels"].clone();
                assert!(sim.remove("nodes", "", name));
                sleep(after).await;
                sim.add_node(name, labels["node-uuid"].as_str().unwrap());
                sim.edit("nodes", "", name, |it| it["metadata"]["labels"] = labels);
            }
        }
    }
}

impl Node {
    /// It is ordered to reboot, does what its agents order, and meets its troubles, until all is over.
    async fn life(&mut self, sim: &Sim) {
        self.world.config(&config(&sim.list("nodes"), 7));
        let (mut rebooted, mut done) = (false, false);
        for (wait, trouble) in std::mem::take(&mut self.troubles) {
            let due = sleep(wait);
            tokio::pin!(due);
            while !self.meets(sim, &mut rebooted, &mut done, &mut due).await {}
            rebooted |= !self.world.recorded().is_empty() && matches!(trouble, Trouble::Power(_));
            self.meet(sim, trouble).await;
        }
        while !done {
            let never = std::future::pending();
            tokio::pin!(never);
            self.meets(sim, &mut rebooted, &mut done, &mut never).await;
        }
        self.world.status(DrainStatus::NotRequested).await;
    }

    /// Its own next step; true when `due` is earlier.
    async fn meets(
        &mut self,
        sim: &Sim,
        rebooted: &mut bool,
        done: &mut bool,
        due: &mut (impl Future<Output = ()> + Unpin),
    ) -> bool {
        tokio::select! {
            () = due => return true,
            () = self.world.executed(7), if !*done => *done = true,
            () = self.world.recorded_count(1), if !*rebooted => {
                *rebooted = true;
                self.down(sim, self.off).await;
            }
        }
        false
    }

    async fn down(&mut self, sim: &Sim, off: Duration) {
        self.world.kill_all().await;
        sim.power(&self.name, false);
        self.world.lose_run();
        sleep(off).await;
        sim.power(&self.name, true);
        self.world.start_all();
    }

    async fn meet(&mut self, sim: &Sim, trouble: Trouble) {
        match trouble {
            Trouble::Kill(agent) => {
                self.world.kill(agent).await;
                self.world.start(agent);
            }
            Trouble::Power(away) => self.down(sim, away).await,
            Trouble::CutOff(away) => {
                sim.cut_off(&self.name, true);
                let (sim, name) = (sim.clone(), self.name.clone());
                self.cuts.spawn(async move {
                    sleep(away).await;
                    sim.cut_off(&name, false);
                });
            }
        }
    }
}
