//! Pods that declare responders for their eviction, where the API server has EvictionRequests, and where it has none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, BlockCode, Limit, LimitAction};
use kubesim::Sim;
use serde_json::{Value, json};

use crate::stage::{Attempt, cluster, cordoned, on_n1};

const REQUESTS: &str = "lifecycle/evictionrequests";
const GROUP: &str = "/apis/lifecycle.k8s.io/";
const EVICT: &str = "/pods/slow/eviction";

/// The usual cluster, cordoned, with a pod on n1 that declares a responder.
async fn stage() -> (Sim, ApiClient) {
    let (sim, cluster) = cluster(2).await;
    let pod = json!({
        "metadata": { "name": "slow", "namespace": "shop", "labels": { "app": "slow" } },
        "spec": {
            "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 30,
            "evictionResponders": [
                { "name": "example.com/last", "priority": 1000 },
                { "name": "example.com/copier", "priority": 2000 },
            ],
        },
        "status": { "phase": "Pending" },
    });
    sim.apply("pods", pod);
    let runs = |it: &Value| it["metadata"]["name"] == "slow" && it["status"]["phase"] == "Running";
    sim.until("pods", |all| all.iter().any(runs)).await;
    cordoned(&cluster).await;
    (sim, cluster)
}

fn rules() -> AttemptRules {
    AttemptRules { eviction_requests: true, ..AttemptRules::default() }
}

/// The attempt, once the responder is all that it waits for.
async fn waits(cluster: &ApiClient, rules: AttemptRules) -> Attempt {
    let mut attempt = Attempt::by(cluster, rules);
    let seen = attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Responder)).await;
    let reason = &seen.blockers.iter().find(|it| it.code == BlockCode::Responder).unwrap().reason;
    let words = "pod shop/slow is left to its eviction responders: ";
    assert!(reason.starts_with(words), "{reason}");
    attempt
        .until(|it| {
            it.blockers.iter().any(|it| it.reason.contains("example.com/copier is active: copying 40 %"))
        })
        .await;
    attempt
}

/// Each different state of the requests and of the pod from now on, as `Eviction`, `Withdrawn ending`, ` gone`.
fn states(sim: &Sim) -> Arc<Mutex<Vec<String>>> {
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    sim.onlooker(move |moment| {
        let intents = moment.list(REQUESTS).map(|it| it["spec"]["intent"].as_str().unwrap().to_owned());
        let pod = moment.list("pods").find(|it| it["metadata"]["name"] == "slow");
        let pod = match pod.map(|it| it["metadata"]["deletionTimestamp"].is_null()) {
            None => " gone",
            Some(true) => "",
            Some(false) => " ending",
        };
        let state = format!("{}{pod}", intents.collect::<Vec<_>>().join(","));
        let mut seen = seen.lock().unwrap();
        if seen.last() != Some(&state) {
            seen.push(state);
        }
    });
    states
}

#[tokio::test(start_paused = true)]
async fn j2_a_responder_that_finishes_takes_its_pod_away_without_an_eviction_of_ours() {
    let (sim, cluster) = stage().await;
    sim.add_eviction_requests(Some(Duration::from_secs(120)), "");
    let states = states(&sim);
    waits(&cluster, rules()).await.drained().await;
    assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
    assert_eq!(sim.faults().count("POST", EVICT), 0);
    let seen = states.lock().unwrap().clone();
    assert_eq!(seen, ["", "Eviction", "Eviction ending", "Eviction gone", "Withdrawn gone", " gone"]);
}

#[tokio::test(start_paused = true)]
async fn j2_a_responder_that_never_finishes_is_stopped_at_the_limit_of_the_pod_before_the_pod_is_evicted() {
    for (then, method, path) in
        [(LimitAction::Wait, "POST", EVICT), (LimitAction::GetPast, "DELETE", "/pods/slow")]
    {
        let (sim, cluster) = stage().await;
        sim.add_eviction_requests(None, "");
        let states = states(&sim);
        let pod = Limit { after: Some(Duration::from_secs(300)), then };
        let mut attempt = waits(&cluster, AttemptRules { pod, ..rules() }).await;
        attempt.pass(Duration::from_secs(290)).await;
        assert_eq!(sim.faults().count(method, path), 0, "{then:?}");
        attempt.drained().await;
        assert_eq!(sim.faults().count(method, path), 1, "{then:?}");
        let seen = states.lock().unwrap().clone();
        assert_eq!(seen, ["", "Eviction", "Withdrawn", "", " ending", " gone"], "{then:?}");
        let canceled = &sim.list("lifecycle/evictions")[0]["status"]["targetResponders"][0]["state"];
        assert_eq!(canceled, "Canceled");
    }
}

