//! The verbs: what a request does to the objects, and what the server says.

#![expect(
    clippy::result_large_err,
    clippy::type_complexity,
    clippy::needless_pass_by_value,
    reason = "answers are built once a request; the tables are read in one place"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Shared;
use crate::budgets::{self, Refusal};
use crate::path::Target;
use crate::store::Store;
use crate::watch::Scope;

/// A request, taken apart.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// What the server says.
pub(crate) enum Answer {
    Json(u16, Value),
    Text(String),
    Watch { scope: Scope, version: u64, bookmarks: bool, first: Vec<Value>, limit: Duration },
}

/// The Status object of an error.
pub(crate) fn failure(code: u16, reason: &str, message: impl Into<String>) -> Answer {
    Answer::Json(code, status(code, reason, &message.into(), Value::Null))
}

pub(crate) fn status(code: u16, reason: &str, message: &str, details: Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code, "message": message, "details": details,
    })
}

/// Answers one request.
pub(crate) fn answer(shared: &Arc<Shared>, asked: &Asked) -> Answer {
    let Some(target) = Target::parse(&asked.path).filter(|_| !is_discovery(&asked.path)) else {
        return discovery(&asked.path);
    };
    match (asked.method.as_str(), target.name.clone(), target.sub.as_deref()) {
        ("GET", None, _) => list(shared, &target, asked),
        ("GET", Some(name), None | Some("status")) => shared
            .store()
            .get(&target.resource, &target.namespace, &name)
            .map_or_else(|| not_found(&target, &name), |it| Answer::Json(200, dressed(&target, it.clone()))),
        ("POST", Some(name), Some("eviction")) => evict(shared, &target, &name, asked),
        ("POST", None, None) => create(shared, &target, asked),
        ("PUT", Some(name), None | Some("status")) => update(shared, &target, &name, asked),
        ("PATCH", Some(name), None | Some("status")) => patch(shared, &target, &name, asked),
        ("DELETE", Some(name), None) => delete(shared, &target, &name, asked),
        (_, name, sub) => failure(
            405,
            "MethodNotAllowed",
            format!("{} is not served on {} {name:?} {sub:?}", asked.method, target.resource),
        ),
    }
}

fn dressed(target: &Target, object: Value) -> Value {
    scope(target, &BTreeMap::new()).dressed(object)
}

fn scope(target: &Target, query: &BTreeMap<String, String>) -> Scope {
    let text = |name: &str| query.get(name).cloned().unwrap_or_default();
    Scope { target: target.clone(), labels: text("labelSelector"), fields: text("fieldSelector") }
}

fn not_found(target: &Target, name: &str) -> Answer {
    failure(404, "NotFound", format!("{} \"{name}\" not found", target.resource))
}

fn list(shared: &Arc<Shared>, target: &Target, asked: &Asked) -> Answer {
    let scope = scope(target, &asked.query);
    let store = shared.store();
    let mut items = Vec::new();
    for object in store.list(&target.resource) {
        match scope.holds(object) {
            Ok(true) => items.push(scope.dressed(object.clone())),
            Ok(false) => {}
            Err(field) => return failure(400, "BadRequest", format!("field label not supported: {field}")),
        }
    }
    let version = store.version();
    let given = |name: &str| asked.query.get(name).map(String::as_str);
    if matches!(given("watch"), Some("true" | "1")) {
        let from = given("resourceVersion").and_then(|it| it.parse().ok()).unwrap_or(0);
        // Without a version a watch begins with what is there.
        let (from, first) = if from == 0 {
            let added =
                items.into_iter().map(|object| json!({ "type": "ADDED", "object": object })).collect();
            (version, added)
        } else {
            (from, Vec::new())
        };
        let limit = given("timeoutSeconds")
            .and_then(|it| it.parse().ok())
            .map_or(Duration::from_mins(30), Duration::from_secs);
        let bookmarks = matches!(given("allowWatchBookmarks"), Some("true" | "1"));
        return Answer::Watch { scope, version: from, bookmarks, first, limit };
    }
    let start = given("continue").and_then(|it| it.parse::<usize>().ok()).unwrap_or(0);
    let limit =
        given("limit").and_then(|it| it.parse::<usize>().ok()).filter(|it| *it > 0).unwrap_or(usize::MAX);
    let left = items.len().saturating_sub(start).saturating_sub(limit);
    let mut meta = json!({ "resourceVersion": version.to_string() });
    if left > 0 {
        meta["continue"] = (start + limit).to_string().into();
        meta["remainingItemCount"] = left.into();
    }
    let page: Vec<Value> = items.into_iter().skip(start).take(limit).collect();
    Answer::Json(
        200,
        json!({
            "kind": format!("{}List", target.kind()), "apiVersion": target.api_version, "metadata": meta, "items": page,
        }),
    )
}

