//! The part of OpenAPI that `kubectl` reads before it sends an object: the kinds, and that the server
//! validates members. There are no schemas.

use serde_json::{Map, Value, json};

use crate::kinds::{self, KINDS, Resource};

pub(crate) fn document(path: &str) -> Option<Value> {
    let within = path.strip_prefix("openapi/v3")?.trim_matches('/');
    if within.is_empty() {
        let paths: Map<String, Value> = KINDS
            .iter()
            .map(|it| root(it.api_version))
            .map(|root| (root.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{root}") })))
            .collect();
        return Some(json!({ "paths": paths }));
    }
    let paths: Map<String, Value> = KINDS
        .iter()
        .filter(|it| root(it.api_version) == within)
        .map(|it| (url(it), operations(it)))
        .collect();
    let info = json!({ "title": "kubesim", "version": "v1" });
    (!paths.is_empty()).then(|| json!({ "openapi": "3.0.0", "info": info, "paths": paths }))
}

/// `api/v1`, `apis/policy/v1`.
fn root(api_version: &str) -> String {
    let top = if api_version.contains('/') { "apis" } else { "api" };
    format!("{top}/{api_version}")
}

fn url(it: &Resource) -> String {
    let namespace = if it.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{namespace}{}/{{name}}", root(it.api_version), it.plural)
}

fn operations(it: &Resource) -> Value {
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    json!({ "patch": {
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": kinds::group(it.api_version), "version": "v1", "kind": it.kind,
        },
    } })
}
