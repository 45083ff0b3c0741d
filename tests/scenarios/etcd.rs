//! Servers with etcd: their own member's answers, and those of the other members' agents.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;

use kubesim::{Etcd, EtcdFault, Sim};
use scenarios::{Agent, Cluster, World, reboot_config};
use serde_json::json;
use tokio::net::TcpListener;
use topics::{DrainPhase, DrainStatus, EdgeNodeClusterStatus, NodeDrainProgress, OutageQuestion};

use crate::look::{LEASES, NODES, PLACE, drained, held};
use outage::turn::record::LEASE;

mod real;
mod restored;

/// All nodes are servers with a member of etcd.
pub(crate) fn members(etcd: &Etcd, sim: &Sim) {
    for name in NODES {
        sim.edit("nodes", "", name, |node| {
            node["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = json!("true");
            node["metadata"]["annotations"]["etcd.k3s.cattle.io/node-name"] = etcd.member_name(name).into();
            let voter = json!({ "type": "EtcdIsVoter", "status": "True", "reason": "MemberNotLearner" });
            node["status"]["conditions"].as_array_mut().unwrap().push(voter);
            let address = json!({ "type": "InternalIP", "address": etcd.address(name).unwrap() });
            node["status"]["addresses"] = json!([address]);
        });
    }
}

pub(crate) fn server(world: &mut World, node: &str, etcd: &Etcd) {
    world.put("k3s/server/db/etcd/member", "");
    let data = world.topic_root.path("k3s");
    let zedkube = &mut world.limits["zedkube"];
    zedkube["etcd_metrics"] = etcd.metrics_url(node).into();
    zedkube["etcd_gateway"] = etcd.gateway_url(node).into();
    zedkube["etcd_data"] = data.to_str().unwrap().into();
}

#[tokio::test(start_paused = true)]
async fn u3_a_server_whose_margin_went_after_its_grant_is_held_with_the_reason_and_goes_once_it_is_back() {
    let mut world = World::new().await;
    let etcd = Etcd::start(&NODES).await.unwrap();
    members(&etcd, world.cluster.sim());
    server(&mut world, NODES[0], &etcd);
    world.limits["nodeagent"]["refused_retry_ms"] = json!(100);
    drained(&mut world).await;
    etcd.script(NODES[1], &[EtcdFault::Down]);
    world.start(Agent::Nodeagent);
    let question = held(&world).await;
    assert!(question.held.contains("2 of 3 etcd voters are healthy"), "{question:?}");
    assert!(question.next_step.contains("zedbox go --past drain"), "{question:?}");
    world.has::<OutageQuestion>("nodeagent", "another question", |it| it.number > question.number).await;
    assert_eq!(world.recorded(), []);
    assert!(world.cluster.cordoned().await);
    etcd.script(NODES[1], &[]);
    world.recorded_count(1).await;
    let lease = world.cluster.sim().get(LEASES, PLACE, LEASE).unwrap();
    let holders = lease["metadata"]["annotations"]["pillar-rs/outage-holders"].as_str().unwrap();
    assert!(holders.contains("\"going-down\""), "{holders}");
}

async fn free_at(addresses: &[IpAddr]) -> u16 {
    loop {
        let first = TcpListener::bind((addresses[0], 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut all = vec![first];
        for address in &addresses[1..] {
            all.extend(TcpListener::bind((*address, port)).await);
        }
        if all.len() == addresses.len() {
            return port;
        }
    }
}

/// Its agent answers others at this address, once it is started.
pub(crate) fn reachable(world: &mut World, at: SocketAddr, counter: u32) {
    let mut config = reboot_config(counter);
    config["cluster"]["clusterIpPrefix"] = format!("{}/8", at.ip()).into();
    world.config(&config);
    let port = json!({ "IfName": "eth1", "Logicallabel": "eth1", "ClusterIPAddr": at.ip() });
    world.put("run/nim/DeviceNetworkStatus/global.json", &json!({ "Ports": [port] }).to_string());
    world.limits["zedkube"]["server_port"] = at.port().into();
}

#[tokio::test(start_paused = true)]
async fn u3_a_peer_whose_own_agent_calls_its_member_unhealthy_is_counted_so_and_one_that_is_well_again_lets_go()
 {
    let etcd = Etcd::start(&NODES).await.unwrap();
    let addresses = NODES.map(|name| etcd.address(name).unwrap());
    let port = free_at(&addresses).await;
    let mut worlds: Vec<World> = Cluster::embedded_of_three().await.into_iter().map(World::on).collect();
    members(&etcd, worlds[0].cluster.sim());
    for (world, (name, address)) in worlds.iter_mut().zip(NODES.into_iter().zip(addresses)) {
        server(world, name, &etcd);
        reachable(world, SocketAddr::new(address, port), 6);
        world.start_all();
    }
    let ready = |it: &EdgeNodeClusterStatus| it.cluster_ip_is_ready;
    for world in &worlds {
        world.status(DrainStatus::NotRequested).await;
        world.has::<EdgeNodeClusterStatus>("zedkube", "its address in the cluster", ready).await;
    }
    // It is connected and votes: only its own agent sees that it is not ready.
    etcd.script(NODES[1], &[EtcdFault::Sick]);
    reachable(&mut worlds[2], SocketAddr::new(addresses[2], port), 7);
    let waits = |it: &NodeDrainProgress| {
        let said = [NODES[1], "2 of 3"];
        it.phase == DrainPhase::WaitingForTurn && said.iter().all(|word| it.reason.contains(word))
    };
    worlds[2].progress("to wait for its turn", waits).await;
    assert!(!worlds[2].cluster.cordoned().await);
    etcd.script(NODES[1], &[]);
    // A change of the Lease causes a look now, not after a pause.
    worlds[0].cluster.sim().edit(LEASES, PLACE, LEASE, |it| it["metadata"]["labels"]["seen"] = json!("yes"));
    worlds[2].recorded_count(1).await;
    for world in &mut worlds {
        world.kill_all().await;
    }
}

#[test]
fn a_server_that_a_test_has_started_ends_when_the_process_of_the_test_does() {
    let mut server = scenarios::watched("sleep".as_ref()).arg("600").spawn().unwrap();
    // As the kernel does then.
    drop(server.stdin.take());
    assert_eq!(server.wait().unwrap().signal(), Some(9));
}