fn body(asked: &Asked) -> Result<Value, Answer> {
    serde_json::from_slice(&asked.body)
        .map_err(|error| failure(400, "BadRequest", format!("the body is no JSON: {error}")))
}

fn create(shared: &Arc<Shared>, target: &Target, asked: &Asked) -> Answer {
    let mut object = match body(asked) {
        Ok(object) => object,
        Err(answer) => return answer,
    };
    if !target.namespace.is_empty() {
        object["metadata"]["namespace"] = target.namespace.clone().into();
    }
    if object["metadata"]["name"].is_null() {
        let stem = object["metadata"]["generateName"].as_str().unwrap_or("object-").to_owned();
        let tail: String = uuid::Uuid::new_v4().to_string().chars().take(5).collect();
        object["metadata"]["name"] = format!("{stem}{tail}").into();
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    shared.write(|store| {
        if store.get(&target.resource, &target.namespace, &name).is_some() {
            return failure(409, "AlreadyExists", format!("{} \"{name}\" already exists", target.resource));
        }
        if target.resource == "pods" {
            object["status"]["phase"] = "Pending".into();
        }
        Answer::Json(201, dressed(target, store.put(&target.resource, object)))
    })
}

fn conflict(target: &Target, name: &str) -> Answer {
    failure(
        409,
        "Conflict",
        format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified",
            target.resource
        ),
    )
}

/// Writes `change` of the present object, if the version that it names is the present one.
fn replace(
    shared: &Arc<Shared>,
    target: &Target,
    name: &str,
    change: impl FnOnce(&Value) -> Value,
) -> Answer {
    shared.write(|store| {
        let Some(held) = store.get(&target.resource, &target.namespace, name).cloned() else {
            return not_found(target, name);
        };
        let mut new = change(&held);
        let named = &new["metadata"]["resourceVersion"];
        if !named.is_null() && *named != held["metadata"]["resourceVersion"] {
            return conflict(target, name);
        }
        for fixed in ["uid", "creationTimestamp", "name", "namespace"] {
            new["metadata"][fixed] = held["metadata"][fixed].clone();
        }
        if new["metadata"]["namespace"].is_null()
            && let Some(meta) = new["metadata"].as_object_mut()
        {
            meta.remove("namespace");
        }
        Answer::Json(200, dressed(target, store.put(&target.resource, new)))
    })
}

fn update(shared: &Arc<Shared>, target: &Target, name: &str, asked: &Asked) -> Answer {
    match body(asked) {
        Ok(object) => replace(shared, target, name, |_| object),
        Err(answer) => answer,
    }
}

fn patch(shared: &Arc<Shared>, target: &Target, name: &str, asked: &Asked) -> Answer {
    if !asked.content_type.contains("merge-patch") {
        return failure(415, "UnsupportedMediaType", format!("{} is not served here", asked.content_type));
    }
    match body(asked) {
        Ok(patch) => replace(shared, target, name, |held| {
            let mut new = held.clone();
            merge(&mut new, &patch);
            // A version in the patch is a condition; without one there is none.
            new["metadata"]["resourceVersion"] = patch["metadata"]["resourceVersion"].clone();
            new
        }),
        Err(answer) => answer,
    }
}

/// RFC 7386.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        into.clone_from(patch);
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            if let Some(object) = into.as_object_mut() {
                object.remove(name);
            }
        } else {
            merge(&mut into[name], value);
        }
    }
}

fn delete(shared: &Arc<Shared>, target: &Target, name: &str, asked: &Asked) -> Answer {
    let options = if asked.body.is_empty() { Value::Null } else { body(asked).unwrap_or_default() };
    shared.write(|store| match remove(store, target, name, &options) {
        Ok(object) => Answer::Json(200, dressed(target, object)),
        Err(answer) => answer,
    })
}

