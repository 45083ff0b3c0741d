//! The whole site off and on again, three nodes at once.

mod drill;
mod restart;

use std::cell::RefCell;
use std::future::Future;

use agent::Clock;
use agent::device::MachineOperation;
use kubesim::Sim;
use outage::operator as lease;
use outage::site::operator;
use outage::site::record::{OperatorStatement, SiteKind, SitePhase, SiteRecord};
use outage::turn::record::{LEASE, MODE};
use scenarios::{Cluster, Dice, World, within_still};
use serde_json::{Value, json};
use topics::DrainStatus;

const GUESTS: &str = "kubevirt/virtualmachineinstances";
pub(crate) const PENDING: &str = "persist/status/zedagent/DeviceOpPending/reboot.json";
const RECORD: &str = "persist/status/zedkube/SiteOperation/global.json";

/// Two servers and a worker; one application has a volume, others have none.
pub(crate) struct Place {
    pub(crate) worlds: Vec<World>,
    pub(crate) sim: Sim,
}

pub(crate) fn said() -> OperatorStatement {
    OperatorStatement {
        who: "operator field".to_owned(),
        why: "power work".to_owned(),
        when: "2026-03-14T09:30:00Z".to_owned(),
        phase: String::new(),
    }
}

impl Place {
    async fn new() -> Self {
        Self::of(Cluster::embedded_of_three().await, &[]).await
    }

    pub(crate) async fn of(clusters: Vec<Cluster>, limits: &[(&str, u64)]) -> Self {
        let mut worlds: Vec<World> = clusters.into_iter().map(World::on).collect();
        let sim = worlds[0].cluster.sim().clone();
        sim.edit("nodes", "", "edge-node-3", |it| {
            it["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].take();
            it["metadata"]["labels"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        });
        sim.add_claim("shop", "films", "pv-films");
        sim.add_deployment("shop", "player", 1);
        sim.edit("apps/deployments", "shop", "player", |it| {
            it["spec"]["template"]["spec"]["volumes"] =
                json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "films" } }]);
        });
        let template = sim.get("apps/deployments", "shop", "player").unwrap()["spec"]["template"].clone();
        sim.edit("apps/replicasets", "shop", "player-5f7d", |it| it["spec"]["template"] = template);
        let pods = sim.list("pods");
        for pod in pods.iter().filter(|it| it["metadata"]["labels"]["app"] == "player") {
            assert!(sim.remove("pods", "shop", pod["metadata"]["name"].as_str().unwrap()));
        }
        sim.until("storage/volumeattachments", |all| all.len() == 1).await;
        for world in &mut worlds {
            for (name, value) in limits {
                world.limits["zedkube"][name] = (*value).into();
            }
            world.start_all();
        }
        for world in &worlds {
            world.status(DrainStatus::NotRequested).await;
        }
        Self { worlds, sim }
    }

    pub(crate) async fn begin(&self, kind: SiteKind) {
        let wish = Self::wish(kind);
        let handle = self.worlds[0].cluster.handle();
        let nodes: Vec<_> =
            outage::calls::glance(&handle).await.unwrap().into_iter().map(|(node, _)| node).collect();
        let wall = Clock::new().wall().to_timestamp();
        lease::change(&handle, wall, |record| operator::begin(record, &wish, &nodes)).await.unwrap();
    }

    pub(crate) fn wish(kind: SiteKind) -> SiteRecord {
        SiteRecord { id: "op-1".to_owned(), kind, by: said(), ..SiteRecord::default() }
    }

    pub(crate) fn mode(&self) -> Option<SiteRecord> {
        let lease = self.sim.get("coordination/leases", "eve-kube-app", LEASE)?;
        let text = lease["metadata"]["annotations"][MODE].as_str()?;
        Some(serde_json::from_str(text).unwrap())
    }

    pub(crate) async fn until_mode(&self, wanted: impl Fn(&SiteRecord) -> bool) {
        self.sim.until("coordination/leases", |_| true).await;
        self.sim.until("coordination/leases", |_| self.mode().as_ref().is_some_and(&wanted)).await;
    }

    /// Waits until the site is as before, without traces of the operation.
    pub(crate) async fn until_over(&self, without: Option<usize>) {
        self.sim.until("coordination/leases", |_| self.mode().is_none()).await;
        for (at, world) in self.worlds.iter().enumerate().filter(|(at, _)| Some(*at) != without) {
            world.cluster.until_schedulable().await;
            assert_eq!(world.cluster.owner(), None, "node {at}");
            world.until_file(RECORD, "no record of the operation", |text| text.is_none()).await;
            world.status(DrainStatus::NotRequested).await;
        }
        assert_eq!(self.replicas(), (1, Value::Null));
    }

    pub(crate) async fn until_machine_runs(&self) {
        let runs = |all: &[Value]| all.len() == 1 && all[0]["status"]["phase"] == "Running";
        self.sim.until(GUESTS, runs).await;
    }

    /// Replicas of the application with a volume, and its mark.
    fn replicas(&self) -> (u64, Value) {
        let it = self.sim.get("apps/deployments", "shop", "player").unwrap();
        let mark = it["metadata"]["annotations"]["pillar-rs/site-scaled"].clone();
        (it["spec"]["replicas"].as_u64().unwrap(), mark)
    }

    /// Each machine goes down when ordered; then `went` is called with it.
    async fn each_goes(&mut self, operation: MachineOperation, went: impl Fn(usize)) {
        let went = &went;
        let each = self.worlds.iter_mut().enumerate().map(async |(at, world)| {
            let known = world.recorded().len();
            world.recorded_count(known + 1).await;
            assert_eq!(world.recorded()[known].operation, operation, "node {at}");
            went(at);
            world.kill_all().await;
            world.cluster.power(false).await;
            if operation == MachineOperation::Reboot {
                world.reboot().await;
                world.start_all();
            }
        });
        futures::future::join_all(each).await;
    }

    fn nothing_was_evicted(&self) {
        assert_eq!(self.worlds.iter().map(|it| it.cluster.evictions()).sum::<usize>(), 0);
    }

    pub(crate) async fn kill_all(&mut self) {
        for world in &mut self.worlds {
            world.kill_all().await;
        }
    }
}

