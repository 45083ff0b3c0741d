//! Tables of strategic merge: each row a held object, a patch, and what the API server makes of them.

use serde_json::{Value, json};

use super::{Unfit, apply};

fn pods(held: &Value, patch: &Value) -> Value {
    apply("pods", held, patch).unwrap_or_else(|unfit| panic!("{held} {patch}: {unfit:?}"))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[test]
fn keyed_lists_are_merged_item_by_item_and_a_new_item_comes_first() {
    let held = json!({ "spec": { "containers": [
        { "name": "a", "image": "one", "env": [{ "name": "X", "value": "1" }], "args": ["x"] },
        { "name": "b", "image": "two" },
    ] } });
    let patch = json!({ "spec": { "containers": [
        { "name": "c", "image": "three" },
        { "name": "a", "env": [{ "name": "Y", "value": "2" }], "args": ["y"] },
    ] } });
    let new = pods(&held, &patch);
    let containers = &new["spec"]["containers"];
    assert_eq!(names(containers), ["c", "a", "b"]);
    assert_eq!(containers[1]["image"], "one");
    assert_eq!(names(&containers[1]["env"]), ["Y", "X"]);
    assert_eq!(containers[1]["args"], json!(["y"]));
}

#[test]
fn conditions_and_addresses_of_a_node_are_keyed_and_its_taints_are_not() {
    let held = json!({
        "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }] },
    });
    let patch = json!({
        "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }], "unschedulable": true },
        "status": { "conditions": [{ "type": "DiskPressure", "status": "True" }] },
    });
    let new = apply("nodes", &held, &patch).unwrap();
    assert_eq!(new["spec"]["taints"], json!([{ "key": "b", "effect": "NoExecute" }]));
    assert_eq!(
        new["status"]["conditions"],
        json!([{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "True" }])
    );
}

#[test]
fn null_removes_a_member_and_an_object_is_merged() {
    let held = json!({ "metadata": { "annotations": { "a": "1", "b": "2" } } });
    let patch = json!({ "metadata": { "annotations": { "a": null, "c": "3", "d": null } } });
    assert_eq!(pods(&held, &patch), json!({ "metadata": { "annotations": { "b": "2", "c": "3" } } }));
}

#[test]
fn patch_directives_delete_and_replace() {
    let held = json!({ "spec": {
        "volumes": [{ "name": "a", "emptyDir": {} }, { "name": "b", "emptyDir": {} }],
        "securityContext": { "runAsUser": 1, "fsGroup": 2 },
        "nodeSelector": { "x": "y" },
    } });
    let patch = json!({ "spec": {
        "volumes": [{ "name": "a", "$patch": "delete" }],
        "securityContext": { "$patch": "replace", "runAsUser": 3 },
        "nodeSelector": { "$patch": "delete" },
    } });
    let new = pods(&held, &patch);
    assert_eq!(names(&new["spec"]["volumes"]), ["b"]);
    assert_eq!(new["spec"]["securityContext"], json!({ "runAsUser": 3 }));
    assert_eq!(new["spec"]["nodeSelector"], json!({}));
    let patch = json!({ "spec": { "volumes": [{ "$patch": "replace" }, { "name": "z" }] } });
    assert_eq!(names(&pods(&held, &patch)["spec"]["volumes"]), ["z"]);
}

#[test]
fn sets_grow_and_lose_values() {
    let held = json!({ "metadata": { "finalizers": ["a", "b"] } });
    let patch = json!({ "metadata": { "finalizers": ["b", "c"] } });
    let new = pods(&held, &patch);
    assert_eq!(new["metadata"]["finalizers"], json!(["a", "b", "c"]));
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } });
    assert_eq!(pods(&held, &patch)["metadata"]["finalizers"], json!(["b"]));
}

#[test]
fn owners_are_keyed_by_their_uid() {
    let held = json!({ "metadata": { "ownerReferences": [{ "uid": "1", "name": "x" }] } });
    let patch =
        json!({ "metadata": { "ownerReferences": [{ "uid": "1", "$patch": "delete" }, { "uid": "2" }] } });
    assert_eq!(pods(&held, &patch)["metadata"]["ownerReferences"], json!([{ "uid": "2" }]));
}

#[test]
fn an_order_of_elements_is_followed_and_leaves_no_trace() {
    let held = json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b" }, { "name": "c" }] } });
    let patch = json!({ "spec": {
        "$setElementOrder/containers": [{ "name": "c" }, { "name": "new" }, { "name": "a" }],
        "containers": [{ "name": "new" }],
    } });
    let new = pods(&held, &patch);
    assert_eq!(names(&new["spec"]["containers"]), ["b", "c", "new", "a"]);
    assert_eq!(new["spec"].as_object().unwrap().len(), 1);
    let patch = json!({ "spec": { "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }] } });
    assert_eq!(names(&pods(&held, &patch)["spec"]["containers"]), ["b", "a", "c"]);
}

#[test]
fn retained_keys_clear_the_others() {
    let held = json!({ "spec": { "volumes": [{ "name": "a", "emptyDir": {} }] } });
    let patch = json!({ "spec": { "volumes": [
        { "name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } },
    ] } });
    let new = pods(&held, &patch);
    assert_eq!(new["spec"]["volumes"], json!([{ "name": "a", "hostPath": { "path": "/x" } }]));
    let patch = json!({ "spec": { "volumes": [{ "name": "a", "$retainKeys": ["name"], "hostPath": {} }] } });
    assert!(matches!(apply("pods", &held, &patch), Err(Unfit::Form(_))));
}

#[test]
fn the_selector_of_a_budget_is_replaced() {
    let held = json!({ "spec": { "selector": { "matchLabels": { "a": "1" } } } });
    let patch = json!({ "spec": { "selector": { "matchLabels": { "b": "2" } } } });
    let new = apply("policy/poddisruptionbudgets", &held, &patch).unwrap();
    assert_eq!(new["spec"]["selector"], json!({ "matchLabels": { "b": "2" } }));
    let merged = apply("apps/deployments", &held, &patch).unwrap();
    assert_eq!(merged["spec"]["selector"]["matchLabels"], json!({ "a": "1", "b": "2" }));
}

#[test]
fn unfit_patches_are_refused() {
    let held = json!({ "spec": { "containers": [{ "name": "a" }] } });
    for (patch, is_item) in [
        (json!({ "spec": { "containers": [{ "image": "no name" }] } }), true),
        (json!({ "spec": { "containers": ["a"] } }), true),
        (json!({ "spec": { "$patch": "merge" } }), false),
        (json!({ "spec": { "$retainKeys": "x" } }), false),
        (json!({ "spec": { "$setElementOrder/containers": 1 } }), false),
        (json!([]), false),
    ] {
        let unfit = apply("pods", &held, &patch).unwrap_err();
        assert_eq!(matches!(unfit, Unfit::Item(_)), is_item, "{patch}: {unfit:?}");
    }
}
