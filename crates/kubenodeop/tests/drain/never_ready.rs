//! A pod that was never Ready: deleted after its hold time where a budget without room holds it and the rule says so,
//! and never otherwise.

use std::time::Duration;

use kubenodeop::{AttemptRules, LimitAction};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};

use crate::stage::{Attempt, cluster, cordoned, on_n1};

const HOLD: Duration = Duration::from_secs(600);

/// A pod on n1 that is not Ready, and never was, or has been until an hour after its start.
async fn add_pod(sim: &Sim, never: bool) {
    let pod = json!({
        "metadata": {
            "name": "sick", "namespace": "shop", "labels": { "app": "sick" },
            "annotations": { "kubesim/never-ready": "yes" },
        },
        "spec": {
            "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 30,
        },
        "status": { "phase": "Pending" },
    });
    sim.apply("pods", pod);
    let runs = |it: &Value| it["metadata"]["name"] == "sick" && it["status"]["phase"] == "Running";
    sim.until("pods", |all| all.iter().any(runs)).await;
    sim.edit("pods", "shop", "sick", |it| {
        it["status"]["startTime"] = "2026-03-14T09:00:00Z".into();
        let since = if never { "2026-03-14T09:00:00Z" } else { "2026-03-14T10:00:00Z" };
        it["status"]["conditions"][0]["lastTransitionTime"] = since.into();
    });
}

fn rules(then: LimitAction) -> AttemptRules {
    AttemptRules { never_ready: then, ..AttemptRules::default() }
}

#[tokio::test(start_paused = true)]
async fn d8_a_never_ready_pod_is_deleted_only_where_a_budget_holds_it_and_the_rule_says_so() {
    let delete = LimitAction::GetPast;
    for (row, never, budget, then, goes) in [
        ("held by a budget without room", true, true, delete, true),
        ("the rule says wait", true, true, LimitAction::Wait, false),
        ("it was Ready once", false, true, delete, false),
        ("its eviction fails for another reason", true, false, delete, false),
    ] {
        let (sim, cluster) = cluster(2).await;
        add_pod(&sim, never).await;
        if budget {
            sim.add_budget("shop", "sick", "sick", &json!({ "minAvailable": 1 }));
            let counted = |it: &Value| it["status"]["expectedPods"] == 1;
            sim.until("policy/poddisruptionbudgets", |all| all.iter().any(counted)).await;
        } else {
            let fault = ScriptedFault::status(500, "InternalError");
            sim.faults().script("POST", "/pods/sick/eviction", 1_000_000, fault);
        }
        cordoned(&cluster).await;
        let mut attempt = Attempt::by(&cluster, rules(then));
        attempt.pass(Duration::from_secs(599)).await;
        assert!(on_n1(&sim.list("pods")).contains(&"sick".to_owned()), "{row}: before its time");
        if goes {
            attempt.drained().await;
        } else {
            attempt.pass(HOLD * 2).await;
        }
        assert_eq!(!on_n1(&sim.list("pods")).contains(&"sick".to_owned()), goes, "{row}");
        assert_eq!(sim.faults().count("DELETE", "/pods/sick"), usize::from(goes), "{row}");
    }
}
