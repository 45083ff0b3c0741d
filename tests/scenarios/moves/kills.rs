//! zedkube is killed at each of its writes to the cluster, when the server has carried it out and the answer has not
//! come: the same end, and nothing twice.

use scenarios::{AT_ONCE, Agent, at_once, within_still};

use super::*;

const VOLUMES: &str = "longhorn/volumes";

/// What is on the node, and what must hold once it is drained.
#[derive(Debug, Clone, Copy)]
enum Story {
    Machines,
    Storage,
}

impl Story {
    /// One machine that migrates and two that are shut down; or the last copies of two volumes, one of which
    /// a person passes.
    async fn put(self, sim: &Sim) {
        match self {
            Self::Machines => {
                for name in ["db", "own", "till"] {
                    let strategy = if name == "till" { "Manual" } else { "Always" };
                    sim.add_machine_on("shop", name, strategy, NODE, &migratable());
                }
                for name in ["own", "till"] {
                    annotate(sim, MACHINES, name, "pillar-rs/drain-policy", "shutdown");
                }
                up(sim, 3).await;
            }
            Self::Storage => {
                sim.add_longhorn("always-allow");
                for name in ["copied", "passed"] {
                    sim.add_longhorn_volume("shop", name, name, &[NODE]);
                    sim.add_mounting_pod("shop", &format!("uses-{name}"), "edge-node-2", name);
                }
                let healthy = |it: &Value| it["status"]["robustness"] == "healthy";
                until(sim, VOLUMES, |all| all.len() == 2 && all.iter().all(healthy)).await;
                sim.edit(VOLUMES, "longhorn-system", "passed", |it| {
                    it["metadata"]["annotations"]["pillar-rs/last-copy-pass"] =
                        format!("{NODE} its data is elsewhere").into();
                });
            }
        }
    }

    fn drained(self, sim: &Sim, what: &str) {
        match self {
            Self::Machines => {
                let node =
                    |name: &str| sim.get(GUESTS, "shop", name).map(|it| it["status"]["nodeName"].clone());
                assert!(node("db").is_some_and(|it| it != NODE), "{what}");
                assert_eq!(sim.list(MIGRATIONS).len(), 1, "{what}: a second migration");
                let strategy =
                    |name: &str| sim.get(MACHINES, "shop", name).unwrap()["spec"]["runStrategy"].clone();
                assert_eq!([strategy("own"), strategy("till")], ["Halted", "Manual"], "{what}");
                assert!(node("own").is_none(), "{what}");
            }
            Self::Storage => {
                let copies = |volume: &str| -> Vec<String> {
                    let own =
                        |it: &Value| it["spec"]["volumeName"] == volume && it["spec"]["healthyAt"] != "";
                    let all = sim.list("longhorn/replicas").into_iter().filter(own);
                    all.map(|it| it["spec"]["nodeID"].as_str().unwrap().to_owned()).collect()
                };
                assert_eq!(copies("copied").len(), 2, "{what}: {:?}", copies("copied"));
                assert_eq!(copies("passed"), [NODE], "{what}");
            }
        }
    }

    async fn back(self, sim: &Sim) {
        let marks = [
            "pillar-rs/drain-stopped",
            "pillar-rs/drain-asked",
            "pillar-rs/last-copy",
            "pillar-rs/last-copy-pass",
        ];
        // A migrated instance's mark does not count.
        let moved = |it: &Value| it["status"]["nodeName"].as_str().is_some_and(|node| node != NODE);
        let clean =
            |it: &Value| moved(it) || marks.iter().all(|mark| it["metadata"]["annotations"][mark].is_null());
        for kind in [MACHINES, GUESTS, VOLUMES] {
            until(sim, kind, |all| all.iter().all(clean)).await;
        }
        match self {
            Self::Machines => {
                up(sim, 3).await;
                assert_eq!(sim.list(MIGRATIONS).len(), 1, "none after the boot");
            }
            Self::Storage => {
                until(sim, VOLUMES, |all| all.iter().all(|it| it["spec"]["numberOfReplicas"] == 1)).await;
            }
        }
    }

    /// A reboot and the way back; zedkube is killed at its `nth` write, if it comes. Returns the number of
    /// writes, and whether it came.
    async fn outcome(self, nth: usize) -> (usize, bool) {
        let mut world = world(SimConfig::default(), "v1.7.3").await;
        let sim = world.cluster.sim().clone();
        self.put(&sim).await;
        let what = format!("{self:?}, killed at write {nth}");
        let (dealt, mut killed) = (world.cluster.never_answer(nth), false);
        world.begin().await;
        for away in [false, true] {
            loop {
                let done = async {
                    if away {
                        world.executed(7).await;
                        world.cluster.until_schedulable().await;
                        self.back(&sim).await;
                    } else {
                        world.recorded_count(1).await;
                    }
                };
                tokio::select! {
                    () = done => break,
                    () = dealt.notified() => {}
                }
                killed = true;
                world.kill(Agent::Zedkube).await;
                world.start(Agent::Zedkube);
            }
            if !away {
                self.drained(&sim, &what);
                assert_eq!(world.cluster.pods_to_leave().await, [""; 0], "{what}");
                world.reboot().await;
                world.start_all();
            }
        }
        let twice = world.cluster.evicted_twice();
        assert_eq!(twice, [""; 0], "{what}");
        world.kill_all().await;
        (world.cluster.writes(), killed)
    }

    fn told_with_each_kill(self) {
        let (writes, _) = within_still(Box::pin(self.outcome(usize::MAX)));
        assert!(writes > 5, "{writes}");
        let job = |nth: usize| {
            (format!("{self:?}, write {nth}"), move || {
                usize::from(within_still(Box::pin(self.outcome(nth))).1)
            })
        };
        let outcome = at_once(AT_ONCE, (1..=writes).map(job));
        assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
        assert!(outcome.kills > writes / 2, "{} kills at {writes} writes", outcome.kills);
    }
}

#[test]
fn d12_a_zedkube_killed_at_each_write_of_a_drain_with_machines_leads_to_the_same_end_and_one_migration() {
    Story::Machines.told_with_each_kill();
}

#[test]
fn d14_a_zedkube_killed_at_each_write_of_a_drain_with_last_copies_leads_to_the_same_end() {
    Story::Storage.told_with_each_kill();
}
