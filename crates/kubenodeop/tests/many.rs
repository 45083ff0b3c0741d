//! Many pods: how often the API server is asked, and that each pod is evicted once.

use crate::stage::order::{DEVICE, clock, order};
use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, Progress, drain};
use kubesim::{Sim, SimConfig};
use serde_json::Value;
use tokio::sync::watch;

const PODS: usize = 200;

#[tokio::test(start_paused = true)]
async fn requests_without_budgets_are_a_twentieth_more_than_pods_and_fifteen_at_most() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", DEVICE);
    for number in 0..PODS {
        sim.add_bare_pod("shop", &format!("pod-{number}"), "n1");
    }
    let is_ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    sim.until("pods", |pods| pods.iter().all(is_ready)).await;
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = true.into());

    let order = order(AttemptRules::default());
    let (progress, _newest) = watch::channel(Progress::default());
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let outcome = drain(&cluster, &order, clock(), &progress).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(sim.list("pods").is_empty());

    let mut evicted = sim.faults().evicted();
    evicted.sort();
    evicted.dedup();
    assert_eq!((evicted.len(), sim.faults().evicted().len()), (PODS, PODS), "each pod once");
    let asked = sim.faults().requests().len();
    assert!(asked <= PODS + PODS / 20 + 15, "{asked} requests for {PODS} pods");
}
