//! How often agents ask the API server: for a drain of 200 pods, and while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use kubesim::{ScriptedFault, Sim};
use serde_json::Value;
use topics::DrainStatus;

use scenarios::World;

const NODE: &str = "edge-node-1";
const PODS: usize = 200;
/// Requests beside the evictions of these, until COMPLETE is published: 8 of the preflight, of them 4 dry runs of
/// evictions, 7 of the turn, 1 of the cordon, 5 to list and watch, 3 of the proof, and 1 for what the Node shows.
const BESIDE: usize = 25;
/// API groups of optional software.
const ABSENT: [&str; 6] = [
    "/apis/longhorn.io/",
    "/apis/kubevirt.io/",
    "/apis/migrations.kubevirt.io/",
    "/apis/subresources.kubevirt.io/",
    "/apis/snapshot.storage.k8s.io/",
    "/apis/k3s.cattle.io/",
];

/// A cluster without [`ABSENT`], as a real server reports it.
fn bare(sim: &Sim) {
    for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
        for path in ABSENT {
            let absent = ScriptedFault::Status {
                code: 404,
                reason: String::new(),
                message: "404 page not found".to_owned(),
                retry_after: None,
            };
            sim.faults().script(method, path, u32::MAX, absent);
        }
    }
}

/// By method, path without names and query.
fn counted(asked: &[(String, String)]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for (method, uri) in asked {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let verb = if query.contains("watch=") { "WATCH" } else { method };
        let path = if path.ends_with("/eviction") { "…/eviction" } else { path };
        *all.entry(format!("{verb} {path}")).or_default() += 1;
    }
    all
}

pub(crate) async fn u10_a_drain_of_200_pods_asks_for_little_more_than_its_evictions(world: &mut World) {
    let sim = world.cluster.sim().clone();
    bare(&sim);
    let here = |all: &[Value]| {
        let ours =
            all.iter().filter(|it| it["spec"]["nodeName"] == NODE && it["status"]["phase"] == "Running");
        ours.count() - 1
    };
    for number in here(&sim.list("pods"))..PODS {
        sim.add_bare_pod("many", &format!("p{number}"), NODE);
    }
    sim.until("pods", |all| here(all) == PODS).await;
    crate::starts(world).await;
    // All agents have started, the gate is open, no watch ends, and no duty of some minutes is due.
    tokio::time::sleep(Duration::from_secs(24 * 60 + 90)).await;
    world.note_until(DrainStatus::Complete);
    world.ask_reboot(7);
    world.status(DrainStatus::Complete).await;
    let mut asked = world.cluster.asked_by_agents();
    // The leader renews it, drain or not.
    asked.retain(|(_, uri)| !uri.contains("/eve-kube-stats-leader"));
    let shown = counted(&asked);
    let absent = asked.iter().filter(|(_, uri)| ABSENT.iter().any(|it| uri.starts_with(it))).count();
    assert_eq!(absent, 0, "{shown:#?}");
    assert!(asked.len() <= PODS + BESIDE, "{} requests: {shown:#?}", asked.len());
}