#[tokio::test(start_paused = true)]
async fn j2_a_failed_attempt_withdraws_what_it_has_asked_for() {
    let (sim, cluster) = stage().await;
    sim.add_eviction_requests(None, "");
    let pod = Limit { after: Some(Duration::from_secs(300)), then: LimitAction::GiveUp };
    let attempt = waits(&cluster, AttemptRules { pod, ..rules() }).await;
    assert!(attempt.future.await.unwrap_err().reason.contains("shop/slow has not left within 300 s"));
    assert_eq!(sim.list(REQUESTS), [] as [Value; 0]);
    assert!(on_n1(&sim.list("pods")).contains(&"slow".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn j2_by_default_and_where_the_group_is_not_served_each_pod_is_evicted_at_once() {
    for (row, set, served, failing, calls) in [
        ("by default", false, true, "", 0),
        // The first list, after which the group is known to be absent.
        ("not served", true, false, "", 1),
        // Two lists; created, read as failed, withdrawn, and gone before the end.
        ("no valid request", true, true, "EvictionInvalid", 8),
    ] {
        let (sim, cluster) = stage().await;
        if served {
            sim.add_eviction_requests(None, failing);
        }
        let took = crate::stage::clock();
        Attempt::by(&cluster, AttemptRules { eviction_requests: set, ..rules() }).drained().await;
        assert!(took().since_start() < Duration::from_secs(10), "{row}");
        assert_eq!(sim.faults().count("POST", EVICT), 1, "{row}");
        let all: usize =
            ["GET", "POST", "PATCH", "DELETE"].iter().map(|it| sim.faults().count(it, GROUP)).sum();
        assert_eq!(all, calls, "{row}");
        assert_eq!(sim.list(REQUESTS), [] as [Value; 0], "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn j2_a_group_that_goes_away_in_mid_drain_leaves_the_pod_to_an_eviction() {
    let (sim, cluster) = stage().await;
    sim.add_eviction_requests(None, "");
    let attempt = waits(&cluster, rules()).await;
    sim.drop_eviction_requests();
    attempt.drained().await;
    assert_eq!(sim.faults().count("POST", EVICT), 1);
}

#[tokio::test(start_paused = true)]
async fn j2_what_a_run_that_was_cut_off_has_left_is_withdrawn_before_the_next_one_asks() {
    let (sim, cluster) = stage().await;
    sim.add_eviction_requests(None, "");
    drop(waits(&cluster, rules()).await);
    let left = sim.list(REQUESTS).remove(0);
    let name = left["metadata"]["name"].as_str().unwrap();
    assert_eq!(left["spec"]["target"]["pod"]["uid"], name.trim_start_matches("pillar-rs-"));
    // Of a pod that is gone; of another node; of another requester.
    let like = |name: &str, node: &str, requester: &str| {
        let mut it = left.clone();
        it["metadata"] =
            json!({ "name": name, "namespace": "shop", "labels": { "pillar-rs/drain-node": node } });
        (it["spec"]["requester"], it["spec"]["target"]["pod"]["uid"]) = (requester.into(), name.into());
        it
    };
    for (name, node, requester) in [
        ("gone", "n1", "pillar-rs.dev/drain"),
        ("other-node", "n2", "pillar-rs.dev/drain"),
        ("other-requester", "n1", "example.com/descheduler"),
    ] {
        sim.apply(REQUESTS, like(name, node, requester));
    }
    let states = states(&sim);
    drop(waits(&cluster, rules()).await);
    let kept: Vec<String> =
        sim.list(REQUESTS).iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kept, ["other-node", "other-requester", name], "and asked for again");
    let none = |it: &String| it == "Eviction,Eviction";
    assert!(states.lock().unwrap().iter().any(none), "withdrawn in between: {states:?}");
}
