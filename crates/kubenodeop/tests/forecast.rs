//! The plan of a drain against the embedded cluster: it writes nothing, and the drain then meets what it foretold.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kubeapi::ApiClient;
use kubenodeop::{AttemptRules, Plan, Progress, drain, plan::survey};
use kubesim::Sim;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::stage::{clock, cordoned, n1, order};

const BUDGETS: &str = "policy/poddisruptionbudgets";

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// Three nodes and what `seed` adds, once `count` pods are Ready.
async fn cluster(count: usize, seed: impl FnOnce(&Sim)) -> (Sim, ApiClient) {
    let sim = Sim::of_nodes(3);
    seed(&sim);
    sim.until("pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == count).await;
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    (sim, cluster)
}

/// A Deployment whose pods may run on n1 only.
fn add_pinned(sim: &Sim, name: &str, replicas: u64) {
    sim.add_deployment("shop", name, replicas);
    let selector = json!({ "kubernetes.io/hostname": "n1" });
    sim.edit("apps/deployments", "shop", name, |it| {
        it["spec"]["template"]["spec"]["nodeSelector"] = selector.clone();
    });
    for set in sim.list("apps/replicasets") {
        let set_name = set["metadata"]["name"].as_str().unwrap();
        if set["metadata"]["labels"]["app"] == name {
            sim.edit("apps/replicasets", "shop", set_name, |it| {
                it["spec"]["template"]["spec"]["nodeSelector"] = selector.clone();
            });
        }
    }
}

/// The scheduler's word on a pod that fits nowhere, where the cluster has not said it itself.
fn say_unplaced(sim: &Sim) {
    for pod in sim.list("pods") {
        let told = pod["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it["type"] == "PodScheduled" && it["status"] == "False"));
        if pod["spec"]["nodeName"].is_null() && !told {
            sim.edit("pods", "shop", pod["metadata"]["name"].as_str().unwrap(), |it| {
                it["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 1 were unschedulable, 2 did not match the selector.",
                }]);
            });
        }
    }
}

type Met = BTreeSet<(String, String)>;

/// Drains in earnest until nothing moves any more, all that leaves being gone or blocked, and by nothing but
/// what is `expected`. Else the attempt's own limit ends the test.
async fn meets(sim: &Sim, cluster: &ApiClient, expected: &Met) {
    cordoned(cluster).await;
    let (sender, mut progress) = watch::channel(Progress::default());
    let order = order(AttemptRules::default());
    let settled = progress.wait_for(|it| {
        let seen: Met = it.blockers.iter().map(|it| (it.pod.clone(), it.code.clone())).collect();
        let counts = it.counts;
        !seen.is_empty() && counts.gone + counts.blocked == counts.total && seen == *expected
    });
    let scheduler = async {
        loop {
            let unsaid =
                |it: &Value| it["spec"]["nodeName"].is_null() && it["status"]["conditions"][0].is_null();
            sim.until("pods", |pods| pods.iter().any(unsaid)).await;
            // A pod that has a place elsewhere gets it meanwhile.
            tokio::time::sleep(Duration::from_secs(1)).await;
            say_unplaced(sim);
        }
    };
    tokio::select! {
        outcome = drain(cluster, &order, clock(), &sender) => match outcome {
            Ok(_) => assert!(expected.is_empty(), "drained, in spite of {expected:?}"),
            Err(failure) => panic!("expected {expected:?}, but {}", failure.reason),
        },
        seen = settled => drop(seen.unwrap()),
        () = scheduler => {}
    }
}

/// A plan that the drain has borne out; `count` pods are there, `blocked` are foreseen.
async fn borne_out(count: usize, blocked: usize, seed: impl FnOnce(&Sim)) -> Plan {
    let (sim, cluster) = cluster(count, seed).await;
    // Of budgets that share pods a change of the pods has only one counted; each is, when it changes itself.
    for budget in sim.list(BUDGETS) {
        let name = budget["metadata"]["name"].as_str().unwrap();
        sim.edit(BUDGETS, "shop", name, |it| it["metadata"]["labels"]["seen"] = json!("once"));
    }
    plan_and_drain(&sim, &cluster, blocked).await
}

