//! Discovery: versions, groups, resources.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::{self, KINDS};
use crate::request::SimResponse;
use crate::store::ObjectStore;
use crate::{evictions, openapi, scale};

const MINOR: &str = "34";

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// Whether a path is about the server.
pub(crate) fn is_discovery(path: &str) -> bool {
    let parts = path.trim_matches('/').split('/').count();
    match path.trim_matches('/').split('/').next() {
        Some("apis") => parts <= 3,
        Some("api") => parts <= 2,
        _ => true,
    }
}

pub(crate) fn answer(store: &ObjectStore, path: &str) -> Result<SimResponse, Failure> {
    let path = path.trim_matches('/');
    match path {
        "healthz" | "livez" | "readyz" => return Ok(SimResponse::Text(200, "ok".to_owned())),
        "version" => {
            return Ok(SimResponse::Json(
                200,
                json!({
                    "major": "1", "minor": MINOR, "gitVersion": format!("v1.{MINOR}.0-kubesim"), "gitCommit": "",
                    "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
                    "platform": "linux/amd64",
                }),
            ));
        }
        "api" => return Ok(SimResponse::Json(200, json!({ "kind": "APIVersions", "versions": ["v1"] }))),
        "apis" => {
            let custom =
                store.api_versions().into_iter().filter(|it| it.contains('/') && !groups().contains(it));
            let custom = custom.filter(|it| evictions::is_served(store, it));
            let groups: Vec<Value> = groups().into_iter().chain(custom).map(group).collect();
            return Ok(SimResponse::Json(
                200,
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }),
            ));
        }
        _ => {}
    }
    if let Some(document) = openapi::document(path) {
        return Ok(SimResponse::Json(200, document));
    }
    let all = groups().into_iter().chain(store.api_versions());
    if let Some(version) = all.into_iter().find(|it| path.strip_prefix("apis/") == Some(kinds::group(it))) {
        let mut group = group(version);
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
        return Ok(SimResponse::Json(200, group));
    }
    let version = path.strip_prefix("apis/").or(path.strip_prefix("api/")).unwrap_or_default();
    let mut resources = resources(version);
    if resources.is_empty() {
        let custom = |(plural, it): (&str, &Value)| {
            let singular = it["kind"].as_str().unwrap_or_default().to_lowercase();
            json!({
                "name": plural, "singularName": singular, "kind": it["kind"], "verbs": VERBS, "categories": [],
                "namespaced": !it["metadata"]["namespace"].is_null(),
                "shortNames": kinds::short_names(version, plural),
            })
        };
        resources = store.samples(version).map(custom).collect();
    }
    if resources.is_empty() {
        return Err(Failure::no_such_path());
    }
    Ok(SimResponse::Json(
        200,
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources }),
    ))
}

fn groups() -> Vec<&'static str> {
    let mut all: Vec<&str> = KINDS.iter().map(|it| it.api_version).filter(|it| it.contains('/')).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn group(version: &str) -> Value {
    let short = json!({ "groupVersion": version, "version": version.rsplit('/').next() });
    json!({ "name": kinds::group(version), "versions": [short], "preferredVersion": short })
}

fn resources(version: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for it in KINDS.iter().filter(|it| it.api_version == version) {
        let in_all = matches!(it.plural, "pods" | "services") || it.api_version == "apps/v1";
        let categories: &[&str] = if in_all { &["all"] } else { &[] };
        let short: &[&str] = if it.short.is_empty() { &[] } else { &[it.short] };
        all.push(json!({
            "name": it.plural, "singularName": it.kind.to_lowercase(), "kind": it.kind,
            "namespaced": it.namespaced, "shortNames": short, "categories": categories,
            "verbs": VERBS,
        }));
        let mut below = |is: bool, sub: &str, kind: &str, of: [&str; 2], verbs: &[&str]| {
            let name = format!("{}/{sub}", it.plural);
            all.extend(is.then(|| {
                json!({
                    "name": name, "singularName": "", "kind": kind, "group": of[0], "version": of[1],
                    "namespaced": it.namespaced, "verbs": verbs,
                })
            }));
        };
        let (group, writes) = (kinds::group(version), ["get", "patch", "update"]);
        below(it.status, "status", it.kind, [group, "v1"], &writes);
        let scales = scale::scales(&kinds::key(it.api_version, it.plural));
        below(scales, "scale", "Scale", ["autoscaling", "v1"], &writes);
        below(it.plural == "pods", "eviction", "Eviction", ["policy", "v1"], &["create"]);
        let of_token = ["authentication.k8s.io", "v1"];
        below(it.plural == "serviceaccounts", "token", "TokenRequest", of_token, &["create"]);
    }
    all
}
