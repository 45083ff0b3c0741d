//! Applications scaled down and up again on the embedded cluster, and what is in the way.

use kube::Client;
use kubeapi::ApiClient;
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::json;

use super::super::calls::{SCALED, find, scale};
use super::super::record::SitePhase;

fn cluster() -> (Sim, ApiClient) {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.add_claim("shop", "films", "pv-films");
    for (namespace, name) in [("shop", "db"), ("kube-system", "own")] {
        sim.add_claim(namespace, "films", "pv-films");
        sim.add_deployment(namespace, name, 3);
        sim.edit("apps/deployments", namespace, name, |it| {
            it["spec"]["template"]["spec"]["volumes"] =
                json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "films" } }]);
        });
    }
    sim.add_deployment("shop", "web", 2);
    sim.add_stateful_set("shop", "queue", 2);
    sim.edit("apps/statefulsets", "shop", "queue", |it| {
        it["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": { "name": "q" }, "spec": { "accessModes": ["ReadWriteOnce"] },
        }]);
    });
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

async fn scale_all(cluster: &ApiClient, need: &SitePhase, id: &str) -> Vec<String> {
    let work = find(cluster, need, id).await.unwrap().work;
    for it in &work {
        scale(cluster, it).await.unwrap();
    }
    work.into_iter().map(|it| format!("{} {}/{} {}", it.kind, it.namespace, it.name, it.replicas)).collect()
}

fn replicas(sim: &Sim, resource: &str, name: &str) -> (i64, Option<String>) {
    let it = sim.get(resource, "shop", name).unwrap();
    let mark = it["metadata"]["annotations"][SCALED].as_str().map(str::to_owned);
    (it["spec"]["replicas"].as_i64().unwrap(), mark)
}

#[tokio::test(start_paused = true)]
async fn u13_applications_with_volumes_go_and_come_back_to_the_saved_values_unless_somebody_changed_them() {
    let (sim, cluster) = cluster();
    let down = ["deployments shop/db 0", "statefulsets shop/queue 0"];
    assert_eq!(scale_all(&cluster, &SitePhase::Stopping, "op").await, down);
    let mark = |replicas: u32| Some(format!(r#"{{"id":"op","replicas":{replicas}}}"#));
    assert_eq!(replicas(&sim, "apps/deployments", "db"), (0, mark(3)));
    assert_eq!(replicas(&sim, "apps/deployments", "web"), (2, None));
    assert_eq!(scale_all(&cluster, &SitePhase::Stopping, "op").await, [""; 0]);
    // Somebody scales it up in between: it goes again, and what it had first is kept.
    sim.edit("apps/deployments", "shop", "db", |it| it["spec"]["replicas"] = 1.into());
    assert_eq!(scale_all(&cluster, &SitePhase::Stopping, "op").await, ["deployments shop/db 0"]);
    assert_eq!(replicas(&sim, "apps/deployments", "db"), (0, mark(3)));

    assert_eq!(scale_all(&cluster, &SitePhase::Restoring, "another").await, [""; 0]);
    sim.edit("apps/statefulsets", "shop", "queue", |it| it["spec"]["replicas"] = 5.into());
    let up = ["deployments shop/db 3", "statefulsets shop/queue 5"];
    assert_eq!(scale_all(&cluster, &SitePhase::Restoring, "op").await, up);
    assert_eq!(replicas(&sim, "apps/deployments", "db"), (3, None));
    assert_eq!(replicas(&sim, "apps/statefulsets", "queue"), (5, None));
    assert_eq!(scale_all(&cluster, &SitePhase::Restoring, "op").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_changes_nothing() {
    let (sim, cluster) = cluster();
    let work = find(&cluster, &SitePhase::Stopping, "op").await.unwrap().work;
    sim.edit("apps/deployments", "shop", "db", |it| it["spec"]["replicas"] = 7.into());
    scale(&cluster, &work[0]).await.unwrap();
    assert_eq!(replicas(&sim, "apps/deployments", "db"), (7, None));
    sim.faults().script("PATCH", "queue", 1, ScriptedFault::status(500, "InternalError"));
    assert!(scale(&cluster, &work[1]).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_way_is_named_and_what_is_not_installed_is_not_there() {
    let (sim, cluster) = cluster();
    for need in [&SitePhase::Stopping, &SitePhase::Detaching, &SitePhase::Starting] {
        assert_eq!(find(&cluster, need, "op").await.unwrap().blocking, [""; 0], "{need:?}");
    }
    sim.apply(
        "storage/volumeattachments",
        json!({
            "metadata": { "name": "a1", "finalizers": ["x/y"] },
            "spec": { "attacher": "x", "nodeName": "n1", "source": { "persistentVolumeName": "pv-1" } },
            "status": { "attached": true },
        }),
    );
    for (name, state, robustness) in
        [("pv-1", "attached", "healthy"), ("pv-2", "attached", "faulted"), ("pv-3", "detached", "unknown")]
    {
        sim.apply(
            "longhorn/volumes",
            json!({
                "metadata": { "name": name, "namespace": "longhorn-system" },
                "status": { "state": state, "robustness": robustness },
            }),
        );
    }
    for (name, phase) in [("vm", "Running"), ("done", "Succeeded")] {
        sim.apply(
            "kubevirt/virtualmachineinstances",
            json!({ "metadata": { "name": name, "namespace": "shop" }, "status": { "phase": phase } }),
        );
    }
    let blocking = async |need| find(&cluster, need, "op").await.unwrap().blocking;
    assert_eq!(blocking(&SitePhase::Detaching).await, ["pv-1 on node n1", "pv-2"]);
    assert_eq!(blocking(&SitePhase::Starting).await, ["storage, a faulted volume: pv-2"]);
    assert_eq!(find(&cluster, &SitePhase::Stopping, "op").await.unwrap().machines.guests, ["shop/vm"]);
}
