//! Volumes, scheduling and claimed disruptions: what the controllers make of objects.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const BUDGETS: &str = "policy/poddisruptionbudgets";
pub(crate) const ATTACHMENTS: &str = "storage/volumeattachments";
const WEB_STATUS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web/status";

pub(crate) async fn cluster() -> Sim {
    cluster_with(SimConfig::default()).await
}

pub(crate) async fn cluster_with(config: SimConfig) -> Sim {
    let sim = Sim::new(config);
    sim.add_node("n1", "uuid-1");
    sim.add_node("n2", "uuid-2");
    soon(&sim, "nodes", |nodes| nodes.iter().all(is_ready)).await;
    sim
}

/// Several nodes may use the volume.
pub(crate) fn share(sim: &Sim, volume: &str) {
    sim.edit("persistentvolumes", "", volume, |it| it["spec"]["accessModes"] = json!(["ReadWriteMany"]));
}

/// Fails with the present state.
pub(crate) async fn soon(sim: &Sim, resource: &str, wanted: impl Fn(&[Value]) -> bool) {
    within(sim, Duration::from_secs(60), resource, wanted).await;
}

pub(crate) async fn within(sim: &Sim, patience: Duration, resource: &str, wanted: impl Fn(&[Value]) -> bool) {
    tokio::select! {
        () = sim.until(resource, wanted) => {}
        () = tokio::time::sleep(patience) => panic!("{:#?}", sim.list(resource)),
    }
}

pub(crate) fn is_ready(object: &Value) -> bool {
    object["status"]["conditions"][0]
        == json!({
            "type": "Ready", "status": "True",
            "lastTransitionTime": object["status"]["conditions"][0]["lastTransitionTime"],
        })
}

