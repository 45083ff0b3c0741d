//! The drill of a power cut: all three nodes at once, one of them in the middle of a drained reboot in its turn; then
//! on again in every order, with one missing, with clocks at 1970 and 400 days ahead.
//!
//! An API of three servers has no quorum before two of them are up: it does not answer, or answers with its
//! last state, in which all nodes are Ready, and refuses each write.

#![expect(clippy::print_stdout, reason = "a test that tries many courses says which one it is at")]

use std::time::Duration;

use agent::Clock;
use kubesim::{ScriptedFault, Sim};
use outage::operator as lease;
use outage::turn::record::{Holder, Phase};
use scenarios::{Cluster, World, cordons, within_still};
use serde_json::Value;
use topics::{BootGate, DrainStatus, NodeDrainProgress};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    AnswersNobody,
    ReadsOnly,
}

const ALONE: [Alone; 2] = [Alone::AnswersNobody, Alone::ReadsOnly];
const GATE: &str = "run/zedkube/NodeDrainProgress/global.json";

/// An empty battery, and a wrong setting.
fn clocks() -> [i64; 3] {
    [0, -Clock::new().wall().to_timestamp().as_second(), 400 * 86_400]
}

/// Each clock with each kind of API without a quorum.
fn each() -> impl Iterator<Item = (i64, Alone)> {
    clocks().into_iter().flat_map(|clock| ALONE.map(|alone| (clock, alone)))
}

struct Drill {
    worlds: Vec<World>,
    sim: Sim,
    alone: Alone,
    clock: i64,
}

/// zedkube's checks after boot.
fn gate(world: &World) -> BootGate {
    world.read::<NodeDrainProgress>(GATE).unwrap().gate
}

impl Drill {
    /// Three nodes; the first is drained for a reboot, which a pod blocks.
    async fn begun() -> Self {
        let clusters = Cluster::embedded_of(3, Duration::from_secs(10)).await;
        let mut worlds: Vec<World> = clusters.into_iter().map(World::on).collect();
        let sim = worlds[0].cluster.sim().clone();
        for world in &mut worlds {
            world.patience = Duration::from_hours(3);
            world.limits["zedkube"]["gate_clock_limit_ms"] = 120_000.into();
            world.start_all();
        }
        for world in &worlds {
            world.status(DrainStatus::NotRequested).await;
        }
        let of_nodes = |it: &&Value| it["metadata"]["namespace"] == "kube-node-lease";
        sim.until("coordination/leases", |all| all.iter().filter(of_nodes).count() == 3).await;
        sim.faults().script("POST", "/eviction", u32::MAX, ScriptedFault::status(429, "TooManyRequests"));
        worlds[0].ask_reboot(7);
        worlds[0].status(DrainStatus::Cordoned).await;
        Self { worlds, sim, alone: Alone::AnswersNobody, clock: 0 }
    }

    async fn holders(&self) -> Vec<Holder> {
        let view = lease::view(&self.worlds[0].cluster.handle()).await.unwrap();
        view.held.map(|it| it.record.holders).unwrap_or_default()
    }