fn still<F: Future<Output = ()>>(future: F) {
    within_still(future);
}

#[test]
fn u13_a_site_is_shut_down_in_order_without_an_eviction_and_comes_back_in_any_order() {
    for (seed, order) in [[0, 1, 2], [2, 1, 0], [1, 2, 0]].into_iter().enumerate() {
        still(async {
            let mut place = Place::new().await;
            place.sim.add_machine("shop", "till", "Always");
            place.until_machine_runs().await;
            place.begin(SiteKind::Shutdown).await;
            let off = RefCell::new(Vec::new());
            place.each_goes(MachineOperation::Poweroff, |at| off.borrow_mut().push(at)).await;
            assert_eq!(*off.borrow(), [2, 0, 1], "the worker goes first, then the servers one after another");
            place.nothing_was_evicted();
            assert_eq!(place.mode().unwrap().phase, SitePhase::ServersGoing);
            assert_eq!(place.replicas().0, 0);
            assert!(place.sim.list(GUESTS).is_empty(), "a guest was cut off");
            let machine = place.sim.get("kubevirt/virtualmachines", "shop", "till").unwrap();
            assert!(machine["metadata"]["annotations"]["pillar-rs/site-stopped"].is_string());
            assert_eq!(place.sim.list("storage/volumeattachments").len(), 0);
            let mut dice = Dice::new(u64::try_from(seed).unwrap());
            for at in order {
                place.worlds[at].reboot().await;
                place.worlds[at].start_all();
                assert!(
                    place.worlds[at].cluster.cordoned().await,
                    "it stays cordoned until the site is back"
                );
                for _ in 0..dice.below(300) {
                    tokio::task::yield_now().await;
                }
            }
            place.until_over(None).await;
            place.until_machine_runs().await;
            let machine = place.sim.get("kubevirt/virtualmachines", "shop", "till").unwrap();
            assert_eq!(machine["spec"]["runStrategy"], "Always");
            assert_eq!(machine["metadata"]["annotations"]["pillar-rs/site-stopped"], Value::Null);
            place.nothing_was_evicted();
            assert_eq!(place.worlds.iter().map(|it| it.recorded().len()).sum::<usize>(), 3, "each went once");
            place.kill_all().await;
            place.worlds.iter().for_each(|it| crate::role::is_granted(&it.cluster.asked_by_agents()));
        });
    }
}

