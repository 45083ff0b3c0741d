//! Servers with real members of etcd: the margin on each version, and three servers on a real API server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use agent::Clock;
use outage::margin::calls::{Addresses, EtcdAccess, EtcdSettings, hand_over, read};
use outage::margin::facts::Paths;
use outage::margin::facts::{EtcdFacts, Kubernetes, ServerNode};
use outage::margin::rule::{Margin, judge, successor};
use scenarios::{
    Cluster, NO_ETCD, RealEtcd, SKIPPED, World, assets, etcd_programs, etcd_version, reboot_config,
};
use serde_json::{Value, json};
use topics::{DrainPhase, DrainStatus, NodeDrainProgress};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const SETTINGS: EtcdSettings = EtcdSettings { metrics: "m", gateway: "g", data: "d" };
const PATIENCE: Duration = Duration::from_secs(60);
/// From the return of a peer, seen by its lease, to the next one's cordon: a second or two, 6 s on a machine with twenty
/// times the work it can do; who does not hear of it reads the nodes every 30 s.
const TURN: Duration = Duration::from_secs(15);

pub(super) fn skipped(what: &str, why: &str) {
    crate::say(&format!("skipped on real members of etcd: {what}: {why}"));
}

fn access(etcd: &RealEtcd, data: &Path) -> EtcdAccess {
    let addresses = Addresses { metrics: etcd.metrics_url("n1"), gateway: etcd.gateway_url("n1") };
    EtcdAccess { addresses, paths: Paths::at(data), settings: SETTINGS }
}

/// n1's view of its own member; Kubernetes shows all three healthy, and no agent answers.
async fn margin(etcd: &RealEtcd, data: &Path) -> (Margin, Vec<(String, u64)>) {
    let server = |name: &str| ServerNode::healthy(name, etcd.member_name(name));
    let kubernetes = Kubernetes::Read(NODES.map(server).to_vec());
    let own = read(&access(etcd, data)).await;
    let verdict = judge(&EtcdFacts { node: "n1".to_owned(), own, kubernetes, words: vec![] });
    (verdict.margin, verdict.may_lead)
}

/// Waits until n1 may go, or may not for a reason with these words.
async fn until(etcd: &RealEtcd, data: &Path, wanted: Option<&str>) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    loop {
        let (margin, _) = margin(etcd, data).await;
        match (&margin, wanted) {
            (Margin::Spare { voters: 3, healthy: 3, quorum: 2 }, None) => return,
            (Margin::None { why }, Some(words)) if why.contains(words) => return,
            (Margin::Spare { .. } | Margin::NotApplicable { .. } | Margin::None { .. }, _) => {}
        }
        assert!(clock.now() < end, "etcd {}: {wanted:?} has not come: {margin:?}", etcd.version);
        clock.sleep_until(Some(clock.now() + Duration::from_millis(50))).await;
    }
}

#[tokio::test]
async fn t1_the_margin_follows_real_members_of_each_version() {
    let programs = etcd_programs();
    if programs.is_empty() {
        return skipped("the margin on each version", NO_ETCD);
    }
    for program in programs {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(data.path().join("server/db/etcd")).unwrap();
        let mut etcd = RealEtcd::start(&program, &NODES).await;
        let own = data.path();
        until(&etcd, own, None).await;
        etcd.kill("n3");
        until(&etcd, own, Some("n3 (no connection to it)")).await;
        etcd.run("n3");
        until(&etcd, own, None).await;
        let list = etcd.call("n1", "/v3/cluster/member/list", json!({})).await;
        let named = |it: &&Value| it["name"] == etcd.member_name("n3");
        let third = list["members"].as_array().unwrap().iter().find(named).unwrap()["ID"].clone();
        let alarm = |action: &str| json!({ "action": action, "memberID": third, "alarm": "NOSPACE" });
        etcd.call("n1", "/v3/maintenance/alarm", alarm("ACTIVATE")).await;
        until(&etcd, own, Some("etcd has the alarm NOSPACE of member ")).await;
        etcd.call("n1", "/v3/maintenance/alarm", alarm("DEACTIVATE")).await;
        until(&etcd, own, None).await;
        // The lead goes to the successor.
        let source = access(&etcd, own);
        let is_leader = async || read(&source).await.metrics.is_ok_and(|it| it.is_leader);
        if !is_leader().await {
            for node in ["n2", "n3"] {
                let me = json!({ "targetID": member_id(&list, &etcd.member_name("n1")) });
                etcd.call(node, "/v3/maintenance/transfer-leadership", me).await;
            }
        }
        let (_, may_lead) = margin(&etcd, own).await;
        let (node, id) = successor(&may_lead, &["n2".to_owned()]).unwrap();
        assert_eq!(node, "n3");
        hand_over(&source, *id).await.unwrap();
        assert!(!is_leader().await, "etcd {}", etcd.version);
        // A learner that has not started.
        let url = ["http://127.0.0.200:2380"];
        let learner = json!({ "peerURLs": url, "isLearner": true });
        let clock = Clock::new();
        let end = clock.now() + PATIENCE;
        // etcd refuses a new member until its connections are some seconds old.
        while etcd.call("n1", "/v3/cluster/member/add", learner.clone()).await["member"].is_null() {
            assert!(clock.now() < end, "etcd {} takes no learner", etcd.version);
            clock.sleep_until(Some(clock.now() + Duration::from_millis(100))).await;
        }
        until(&etcd, own, Some("is a learner: a server is joining")).await;
        for node in ["n2", "n3"] {
            etcd.kill(node);
        }
        until(&etcd, own, Some("has no leader")).await;
    }
}

