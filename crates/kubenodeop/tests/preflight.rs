//! How many requests the look before a drain costs.

use checks::cluster::{self, ClusterSource};
use jiff::Timestamp;
use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubenodeop::AttemptRules;
use kubesim::Sim;
use serde_json::json;
use step::Mono;

#[tokio::test(start_paused = true)]
async fn u6_the_whole_look_costs_at_most_20_requests_on_three_nodes_with_300_pods() {
    let sim = Sim::of_nodes(3);
    for nth in 0..300 {
        let set = format!("web-{}", nth % 18);
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true }]);
        sim.apply(
            "pods",
            json!({
                "metadata": { "namespace": format!("shop-{}", nth % 3), "name": format!("pod-{nth}"), "ownerReferences": owner },
                "spec": { "nodeName": format!("n{}", nth / 3 % 3 + 1), "containers": [{ "name": "web", "image": "i" }] },
                "status": { "phase": "Running" },
            }),
        );
    }
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let node = NodeName::parse("n1").unwrap();
    let before = sim.faults().requests().len();
    let looked = kubenodeop::preflight(&cluster, &node, "uuid-1", &AttemptRules::default(), Mono::START)
        .await
        .unwrap();
    assert_eq!(looked.blockers, []);
    // What is not tried is named: six workloads have pods here.
    let hint: Vec<&str> =
        looked.findings.iter().filter(|it| it.code == "evictions").map(|it| it.text.as_str()).collect();
    assert!(hint.len() == 1 && hint[0].contains("those of 2 more were not: shop-"), "{:?}", looked.findings);
    // Whose order matters when room is short.
    let ranks =
        |it: &checks::Finding| it.code == "room" && it.text.starts_with("pods without a priority class");
    assert!(looked.findings.iter().any(ranks), "{:?}", looked.findings);
    let found = cluster::drain(&cluster, "n1", &ClusterSource::ALL.into(), Timestamp::now).await;
    assert_eq!(found.len(), ClusterSource::ALL.len());
    let seen = sim.faults().requests();
    let asked = &seen[before..];
    // With the one reading of the turns, which is not the cluster's.
    assert!(asked.len() < 20, "{}: {asked:#?}", asked.len());
    // As many dry runs as there is room for, and every page of the pods.
    let dry = asked.iter().filter(|it| format!("{it:?}").contains("/eviction")).count();
    assert_eq!(dry, 4, "{asked:#?}");
}