/// Removes an object, a running pod by asking it to end.
fn remove(store: &mut Store, target: &Target, name: &str, options: &Value) -> Result<Value, Answer> {
    let held = store.get(&target.resource, &target.namespace, name).cloned();
    let Some(held) = held else { return Err(not_found(target, name)) };
    for condition in ["uid", "resourceVersion"] {
        let wanted = &options["preconditions"][condition];
        if !wanted.is_null() && *wanted != held["metadata"][condition] {
            return Err(failure(
                409,
                "Conflict",
                format!(
                    "Precondition failed: {condition} in precondition: {wanted}, in object meta: {}",
                    held["metadata"][condition]
                ),
            ));
        }
    }
    let grace = options["gracePeriodSeconds"].as_u64();
    let runs = target.resource == "pods" && !held["spec"]["nodeName"].is_null() && grace != Some(0);
    if !runs {
        store.remove(&target.resource, &target.namespace, name);
        return Ok(held);
    }
    if held["metadata"]["deletionTimestamp"].is_null() {
        let grace = grace.or(held["spec"]["terminationGracePeriodSeconds"].as_u64()).unwrap_or(30);
        store.edit(&target.resource, &target.namespace, name, |pod| {
            pod["metadata"]["deletionTimestamp"] =
                jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
            pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        });
    }
    Ok(store.get(&target.resource, &target.namespace, name).cloned().unwrap_or(held))
}

fn evict(shared: &Arc<Shared>, target: &Target, name: &str, asked: &Asked) -> Answer {
    let order = match body(asked) {
        Ok(order) => order,
        Err(answer) => return answer,
    };
    let options = order["deleteOptions"].clone();
    shared.write(|store| {
        let Some(pod) = store.get("pods", &target.namespace, name).cloned() else { return not_found(target, name) };
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != pod["metadata"]["uid"] {
            return failure(409, "Conflict", format!("Precondition failed: UID in precondition: {uid}"));
        }
        match budgets::admit(store, &pod) {
            Ok(()) => {}
            Err(Refusal::Many) => {
                return failure(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.");
            }
            Err(Refusal::NoRoom(_, why)) => {
                let details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
                let text = "Cannot evict pod as it would violate the pod's disruption budget.";
                return Answer::Json(429, status(429, "TooManyRequests", text, details));
            }
        }
        let dry = options["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        if dry {
            return Answer::Json(201, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }));
        }
        shared.faults.note_evicted(pod["metadata"]["uid"].as_str().unwrap_or_default());
        match remove(store, target, name, &options) {
            Ok(_) => Answer::Json(201, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
            Err(answer) => answer,
        }
    })
}

fn is_discovery(path: &str) -> bool {
    let parts = path.trim_matches('/').split('/').count();
    (path.starts_with("/apis") && parts <= 3) || (path.starts_with("/api/") && parts <= 2) || path == "/api"
}

fn discovery(path: &str) -> Answer {
    const GROUPS: [(&str, &[(&str, &str, &str, bool)]); 3] = [
        (
            "v1",
            &[
                ("nodes", "Node", "no", false),
                ("pods", "Pod", "po", true),
                ("namespaces", "Namespace", "ns", false),
            ],
        ),
        ("policy/v1", &[("poddisruptionbudgets", "PodDisruptionBudget", "pdb", true)]),
        (
            "apps/v1",
            &[
                ("deployments", "Deployment", "deploy", true),
                ("replicasets", "ReplicaSet", "rs", true),
                ("statefulsets", "StatefulSet", "sts", true),
                ("daemonsets", "DaemonSet", "ds", true),
            ],
        ),
    ];
    let path = path.trim_matches('/');
    match path {
        "healthz" | "livez" | "readyz" => return Answer::Text("ok".to_owned()),
        "version" => {
            return Answer::Json(
                200,
                json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0-kubesim", "platform": "linux/amd64" }),
            );
        }
        "api" => return Answer::Json(200, json!({ "kind": "APIVersions", "versions": ["v1"] })),
        "apis" => {
            let groups: Vec<Value> = GROUPS
                .iter()
                .filter_map(|(version, _)| version.split_once('/').map(|(name, _)| (name, version)))
                .map(|(name, version)| {
                    let short = json!({ "groupVersion": version, "version": "v1" });
                    json!({ "name": name, "versions": [short], "preferredVersion": short })
                })
                .collect();
            return Answer::Json(
                200,
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }),
            );
        }
        _ => {}
    }
    let version = path.trim_start_matches("apis/").trim_start_matches("api/");
    let Some((_, resources)) = GROUPS.iter().find(|(name, _)| *name == version) else {
        return failure(404, "NotFound", format!("the server could not find {path}"));
    };
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let mut all: Vec<Value> = resources
        .iter()
        .map(|(name, kind, short, namespaced)| {
            json!({ "name": name, "singularName": kind.to_lowercase(), "kind": kind, "namespaced": namespaced, "shortNames": [short], "verbs": verbs })
        })
        .collect();
    if version == "v1" {
        all.push(json!({
            "name": "pods/eviction", "singularName": "", "kind": "Eviction", "group": "policy", "version": "v1",
            "namespaced": true, "verbs": ["create"]
        }));
    }
    Answer::Json(
        200,
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": all }),
    )
}
