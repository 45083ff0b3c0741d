//! The rules of a drain against the embedded cluster: tiers, two budgets, workloads that come back, volumes, limits.

use std::cell::RefCell;
use std::time::Duration;

use crate::stage::{Attempt, are_ready, clock, cluster, cluster_with, cordoned, n1, on_n1};
use kubenodeop::plan::survey;
use kubenodeop::{AttemptRules, BlockCode, DrainSuccess, Limit, LimitAction};
use kubesim::{ScriptedFault, Sim, SimConfig};
use serde_json::{Value, json};
use topics::DrainPhase;

const BUDGET: &str = "policy/poddisruptionbudgets";

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Namespace and name of the pods in the order in which they were to be evicted.
fn asked(sim: &Sim) -> Vec<String> {
    let name = |uri: &str| uri.split('/').nth_back(1).unwrap_or_default().to_owned();
    let seen = sim.faults().requests();
    seen.iter()
        .filter(|it| it.method == "POST" && it.uri.contains("/eviction"))
        .map(|it| name(&it.uri))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn d4_two_hundred_pods_with_a_blocked_one_are_all_asked_within_two_seconds() {
    let (sim, cluster) = cluster(2).await;
    for number in 0..199 {
        sim.add_bare_pod("many", &format!("p{number}"), "n1");
    }
    sim.add_bare_pod("many", "held", "n1");
    sim.add_budget("many", "held", "held", &json!({ "minAvailable": 1 }));
    sim.until("pods", |pods| are_ready(pods, 211)).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.total > 200).await;
    attempt.pass(secs(2)).await;
    let mut first = asked(&sim);
    first.retain(|name| name.starts_with('p') || name == "held");
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 200);
    let seen = attempt.until(|it| it.counts.gone + 1 == it.counts.total && !it.blockers.is_empty()).await;
    assert_eq!(seen.blockers[0].code, BlockCode::BudgetStuck);
    assert_eq!(
        seen.blockers[0].reason,
        "pod many/held: PodDisruptionBudget many/held allows no disruption: 1 of 1 pod healthy, 1 required"
    );
    sim.edit(BUDGET, "many", "held", |budget| budget["spec"]["minAvailable"] = json!(0));
    attempt.drained().await;
}

#[tokio::test(start_paused = true)]
async fn d6_pods_with_two_budgets_leave_one_by_one_and_only_while_both_have_room() {
    let (sim, cluster) = cluster(2).await;
    sim.add_budget("shop", "web-too", "web", &json!({ "minAvailable": 3 }));
    sim.until(BUDGET, |all| all.len() == 2).await;
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    let seen = attempt.until(|it| it.blockers.iter().any(|it| it.reason.contains("shop/web-too"))).await;
    let reason = &seen.blockers.iter().find(|it| it.pod.contains("/web")).unwrap().reason;
    assert!(
        reason.contains("PodDisruptionBudget shop/web allows 1 disruption: 3 of 3 pods healthy, 2 required")
            && reason.contains(
                "PodDisruptionBudget shop/web-too allows no disruption: 3 of 3 pods healthy, 3 required"
            ),
        "{reason}"
    );
    attempt.pass(secs(120)).await;
    let here = || on_n1(&sim.list("pods")).iter().filter(|name| name.starts_with("web")).count();
    assert!(here() > 0, "one of the two has no room");
    sim.edit(BUDGET, "shop", "web-too", |budget| budget["spec"]["minAvailable"] = json!(2));
    let now = clock();
    attempt.drained().await;
    assert!(now().since_start() < secs(10), "{:?}", now());
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
    assert!(sim.faults().count("PUT", "poddisruptionbudgets/web-too/status") > 0);
}

/// When a pod changes, the disruption controller has only one of its budgets counted again: the other one keeps the
/// numbers, and the claim, of a pod that is gone and replaced, for the claim's two minutes.
#[tokio::test(start_paused = true)]
async fn d6_pods_with_two_budgets_need_no_two_minutes_each() {
    let (sim, cluster) = cluster(2).await;
    sim.add_deployment("shop", "twice", 15);
    for name in ["one", "two"] {
        sim.add_budget("shop", name, "twice", &json!({ "minAvailable": 14 }));
    }
    sim.until("pods", |pods| are_ready(pods, 26)).await;
    sim.edit(BUDGET, "shop", "two", |budget| budget["metadata"]["labels"]["seen"] = json!("once"));
    let here = on_n1(&sim.list("pods")).iter().filter(|name| name.starts_with("twice")).count();
    assert!(here >= 3, "{here}");
    cordoned(&cluster).await;
    let now = clock();
    Attempt::start(&cluster).drained().await;
    let took = now().since_start();
    assert!(took < secs(10) * u32::try_from(here).unwrap(), "{took:?} for {here} pods");
}

