//! Cordon, drain and uncordon against the embedded cluster, whose controllers answer back.

mod disrupted;
mod leave;
mod never_ready;
mod responders;
mod storage;
mod surge;

use std::time::Duration;

use crate::stage::{Attempt, DEVICE, are_ready, clock, cluster, cluster_with, cordoned, n1, on_n1, owner};
use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, BlockCode, Cordoned, DrainSuccess, Progress, node};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::json;
use topics::DrainPhase;

const BUDGET: &str = "policy/poddisruptionbudgets";

#[tokio::test(start_paused = true)]
async fn a_node_is_cordoned_drained_and_given_back() {
    let (sim, cluster) = cluster(2).await;
    let leaving = on_n1(&sim.list("pods"));
    cordoned(&cluster).await;
    let now = clock();
    let (evicted, recordons) = Attempt::start(&cluster).drained().await;
    assert!(now().since_start() < Duration::from_secs(5), "the watch tells, nobody waits for a list");
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
    assert_eq!((usize::try_from(evicted).unwrap(), recordons), (leaving.len() - 1, 0));
    // The workloads run elsewhere, the bare pods are gone for good.
    sim.until("pods", |pods| are_ready(pods, 9)).await;

    assert!(node::uncordon_own(&cluster, &n1(), DEVICE, ("b1", clock()())).await.unwrap());
    let given_back = sim.get("nodes", "", "n1").unwrap();
    assert!(given_back["spec"]["unschedulable"].is_null(), "{given_back}");
    assert!(given_back["metadata"]["annotations"]["pillar-rs/cordon-owner"].is_null(), "{given_back}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_budget_holds_delays_no_other_and_goes_when_there_is_room() {
    let (sim, cluster) = cluster(3).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    let seen = attempt
        .until(|it| it.counts.blocked > 0 && it.counts.gone + it.counts.blocked == it.counts.total)
        .await;
    assert!(on_n1(&sim.list("pods")).iter().all(|name| name.starts_with("web") || name.starts_with("agent")));
    let held = &seen.blockers[0];
    assert_eq!((held.code.as_str(), held.pod.starts_with("shop/")), ("budget-stuck", true), "all are needed");
    attempt
        .until(|it| {
            it.blockers[0].reason.contains(
                "PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required",
            )
        })
        .await;
    attempt.pass(Duration::from_secs(120)).await;
    sim.edit(BUDGET, "shop", "web", |budget| budget["spec"]["minAvailable"] = json!(2));
    attempt.drained().await;
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_cut_refused_or_too_old_do_not_stop_a_drain() {
    let (sim, cluster) = cluster(2).await;
    cordoned(&cluster).await;
    for (method, path) in [("GET", "/api/v1/pods"), ("GET", "/api/v1/nodes"), ("GET", "disruptionbudgets")] {
        sim.faults().script(method, path, 3, ScriptedFault::Cut);
        sim.faults().script(method, path, 2, ScriptedFault::status(503, "ServiceUnavailable"));
    }
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.total > 0).await;
    sim.expire_watches();
    attempt.drained().await;
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

#[tokio::test(start_paused = true)]
async fn evictions_that_fail_in_passing_are_repeated_with_the_servers_wait() {
    let (sim, cluster) = cluster(2).await;
    cordoned(&cluster).await;
    let busy = ScriptedFault::Status {
        code: 429,
        reason: "TooManyRequests".to_owned(),
        message: "too many requests".to_owned(),
        retry_after: Some(20),
    };
    sim.faults().script("POST", "/shell/eviction", 1, busy);
    sim.faults().script("POST", "/import/eviction", 1, ScriptedFault::Hang);
    sim.faults().script("POST", "/web", 2, ScriptedFault::status(500, "InternalError"));
    let mut attempt = Attempt::start(&cluster);
    let held = |code| move |it: &Progress| it.blockers.iter().any(|blocker| blocker.code == code);
    attempt.until(held(BlockCode::Throttled)).await;
    attempt.pass(Duration::from_secs(19)).await;
    assert_eq!(sim.faults().count("POST", "/shell/eviction"), 1);
    attempt.drained().await;
    assert_eq!(sim.faults().count("POST", "/shell/eviction"), 2);
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_the_node_is_proven_empty_leaves_too() {
    // Pods start at once, so that the late one runs when it is asked to leave.
    let config = SimConfig { start_time: Duration::ZERO, ..SimConfig::default() };
    let (sim, cluster) = cluster_with(2, config).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.phase == DrainPhase::Proving).await;
    // It names its node itself, so the cordon does not keep it away.
    sim.add_bare_pod("tools", "late", "n1");
    attempt.drained().await;
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_daemon_set_is_gone_leaves_too() {
    let (sim, cluster) = cluster(2).await;
    assert!(sim.remove("apps/daemonsets", "kube-system", "agent"));
    cordoned(&cluster).await;
    Attempt::start(&cluster).drained().await;
    assert_eq!(on_n1(&sim.list("pods")), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_cordon_is_kept_through_a_drain_and_after_it() {
    let (sim, cluster) = cluster(2).await;
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    assert_eq!(node::cordon(&cluster, &n1(), DEVICE, &owner()).await.unwrap(), Cordoned::Foreign);
    Attempt::start(&cluster).drained().await;
    assert!(!node::uncordon_own(&cluster, &n1(), DEVICE, ("b1", clock()())).await.unwrap());
    let kept = sim.get("nodes", "", "n1").unwrap();
    assert_eq!(kept["spec"]["unschedulable"], json!(true));
    assert_eq!(sim.faults().count("PATCH", "/nodes/"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_uncordoned_in_mid_drain_is_cordoned_again_and_ends_empty() {
    let (sim, cluster) = cluster(3).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.blocked > 0).await;
    attempt.pass(Duration::from_secs(30)).await;
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = json!(false));
    let since = clock();
    attempt.until(|it| it.recordons == 1).await;
    assert!(since().since_start() <= Duration::from_secs(5));
    sim.edit(BUDGET, "shop", "web", |budget| budget["spec"]["minAvailable"] = json!(2));
    let (_, recordons) = attempt.drained().await;
    assert_eq!(recordons, 1);
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
    assert_eq!(sim.get("nodes", "", "n1").unwrap()["spec"]["unschedulable"], json!(true));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_write_at_the_same_time_is_cordoned_and_uncordoned_without_a_pause() {
    let (sim, cluster) = cluster(2).await;
    let stale = || ScriptedFault::recorded("stale-version").unwrap();
    sim.faults().script("PATCH", "/api/v1/nodes/n1", 4, stale());
    cordoned(&cluster).await;
    assert_eq!(sim.faults().count("PATCH", "/nodes/n1"), 5);
    sim.faults().script("PATCH", "/api/v1/nodes/n1", 4, stale());
    node::uncordon_own(&cluster, &n1(), DEVICE, ("b1", clock()())).await.unwrap();
    assert_eq!(sim.faults().count("PATCH", "/nodes/n1"), 10);
}

#[tokio::test(start_paused = true)]
async fn another_devices_node_is_not_touched() {
    let (sim, cluster) = cluster(2).await;
    let error = node::cordon(&cluster, &n1(), "uuid-2", &owner()).await.unwrap_err();
    assert!(!error.is_retryable(), "{}", error.line());
    assert_eq!(sim.faults().count("PATCH", "/nodes/"), 0);
    let peers = node::others(&cluster, &n1()).await.unwrap();
    assert_eq!(peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["n2", "n3"]);
}

/// A cluster of n1 alone, cordoned by us and empty.
async fn empty() -> (Sim, ApiClient) {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", DEVICE);
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    cordoned(&cluster).await;
    (sim, cluster)
}

#[tokio::test(start_paused = true)]
async fn d5_the_proof_is_two_lists_from_the_store_a_second_apart() {
    let (sim, cluster) = empty().await;
    let before = sim.faults().requests().len();
    let outcome = Attempt::start(&cluster).future.await;
    let took = Duration::from_secs(1);
    assert_eq!(outcome, Ok(DrainSuccess { took, evicted: 0, recordons: 0, left: vec![] }));
    let asked: Vec<String> = sim.faults().requests().into_iter().skip(before).map(|it| it.uri).collect();
    let looks = asked.iter().filter(|it| it.split('?').next() == Some("/api/v1/nodes/n1"));
    assert_eq!(looks.count(), 2, "{asked:?}");
    let lists = asked.iter().filter(|it| it.starts_with("/api/v1/pods?") && !it.contains("watch=true"));
    let lists: Vec<&String> = lists.collect();
    assert_eq!(lists.len(), 2, "the watch begins at the first: {asked:?}");
    let good = |it: &&String| !it.contains("resourceVersion") && it.contains("spec.nodeName%3Dn1");
    assert!(lists.iter().all(good), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn d5_a_list_of_the_proof_that_is_throttled_is_asked_for_again_and_is_no_empty_one() {
    let (sim, cluster) = empty().await;
    let before = sim.faults().requests().len();
    sim.faults().script("GET", "/api/v1/pods", 3, ScriptedFault::status(429, "TooManyRequests"));
    Attempt::start(&cluster).drained().await;
    let asked = sim.faults().requests().into_iter().skip(before).map(|it| it.uri);
    let lists = asked.filter(|it| it.starts_with("/api/v1/pods?") && !it.contains("watch=true")).count();
    assert_eq!(lists, 3 + 2);
}

#[tokio::test(start_paused = true)]
async fn d19_dropping_the_drain_ends_every_call_and_watch() {
    let (sim, cluster) = cluster(3).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.blocked > 0 && it.counts.gone + it.counts.blocked == it.counts.total).await;
    drop(attempt);
    let before = sim.faults().requests().len();
    sim.edit(BUDGET, "shop", "web", |budget| budget["spec"]["minAvailable"] = json!(2));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(sim.faults().requests().len(), before);
    assert!(on_n1(&sim.list("pods")).iter().any(|it| it.starts_with("web")));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_and_proven_though_every_watch_ends_again_and_again() {
    let (sim, cluster) = cluster_with(2, SimConfig { history: 0, ..SimConfig::default() }).await;
    cordoned(&cluster).await;
    let ends = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            sim.expire_watches();
        }
    };
    tokio::select! {
        _ = Attempt::start(&cluster).drained() => {}
        () = ends => {}
    }
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_not_list_pods_or_whose_server_is_away_ends_and_says_why() {
    let (sim, cluster) = empty().await;
    sim.faults().script("GET", "/api/v1/pods", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    let failure = Attempt::start(&cluster).future.await.unwrap_err();
    let why = "list pods of node n1: the server answered 403";
    assert!(failure.reason.starts_with(why), "{}", failure.reason);
    sim.faults().clear();
    sim.faults().script("GET", "/api", u32::MAX, ScriptedFault::Cut);
    let rules = AttemptRules { attempt: Duration::from_secs(100), ..AttemptRules::default() };
    let failure = Attempt::by(&cluster, rules).future.await.unwrap_err();
    let words = ["not done within 100 s, ", "the state of the storage is not known: "];
    assert!(words.iter().all(|it| failure.reason.contains(it)), "{}", failure.reason);
}
