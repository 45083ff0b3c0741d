//! A restart of the site: three nodes one after another over their turns, each verified before the next one.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use agent::Clock;
use agent::device::MachineOperation;
use kubesim::{Etcd, EtcdFault, ScriptedFault};
use outage::operator as lease;
use outage::site::operator::{self, last_restart};
use outage::site::record::{NodeStep, SiteKind, SitePhase, SiteRecord};
use outage::turn::record::{MODE, TurnRecord};
use scenarios::{Cluster, within_still};
use serde_json::{Value, json};
use topics::DrainPhase;

use crate::etcd::{members, server};
use crate::look::NODES;
use crate::site::{PENDING, Place, said};

fn steps(site: &SiteRecord, node: &str) -> Vec<String> {
    let ack = site.ack(node).unwrap();
    let past = ack.past.iter().map(|(step, _)| step.text().to_owned());
    past.chain([ack.step.text().to_owned()]).collect()
}

async fn ten_minutes() {
    let clock = Clock::new();
    clock.sleep_until(Some(clock.now() + Duration::from_mins(10))).await;
}

impl Place {
    /// The machine goes down when ordered, and stays off.
    async fn goes_and_stays_off(&mut self, at: usize) {
        self.worlds[at].recorded_count(1).await;
        self.worlds[at].kill_all().await;
        self.worlds[at].cluster.power(false).await;
    }

    async fn comes_back(&mut self, at: usize) {
        self.worlds[at].reboot().await;
        self.worlds[at].start_all();
    }

    /// The restart ends, with one reboot of each node.
    async fn until_each_went_once(&mut self) {
        self.until_restarted().await;
        assert!(self.worlds.iter().all(|it| it.recorded().len() == 1), "each went once");
        self.kill_all().await;
    }

    async fn record(&self) -> TurnRecord {
        lease::view(&self.worlds[0].cluster.handle()).await.unwrap().held.unwrap().record
    }

    async fn last(&self) -> SiteRecord {
        last_restart(&self.record().await).unwrap()
    }

    async fn said(
        &self,
        edit: impl Fn(&TurnRecord) -> Result<TurnRecord, outage::turn::rule::OperatorRefusal>,
    ) {
        let wall = Clock::new().wall().to_timestamp();
        lease::change(&self.worlds[0].cluster.handle(), wall, edit).await.unwrap();
    }