#[tokio::test(start_paused = true)]
async fn d10_a_workload_that_returns_three_times_is_left_named_and_no_more_evicted() {
    let (sim, cluster) = cluster(2).await;
    let pinned = json!({
        "metadata": { "labels": { "app": "clings" } },
        "spec": {
            "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 30,
            "nodeSelector": { "kubernetes.io/hostname": "n1" }, "tolerations": [{ "operator": "Exists" }],
        },
    });
    sim.apply(
        "apps/statefulsets",
        json!({
            "metadata": { "name": "clings", "namespace": "tools", "labels": { "app": "clings" } },
            "spec": {
                "replicas": 1, "serviceName": "clings", "selector": { "matchLabels": { "app": "clings" } },
                "template": pinned,
            },
        }),
    );
    sim.until("pods", |pods| are_ready(pods, 12)).await;
    cordoned(&cluster).await;
    let rules = AttemptRules { sticky: LimitAction::GetPast, ..AttemptRules::default() };
    let DrainSuccess { left, took, .. } = Attempt::by(&cluster, rules).success().await;
    assert_eq!(left, ["tools/clings-0: it stays: its StatefulSet/clings has come back to this node 3 times"]);
    assert!(took < secs(30), "{took:?}");
    assert_eq!(asked(&sim).iter().filter(|name| *name == "clings-0").count(), 3, "three times and no more");
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1", "clings-0"]);
}

#[tokio::test(start_paused = true)]
async fn d11_storage_and_network_wait_for_the_pods_that_use_them() {
    let (sim, cluster) = cluster(2).await;
    for (name, tier) in [("net", "network"), ("disk", "storage"), ("plug", "device"), ("ip", "address")] {
        sim.add_bare_pod("tools", name, "n1");
        sim.edit("pods", "tools", name, |it| it["metadata"]["labels"]["pillar-rs/drain-tier"] = json!(tier));
    }
    sim.until("pods", |pods| are_ready(pods, 15)).await;
    sim.add_budget("tools", "shell", "shell", &json!({ "minAvailable": 1 }));
    cordoned(&cluster).await;
    let mut attempt = Attempt::start(&cluster);
    attempt.until(|it| it.counts.blocked == 1 && it.counts.going == 0 && it.counts.gone > 0).await;
    attempt.pass(secs(60)).await;
    let names = on_n1(&sim.list("pods"));
    for late in ["net", "disk", "plug", "ip", "shell"] {
        assert!(names.iter().any(|name| name == late), "{late} of {names:?}");
    }
    sim.edit(BUDGET, "tools", "shell", |budget| budget["spec"]["minAvailable"] = json!(0));
    attempt.drained().await;
    let order = asked(&sim);
    assert_eq!(order[order.len() - 4..], ["ip", "plug", "disk", "net"]);
}

/// Row 0-24. Speakers of which one answers for an address, as those of kube-vip and MetalLB.
#[tokio::test(start_paused = true)]
async fn d11_a_virtual_address_is_answered_for_throughout_and_moves_once_the_applications_are_gone() {
    let (sim, cluster) = cluster(2).await;
    sim.add_deployment("metallb-system", "speaker", 6);
    sim.until("pods", |pods| are_ready(pods, 17)).await;
    cordoned(&cluster).await;
    let speaks = |pod: &Value| {
        pod["metadata"]["namespace"] == "metallb-system"
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["conditions"][0]["status"] == "True"
    };
    let places = RefCell::new(vec![("n1".to_owned(), 0)]);
    let watched = sim.until("pods", |pods| {
        let on: Vec<&str> =
            pods.iter().filter(|it| speaks(it)).filter_map(|it| it["spec"]["nodeName"].as_str()).collect();
        assert!(!on.is_empty(), "nobody answers for the address");
        let mut places = places.borrow_mut();
        if !on.contains(&places.last().unwrap().0.as_str()) {
            let here =
                on_n1(pods).into_iter().filter(|it| !it.starts_with("agent") && !it.starts_with("speaker"));
            places.push((on[0].to_owned(), here.count()));
        }
        false
    });
    tokio::select! {
        () = watched => {}
        _ = Attempt::start(&cluster).drained() => {}
    }
    let places = places.into_inner();
    assert!(places.len() == 2 && places[1].0 != "n1" && places[1].1 == 0, "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn d13_volumes_of_evicted_pods_are_listed_and_waited_for() {
    let config = SimConfig { detach_time: secs(20), ..SimConfig::default() };
    let (sim, cluster) = with_volume(config).await;
    // A cluster without Longhorn: no copy of a volume is known, and none is waited for (row 2-50).
    sim.faults().script("GET", "/replicas", u32::MAX, ScriptedFault::status(404, "NotFound"));
    assert_eq!(kubenodeop::storage::look(&cluster, &n1()).await.unwrap(), None);
    let mut attempt = Attempt::start(&cluster);
    let seen =
        attempt.until(|it| it.phase == DrainPhase::Detaching && it.volumes == ["tools/data (pv pv-1)"]).await;
    assert_eq!((seen.counts.gone, seen.marks.volumes_ms > 0), (seen.counts.total, true));
    attempt.pass(secs(15)).await;
    assert_eq!(attempt.progress.borrow().phase, DrainPhase::Detaching);
    attempt.drained().await;
    assert_eq!(attachments(&sim), 0);
}

#[tokio::test(start_paused = true)]
async fn d18_a_node_uncordoned_while_volumes_detach_or_in_the_proof_is_cordoned_within_five_seconds() {
    for phase in [DrainPhase::Detaching, DrainPhase::Proving] {
        let (sim, cluster) = with_volume(SimConfig { detach_time: secs(20), ..SimConfig::default() }).await;
        let mut attempt = Attempt::start(&cluster);
        attempt.until(|it| it.phase == phase).await;
        sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = json!(false));
        let now = clock();
        attempt.until(|it| it.recordons == 1).await;
        assert!(now().since_start() <= secs(5), "{phase:?}");
        assert_eq!(sim.get("nodes", "", "n1").unwrap()["spec"]["unschedulable"], json!(true));
        let again = clock();
        let (_, recordons) = attempt.drained().await;
        assert!(recordons == 1 && again().since_start() >= secs(1), "{phase:?}: the proof starts over");
    }
}

