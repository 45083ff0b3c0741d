//! What a pod bears when its end begins (K2), and which budgets let a sick pod pass (K3): the same by each way by which a
//! pod leaves.

use std::time::Duration;

use kubenodeop::{AttemptRules, BlockCode, Limit, LimitAction};
use kubesim::Sim;
use serde_json::{Value, json};

use crate::stage::{Attempt, cluster, cordoned, on_n1};

const BUDGETS: &str = "policy/poddisruptionbudgets";

/// Budgets of the pod `train` with this in their spec, counted.
async fn guarded(sim: &Sim, budgets: &[(&str, Value)]) {
    for (name, spec) in budgets {
        sim.add_budget("tools", name, "train", spec);
    }
    let counted = |it: &Value| it["metadata"]["namespace"] != "tools" || it["status"]["expectedPods"] == 1;
    sim.until(BUDGETS, |all| all.iter().all(counted)).await;
}

fn is_train(pod: &Value) -> bool {
    pod["metadata"]["name"] == "train"
}

fn is_disrupted(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| {
        it["type"] == "DisruptionTarget" && it["status"] == "True" && it["reason"] == "EvictionByEvictionAPI"
    })
}

#[tokio::test(start_paused = true)]
async fn k2_a_pod_is_marked_as_disrupted_before_its_end_begins_by_whatever_way_it_leaves() {
    let open = || json!({ "minAvailable": 0 });
    let shut = || json!({ "minAvailable": 1 });
    let delete = AttemptRules {
        pod: Limit { after: Some(Duration::from_secs(4)), then: LimitAction::GetPast },
        ..AttemptRules::default()
    };
    let table = [
        ("the eviction API", vec![("one", open())], AttemptRules::default()),
        ("two budgets", vec![("one", open()), ("other", open())], AttemptRules::default()),
        ("past its limit", vec![("one", shut())], delete),
    ];
    for (row, budgets, rules) in table {
        let (sim, cluster) = cluster(2).await;
        sim.add_bare_pod("tools", "train", "n1");
        sim.until("pods", |all| all.iter().any(|it| is_train(it) && it["status"]["phase"] == "Running"))
            .await;
        guarded(&sim, &budgets).await;
        cordoned(&cluster).await;
        let attempt = Attempt::by(&cluster, rules);
        let ending = |it: &Value| is_train(it) && it["metadata"]["deletionTimestamp"].is_string();
        let begun = sim.until("pods", |all| all.iter().any(ending));
        let ((), drained) = tokio::join!(
            async {
                begun.await;
                let pods = sim.list("pods");
                let train = pods.iter().find(|it| is_train(it)).unwrap();
                assert!(is_disrupted(train), "{row}: {}", train["status"]);
                // The others as they were.
                let all = train["status"]["conditions"].as_array().unwrap();
                assert!(all.iter().any(|it| it["type"] == "Ready"), "{row}: {all:?}");
            },
            attempt.drained()
        );
        assert!(drained.0 > 0, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn k3_a_sick_pod_leaves_where_each_of_its_budgets_lets_it_pass_as_with_one() {
    let always = || json!({ "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow" });
    let table = [
        (vec![("one", always())], true),
        (vec![("one", always()), ("other", always())], true),
        (vec![("one", always()), ("other", json!({ "minAvailable": 1 }))], false),
    ];
    for (budgets, goes) in table {
        let (sim, cluster) = cluster(2).await;
        sim.apply(
            "pods",
            json!({
                "metadata": { "name": "train", "namespace": "tools", "labels": { "app": "train" },
                    "annotations": { "kubesim/never-ready": "yes" } },
                "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
                "status": { "phase": "Pending" },
            }),
        );
        sim.until("pods", |all| all.iter().any(|it| is_train(it) && it["status"]["phase"] == "Running"))
            .await;
        guarded(&sim, &budgets).await;
        let node = crate::stage::n1();
        let plan = kubenodeop::survey::plan(&cluster, &node, &AttemptRules::default()).await.unwrap();
        assert_eq!(plan.blockers.is_empty(), goes, "{:?}", plan.blockers);
        cordoned(&cluster).await;
        let mut attempt = Attempt::start(&cluster);
        if goes {
            attempt.drained().await;
            assert_eq!(on_n1(&sim.list("pods")), ["agent-n1"]);
        } else {
            let held = attempt.until(|it| it.blockers.iter().any(|it| it.reason.contains("not Ready"))).await;
            let blocker = held.blockers.iter().find(|it| it.pod.ends_with("/train")).unwrap();
            assert_eq!(blocker.code, BlockCode::ManyBudgets);
            assert_eq!(blocker.reason.matches("is not Ready").count(), 1, "{}", blocker.reason);
            attempt.pass(Duration::from_secs(120)).await;
        }
    }
}