    fn cordoned(&self) -> Vec<String> {
        let all = self.sim.list("nodes");
        let out = all.iter().filter(|it| it["spec"]["unschedulable"] == true);
        out.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Each machine reboots when ordered, alone; `went` is called with it.
    async fn each_reboots_alone(&mut self, went: impl Fn(usize)) {
        let (sim, known) = (self.sim.clone(), RefCell::new(Vec::new()));
        let down = Cell::new(0);
        let mode = |sim: &kubesim::Sim| {
            let lease = sim.get("coordination/leases", "eve-kube-app", "pillar-rs-outage").unwrap();
            let text = lease["metadata"]["annotations"]["pillar-rs/outage-mode"].as_str().unwrap().to_owned();
            serde_json::from_str::<SiteRecord>(&text).unwrap()
        };
        let each = self.worlds.iter_mut().enumerate().map(async |(at, world)| {
            let count = world.recorded().len();
            world.recorded_count(count + 1).await;
            let name = format!("edge-node-{}", at + 1);
            down.set(down.get() + 1);
            assert_eq!(down.get(), 1, "two machines are down");
            let out = sim.list("nodes");
            let out: Vec<&Value> = out.iter().filter(|it| it["spec"]["unschedulable"] == true).collect();
            assert!(
                out.len() == 1 && out[0]["metadata"]["name"] == *name,
                "{name} goes, and out are {out:?}"
            );
            // Those before it were found healthy; those after it wait.
            let site = mode(&sim);
            for (nth, node) in site.order.iter().enumerate() {
                let went = known.borrow().len();
                let step = site.step(node).unwrap();
                assert!(nth >= went || *step == NodeStep::Done, "{node} is {step:?}, and {name} goes");
                assert!(nth <= went || *step == NodeStep::Seen, "{node} is {step:?}, and {name} goes");
            }
            known.borrow_mut().push(name);
            went(at);
            world.kill_all().await;
            world.cluster.power(false).await;
            world.reboot().await;
            down.set(down.get() - 1);
            world.start_all();
        });
        futures::future::join_all(each).await;
    }

    async fn until_restarted(&self) {
        self.until_over(None).await;
        for world in &self.worlds {
            world.until_file(PENDING, "nothing to be pending", |text| text.is_none()).await;
        }
    }

    fn volume(&self, name: &str, robustness: &str) {
        let volume = json!({
            "metadata": { "name": name, "namespace": "longhorn-system" },
            "status": { "state": "detached", "robustness": robustness },
        });
        self.sim.apply("longhorn/volumes", volume);
    }

    /// For hours: kubelets renew their leases as often as real ones.
    async fn patient() -> Self {
        let limits = [("uncordon_poll_ms", 15_000), ("gate_hold_ms", 1_000), ("site_step_ms", 10_000)];
        let mut place = Self::of(Cluster::embedded_of(3, Duration::from_secs(10)).await, &limits).await;
        for world in &mut place.worlds {
            world.patience = Duration::from_hours(6);
        }
        place
    }
}

#[test]
fn v3_three_nodes_restart_one_after_another_each_drained_in_its_turn_and_verified() {
    within_still(async {
        let mut place = Place::patient().await;
        place.sim.add_machine("shop", "till", "Always");
        place.until_machine_runs().await;
        place.begin(SiteKind::Restart).await;
        let went = RefCell::new(Vec::new());
        place.each_reboots_alone(|at| went.borrow_mut().push(at)).await;
        assert_eq!(*went.borrow(), [2, 0, 1], "the worker goes first");
        place.until_restarted().await;
        let last = place.last().await;
        for node in &last.order {
            let all = ["seen", "draining", "going", "booted", "open", "verifying", "done"];
            let steps = steps(&last, node);
            // Short ones may be over before they are published.
            assert!(steps.iter().all(|it| all.contains(&it.as_str())), "{steps:?}");
            assert!(
                ["draining", "verifying", "done"].iter().all(|it| steps.iter().any(|of| of == it)),
                "{steps:?}"
            );
            let ack = last.ack(node).unwrap();
            assert!(ack.past.iter().all(|(_, since)| !since.is_empty()) && !ack.since.is_empty(), "{ack:?}");
        }
        // Nothing was cut off: every node was drained.
        assert!(place.worlds.iter().all(|it| it.cluster.evictions() > 0));
        assert_eq!(place.worlds[0].cluster.evicted_twice(), [""; 0]);
        place.until_machine_runs().await;
        assert!(place.worlds.iter().all(|it| it.recorded().len() == 1), "each went once");
        assert!(place.worlds.iter().all(|it| it.recorded()[0].operation == MachineOperation::Reboot));
        place.kill_all().await;
        place.worlds.iter().for_each(|it| crate::role::is_granted(&it.cluster.asked_by_agents()));
    });
}

#[test]
fn v3_a_drain_that_fails_stops_the_restart_and_a_person_takes_it_up_again() {
    within_still(async {
        let mut place = Place::patient().await;
        place.sim.faults().script("POST", "/eviction", u32::MAX, ScriptedFault::status(403, "Forbidden"));
        place.begin(SiteKind::Restart).await;
        place.until_mode(|it| it.phase == SitePhase::Stopped).await;
        let site = place.mode().unwrap();
        assert!(site.waits.starts_with("node edge-node-3: its drain failed: pod shop/"), "{}", site.waits);
        assert!(site.next.contains("--phase stopped"), "{}", site.next);
        assert_eq!(site.step("edge-node-3"), Some(&NodeStep::Failed));
        // The node's order is withdrawn, and nothing else starts.
        place.worlds[2].progress("its drain to be withdrawn", |it| it.phase == DrainPhase::Idle).await;
        place.worlds[1].progress("the queue to be shown", |it| it.reason.contains("the site restarts")).await;
        place.worlds[2].cluster.until_schedulable().await;
        ten_minutes().await;
        assert_eq!((place.cordoned(), place.mode().unwrap()), (vec![], site));
        assert!(place.worlds.iter().all(|it| it.recorded().is_empty()));
        place.sim.faults().clear();
        // Meanwhile something else broke: nothing is ordered before it is repaired.
        place.volume("pv-lost", "faulted");
        place.said(|record| operator::pass(record, &SitePhase::Stopped, None, &said())).await;
        let waits = |it: &SiteRecord| {
            it.phase == SitePhase::Checking
                && it.waits.contains("the cluster to be well before the restart continues: storage fail")
        };
        place.until_mode(waits).await;
        ten_minutes().await;
        assert!(place.cordoned().is_empty() && place.worlds.iter().all(|it| it.recorded().is_empty()));
        place.volume("pv-lost", "healthy");
        place.each_reboots_alone(|_| ()).await;
        place.until_each_went_once().await;
    });
}

#[test]
fn v3_a_node_that_does_not_come_back_stops_the_restart_and_goes_no_second_time() {
    within_still(async {
        let mut place = Place::patient().await;
        place.begin(SiteKind::Restart).await;
        place.goes_and_stays_off(2).await;
        place.until_mode(|it| it.phase == SitePhase::Stopped).await;
        let site = place.mode().unwrap();
        assert!(site.waits.starts_with("node edge-node-3: it is not Ready for 15 min"), "{}", site.waits);
        assert_eq!(place.cordoned(), ["edge-node-3"]);
        // Switched on in the evening, which starts nothing.
        place.comes_back(2).await;
        place.worlds[2].cluster.until_schedulable().await;
        ten_minutes().await;
        assert!(place.cordoned().is_empty() && place.mode().unwrap().phase == SitePhase::Stopped);
        place.said(|record| operator::pass(record, &SitePhase::Stopped, None, &said())).await;
        for at in [0, 1] {
            place.worlds[at].recorded_count(1).await;
            assert_eq!(place.cordoned(), [format!("edge-node-{}", at + 1)]);
            place.comes_back(at).await;
        }
        place.until_each_went_once().await;
    });
}

#[test]
fn v3_a_cluster_that_is_not_well_with_a_node_back_keeps_the_next_one_up() {
    within_still(async {
        let mut place = Place::patient().await;
        place.begin(SiteKind::Restart).await;
        place.goes_and_stays_off(2).await;
        // While it is away something breaks for good.
        place.volume("pv-lost", "faulted");
        place.comes_back(2).await;
        place.until_mode(|it| it.waits.contains("to be well with node edge-node-3 back")).await;
        place.until_mode(|it| it.phase == SitePhase::Stopped).await;
        let site = place.mode().unwrap();
        assert!(site.waits.contains("the cluster is not well: storage"), "{}", site.waits);
        assert!(place.cordoned().is_empty());
        place.said(|record| operator::cancel(record, &said())).await;
        place.until_over(None).await;
        assert_eq!(place.last().await.cancelled.unwrap().phase, "stopped");
        assert_eq!(place.worlds.iter().map(|it| it.recorded().len()).sum::<usize>(), 1);
        place.kill_all().await;
    });
}

#[test]
fn v3_agents_and_machines_that_lose_power_in_the_middle_neither_lose_the_restart_nor_go_twice() {
    within_still(async {
        let mut place = Place::patient().await;
        place.worlds[0].cluster.block().await;
        place.begin(SiteKind::Restart).await;
        let ordered = |it: &SiteRecord| it.step("edge-node-3") == Some(&NodeStep::Draining);
        place.until_mode(ordered).await;
        place.worlds[2].until_file(PENDING, "the order", |text| text.is_some()).await;
        // The coordinator's agents, and those of the node that goes.
        for at in [0, 2] {
            place.worlds[at].kill_all().await;
            place.worlds[at].start_all();
        }
        // The node that goes loses power: that was a boot, and it is not ordered another one.
        place.comes_back(2).await;
        place.until_mode(|it| it.step("edge-node-1") == Some(&NodeStep::Draining)).await;
        assert_eq!(place.worlds[2].recorded().len(), 0);
        // Under load the gate may open unseen.
        let seen = steps(&place.mode().unwrap(), "edge-node-3");
        assert!(seen.iter().any(|it| ["booted", "open"].contains(&it.as_str())), "{seen:?}");
        place.worlds[0].cluster.unblock().await;
        // The whole site loses power, as the next one goes down.
        place.worlds[0].recorded_count(1).await;
        for world in &mut place.worlds {
            world.kill_all().await;
            world.cluster.power(false).await;
        }
        for world in place.worlds.iter_mut().rev() {
            world.reboot().await;
            world.start_all();
        }
        place.worlds[1].recorded_count(1).await;
        assert_eq!(place.cordoned(), ["edge-node-2"]);
        place.comes_back(1).await;
        place.until_restarted().await;
        let counts: Vec<usize> = place.worlds.iter().map(|it| it.recorded().len()).collect();
        assert_eq!(counts, [1, 1, 0]);
        place.kill_all().await;
    });
}

#[test]
fn v3_a_withdrawal_ends_the_drain_of_the_node_that_goes_and_a_second_operation_is_refused() {
    within_still(async {
        let mut place = Place::patient().await;
        place.worlds[0].cluster.block().await;
        place.begin(SiteKind::Restart).await;
        place.worlds[2].until_file(PENDING, "the order", |text| text.is_some()).await;
        let wish = Place::wish(SiteKind::Shutdown);
        let handle = place.worlds[0].cluster.handle();
        let refused =
            operator::begin(&place.record().await, &wish, &lease::view(&handle).await.unwrap().nodes);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("the whole-site operation restart (op-1) is in progress")
        );
        place.said(|record| operator::cancel(record, &said())).await;
        place.worlds[2].until_file(PENDING, "no order", |text| text.is_none()).await;
        place.worlds[0].cluster.unblock().await;
        place.until_restarted().await;
        assert!(place.worlds.iter().all(|it| it.recorded().is_empty()));
        place.kill_all().await;
    });
}

