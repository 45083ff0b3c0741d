//! What is found before the site goes down: each thing alone, all at once, and what cannot be read.

use jiff::Timestamp;
use kube::Client;
use kubeapi::ApiClient;
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::json;

use super::rules::holder;
use crate::site::calls::{blocking, look};
use crate::turn::record::{Holder, TurnRecord};

const NOW: &str = "2026-03-14T09:30:00Z";

fn snapshot(sim: &Sim, name: &str, at: &str, ready: bool) {
    sim.apply(
        "k3s/etcdsnapshotfiles",
        json!({ "metadata": { "name": name }, "status": { "readyToUse": ready, "creationTime": at } }),
    );
}

/// One server, a member of etcd that is Ready, with a fresh snapshot.
async fn cluster() -> (Sim, ApiClient) {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.edit("nodes", "", "n1", |it| {
        it["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = "true".into();
    });
    let ready = |it: &serde_json::Value| it["status"]["conditions"][0]["status"] == "True";
    sim.until("nodes", |all| all.iter().all(ready)).await;
    snapshot(&sim, "s1", "2026-03-13T21:30:00Z", true);
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

async fn found(cluster: &ApiClient, record: &TurnRecord) -> Vec<String> {
    let now: Timestamp = NOW.parse().unwrap();
    let all = look(cluster, record, now).await;
    assert!(all.iter().all(|it| !it.next.is_empty()), "{all:?}");
    all.into_iter().map(|it| format!("{}: {}", it.code, it.text)).collect()
}

fn longhorn(sim: &Sim, kind: &str, name: &str, status: &serde_json::Value) {
    let meta = json!({ "name": name, "namespace": "longhorn-system" });
    sim.apply(&format!("longhorn/{kind}"), json!({ "metadata": meta, "status": status }));
}

fn event(sim: &Sim, name: &str, reason: &str, at: &str) {
    sim.apply(
        "events",
        json!({
            "metadata": { "name": name, "namespace": "default" }, "reason": reason, "lastTimestamp": at,
            "involvedObject": { "kind": "Node", "name": "n1" }, "message": "within 7 days",
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn u13_what_speaks_against_a_shutdown_is_found_and_named_all_at_once() {
    let (sim, cluster) = cluster().await;
    assert_eq!(found(&cluster, &TurnRecord::default()).await, [""; 0]);
    // What is healthy, done or overtaken is no finding.
    longhorn(&sim, "volumes", "fine", &json!({ "robustness": "healthy" }));
    longhorn(&sim, "backups", "done", &json!({ "state": "Completed" }));
    event(&sim, "e1", "CertificateExpirationWarning", "2026-03-14T08:00:00Z");
    event(&sim, "e2", "CertificateExpirationOK", "2026-03-14T09:00:00Z");
    assert_eq!(found(&cluster, &TurnRecord::default()).await, [""; 0]);

    snapshot(&sim, "s1", "2026-03-13T03:30:00Z", true);
    snapshot(&sim, "s2", "2026-03-14T09:00:00Z", false);
    sim.add_node("n2", "u2");
    sim.edit("nodes", "", "n1", |it| {
        let voter = json!({ "type": "EtcdIsVoter", "status": "False", "reason": "MemberIsLearner" });
        it["status"]["conditions"].as_array_mut().unwrap().push(voter);
    });
    let claimed = json!({ "namespace": "shop", "pvcName": "data" });
    longhorn(&sim, "volumes", "pvc-1", &json!({ "robustness": "degraded", "kubernetesStatus": claimed }));
    longhorn(&sim, "volumes", "pvc-2", &json!({ "robustness": "faulted", "restoreRequired": true }));
    let disks = json!({ "d1": { "storageAvailable": 1, "storageMaximum": 200, "scheduledReplica": { "pvc-1-r-0a1b2c3d": 1 } },
        "d2": { "storageAvailable": 2, "storageMaximum": 200, "scheduledReplica": { "pvc-2-r-0a1b2c3d": 1 } } });
    longhorn(&sim, "nodes", "n1", &json!({ "diskStatus": disks }));
    longhorn(&sim, "backups", "b1", &json!({ "state": "InProgress" }));
    event(&sim, "e3", "CertificateExpirationWarning", "2026-03-14T09:20:00Z");
    event(&sim, "e4", "CACertificateExpirationWarning", "2026-03-14T09:20:00Z");
    sim.add_machine("shop", "vm", "Halted");
    sim.edit("kubevirt/virtualmachines", "shop", "vm", |it| it["status"]["snapshotInProgress"] = "s".into());
    let mut record = TurnRecord::default();
    record.grant(Holder { node: "n1".to_owned(), ..holder() });
    assert_eq!(
        found(&cluster, &record).await,
        [
            "turn: node n1 holds a turn (reboot, phase drained)",
            "nodes: nodes that are not Ready: n2",
            "etcd: etcd members that are not healthy voters: n1 (MemberIsLearner)",
            "snapshot: the newest snapshot of etcd is 30 h old",
            "certificates: certificates on node n1: within 7 days",
            "certificates: certificates on node n1: within 7 days",
            "volumes: volumes that are not healthy: shop/data (pvc-1): degraded, pvc-2: faulted",
            "volumes: volume-full: disks with copies of volumes are full: node n1: shop/data (pvc-1)",
            "backups: backups in progress: b1",
            "backups: volumes being restored: pvc-2",
            "backups: virtual machines in a snapshot or a restore: shop/vm",
        ]
    );
    let all = look(&cluster, &record, NOW.parse().unwrap()).await;
    let pass = ["turn", "nodes", "etcd", "snapshot", "certificates", "volumes"].map(str::to_owned);
    assert!(blocking(&all, &pass).iter().all(|it| it.code == "backups"));
    assert_eq!(blocking(&all, &pass).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_a_finding_and_what_is_not_installed_is_none() {
    let (sim, cluster) = cluster().await;
    sim.faults().script("GET", "/backups", 1, ScriptedFault::status(403, "Forbidden"));
    let all = found(&cluster, &TurnRecord::default()).await;
    assert!(all.len() == 1 && all[0].starts_with("backups: cannot be checked: "), "{all:?}");
    assert!(sim.remove("k3s/etcdsnapshotfiles", "", "s1"));
    assert_eq!(
        found(&cluster, &TurnRecord::default()).await,
        ["snapshot: the cluster has no snapshot of etcd"]
    );
    // Without etcd there is none to be had.
    sim.edit("nodes", "", "n1", |it| {
        it["metadata"]["labels"].as_object_mut().unwrap().remove("node-role.kubernetes.io/etcd");
    });
    assert_eq!(found(&cluster, &TurnRecord::default()).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn x3_a_node_on_which_a_person_keeps_operations_from_starting_is_found_and_is_passed_by_name() {
    let (sim, cluster) = cluster().await;
    let message = "PAUSED: no operation starts, by field: new disk";
    sim.edit("nodes", "", "n1", |it| {
        let drained =
            json!({ "type": "pillar-rs/Drained", "status": "False", "reason": "Paused", "message": message });
        it["status"]["conditions"].as_array_mut().unwrap().push(drained);
    });
    assert_eq!(found(&cluster, &TurnRecord::default()).await, [format!("paused: node n1: {message}")]);
    let all = look(&cluster, &TurnRecord::default(), NOW.parse().unwrap()).await;
    assert_eq!((blocking(&all, &[]).len(), blocking(&all, &["paused".to_owned()]).len()), (1, 0));
}
