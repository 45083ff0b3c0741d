//! Nodes: the leases of their kubelets, and the taints of an outage. On a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, WatchParams};
use kubesim::{OneWay, Sim, SimConfig};
use serde_json::{Value, json};

fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value| format!("{}:{}", it["key"].as_str().unwrap(), it["effect"].as_str().unwrap());
    all.iter().map(text).collect()
}

fn renewed(sim: &Sim) -> Option<String> {
    let lease = sim.get("coordination/leases", "kube-node-lease", "n1")?;
    Some(lease["spec"]["renewTime"].as_str().unwrap().to_owned())
}

async fn until_renewed(sim: &Sim) {
    let before = renewed(sim);
    sim.until("coordination/leases", |_| renewed(sim) != before).await;
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_renews_its_lease_while_its_node_has_power() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    for _ in 0..3 {
        until_renewed(&sim).await;
    }
    sim.power("n1", false);
    sim.until("nodes", |nodes| !taints(&nodes[0]).is_empty()).await;
    let before = renewed(&sim);
    assert!(tokio::time::timeout(Duration::from_mins(1), until_renewed(&sim)).await.is_err());
    assert_eq!(renewed(&sim), before);
    sim.power("n1", true);
    until_renewed(&sim).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_what_was_known_is_read_and_nothing_is_written_by_anybody() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    until_renewed(&sim).await;
    let nodes: Api<Node> = Api::all(Client::new(sim.service_of("n1"), "default"));
    let cordon = || async {
        let patch = json!({ "spec": { "unschedulable": true } });
        nodes.patch("n1", &PatchParams::default(), &Patch::Merge(patch)).await
    };
    sim.quorum(false);
    let before = renewed(&sim);
    assert!(tokio::time::timeout(Duration::from_mins(1), until_renewed(&sim)).await.is_err());
    assert_eq!((renewed(&sim), nodes.get("n1").await.is_ok()), (before, true));
    let refused = cordon().await.unwrap_err().to_string();
    assert!(refused.contains("etcdserver: request timed out"), "{refused}");
    sim.quorum(true);
    until_renewed(&sim).await;
    cordon().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_hears_nothing_and_looks_away_to_the_others() {
    let sim = Sim::new(SimConfig::default());
    let ready = |nodes: &[Value]| nodes[0]["status"]["conditions"][0]["status"] == "True";
    sim.add_node("n1", "u1");
    sim.until("nodes", ready).await;
    let nodes: Api<Node> = Api::all(Client::new(sim.service_of("n1"), "default"));
    let mut watch = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    watch.next().await.unwrap().unwrap();
    sim.cut_off("n1", true);
    let limit = Duration::from_mins(1);
    assert!(tokio::time::timeout(limit, nodes.get("n1")).await.is_err());
    sim.until("nodes", |nodes| !taints(&nodes[0]).is_empty()).await;
    assert!(tokio::time::timeout(limit, async { while watch.next().await.is_some() {} }).await.is_err());
    let others: Api<Node> = Api::all(Client::new(sim.service(), "default"));
    others.get("n1").await.unwrap();
    sim.cut_off("n1", false);
    sim.until("nodes", ready).await;
    nodes.get("n1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_a_node_whose_network_fails_one_way_requests_are_lost_or_only_what_it_is_answered() {
    for (lost, is_done) in [(OneWay::Requests, false), (OneWay::Answers, true)] {
        let sim = Sim::new(SimConfig::default());
        sim.add_node("n1", "u1");
        sim.until("nodes", |nodes| nodes[0]["status"]["conditions"][0]["status"] == "True").await;
        let nodes: Api<Node> = Api::all(Client::new(sim.service_of("n1"), "default"));
        let mut watch = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        watch.next().await.unwrap().unwrap();
        sim.cut_one_way("n1", lost);
        let (limit, done) = (Duration::from_mins(1), json!({ "metadata": { "labels": { "done": "yes" } } }));
        let patch = Patch::Merge(done);
        let answer = tokio::time::timeout(limit, nodes.patch("n1", &PatchParams::default(), &patch)).await;
        assert!(answer.is_err(), "{lost:?}");
        assert_eq!(sim.list("nodes")[0]["metadata"]["labels"]["done"] == "yes", is_done);
        assert_eq!(tokio::time::timeout(limit, watch.next()).await.is_err(), is_done, "{lost:?}");
        sim.until("nodes", |nodes| !taints(&nodes[0]).is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_on_a_node_ends_with_its_power_and_starts_once_its_next_boot_is_reported() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.add_bare_pod("shop", "a", "n1");
    sim.until("pods", |pods| pods[0]["status"]["phase"] == "Running").await;
    let live = || sim.live_pods("n1").len();
    let seen = Arc::new(AtomicUsize::new(0));
    let most = seen.clone();
    sim.onlooker(move |now| {
        let live = now.list("nodes").map(|it| now.executing(it).len()).sum();
        most.store(live, Ordering::Relaxed);
    });
    assert_eq!(live(), 1);
    sim.power("n1", false);
    sim.cut_off("n1", true);
    sim.boot("n1", "b2");
    let boot = |nodes: &[Value]| nodes[0]["status"]["nodeInfo"]["bootID"] == "b2";
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((live(), boot(&sim.list("nodes")), seen.load(Ordering::Relaxed)), (0, false, 0));
    sim.cut_off("n1", false);
    sim.until("nodes", boot).await;
    sim.until("nodes", |nodes| nodes[0]["status"]["conditions"][0]["status"] == "True").await;
    assert_eq!((live(), seen.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_away_for_long_is_tainted_and_the_taints_go_or_are_left_behind() {
    for stale_taints in [false, true] {
        let sim = Sim::new(SimConfig { stale_taints, ..SimConfig::default() });
        let ready = |nodes: &[Value]| nodes[0]["status"]["conditions"][0]["status"] == "True";
        sim.add_node("n1", "u1");
        sim.until("nodes", ready).await;
        sim.power("n1", false);
        sim.until("nodes", |nodes| taints(&nodes[0]).len() == 2).await;
        let away = "node.kubernetes.io/unreachable";
        let both = [format!("{away}:NoSchedule"), format!("{away}:NoExecute")];
        assert_eq!(taints(&sim.list("nodes")[0]), both);
        sim.power("n1", true);
        sim.until("nodes", ready).await;
        let gone = sim.until("nodes", |nodes| taints(&nodes[0]).is_empty());
        let gone = tokio::time::timeout(Duration::from_mins(5), gone).await;
        assert_eq!(gone.is_err(), stale_taints);
    }
}

#[tokio::test(start_paused = true)]
async fn a_virtual_ip_is_renewed_by_its_holder_and_taken_over_from_one_that_is_away() {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "u1");
    sim.add_node("n2", "u2");
    sim.add_virtual_ip("plndr-cp-lock", "n2");
    let lease = |sim: &Sim, member: &str| {
        sim.get("coordination/leases", "kube-system", "plndr-cp-lock").unwrap()["spec"][member].clone()
    };
    let pass = |secs| tokio::time::sleep(Duration::from_secs(secs));
    pass(3).await;
    let first = lease(&sim, "renewTime");
    pass(3).await;
    assert_eq!((lease(&sim, "renewTime") == first, lease(&sim, "holderIdentity")), (false, json!("n2")));
    sim.power("n2", false);
    pass(12).await;
    assert_eq!(lease(&sim, "holderIdentity"), "n2", "not before it is over");
    pass(10).await;
    assert_eq!(lease(&sim, "holderIdentity"), "n1");
    sim.serve_virtual_ip("plndr-cp-lock", false);
    let last = lease(&sim, "renewTime");
    pass(60).await;
    assert_eq!(lease(&sim, "renewTime"), last);
}