#[test]
fn v3_a_reboot_that_a_node_is_ordered_meanwhile_takes_its_turn_like_the_others() {
    within_still(async {
        let mut place = Place::patient().await;
        place.begin(SiteKind::Restart).await;
        place.worlds[1].ask_reboot(7);
        let (down, sim) = (Cell::new(0), place.sim.clone());
        let over = || async {
            let free = |all: &[Value]| all.iter().all(|it| it["metadata"]["annotations"][MODE].is_null());
            sim.until("coordination/leases", free).await;
        };
        let each = place.worlds.iter_mut().map(async |world| {
            for count in 1.. {
                tokio::select! {
                    () = over() => return,
                    () = world.recorded_count(count) => {}
                }
                down.set(down.get() + 1);
                assert_eq!(down.get(), 1, "two machines are down");
                world.reboot().await;
                down.set(down.get() - 1);
                world.start_all();
            }
        });
        futures::future::join_all(each).await;
        place.worlds[1].executed(7).await;
        place.until_restarted().await;
        let counts: Vec<usize> = place.worlds.iter().map(|it| it.recorded().len()).collect();
        // Its own may have come while it was the one to go.
        assert!(counts == [1, 1, 1] || counts == [1, 2, 1], "{counts:?}");
        place.kill_all().await;
    });
}

