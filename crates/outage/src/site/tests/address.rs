//! The virtual IP on the way up: its leases, and its address.

use kube::Client;
use kubeapi::ApiClient;
use kubesim::{Sim, SimConfig};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::site::calls::Address;
use crate::turn::pulses::Pulse;
use crate::turn::rule::TurnNode;

fn renew(sim: &Sim, name: &str, holder: &str, at: u32) {
    sim.apply(
        "coordination/leases",
        json!({
            "metadata": { "name": name, "namespace": "kube-system" },
            "spec": { "holderIdentity": holder, "renewTime": format!("2026-03-14T09:30:{at:02}.000000Z") },
        }),
    );
}

fn serve_at(sim: &Sim, address: std::net::SocketAddr) {
    let env = |name: &str, value: String| json!({ "name": name, "value": value });
    let env = [env("port", address.port().to_string()), env("address", address.ip().to_string())];
    sim.apply(
        "pods",
        json!({
            "metadata": { "name": "kube-vip-ds-1", "namespace": "kube-system" },
            "spec": {
                "nodeName": "n1",
                "containers": [{ "name": "kube-vip", "image": "x/kube-vip:v1", "env": env }],
            },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
    );
}

async fn nodes(cluster: &ApiClient) -> Vec<TurnNode> {
    crate::calls::glance(cluster).await.unwrap().into_iter().map(|(node, _)| node).collect()
}

#[tokio::test]
async fn u13_the_virtual_ip_is_there_once_a_ready_node_renews_its_lease_and_it_takes_a_connection() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.until("nodes", |all| all[0]["status"]["conditions"][0]["status"] == "True").await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let all = nodes(&cluster).await;
    // Without kube-vip there is none.
    assert_eq!(Address::default().look(&cluster, &all).await.unwrap(), None);

    let mut address = Address::default();
    renew(&sim, "plndr-cp-lock", "n9", 1);
    let why = address.look(&cluster, &all).await.unwrap().unwrap_or_default();
    assert!(why.contains("lease kube-system/plndr-cp-lock of n9: its holder is not a Ready node"), "{why}");
    renew(&sim, "plndr-cp-lock", "n1", 2);
    for _ in 0..2 {
        let why = address.look(&cluster, &all).await.unwrap().unwrap_or_default();
        assert!(why.contains("plndr-cp-lock of n1: its holder does not renew it"), "{why}");
    }
    renew(&sim, "plndr-cp-lock", "n1", 3);
    assert_eq!(address.look(&cluster, &all).await.unwrap(), None);

    // The port stays its own, and does not listen yet.
    let door = TcpSocket::new_v4().unwrap();
    door.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = door.local_addr().unwrap();
    serve_at(&sim, at);
    let why = address.look(&cluster, &all).await.unwrap().unwrap_or_default();
    assert!(why.starts_with(&format!("the virtual IP {at}: ")), "{why}");
    let _listens = door.listen(1).unwrap();
    assert_eq!(address.look(&cluster, &all).await.unwrap(), None);
    // Its holder goes away again.
    let away: Vec<TurnNode> = all.into_iter().map(|it| TurnNode { pulse: Pulse::Still, ..it }).collect();
    assert!(
        address
            .look(&cluster, &away)
            .await
            .unwrap()
            .is_some_and(|it| it.contains("of n1: its holder is not a Ready node"))
    );
}