pub(crate) async fn send(sim: &Sim, method: &str, uri: &str, kind: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let request = request.body(Full::from(body.to_string())).unwrap();
    let response = sim.service().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

async fn put(sim: &Sim, uri: &str, body: &Value) -> (u16, Value) {
    send(sim, "PUT", uri, "application/json", body).await
}

async fn evict(sim: &Sim, pod: &str) -> (u16, Value) {
    let uri = format!("/api/v1/namespaces/shop/pods/{pod}/eviction");
    send(sim, "POST", &uri, "application/json", &json!({})).await
}

pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": "Pending" },
    });
    for (member, value) in spec.as_object().unwrap() {
        pod["spec"][member] = value.clone();
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_detached_some_time_after_the_last_pod_that_mounts_it_has_gone() {
    let sim = cluster().await;
    sim.add_claim("shop", "data", "pv-1");
    share(&sim, "pv-1");
    let volume = sim.get("persistentvolumes", "", "pv-1").unwrap();
    assert_eq!(volume["spec"]["claimRef"]["name"], "data");
    sim.add_mounting_pod("shop", "a", "n1", "data");
    sim.add_mounting_pod("shop", "b", "n1", "data");
    sim.add_mounting_pod("shop", "c", "n2", "data");
    sim.add_bare_pod("shop", "d", "n1");
    soon(&sim, ATTACHMENTS, |all| all.len() == 2).await;
    soon(&sim, "pods", |pods| pods.iter().all(is_ready)).await;
    let here = sim.get(ATTACHMENTS, "", "csi-pv-1-n1").unwrap();
    assert_eq!(here["spec"]["source"]["persistentVolumeName"], "pv-1");
    assert_eq!((&here["spec"]["nodeName"], &here["status"]["attached"]), (&json!("n1"), &json!(true)));
    // Foreign attachments stay.
    let other = json!({ "metadata": { "name": "other" }, "spec": { "nodeName": "n1" } });
    sim.apply(ATTACHMENTS, other);

    evict(&sim, "a").await;
    soon(&sim, "pods", |pods| pods.len() == 3).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(sim.list(ATTACHMENTS).len(), 3, "another pod still mounts it here");
    evict(&sim, "b").await;
    soon(&sim, "pods", |pods| pods.len() == 2).await;
    soon(&sim, ATTACHMENTS, |all| all.iter().any(|it| !it["metadata"]["deletionTimestamp"].is_null())).await;
    assert_eq!(sim.list(ATTACHMENTS).len(), 3, "detaching takes its time");
    soon(&sim, ATTACHMENTS, |all| all.len() == 2).await;
    assert!(sim.get(ATTACHMENTS, "", "csi-pv-1-n1").is_none());
    assert!(sim.get(ATTACHMENTS, "", "csi-pv-1-n2").is_some());
    // And back again.
    sim.add_mounting_pod("shop", "e", "n1", "data");
    soon(&sim, ATTACHMENTS, |all| all.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_detaching_volume_waits_for_the_finalizers_of_others() {
    let sim = cluster().await;
    sim.add_claim("shop", "data", "pv-1");
    sim.add_mounting_pod("shop", "a", "n1", "data");
    soon(&sim, ATTACHMENTS, |all| all.len() == 1).await;
    sim.edit(ATTACHMENTS, "", "csi-pv-1-n1", |it| {
        it["metadata"]["finalizers"].as_array_mut().unwrap().push("a/b".into());
    });
    assert!(sim.remove("pods", "shop", "a"));
    soon(&sim, ATTACHMENTS, |all| all[0]["metadata"]["finalizers"] == json!(["a/b"])).await;
    assert_eq!(sim.list(ATTACHMENTS)[0]["status"]["attached"], false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(sim.list(ATTACHMENTS).len(), 1);
    sim.edit(ATTACHMENTS, "", "csi-pv-1-n1", |it| it["metadata"]["finalizers"] = json!([]));
    soon(&sim, ATTACHMENTS, <[Value]>::is_empty).await;
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() {
    let sim = cluster().await;
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = true.into());
    sim.edit("nodes", "", "n2", |node| {
        node["spec"]["taints"] = json!([{ "key": "disk", "value": "old", "effect": "NoSchedule" }]);
    });
    let cordon = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]);
    let on = |node: &str| json!({ "kubernetes.io/hostname": node });
    sim.apply("pods", pod("lost", &json!({})));
    sim.apply("pods", pod("pinned", &json!({ "nodeSelector": on("n1") })));
    sim.apply("pods", pod("sticky", &json!({ "nodeSelector": on("n1"), "tolerations": cordon })));
    sim.apply("pods", pod("disk", &json!({ "tolerations": [{ "key": "disk", "operator": "Exists" }] })));
    let node = |sim: &Sim, name: &str| sim.get("pods", "shop", name).unwrap()["spec"]["nodeName"].clone();
    soon(&sim, "pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    assert_eq!((node(&sim, "sticky"), node(&sim, "disk")), (json!("n1"), json!("n2")));
    for name in ["lost", "pinned"] {
        assert!(node(&sim, name).is_null(), "{name}");
        let condition = sim.get("pods", "shop", name).unwrap()["status"]["conditions"][0].clone();
        let said = (&condition["type"], &condition["status"], &condition["reason"]);
        assert_eq!(said, (&json!("PodScheduled"), &json!("False"), &json!("Unschedulable")));
        let nowhere = "0/2 nodes are available";
        let message = format!(
            "{nowhere}: 1 node(s) had untolerated taint {{disk: old}}, 1 node(s) were unschedulable. \
             preemption: {nowhere}: 2 Preemption is not helpful for scheduling."
        );
        assert_eq!(condition["message"], message.as_str());
    }
    sim.edit("nodes", "", "n2", |node| node["spec"]["taints"] = json!([]));
    soon(&sim, "pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 3).await;
    let pinned = sim.get("pods", "shop", "pinned").unwrap();
    let said = pinned["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(said.contains("1 node(s) didn't match Pod's node affinity/selector"), "{said}");
    sim.edit("nodes", "", "n1", |node| node["spec"]["unschedulable"] = false.into());
    soon(&sim, "pods", |pods| pods.iter().all(is_ready)).await;
}

async fn guarded() -> Sim {
    let sim = cluster().await;
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 2 }));
    for name in ["a", "b", "c"] {
        sim.apply("pods", pod(name, &json!({})));
    }
    soon(&sim, "pods", |pods| pods.iter().all(is_ready)).await;
    sim
}

#[tokio::test(start_paused = true)]
async fn a_claimed_disruption_counts_until_the_pod_ends_or_two_minutes_have_passed() {
    let sim = guarded().await;
    let budget = sim.get(BUDGETS, "shop", "web").unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 1);
    let mut claim = budget.clone();
    claim["spec"]["minAvailable"] = 0.into();
    claim["status"]["disruptionsAllowed"] = 0.into();
    claim["status"]["disruptedPods"] =
        json!({ "a": jiff::Timestamp::now().to_string(), "gone": "2025-01-01T00:00:00Z" });
    let (code, said) = put(&sim, WEB_STATUS, &claim).await;
    assert_eq!((code, &said["spec"]["minAvailable"]), (200, &json!(2)), "{said}");
    let held = sim.get(BUDGETS, "shop", "web").unwrap();
    let status = &held["status"];
    assert_eq!((&status["disruptionsAllowed"], &status["currentHealthy"]), (&json!(0), &json!(2)));
    let named: Vec<&String> = status["disruptedPods"].as_object().unwrap().keys().collect();
    assert_eq!(named, ["a"], "a pod that is not there is not waited for");
    // Its version is no longer the newest: a room is claimed once.
    assert_eq!(put(&sim, WEB_STATUS, &claim).await.0, 409);
    let patch =
        json!({ "metadata": { "resourceVersion": budget["metadata"]["resourceVersion"] }, "status": {} });
    assert_eq!(send(&sim, "PATCH", WEB_STATUS, "application/merge-patch+json", &patch).await.0, 409);
    claim["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(put(&sim, WEB_STATUS, &claim).await.0, 422);
    assert_eq!(evict(&sim, "b").await.0, 429);
    // The pod does not begin its end: its claim lapses.
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert_eq!(sim.get(BUDGETS, "shop", "web").unwrap()["status"]["disruptionsAllowed"], 0);
    within(&sim, Duration::from_secs(20), BUDGETS, |all| all[0]["status"]["disruptionsAllowed"] == 1).await;
    assert!(sim.get(BUDGETS, "shop", "web").unwrap()["status"]["disruptedPods"].is_null());
    assert_eq!(evict(&sim, "b").await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_counts_its_pod_once() {
    let sim = guarded().await;
    assert_eq!(evict(&sim, "a").await.0, 201);
    let status = sim.get(BUDGETS, "shop", "web").unwrap()["status"].clone();
    assert_eq!((&status["disruptionsAllowed"], &status["currentHealthy"]), (&json!(0), &json!(2)));
    assert!(status["disruptedPods"].is_null(), "its end has begun: {status}");
    let (code, said) = evict(&sim, "b").await;
    assert_eq!((code, &said["details"]["causes"][0]["reason"]), (429, &json!("DisruptionBudget")));
    sim.add_budget("shop", "second", "web", &json!({ "maxUnavailable": 3 }));
    let (code, said) = evict(&sim, "b").await;
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, &said["message"]), (500, &json!(two)));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_another_pod_of_the_same_name_is_refused() {
    let sim = guarded().await;
    let uri = "/api/v1/namespaces/shop/pods/a";
    let options = |uid: &Value| json!({ "preconditions": { "uid": uid } });
    let uid = sim.get("pods", "shop", "a").unwrap()["metadata"]["uid"].clone();
    let (code, said) = send(&sim, "DELETE", uri, "application/json", &options(&json!("other"))).await;
    let why = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (other) does not match the UID in \
         record ({}). The object might have been deleted and then recreated",
        uid.as_str().unwrap()
    );
    assert_eq!((code, &said["message"], &said["reason"]), (409, &json!(why), &json!("Conflict")));
    assert!(sim.get("pods", "shop", "a").unwrap()["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(send(&sim, "DELETE", uri, "application/json", &options(&uid)).await.0, 200);
    assert!(sim.get("pods", "shop", "a").unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_the_number_of_its_priority_class() {
    let sim = cluster().await;
    sim.add_priority_class("high", 1000);
    for (name, class) in [("a", "high"), ("b", "system-node-critical"), ("c", "nowhere")] {
        sim.apply("pods", pod(name, &json!({ "priorityClassName": class })));
    }
    sim.apply("pods", pod("d", &json!({ "priorityClassName": "high", "priority": 7 })));
    let found: Vec<Value> = sim.list("pods").iter().map(|pod| pod["spec"]["priority"].clone()).collect();
    assert_eq!(found, [json!(1000), json!(2_000_001_000), Value::Null, json!(7)]);
    let uri = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let (code, said) = send(&sim, "GET", uri, "application/json", &json!({})).await;
    assert_eq!((code, &said["items"][0]["value"]), (200, &json!(1000)));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_ready_says_so() {
    let sim = cluster().await;
    let mut never = pod("a", &json!({}));
    never["metadata"]["annotations"] = json!({ "kubesim/never-ready": "yes" });
    sim.apply("pods", never);
    soon(&sim, "pods", |pods| pods[0]["status"]["phase"] == "Running").await;
    let conditions = sim.get("pods", "shop", "a").unwrap()["status"]["conditions"].clone();
    assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("Ready"), &json!("False")));
}

const DEPLOYMENTS: &str = "apps/deployments";

/// Nodes and names of pods that are Ready and stay.
fn ready(pods: &[Value]) -> Vec<(String, String)> {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let stays = |it: &&Value| it["metadata"]["deletionTimestamp"].is_null();
    let is_ready = |it: &&Value| {
        let conditions = it["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let all = pods.iter().filter(stays).filter(is_ready);
    all.map(|it| (text(&it["spec"]["nodeName"]), text(&it["metadata"]["name"]))).collect()
}

/// A cluster whose node n1 is cordoned, with a Deployment of one that runs there.
async fn one_on_a_cordoned_node(change: impl Fn(&mut Value)) -> (Sim, String) {
    let sim = cluster().await;
    sim.edit("nodes", "", "n2", |it| it["spec"]["unschedulable"] = true.into());
    sim.add_deployment("shop", "web", 1);
    soon(&sim, "pods", |pods| ready(pods).len() == 1).await;
    sim.edit("nodes", "", "n2", |it| it["spec"]["unschedulable"] = Value::Null);
    sim.edit("nodes", "", "n1", |it| it["spec"]["unschedulable"] = true.into());
    sim.edit(DEPLOYMENTS, "shop", "web", change);
    let pod = ready(&sim.list("pods")).remove(0);
    assert_eq!(pod.0, "n1");
    (sim, pod.1)
}

fn restart(sim: &Sim, value: &Value) {
    sim.edit(DEPLOYMENTS, "shop", "web", |it| {
        it["spec"]["template"]["metadata"]["annotations"] = json!({ "restarted": value });
    });
}

/// The least number of Ready pods until `wanted` holds.
async fn least(sim: &Sim, wanted: impl Fn(&[(String, String)]) -> bool) -> usize {
    let fewest = std::sync::Mutex::new(usize::MAX);
    soon(sim, "pods", |pods| {
        let all = ready(pods);
        let mut fewest = fewest.lock().unwrap();
        *fewest = (*fewest).min(all.len());
        wanted(&all)
    })
    .await;
    fewest.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_is_rolled_out_with_the_new_pod_ready_before_the_old_one_goes() {
    let (sim, old) = one_on_a_cordoned_node(|_| {}).await;
    restart(&sim, &"1".into());
    let on_n2 = |all: &[(String, String)]| all.len() == 1 && all[0].0 == "n2";
    assert_eq!(least(&sim, on_n2).await, 1, "never without a Ready pod");
    let new = sim.list("pods").into_iter().find(|it| it["spec"]["nodeName"] == "n2").unwrap();
    assert_ne!(new["metadata"]["name"], old.as_str());
    assert_eq!(new["metadata"]["annotations"]["restarted"], "1");
    let hash = new["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert!(
        new["metadata"]["ownerReferences"][0]["name"] == format!("web-{hash}").as_str() && hash != "5f7d"
    );
    soon(&sim, DEPLOYMENTS, |all| {
        all[0]["status"]["updatedReplicas"] == 1 && all[0]["status"]["replicas"] == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_without_room_waits_and_one_that_is_undone_leaves_the_old_pod() {
    let (sim, old) = one_on_a_cordoned_node(|_| {}).await;
    sim.edit("nodes", "", "n2", |it| it["spec"]["unschedulable"] = true.into());
    restart(&sim, &"1".into());
    soon(&sim, "pods", |pods| pods.len() == 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&sim.list("pods")), [("n1".to_owned(), old.clone())]);
    restart(&sim, &Value::Null);
    sim.edit(DEPLOYMENTS, "shop", "web", |it| {
        it["spec"]["template"]["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    soon(&sim, "pods", |pods| pods.len() == 1).await;
    assert_eq!(ready(&sim.list("pods")), [("n1".to_owned(), old)]);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_recreates_or_may_do_without_ends_the_old_pod_first_and_a_paused_one_waits() {
    for (spec, fewest) in [
        (json!({ "strategy": { "type": "Recreate" } }), 0),
        (json!({ "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "100%" } } }), 0),
        (json!({ "strategy": { "rollingUpdate": { "maxSurge": "10%", "maxUnavailable": 0 } } }), 1),
    ] {
        let change = |it: &mut Value| it["spec"]["strategy"] = spec["strategy"].clone();
        let (sim, _) = one_on_a_cordoned_node(change).await;
        restart(&sim, &"1".into());
        let on_n2 = |all: &[(String, String)]| all.len() == 1 && all[0].0 == "n2";
        assert_eq!(least(&sim, on_n2).await, fewest, "{spec}");
    }
    let (sim, old) = one_on_a_cordoned_node(|it| it["spec"]["paused"] = true.into()).await;
    restart(&sim, &"1".into());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ready(&sim.list("pods")), [("n1".to_owned(), old)]);
}
