//! A second Ready copy elsewhere before the only Ready pod of a Deployment leaves, and each way in which there is none.

use std::sync::Mutex;
use std::time::Duration;

use kubeapi::{ApiClient, NodeName};
use kubenodeop::calls::surge;
use kubenodeop::{AttemptRules, BlockCode, DrainSuccess, SurgeRule};
use kubesim::{ScriptedFault, Sim};
use serde_json::{Value, json};

use crate::stage::{Attempt, cluster, cordoned};

const DEPLOYMENTS: &str = "apps/deployments";
const BUDGETS: &str = "policy/poddisruptionbudgets";
const NOTHING: &[String] = &[];
type Change = Box<dyn Fn(&mut Value)>;
const LIMIT: Duration = Duration::from_secs(300);
/// What makes the rollout, on the template, and the record beside it.
const FROM: &str = "pillar-rs/drain-surge-from";
const RECORD: &str = "pillar-rs/drain-surge-record";

fn rules() -> AttemptRules {
    by(SurgeRule::All)
}

fn by(surge: SurgeRule) -> AttemptRules {
    AttemptRules { surge, ..AttemptRules::default() }
}

fn open(sim: &Sim, open: bool) {
    for node in ["n2", "n3"] {
        sim.edit("nodes", "", node, |it| {
            it["spec"]["unschedulable"] = if open { Value::Null } else { true.into() };
        });
    }
}