    /// All lose power, and get wrong clocks.
    async fn cut(&mut self, clock_off_by: i64, alone: Alone) {
        (self.clock, self.alone) = (clock_off_by, alone);
        for world in &mut self.worlds {
            world.kill_all().await;
        }
        self.sim.faults().clear();
        // No controller is left to write that a node is away.
        self.sim.quorum(false);
        if alone == Alone::AnswersNobody {
            for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
                self.sim.faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
            }
        }
        for world in &mut self.worlds {
            world.cluster.power(false).await;
            world.lose_run();
            world.clock_off_by(clock_off_by);
        }
    }

    /// Switched on in this order, each as soon as the one before has called the API.
    async fn switch_on(&mut self, order: &[usize]) {
        let (left, asked) = (cordons(&self.sim), self.sim.faults().requests().len());
        let let_go: Vec<usize> = self.worlds.iter().map(|it| it.cluster.uncordoned()).collect();
        for (up, at) in order.iter().enumerate() {
            if up == 1 {
                let first = &self.worlds[order[0]];
                self.is_held_by_a_clock_that_is_behind(first).await;
                while self.sim.faults().requests().len() < asked + 5 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                tokio::time::sleep(Duration::from_mins(5)).await;
                let held = gate(first);
                let (layer, words) = match self.alone {
                    Alone::AnswersNobody => ("kubernetes-service", "the Kubernetes API"),
                    Alone::ReadsOnly => ("node-lease", "not renewed since zedkube started"),
                };
                assert_eq!((held.open, held.layer.as_str()), (false, layer), "{held:?}");
                assert!(held.words.contains(words), "{held:?}");
                let tried = self.sim.faults().requests().split_off(asked);
                let writes: Vec<_> = tried.iter().filter(|it| it.method != "GET").collect();
                assert!(
                    self.alone == Alone::ReadsOnly || writes.is_empty(),
                    "writes before there is a quorum: {writes:?}"
                );
                // A try is as bad as a success: by the API's state, only the lease keeps the cordon.
                let now: Vec<usize> = self.worlds.iter().map(|it| it.cluster.uncordoned()).collect();
                assert_eq!(
                    (now, cordons(&self.sim)),
                    (let_go.clone(), left.clone()),
                    "before there is a quorum"
                );
                self.sim.faults().clear();
                self.sim.quorum(true);
            }
            self.worlds[*at].cluster.power(true).await;
            self.worlds[*at].start_all();
        }
    }

    /// A clock at 1970 closes the gate, is shown, and becomes a warning after its limit; one that is ahead,
    /// or right, does not.
    async fn is_held_by_a_clock_that_is_behind(&self, world: &World) {
        let first = world.progress("the checks after boot", |it| !it.gate.layer.is_empty()).await.gate;
        if self.clock >= 0 {
            assert_ne!(first.layer, "clock", "{first:?}");
            return;
        }
        assert_eq!((first.layer.as_str(), first.open, first.failed), ("clock", false, false), "{first:?}");
        for word in ["the wall clock is behind", "was written (20", "not known to be synchronised"] {
            assert!(first.words.contains(word), "{first:?}");
        }
        let on = |it: &NodeDrainProgress| {
            !it.gate.open
                && it.gate.layer != "clock"
                && it.gate.warnings.iter().any(|it| it.layer == "clock" && it.failed)
        };
        let (clock, before) = (Clock::new(), Clock::new().now());
        world.progress("the clock to be a warning", on).await;
        let took = clock.now().since(before);
        assert!((115..125).contains(&took.as_secs()), "held for {took:?}");
    }

    /// Nodes without a turn are schedulable, and the first one reboots once.
    async fn ends(&mut self) {
        self.worlds[0].recorded_count(1).await;
        assert_eq!(
            cordons(&self.sim).iter().filter(|it| it.1 == true).count(),
            1,
            "{:?}",
            cordons(&self.sim)
        );
        self.worlds[0].reboot().await;
        self.worlds[0].start_all();
        self.worlds[0].executed(7).await;
        for world in &self.worlds {
            world.cluster.until_schedulable().await;
            world.status(DrainStatus::NotRequested).await;
            assert_eq!(world.cluster.owner(), None);
        }
        let free = async {
            while !self.holders().await.is_empty() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_hours(1), free).await.is_ok(), "the turn is kept");
        let counts: Vec<usize> = self.worlds.iter().map(|it| it.recorded().len()).collect();
        assert_eq!(counts, [1, 0, 0]);
        for world in &mut self.worlds {
            world.kill_all().await;
        }
    }
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn all_come_back(order: [usize; 3], clock: i64, alone: Alone) {
    println!("order {order:?}, clocks off by {clock} s, without quorum the API {alone:?}");
    within_still(async {
        let mut drill = Drill::begun().await;
        let held: Vec<String> = drill.holders().await.into_iter().map(|it| it.node).collect();
        assert_eq!(held, ["edge-node-1"], "power is lost in its turn");
        drill.cut(clock, alone).await;
        drill.switch_on(&order).await;
        for world in &drill.worlds[1..] {
            world.cluster.until_schedulable().await;
        }
        drill.ends().await;
    });
}

fn one_comes_later(missing: usize, clock: i64, alone: Alone) {
    println!("node {missing} missing, clocks off by {clock} s, without quorum the API {alone:?}");
    within_still(async {
        let mut drill = Drill::begun().await;
        let fence = drill.holders().await[0].fence;
        drill.cut(clock, alone).await;
        let there: Vec<usize> = (0..3).filter(|it| *it != missing).collect();
        drill.switch_on(&there).await;
        for at in &there {
            drill.worlds[*at].cluster.until_schedulable().await;
        }
        // With any clock, the turn of an absent node does not end, and no other node goes beside it.
        tokio::time::sleep(Duration::from_mins(30)).await;
        let holders = drill.holders().await;
        if missing == 0 {
            assert_eq!((holders[0].node.as_str(), holders[0].fence), ("edge-node-1", fence));
            assert_ne!(holders[0].phase, Phase::Booted);
        } else {
            assert!(holders.is_empty(), "{holders:?}");
            drill.worlds[0]
                .progress("the wait for the one that is missing", |it| !it.reason.is_empty())
                .await;
        }
        assert!(drill.worlds.iter().all(|it| it.recorded().is_empty()));
        drill.worlds[missing].cluster.power(true).await;
        drill.worlds[missing].start_all();
        drill.ends().await;
    });
}

/// Each order of power on once, and each clock with each kind of API without a quorum once.
#[test]
fn v4_after_a_power_cut_all_nodes_are_schedulable_in_each_order_of_power_on_and_with_wrong_clocks() {
    for (order, (clock, alone)) in ORDERS.into_iter().zip(each()) {
        all_come_back(order, clock, alone);
    }
}

/// Each node missing twice, and each clock with each kind of API without a quorum once.
#[test]
fn v4_with_one_node_missing_the_others_are_schedulable_nothing_expires_and_it_joins_them_when_it_comes() {
    for (missing, (clock, alone)) in (0..3).cycle().zip(each()) {
        one_comes_later(missing, clock, alone);
    }
}

#[test]
#[ignore = "takes long: cargo test -p scenarios --test scenarios drill -- --ignored"]
fn v4_in_full_each_order_and_each_node_missing_with_each_clock() {
    for (clock, alone) in each() {
        for order in ORDERS {
            all_come_back(order, clock, alone);
        }
        for missing in 0..3 {
            one_comes_later(missing, clock, alone);
        }
    }
}