#[tokio::test(start_paused = true)]
async fn d15_volumes_that_do_not_detach_in_time_are_named() {
    let config = SimConfig { detach_time: secs(3600), ..SimConfig::default() };
    let (sim, cluster) = with_volume(config).await;
    let DrainSuccess { left, took, .. } = Attempt::start(&cluster).success().await;
    assert!(left.len() == 1 && left[0].starts_with("tools/data (pv pv-1): "), "{left:?}");
    assert!(took >= secs(600) && took < secs(605), "{took:?}");
    assert_eq!(attachments(&sim), 1);
}

#[tokio::test(start_paused = true)]
async fn d15_a_pod_over_its_limit_is_deleted_whatever_its_budget_says() {
    let (sim, cluster) = cluster(3).await;
    cordoned(&cluster).await;
    let pod = Limit { after: Some(secs(60)), then: LimitAction::GetPast };
    let left = Attempt::by(&cluster, AttemptRules { pod, ..AttemptRules::default() }).left().await;
    assert!(!left.is_empty() && left.iter().all(|it| it.starts_with("shop/web")), "{left:?}");
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
}

/// The usual cluster, with a pod on n1 that mounts a claim, cordoned.
async fn with_volume(config: SimConfig) -> (Sim, kubeapi::ApiClient) {
    let (sim, cluster) = cluster_with(2, config).await;
    sim.add_claim("tools", "data", "pv-1");
    sim.add_mounting_pod("tools", "base", "n1", "data");
    sim.until("pods", |pods| are_ready(pods, 12)).await;
    sim.until("storage/volumeattachments", |all: &[Value]| all.len() == 1).await;
    cordoned(&cluster).await;
    (sim, cluster)
}

fn attachments(sim: &Sim) -> usize {
    sim.list("storage/volumeattachments").len()
}

#[tokio::test(start_paused = true)]
async fn j6_a_pod_that_a_person_holds_leaves_at_its_time_and_the_plan_and_the_drain_say_when() {
    let (sim, cluster) = cluster(2).await;
    sim.add_bare_pod("shop", "job", "n1");
    sim.add_bare_pod("shop", "calm", "n1");
    sim.until("pods", |pods| pods.iter().all(|pod| pod["status"]["phase"] == "Running")).await;
    let until = jiff::Timestamp::now() + Duration::from_secs(3600);
    sim.edit("pods", "shop", "job", |it| {
        it["metadata"]["annotations"]["pillar-rs/hold-until"] = until.to_string().into();
    });
    sim.edit("pods", "shop", "calm", |it| {
        it["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true".into();
    });
    cordoned(&cluster).await;
    let said = format!("pod shop/job is not evicted before {until}, as pillar-rs/hold-until says");
    let calm = |it: &String| it.starts_with("karpenter.sh/do-not-disrupt") && it.ends_with(": shop/calm");
    let plan = survey::plan(&cluster, &n1(), &AttemptRules::default()).await.unwrap();
    assert!(plan.blockers.iter().any(|it| it.reason == said), "{:?}", plan.blockers);
    assert!(plan.notes.iter().any(calm), "{:?}", plan.notes);
    let mut attempt = Attempt::start(&cluster);
    let held = |it: &kubenodeop::Progress| it.blockers.iter().any(|it| it.reason == said);
    let shown = attempt.until(held).await;
    assert!(shown.left.iter().any(calm), "{:?}", shown.left);
    attempt.pass(secs(3500)).await;
    assert!(!asked(&sim).contains(&"job".to_owned()), "before its time");
    assert_eq!(asked(&sim).iter().filter(|it| *it == "calm").count(), 1, "{:?}", asked(&sim));
    attempt.drained().await;
    assert_eq!(asked(&sim).last().map(String::as_str), Some("job"));
}