/// A plan that wrote nothing, and then the drain that meets what it foretold.
async fn plan_and_drain(sim: &Sim, cluster: &ApiClient, blocked: usize) -> Plan {
    let before = sim.list("pods");
    let plan = survey::plan(cluster, &n1(), &AttemptRules::default()).await.unwrap();
    let written: Vec<_> = sim.faults().requests().into_iter().filter(|seen| seen.method != "GET").collect();
    assert!(written.is_empty(), "a plan writes nothing: {written:?}");
    assert_eq!(sim.list("pods"), before);
    assert_eq!(plan.blockers.len(), blocked, "{:?}", plan.blockers);
    let foreseen = plan.blockers.iter().map(|it| (it.pod.clone(), it.code.clone())).collect();
    meets(sim, cluster, &foreseen).await;
    plan
}

fn codes(plan: &Plan) -> BTreeSet<&str> {
    plan.blockers.iter().map(|it| it.code.as_str()).collect()
}

fn least(number: u64) -> Value {
    json!({ "minAvailable": number })
}

#[tokio::test(start_paused = true)]
async fn o5_a_budget_without_room_for_a_pod_that_is_not_ready_is_foreseen_with_that_pod() {
    let (sim, cluster) = cluster(3, |sim| {
        sim.add_deployment("shop", "web", 3);
        sim.add_budget("shop", "web", "web", &least(2));
    })
    .await;
    let elsewhere = sim.list("pods").into_iter().find(|pod| pod["spec"]["nodeName"] == "n2").unwrap();
    let sick = elsewhere["metadata"]["name"].as_str().unwrap();
    sim.edit("pods", "shop", sick, |it| it["status"]["conditions"][0]["status"] = "False".into());
    let plan = plan_and_drain(&sim, &cluster, 1).await;
    assert_eq!(codes(&plan), BTreeSet::from(["budget"]));
    let reason = &plan.blockers[0].reason;
    assert!(
        reason.contains("PodDisruptionBudget shop/web allows no disruption: 2 of 3 pods healthy, 2 required"),
        "{reason}"
    );
    assert!(reason.contains(&format!("pod shop/{sick} on node n2 is not Ready since ")), "{reason}");
}

/// The pods that are there, by what they are made, and the least numbers of pods of the budgets `web` and `all`, which both
/// select `web`; the code and words of what is foreseen.
type Row = (usize, fn(&Sim), [u64; 2], &'static str, &'static [&'static str]);

#[tokio::test(start_paused = true)]
async fn o5_budgets_that_hold_are_foreseen_by_name_and_those_with_room_hold_nobody() {
    const STUCK: &str = "PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required";
    let with_set: fn(&Sim) = |sim| {
        sim.add_deployment("shop", "web", 3);
        sim.add_stateful_set("shop", "db", 3);
    };
    let alone: fn(&Sim) = |sim| sim.add_deployment("shop", "web", 3);
    let table: [Row; 3] = [
        (6, with_set, [3, 0], "budget-stuck", &[STUCK]),
        (3, alone, [3, 1], "budget-stuck", &["PodDisruptionBudget shop/all", "PodDisruptionBudget shop/web"]),
        (3, alone, [2, 1], "", &[]),
    ];
    for (count, seed, [web, all], code, words) in table {
        let plan = borne_out(count, usize::from(!code.is_empty()), |sim| {
            seed(sim);
            sim.add_budget("shop", "web", "web", &least(web));
            if all > 0 {
                sim.add_budget("shop", "all", "web", &least(all));
            }
        })
        .await;
        assert!(codes(&plan).iter().all(|it| *it == code), "{web} {all}: {:?}", plan.blockers);
        for it in &plan.blockers {
            assert!(words.iter().all(|word| it.reason.contains(word)), "{web} {all}: {}", it.reason);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn o5_pods_that_only_this_node_takes_use_up_their_budget_as_foreseen() {
    let plan = borne_out(6, 2, |sim| {
        add_pinned(sim, "web", 3);
        sim.add_budget("shop", "web", "web", &least(2));
        sim.add_deployment("shop", "free", 3);
        sim.add_budget("shop", "free", "free", &least(2));
    })
    .await;
    assert_eq!(codes(&plan), BTreeSet::from(["no-other-node"]));
    let pinned: Vec<&str> =
        plan.pods.iter().filter(|it| it.pod.name.starts_with("web")).map(|it| it.class.text()).collect();
    assert_eq!(pinned, ["pinned"; 3]);
}