#[test]
fn u13_a_site_comes_back_without_a_node_that_stays_off_and_names_it() {
    still(async {
        let mut place = Place::new().await;
        place.begin(SiteKind::Shutdown).await;
        place.worlds[0].until_said("WHOLE-SITE OPERATION: shutdown").await;
        place.each_goes(MachineOperation::Poweroff, |_| ()).await;
        for at in [1, 0] {
            place.worlds[at].reboot().await;
            place.worlds[at].start_all();
        }
        place.until_mode(|it| it.waits.contains("nodes to come back: edge-node-3")).await;
        assert!(place.worlds[0].cluster.cordoned().await, "it waits for the third one");
        place.until_mode(|it| it.missing == ["edge-node-3"]).await;
        place.until_over(Some(2)).await;
        // The last one to come notices that the operation is over.
        place.worlds[2].reboot().await;
        place.worlds[2].start_all();
        place.until_over(None).await;
        assert_eq!(place.worlds.iter().map(|it| it.recorded().len()).sum::<usize>(), 3);
        place.kill_all().await;
    });
}

#[test]
fn u13_a_site_reboots_and_comes_back_to_the_saved_values() {
    still(async {
        let mut place = Place::new().await;
        place.begin(SiteKind::Reboot).await;
        place.each_goes(MachineOperation::Reboot, |_| ()).await;
        place.until_over(None).await;
        place.nothing_was_evicted();
        assert_eq!(place.worlds.iter().map(|it| it.recorded().len()).sum::<usize>(), 3, "each went once");
        place.kill_all().await;
    });
}

#[test]
fn u13_a_withdrawal_in_the_middle_brings_all_back_and_nobody_goes() {
    still(async {
        let mut place = Place::new().await;
        // A volume without an application of ours.
        place.sim.add_claim("tools", "data", "pv-data");
        place.sim.add_mounting_pod("tools", "holder", "edge-node-1", "data");
        place.begin(SiteKind::Shutdown).await;
        place.until_mode(|it| it.waits.contains("volumes to be detached: pv-data")).await;
        assert_eq!(place.replicas().0, 0);
        // A drain requested meanwhile waits, and evicts nothing.
        place.worlds[1].ask_reboot(7);
        place.worlds[1].status(DrainStatus::Requested).await;
        // A killed agent continues from disk.
        place.worlds[0].kill_all().await;
        place.worlds[0].start_all();
        let handle = place.worlds[0].cluster.handle();
        let wall = Clock::new().wall().to_timestamp();
        place.worlds[1].ask_reboot(6);
        lease::change(&handle, wall, |record| operator::cancel(record, &said())).await.unwrap();
        place.until_over(None).await;
        place.nothing_was_evicted();
        assert!(place.worlds.iter().all(|it| it.recorded().is_empty()));
        place.kill_all().await;
    });
}

#[test]
fn u5_all_nodes_told_to_reboot_at_once_go_one_after_another_without_the_operation() {
    still(async {
        let mut place = Place::new().await;
        for world in &place.worlds {
            world.ask_reboot(7);
        }
        let down = RefCell::new(0);
        let sim = place.sim.clone();
        let each = place.worlds.iter_mut().map(async |world| {
            world.recorded_count(1).await;
            *down.borrow_mut() += 1;
            assert_eq!(*down.borrow(), 1, "two nodes down at once");
            let cordoned = |it: &Value| it["spec"]["unschedulable"] == true;
            assert_eq!(sim.list("nodes").iter().filter(|it| cordoned(it)).count(), 1);
            crate::comes_back(world, 7).await;
            *down.borrow_mut() -= 1;
        });
        futures::future::join_all(each).await;
        assert!(place.worlds.iter().map(|it| it.cluster.evictions()).sum::<usize>() > 0);
        place.kill_all().await;
    });
}