#[test]
fn v3_of_three_members_of_etcd_the_leader_goes_last_and_copies_that_are_made_again_keep_the_next_one_up() {
    within_still(async {
        let etcd = Etcd::start(&NODES).await.unwrap();
        let mut place = Place::patient().await;
        place.kill_all().await;
        place.sim.edit("nodes", "", NODES[2], |it| {
            it["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "true".into();
        });
        members(&etcd, &place.sim);
        for (world, node) in place.worlds.iter_mut().zip(NODES) {
            server(world, node, &etcd);
            world.start_all();
        }
        place.sim.add_machine("shop", "till", "Always");
        place.until_machine_runs().await;
        assert_eq!(etcd.leader().as_deref(), Some(NODES[0]));
        place.begin(SiteKind::Restart).await;
        for at in [1, 2, 0] {
            place.worlds[at].recorded_count(1).await;
            assert_eq!(
                (place.cordoned(), place.mode().unwrap().leader_now()),
                (vec![NODES[at].to_owned()], NODES[0].to_owned())
            );
            etcd.script(NODES[at], &[EtcdFault::Down]);
            place.goes_and_stays_off(at).await;
            if at == 1 {
                place.volume("pv-slow", "degraded");
            }
            etcd.script(NODES[at], &[]);
            place.comes_back(at).await;
            if at == 1 {
                let waits = "copies of volumes to be made again with node edge-node-2 back: storage warn";
                place.until_mode(|it| it.waits.contains(waits)).await;
                ten_minutes().await;
                assert!(place.cordoned().is_empty());
                place.volume("pv-slow", "healthy");
            }
        }
        place.until_machine_runs().await;
        place.until_each_went_once().await;
    });
}
