//! The cluster as its clients see it.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use kubesim::{Fault, Sim, SimConfig};
use serde_json::{Value, json};

fn ready(pods: &[Value], count: usize) -> bool {
    pods.len() == count && pods.iter().all(|pod| pod["status"]["conditions"][0]["status"] == "True")
}

/// Three nodes, and time that moves only when everybody waits.
async fn cluster() -> (Sim, Client) {
    let sim = Sim::new(SimConfig::default());
    for number in 1..=3 {
        sim.add_node(&format!("n{number}"), &format!("uuid-{number}"));
    }
    let client = Client::new(sim.service(), "default");
    (sim, client)
}

#[tokio::test(start_paused = false)]
async fn workloads_come_up_on_all_nodes() {
    let (sim, _) = cluster().await;
    sim.add_deployment("shop", "web", 3);
    sim.add_stateful_set("shop", "db", 2);
    sim.add_daemon_set("kube-system", "agent");
    tokio::select! {
        () = sim.until("pods", |pods| ready(pods, 8)) => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{:#?}", sim.list("pods")),
    }
}

#[tokio::test(start_paused = false)]
async fn a_pod_that_comes_later_runs_too() {
    let (sim, _) = cluster().await;
    sim.add_daemon_set("kube-system", "agent");
    sim.until("pods", |pods| ready(pods, 3)).await;
    sim.add_bare_pod("tools", "shell", "n1");
    sim.add_bare_pod("tools", "import", "n1");
    tokio::select! {
        () = sim.until("pods", |pods| ready(pods, 5)) => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{:#?}", sim.list("pods")),
    }
}

#[tokio::test(start_paused = true)]
async fn all_kinds_of_workload_run_side_by_side() {
    let (sim, _) = cluster().await;
    sim.add_deployment("shop", "web", 3);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 3 }));
    sim.add_stateful_set("shop", "db", 2);
    sim.add_daemon_set("kube-system", "agent");
    sim.until("pods", |pods| pods.len() >= 8 && ready(pods, pods.len())).await;
    sim.add_bare_pod("tools", "shell", "n1");
    sim.add_bare_pod("tools", "import", "n1");
    tokio::select! {
        () = sim.until("pods", |pods| ready(pods, 10)) => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => {
            let names: Vec<String> = sim.list("pods").iter().map(|pod| format!("{} {}", pod["metadata"]["name"], pod["status"])).collect();
            panic!("{names:#?}")
        }
    }
}