/// Nodes of the pods of the Deployment that are Ready and stay.
fn ready(pods: &[Value]) -> Vec<String> {
    let ours = |it: &&Value| {
        it["metadata"]["labels"]["app"] == "solo" && it["metadata"]["deletionTimestamp"].is_null()
    };
    let is_ready = |it: &&Value| {
        let conditions = it["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let all = pods.iter().filter(ours).filter(is_ready);
    all.map(|it| it["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The only pod of a Deployment runs on n1, which is cordoned; `guarded` by a budget of one.
async fn solo(guarded: bool, change: impl Fn(&mut Value)) -> (Sim, ApiClient) {
    made(guarded, |_| {}, change).await
}

/// The same of a Deployment that is changed when it is `made`, too.
async fn made(guarded: bool, made: impl Fn(&mut Value), change: impl Fn(&mut Value)) -> (Sim, ApiClient) {
    let (sim, cluster) = cluster(2).await;
    open(&sim, false);
    sim.add_deployment("shop", "solo", 1);
    sim.edit(DEPLOYMENTS, "shop", "solo", made);
    sim.until("pods", |pods| ready(pods) == ["n1"]).await;
    if guarded {
        sim.add_budget("shop", "solo", "solo", &json!({ "minAvailable": 1 }));
        let counted = |it: &Value| it["metadata"]["name"] == "solo" && it["status"]["currentHealthy"] == 1;
        sim.until(BUDGETS, |all| all.iter().any(counted)).await;
    }
    open(&sim, true);
    sim.edit(DEPLOYMENTS, "shop", "solo", change);
    cordoned(&cluster).await;
    (sim, cluster)
}

fn deployment(sim: &Sim) -> Value {
    sim.get(DEPLOYMENTS, "shop", "solo").unwrap()
}

fn from(sim: &Sim) -> Value {
    deployment(sim)["spec"]["template"]["metadata"]["annotations"][FROM].clone()
}

fn record(sim: &Sim) -> Value {
    let annotations = &deployment(sim)["metadata"]["annotations"];
    annotations[RECORD].as_str().map_or(Value::Null, |it| serde_json::from_str(it).unwrap())
}

fn asked(sim: &Sim) -> usize {
    sim.faults().count("PATCH", "/deployments/solo")
}

fn evictions(sim: &Sim) -> usize {
    sim.faults().count("POST", "/pods/solo-")
}

/// The end of the attempt, with what it names, and how few Ready copies there ever were meanwhile.
async fn ended(sim: &Sim, attempt: Attempt) -> (Vec<String>, usize) {
    let fewest = Mutex::new(usize::MAX);
    let watch = sim.until("pods", |pods| {
        let mut fewest = fewest.lock().unwrap();
        *fewest = (*fewest).min(ready(pods).len());
        false
    });
    let outcome = tokio::select! {
        outcome = attempt.future => outcome,
        () = watch => unreachable!("it never ends"),
    };
    let Ok(DrainSuccess { left, .. }) = outcome else { panic!("{outcome:?}") };
    let fewest = *fewest.lock().unwrap();
    (left.iter().map(ToString::to_string).collect(), fewest)
}

/// In the end there is one copy, elsewhere, of a Deployment of one.
async fn settled(sim: &Sim) {
    let one = |pods: &[Value]| {
        let all = pods.iter().filter(|it| it["metadata"]["labels"]["app"] == "solo");
        all.count() == 1 && ready(pods).iter().all(|it| it != "n1") && ready(pods).len() == 1
    };
    sim.until("pods", one).await;
    assert_eq!(deployment(sim)["spec"]["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn d20_a_second_copy_is_ready_elsewhere_before_the_only_one_leaves_and_none_is_too_many_afterwards() {
    for guarded in [false, true] {
        let (sim, cluster) = solo(guarded, |_| {}).await;
        let (left, fewest) = ended(&sim, Attempt::by(&cluster, rules())).await;
        assert_eq!((left.as_slice(), fewest), (NOTHING, 1), "never without a Ready copy");
        // One patch asks, one removes the record.
        assert_eq!((evictions(&sim), asked(&sim), record(&sim)), (0, 2, Value::Null));
        assert_eq!(from(&sim), json!("n1/solo-5f7d"), "it is not rolled out again");
        settled(&sim).await;
    }
    // Without it the same budget holds the same drain.
    let (sim, cluster) = solo(true, |_| {}).await;
    let mut attempt = Attempt::by(&cluster, AttemptRules::default());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::BudgetStuck)).await;
    attempt.pass(Duration::from_secs(600)).await;
    assert_eq!((ready(&sim.list("pods")), asked(&sim)), (vec!["n1".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn d20_what_can_have_no_second_copy_is_evicted_as_before_and_named() {
    let strategy = |strategy: Value| move |it: &mut Value| it["spec"]["strategy"] = strategy.clone();
    let says = |word: &'static str| {
        move |it: &mut Value| it["metadata"]["annotations"]["pillar-rs/drain-surge"] = word.into()
    };
    let cases: [(SurgeRule, Change, &str); 6] = [
        (SurgeRule::All, Box::new(strategy(json!({ "type": "Recreate" }))), "strategy Recreate"),
        (SurgeRule::All, Box::new(|it| it["spec"]["paused"] = true.into()), "is paused"),
        (
            SurgeRule::All,
            Box::new(strategy(json!({ "rollingUpdate": { "maxUnavailable": 1 } }))),
            "maxUnavailable is 1",
        ),
        (SurgeRule::All, Box::new(says("no")), ""),
        (SurgeRule::Annotated, Box::new(|_| {}), ""),
        (SurgeRule::Never, Box::new(says("yes")), ""),
    ];
    for (surge, change, why) in cases {
        let (sim, cluster) = solo(false, &change).await;
        let (left, fewest) = ended(&sim, Attempt::by(&cluster, AttemptRules { surge, ..rules() })).await;
        assert_eq!((fewest, evictions(&sim), asked(&sim)), (0, 1, 0), "{surge:?} {why}");
        assert_eq!(left.len(), usize::from(!why.is_empty()), "{left:?}");
        assert!(
            left.iter().all(|it| it.contains("left without a second copy") && it.contains(why)),
            "{left:?}"
        );
        settled(&sim).await;
    }
    let (sim, cluster) = solo(false, says("yes")).await;
    let annotated = AttemptRules { surge: SurgeRule::Annotated, ..rules() };
    assert_eq!(ended(&sim, Attempt::by(&cluster, annotated)).await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn d20_without_room_elsewhere_the_copy_is_given_up_after_its_limit_and_nothing_of_it_stays() {
    let (sim, cluster) = solo(false, |_| {}).await;
    open(&sim, false);
    let mut attempt = Attempt::by(&cluster, rules());
    let seen = attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    assert!(
        seen.blockers[0].reason.contains("Deployment shop/solo makes a second copy"),
        "{:?}",
        seen.blockers
    );
    attempt.pass(LIMIT.saturating_sub(Duration::from_secs(5))).await;
    assert_eq!((from(&sim), evictions(&sim)), (json!("n1/solo-5f7d"), 0));
    assert_eq!(record(&sim), json!({ "node": "n1", "replica_set": "solo-5f7d", "before": null }));
    // Somebody wants more of it meanwhile: that number is theirs.
    sim.edit(DEPLOYMENTS, "shop", "solo", |it| it["spec"]["replicas"] = 2.into());
    let (left, _) = ended(&sim, attempt).await;
    assert!(left[0].contains("had no Ready pod on another node within 300 s: pod shop/solo-"), "{left:?}");
    assert!(left[0].contains("node(s) were unschedulable"), "{left:?}");
    assert_eq!((from(&sim), record(&sim)), (Value::Null, Value::Null));
    assert_eq!(deployment(&sim)["spec"]["replicas"], 2);
    open(&sim, true);
    let ours = |it: &&Value| it["metadata"]["labels"]["app"] == "solo";
    let two = |pods: &[Value]| ready(pods).len() == 2 && pods.iter().filter(ours).count() == 2;
    sim.until("pods", two).await;
}

#[tokio::test(start_paused = true)]
async fn d20_after_it_was_given_up_no_later_attempt_of_the_drain_asks_for_it_again() {
    let (sim, cluster) = solo(true, |_| {}).await;
    open(&sim, false);
    let mut attempt = Attempt::by(&cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::BudgetStuck)).await;
    assert_eq!((asked(&sim), from(&sim), &record(&sim)["node"]), (2, Value::Null, &json!("n1")));
    drop(attempt);
    // There would be room by now.
    open(&sim, true);
    let mut attempt = Attempt::by(&cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::BudgetStuck)).await;
    attempt.pass(LIMIT).await;
    assert_eq!((asked(&sim), from(&sim)), (2, Value::Null));
    drop(attempt);
    // The drain is withdrawn: the next one may ask.
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
    assert_eq!(record(&sim), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn d20_a_copy_that_is_not_ready_in_time_is_given_up_too() {
    let sick = |it: &mut Value| {
        it["spec"]["template"]["metadata"]["annotations"]["kubesim/never-ready"] = "yes".into();
    };
    let (sim, cluster) = solo(false, |_| {}).await;
    // The image of a template that nobody has rolled out is broken: its new pod never becomes Ready.
    sim.edit(DEPLOYMENTS, "shop", "solo", sick);
    let ours = |it: &&Value| it["metadata"]["labels"]["app"] == "solo";
    sim.until("pods", |pods| pods.iter().filter(ours).count() == 2).await;
    let (left, _) = ended(&sim, Attempt::by(&cluster, rules())).await;
    assert!(left[0].contains("within 300 s: pod shop/solo-"), "{left:?}");
    assert_eq!(
        (asked(&sim), evictions(&sim)),
        (0, 1),
        "a rollout of somebody else is waited for and left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn d20_after_a_crash_the_same_copy_is_waited_for_and_asked_for_once() {
    let (sim, cluster) = solo(true, |_| {}).await;
    open(&sim, false);
    let mut attempt = Attempt::by(&cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    drop(attempt);
    let mut attempt = Attempt::by(&cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    open(&sim, true);
    assert_eq!(ended(&sim, attempt).await, (Vec::new(), 1));
    assert_eq!((asked(&sim), evictions(&sim)), (2, 0));
    settled(&sim).await;
    // It came to its end: giving up what did not leaves it alone.
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
    assert_eq!((asked(&sim), from(&sim)), (2, json!("n1/solo-5f7d")));
}

/// What `node` gives up, but for the other Deployment of the stage, and what is in the way.
async fn settle(cluster: &ApiClient, node: &str) -> (Vec<String>, Option<String>) {
    let (mut deployments, done) = surge::settle(cluster, &NodeName::parse(node).unwrap(), true).await;
    deployments.retain(|it| it != "shop/web");
    (deployments, done.err().map(|it| it.line()))
}

async fn given_up(cluster: &ApiClient, node: &str) -> Vec<String> {
    let (deployments, trouble) = settle(cluster, node).await;
    assert_eq!(trouble, None);
    deployments
}

/// An attempt that is cut off while the copy has no room.
async fn cut_off(cluster: &ApiClient) {
    let mut attempt = Attempt::by(cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    drop(attempt);
}

#[tokio::test(start_paused = true)]
async fn d20_what_was_asked_for_and_cut_off_goes_back_to_the_pods_of_before_also_in_another_boot() {
    // Of a Deployment that no drain has changed, and of one that an earlier one of another node has.
    for before in [Value::Null, json!("n2/solo-0")] {
        let earlier = before.clone();
        let earlier = move |it: &mut Value| {
            it["spec"]["template"]["metadata"]["annotations"] = json!({ FROM: earlier });
        };
        let none = before.is_null();
        let (sim, cluster) = made(
            true,
            |it| {
                if !none {
                    earlier(it);
                }
            },
            |_| {},
        )
        .await;
        open(&sim, false);
        let running = ready(&sim.list("pods"));
        cut_off(&cluster).await;
        assert!(from(&sim).as_str().unwrap().starts_with("n1/solo-"));
        assert_eq!(record(&sim)["before"], before);
        let sets = sim.list("apps/replicasets").len();
        // Nothing is known but what is on the object; another node gives up nothing of ours.
        assert_eq!(given_up(&cluster, "n2").await, [""; 0]);
        assert_eq!(given_up(&cluster, "n1").await, ["shop/solo"]);
        let ours = |it: &&Value| it["metadata"]["labels"]["app"] == "solo";
        sim.until("pods", |pods| pods.iter().filter(ours).count() == 1).await;
        assert_eq!((ready(&sim.list("pods")), from(&sim), record(&sim)), (running, before, Value::Null));
        assert_eq!(sim.list("apps/replicasets").len(), sets, "no third rollout");
    }
}

#[tokio::test(start_paused = true)]
async fn d20_only_a_deployment_with_the_record_of_this_node_is_given_up() {
    // It is rolled out by somebody else and cannot; it was asked for a second copy long ago.
    let (sim, cluster) = solo(false, |_| {}).await;
    open(&sim, false);
    sim.edit(DEPLOYMENTS, "shop", "solo", |it| {
        it["spec"]["template"]["metadata"]["annotations"] = json!({ FROM: "n1/solo-0" });
    });
    let ours = |it: &&Value| it["metadata"]["labels"]["app"] == "solo";
    sim.until("pods", |pods| pods.iter().filter(ours).count() == 2).await;
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
    assert_eq!((asked(&sim), from(&sim)), (0, json!("n1/solo-0")));

    // Somebody else has changed what it was asked for: the record alone is removed.
    let (sim, cluster) = solo(true, |_| {}).await;
    open(&sim, false);
    cut_off(&cluster).await;
    sim.edit(DEPLOYMENTS, "shop", "solo", |it| {
        it["spec"]["template"]["metadata"]["annotations"] = json!({ FROM: "theirs" });
    });
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
    assert_eq!((from(&sim), record(&sim)), (json!("theirs"), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn d20_a_record_whose_new_pods_are_there_is_only_removed() {
    let (sim, cluster) = solo(true, |_| {}).await;
    ended(&sim, Attempt::by(&cluster, rules())).await;
    settled(&sim).await;
    // As if its removal had failed; somebody wants one more, for which no node has room.
    open(&sim, false);
    let left = json!({ "node": "n1", "replica_set": "solo-5f7d", "before": null }).to_string();
    sim.edit(DEPLOYMENTS, "shop", "solo", |it| {
        it["metadata"]["annotations"] = json!({ RECORD: left });
        it["spec"]["replicas"] = 2.into();
    });
    let ours = |it: &&Value| it["metadata"]["labels"]["app"] == "solo";
    sim.until("pods", |pods| pods.iter().filter(ours).count() == 2).await;
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
    assert_eq!((from(&sim), record(&sim)), (json!("n1/solo-5f7d"), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn d20_a_refusal_of_one_deployment_does_not_keep_the_others_from_being_given_up() {
    let (sim, cluster) = solo(true, |_| {}).await;
    open(&sim, false);
    cut_off(&cluster).await;
    let solo = deployment(&sim);
    // The first by name, of another owner.
    sim.add_deployment("shop", "early", 1);
    sim.edit(DEPLOYMENTS, "shop", "early", |it| {
        it["metadata"]["annotations"] = solo["metadata"]["annotations"].clone();
        it["spec"]["template"]["metadata"]["annotations"] = json!({ FROM: "n1/solo-5f7d" });
    });
    sim.until("pods", |pods| pods.iter().any(|it| it["metadata"]["labels"]["app"] == "early")).await;
    sim.faults().script("PATCH", "/deployments/early", 1, ScriptedFault::status(403, "Forbidden"));
    let (deployments, trouble) = settle(&cluster, "n1").await;
    assert_eq!(deployments, ["shop/solo"]);
    let error = trouble.unwrap();
    assert!(error.contains("give up the second copy of Deployment shop/early"), "{error}");
    assert_eq!(given_up(&cluster, "n1").await, ["shop/early"]);
    // Who may not list them has asked none.
    sim.faults().script("GET", "/apis/apps/v1/deployments", 1, ScriptedFault::status(403, "Forbidden"));
    assert_eq!(given_up(&cluster, "n1").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn d20_one_that_somebody_withdraws_is_not_asked_for_again() {
    let (sim, cluster) = solo(false, |_| {}).await;
    open(&sim, false);
    let mut attempt = Attempt::by(&cluster, rules());
    attempt.until(|it| it.blockers.iter().any(|it| it.code == BlockCode::Surge)).await;
    sim.edit(DEPLOYMENTS, "shop", "solo", |it| {
        it["spec"]["template"]["metadata"]["annotations"] = json!({});
    });
    let (left, _) = ended(&sim, attempt).await;
    assert!(left[0].contains("asked for in this drain is withdrawn"), "{left:?}");
    assert_eq!((asked(&sim), record(&sim)), (2, Value::Null), "asked once, and the record removed");
}

#[tokio::test(start_paused = true)]
async fn d20_only_pods_of_the_deployment_on_nodes_that_stay_count_as_copies() {
    // A pod that its selector finds, and that is not its own.
    let (sim, cluster) = solo(false, |_| {}).await;
    sim.add_bare_pod("shop", "solo-alone", "n2");
    sim.edit("pods", "shop", "solo-alone", |it| it["metadata"]["labels"]["app"] = "solo".into());
    sim.until("pods", |pods| ready(pods).len() == 2).await;
    ended(&sim, Attempt::by(&cluster, rules())).await;
    assert_eq!((asked(&sim), evictions(&sim)), (2, 0));

    // Its own pod, which is not Ready: nothing is lost without it.
    let (sim, cluster) = solo(false, |_| {}).await;
    let ours = |it: &Value| it["metadata"]["labels"]["app"] == "solo";
    let pod = sim.list("pods").into_iter().find(ours).unwrap();
    sim.edit("pods", "shop", pod["metadata"]["name"].as_str().unwrap(), |it| {
        it["metadata"]["annotations"] = json!({ "kubesim/never-ready": "yes" });
        it["status"]["conditions"][0]["status"] = "False".into();
    });
    ended(&sim, Attempt::by(&cluster, rules())).await;
    assert_eq!((asked(&sim), evictions(&sim)), (0, 1));

    // A second pod of its own on another node, which stays or is cordoned, too.
    for cordoned in [false, true] {
        let (sim, cluster) = solo(false, |it| it["spec"]["replicas"] = 2.into()).await;
        sim.until("pods", |pods| ready(pods).len() == 2).await;
        let pods = sim.list("pods");
        let other = ready(&pods).into_iter().find(|it| it != "n1").unwrap();
        sim.edit("nodes", "", &other, |it| it["spec"]["unschedulable"] = cordoned.into());
        ended(&sim, Attempt::by(&cluster, rules())).await;
        assert_eq!(asked(&sim) > 0, cordoned);
    }
}

#[tokio::test(start_paused = true)]
async fn d20_without_the_right_the_pod_is_evicted_as_before_and_the_role_is_named() {
    let (sim, cluster) = solo(false, |_| {}).await;
    sim.faults().script("GET", "/deployments/solo", 1_000, ScriptedFault::status(403, "Forbidden"));
    let (left, _) = ended(&sim, Attempt::by(&cluster, rules())).await;
    assert!(
        left.iter().all(|it| it.contains("read Deployment shop/solo") && it.contains("pillar-rs-surge")),
        "{left:?}"
    );
    assert_eq!((left.len(), evictions(&sim)), (1, 1));
    settled(&sim).await;
}

#[tokio::test(start_paused = true)]
async fn d20_the_plan_counts_on_a_second_copy_where_one_would_be_asked_for_and_reads_nothing_where_none_is() {
    let n1 = NodeName::parse("n1").unwrap();
    // The rule, what is done to the Deployment, whether its budget blocks, and a word of the pod's note.
    let table: [(SurgeRule, Change, bool, &str); 4] = [
        (SurgeRule::Never, Box::new(|_| {}), true, ""),
        (
            SurgeRule::All,
            Box::new(|_| {}),
            false,
            "Deployment shop/solo makes a second copy elsewhere first (surge), which opens",
        ),
        (SurgeRule::All, Box::new(|it| it["spec"]["strategy"] = json!({ "type": "Recreate" })), true, ""),
        (SurgeRule::Annotated, Box::new(|_| {}), true, ""),
    ];
    for (rule, change, blocks, note) in table {
        let (sim, cluster) = solo(true, change).await;
        let plan = kubenodeop::survey::plan(&cluster, &n1, &by(rule)).await.unwrap();
        assert_eq!(!plan.blockers.is_empty(), blocks, "{rule:?} {:?}", plan.blockers);
        let pod = plan.pods.iter().find(|it| it.pod.name.starts_with("solo")).unwrap();
        assert!(pod.note.contains(note), "{rule:?} {}", pod.note);
        assert_eq!(sim.faults().count("GET", "/deployments") > 0, rule != SurgeRule::Never, "{rule:?}");
        assert_eq!(asked(&sim), 0);
    }
    let (sim, cluster) = solo(true, |_| {}).await;
    sim.faults().script("GET", "/deployments", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    let plan = kubenodeop::survey::plan(&cluster, &n1, &rules()).await.unwrap();
    assert_eq!(plan.blockers.len(), 1);
    assert!(
        plan.notes.iter().any(|it| it.contains("second copies of Deployments are not counted on")),
        "{:?}",
        plan.notes
    );
}