fn member_id(list: &Value, name: &str) -> Value {
    list["members"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()["ID"].clone()
}

/// Its device has this member of etcd, its address in the cluster is on the loopback interface, and there is no nim.
fn server(world: &mut World, etcd: &RealEtcd, port: u16) {
    let node = world.cluster.device_name().to_owned();
    world.remove_folder("run/nim");
    world.put("k3s/server/db/etcd/member", "");
    let data = world.topic_root.path("k3s");
    let zedkube = &mut world.limits["zedkube"];
    zedkube["etcd_metrics"] = etcd.metrics_url(&node).into();
    zedkube["etcd_gateway"] = etcd.gateway_url(&node).into();
    zedkube["etcd_data"] = data.to_str().unwrap().into();
    zedkube["server_port"] = port.into();
}

fn config(world: &World, etcd: &RealEtcd, uuids: &Value, counter: u32) {
    let mut config = reboot_config(counter);
    config["cluster"]["clusterIpPrefix"] = format!("{}/8", etcd.address(world.cluster.device_name())).into();
    config["cluster"]["masterNodeUuids"] = uuids.clone();
    world.config(&config);
}

#[tokio::test]
async fn t1_three_servers_told_at_once_go_one_after_another_and_none_while_a_member_is_away() {
    let what = "three servers told at once";
    let (programs, Some(assets)) = (etcd_programs(), assets()) else { return skipped(what, SKIPPED) };
    if programs.is_empty() {
        return skipped(what, NO_ETCD);
    }
    for program in programs {
        if etcd_version(&program).starts_with("3.4.") {
            skipped(what, "kube-apiserver needs what etcd 3.4 does not have");
            continue;
        }
        let (clusters, mut etcd) = Cluster::of_servers(&assets, &program).await;
        three_servers(clusters, &mut etcd).await;
    }
}

async fn three_servers(clusters: Vec<Cluster>, etcd: &mut RealEtcd) {
    let clock = Clock::new();
    clusters[0].guard_nothing().await;
    let uuids: Value = clusters.iter().map(Cluster::device_uuid).collect();
    let addresses: Vec<_> = clusters.iter().map(|it| etcd.address(it.device_name())).collect();
    let port = crate::etcd::free_at(&addresses).await;
    let mut worlds: Vec<World> = clusters.iter().cloned().map(World::on).collect();
    for world in &mut worlds {
        server(world, etcd, port);
        config(world, etcd, &uuids, 6);
        world.start_all();
    }
    for (world, address) in worlds.iter().zip(&addresses) {
        world.status(DrainStatus::NotRequested).await;
        until_listens(SocketAddr::new(*address, port)).await;
    }
    // The third one's member is away: no node goes.
    let third = clusters[2].device_name().to_owned();
    etcd.kill(&third);
    for world in &worlds {
        config(world, etcd, &uuids, 7);
    }
    for world in &worlds {
        world.progress("to wait for its turn", |it| it.phase == DrainPhase::WaitingForTurn).await;
    }
    // The first of them in the queue gives the reason, the others wait for it.
    let held = |it: &NodeDrainProgress| it.reason.contains("cannot spare this node");
    let held = worlds.iter().map(|it| Box::pin(it.progress("to be held by etcd", held)));
    drop(futures::future::select_all(held).await);
    for world in &worlds {
        assert!(!world.cluster.cordoned().await, "etcd {}", etcd.version);
    }
    // It is back: each goes in its turn, with its member of etcd.
    etcd.run(&third);
    etcd.until_healthy(&third).await;
    let mut free = clock.now();
    let mut left: Vec<usize> = (0..worlds.len()).collect();
    while !left.is_empty() {
        let first = left.iter().map(|nth| {
            Box::pin(async {
                clusters[*nth].until_ours().await;
                *nth
            })
        });
        let (nth, ..) = futures::future::select_all(first).await;
        let took = clock.now().since(free);
        crate::say(&format!("etcd {}: turn of server {nth} after {} ms", etcd.version, took.as_millis()));
        let world = &mut worlds[nth];
        let reboot = async {
            world.recorded_count(1).await;
            let node = world.cluster.device_name().to_owned();
            etcd.kill(&node);
            world.reboot().await;
            etcd.run(&node);
            etcd.until_healthy(&node).await;
            world.start_all();
            world.executed(7).await;
            world.cluster.until_schedulable().await;
            world.status(DrainStatus::NotRequested).await;
        };
        tokio::select! {
            () = reboot => {}
            () = Cluster::until_two_out(&clusters) => panic!("two servers carry our cordon"),
        }
        assert!(left.len() == worlds.len() || took < TURN, "etcd {}: {took:?}", etcd.version);
        free = clock.now();
        left.retain(|it| *it != nth);
    }
    for world in &mut worlds {
        assert_eq!(world.recorded().len(), 1);
        world.kill_all().await;
    }
}

async fn until_listens(at: SocketAddr) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE;
    while let Err(cause) = tokio::net::TcpStream::connect(at).await {
        assert!(clock.now() < end, "nobody listens at {at}: {cause}");
        clock.sleep_until(Some(clock.now() + Duration::from_millis(50))).await;
    }
}
