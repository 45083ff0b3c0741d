//! What the API answers to writes, request by request.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use kubesim::{Sim, SimConfig};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const NODE: &str = "/api/v1/nodes/n1";

async fn send(sim: &Sim, method: &str, uri: &str, kind: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let request = request.body(Full::from(body)).unwrap();
    let response = sim.service().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

/// A node that runs a pod, and a Deployment behind a budget.
async fn cluster() -> Sim {
    let sim = Sim::new(SimConfig::default());
    sim.add_node("n1", "uuid-1");
    sim.add_deployment("shop", "web", 1);
    sim.add_budget("shop", "web", "web", &json!({ "minAvailable": 0 }));
    sim.add_bare_pod("tools", "shell", "n1");
    let ready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "True";
    sim.until("pods", |pods| pods.len() == 2 && pods.iter().all(ready)).await;
    sim
}

fn all(sim: &Sim) -> Vec<Vec<Value>> {
    ["nodes", "pods", "configmaps", "policy/poddisruptionbudgets"].map(|it| sim.list(it)).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_is_answered_and_changes_nothing() {
    let sim = cluster().await;
    let before = all(&sim);
    let map = json!({ "metadata": { "name": "c" } });
    let mut node = before[0][0].clone();
    node["spec"]["unschedulable"] = true.into();
    let listed = json!({ "dryRun": ["All"] });
    let eviction = json!({ "metadata": { "name": "shell" }, "deleteOptions": listed });
    let asked = [
        ("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", JSON, &map, 201),
        ("PUT", "/api/v1/nodes/n1?dryRun=All", JSON, &node, 200),
        ("PATCH", "/api/v1/nodes/n1?dryRun=All", MERGE, &node, 200),
        ("PATCH", "/api/v1/nodes/n1?dryRun=All", STRATEGIC, &node, 200),
        ("DELETE", "/api/v1/nodes/n1?dryRun=All", JSON, &Value::Null, 200),
        ("DELETE", "/api/v1/namespaces/tools/pods/shell", JSON, &listed, 200),
        ("POST", "/api/v1/namespaces/tools/pods/shell/eviction", JSON, &eviction, 201),
        ("POST", "/api/v1/namespaces/tools/pods/shell/eviction?dryRun=All", JSON, &json!({}), 201),
    ];
    for (method, uri, kind, body, expected) in asked {
        let (code, said) = send(&sim, method, uri, kind, body).await;
        assert_eq!(code, expected, "{method} {uri}: {said}");
        assert_eq!(all(&sim), before, "{method} {uri}");
    }
    assert!(sim.faults().evicted().is_empty());
    let (code, said) = send(&sim, "DELETE", "/api/v1/nodes/n1?dryRun=Some", JSON, &Value::Null).await;
    assert_eq!((code, &said["reason"]), (422, &json!("Invalid")));
    assert_eq!(all(&sim), before);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_is_applied_whole_or_not_at_all() {
    let sim = cluster().await;
    let steps = |zone: &str| {
        json!([
            { "op": "add", "path": "/metadata/labels/zone", "value": "east" },
            { "op": "test", "path": "/metadata/labels/zone", "value": zone },
        ])
    };
    let (code, said) = send(&sim, "PATCH", NODE, JSON_PATCH, &steps("west")).await;
    assert_eq!((code, &said["reason"], &said["kind"]), (422, &json!("Invalid"), &json!("Status")));
    assert_eq!(said["message"], "the server rejected our request due to an error in our request");
    assert!(sim.get("nodes", "", "n1").unwrap()["metadata"]["labels"]["zone"].is_null());
    assert_eq!(send(&sim, "PATCH", NODE, JSON_PATCH, &steps("east")).await.0, 200);
    assert_eq!(sim.get("nodes", "", "n1").unwrap()["metadata"]["labels"]["zone"], "east");
    assert_eq!(send(&sim, "PATCH", NODE, JSON_PATCH, &json!([{ "op": "dance" }])).await.0, 400);
    // A version that is tested is a condition.
    let old = json!([{ "op": "replace", "path": "/metadata/resourceVersion", "value": "1" }]);
    assert_eq!(send(&sim, "PATCH", NODE, JSON_PATCH, &old).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_keeps_the_conditions_that_it_does_not_name() {
    let sim = cluster().await;
    let patch = json!({ "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }] } });
    let uri = format!("{NODE}/status");
    let (code, node) = send(&sim, "PATCH", &uri, STRATEGIC, &patch).await;
    let kinds: Vec<&Value> =
        node["status"]["conditions"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!((code, kinds), (200, vec![&json!("DiskPressure"), &json!("Ready")]));
    let (_, node) = send(&sim, "PATCH", &uri, MERGE, &patch).await;
    assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 1, "a merge patch replaces the list");
    let nameless = json!({ "spec": { "containers": [{ "image": "i" }] } });
    let pod = "/api/v1/namespaces/tools/pods/shell";
    assert_eq!(send(&sim, "PATCH", pod, STRATEGIC, &nameless).await.0, 500);
    let unknown = json!({ "spec": { "$patch": "dance" } });
    assert_eq!(send(&sim, "PATCH", pod, STRATEGIC, &unknown).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn patches_of_other_kinds_are_refused_in_words() {
    let sim = cluster().await;
    for (kind, word) in [
        ("application/apply-patch+yaml", "kubesim does not serve server-side apply"),
        ("text/plain", "application/json-patch+json"),
    ] {
        let (code, said) = send(&sim, "PATCH", NODE, kind, &json!({})).await;
        assert_eq!((code, &said["reason"]), (415, &json!("UnsupportedMediaType")));
        assert!(said["message"].as_str().unwrap().contains(word), "{said}");
    }
    // The server knows no keys of custom resources.
    let custom = "/apis/longhorn.io/v1beta2/namespaces/a/volumes";
    let volume = json!({ "kind": "Volume", "metadata": { "name": "v" } });
    let (code, made) = send(&sim, "POST", custom, JSON, &volume).await;
    assert_eq!(
        (code, &made["kind"], &made["apiVersion"]),
        (201, &json!("Volume"), &json!("longhorn.io/v1beta2"))
    );
    let (code, group) = send(&sim, "GET", "/apis/longhorn.io", JSON, &json!({})).await;
    assert_eq!((code, &group["preferredVersion"]["version"]), (200, &json!("v1beta2")));
    assert_eq!(
        send(&sim, "GET", "/apis/kubevirt.io", JSON, &json!({})).await.0,
        404,
        "nothing of it is there"
    );
    let uri = format!("{custom}/v");
    assert_eq!(send(&sim, "PATCH", &uri, STRATEGIC, &json!({})).await.0, 415);
    assert_eq!(send(&sim, "PATCH", &uri, MERGE, &json!({ "spec": { "x": 1 } })).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_at_its_own_url_and_nowhere_else() {
    let sim = cluster().await;
    let patch = json!({ "spec": { "unschedulable": true }, "status": { "phase": "Terminated" } });
    let (_, node) = send(&sim, "PATCH", NODE, MERGE, &patch).await;
    assert_eq!((&node["spec"]["unschedulable"], &node["status"]["phase"]), (&json!(true), &Value::Null));
    let patch = json!({ "spec": { "unschedulable": false }, "status": { "phase": "Terminated" } });
    let (_, node) = send(&sim, "PATCH", &format!("{NODE}/status"), MERGE, &patch).await;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["status"]["phase"], "Terminated");
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_finalizer_goes_when_the_finalizer_goes() {
    let sim = cluster().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    let map = json!({ "metadata": { "name": "c", "finalizers": ["a/b"] } });
    send(&sim, "POST", maps, JSON, &map).await;
    let uri = format!("{maps}/c");
    let (code, said) = send(&sim, "DELETE", &uri, JSON, &Value::Null).await;
    assert_eq!(code, 200);
    assert!(said["metadata"]["deletionTimestamp"].is_string(), "{said}");
    assert!(sim.get("configmaps", "shop", "c").is_some());
    let bare = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/b"] } });
    assert_eq!(send(&sim, "PATCH", &uri, STRATEGIC, &bare).await.0, 200);
    assert!(sim.get("configmaps", "shop", "c").is_none());
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_not_about_the_url_are_refused() {
    let sim = cluster().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    for (method, uri, body, expected) in [
        ("POST", maps, json!({ "kind": "Pod", "metadata": { "name": "c" } }), 400),
        ("POST", maps, json!({ "apiVersion": "v2", "metadata": { "name": "c" } }), 400),
        ("POST", maps, json!({ "metadata": { "name": "c", "namespace": "tools" } }), 400),
        ("POST", maps, json!({ "metadata": {} }), 422),
        ("POST", maps, json!({ "metadata": { "name": "c", "resourceVersion": "7" } }), 400),
        ("POST", maps, json!({ "metadata": { "name": "c" }, "data": 7 }), 400),
        ("PUT", NODE, json!({ "metadata": { "name": "n2" } }), 400),
        ("PUT", NODE, json!({ "metadata": { "name": "n1", "uid": "other" } }), 409),
        ("POST", "/api/v1/namespaces/tools/pods/shell/eviction", json!({ "metadata": { "name": "x" } }), 400),
        ("GET", "/api/v1/pods?fieldSelector=spec.color=red", Value::Null, 400),
        ("GET", "/api/v1/pods?resourceVersion=999999", Value::Null, 504),
        ("GET", "/api/v1/pods?resourceVersion=x", Value::Null, 400),
        ("DELETE", maps, Value::Null, 405),
        ("POST", "/api/v1/nodes/n1/proxy", Value::Null, 404),
        ("GET", "/apis/nothing.io/v1", Value::Null, 404),
    ] {
        let (code, said) = send(&sim, method, uri, JSON, &body).await;
        assert_eq!(code, expected, "{method} {uri} {body}: {said}");
        assert_eq!((&said["kind"], &said["code"]), (&json!("Status"), &json!(expected)));
    }
    assert!(sim.list("configmaps").is_empty());
    let (_, said) =
        send(&sim, "GET", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/x", JSON, &Value::Null).await;
    assert_eq!(said["message"], "poddisruptionbudgets.policy \"x\" not found");
    assert_eq!(said["details"], json!({ "name": "x", "group": "policy", "kind": "poddisruptionbudgets" }));
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_list_are_of_one_moment_until_that_is_forgotten() {
    let sim = Sim::new(SimConfig::default());
    for name in ["a", "b", "c"] {
        sim.apply("configmaps", json!({ "metadata": { "namespace": "shop", "name": name } }));
    }
    let list = async |query: &str| {
        send(&sim, "GET", &format!("/api/v1/configmaps?{query}"), JSON, &Value::Null).await
    };
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, first) = list("limit=1").await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a".to_owned()], &json!(2)));
    let next = format!("limit=2&continue={}", first["metadata"]["continue"].as_str().unwrap());
    // Whatever happens meanwhile.
    assert!(sim.remove("configmaps", "shop", "a"));
    sim.apply("configmaps", json!({ "metadata": { "namespace": "shop", "name": "aa" } }));
    let (_, rest) = list(&next).await;
    assert_eq!(names(&rest), ["b", "c"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(rest["metadata"]["continue"].is_null());
    sim.expire_watches();
    let (code, status) = list(&next).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let (code, _) = list("continue=nonsense").await;
    assert_eq!(code, 400);
}
