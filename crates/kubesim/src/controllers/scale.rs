//! The `scale` of a workload: its replicas as an object of their own.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::SimShared;
use crate::failure::Failure;
use crate::patch::Patch;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::writes;

pub(crate) fn scales(resource: &str) -> bool {
    matches!(resource, "apps/deployments" | "apps/replicasets" | "apps/statefulsets")
}

pub(crate) fn answer(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    if !scales(&target.resource) {
        return Err(Failure::no_such_path());
    }
    let written = match asked.method.as_str() {
        "GET" => {
            return Ok(SimResponse::Json(200, form(&shared.store().held(target, name)?)));
        }
        "PUT" => {
            let new = asked.json()?;
            writes::replace(shared, target, name, asked, |held| Ok(with(held, &new)))?
        }
        _ => {
            let patch = Patch::read(target, &asked.content_type, &asked.body)?;
            writes::replace(shared, target, name, asked, |held| {
                Ok(with(held, &patch.apply(target, &form(held))?))
            })?
        }
    };
    Ok(match written {
        SimResponse::Json(code, object) => SimResponse::Json(code, form(&object)),
        other @ (SimResponse::Text(..) | SimResponse::Watch(_)) => other,
    })
}

fn form(workload: &Value) -> Value {
    let meta = &workload["metadata"];
    let labels = workload["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let terms: Vec<String> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"],
        },
        "spec": { "replicas": workload["spec"]["replicas"].as_u64().unwrap_or(1) },
        "status": {
            "replicas": workload["status"]["replicas"].as_u64().unwrap_or(0), "selector": terms.join(","),
        },
    })
}

/// The workload with the scale's replicas, under the conditions in the scale.
fn with(workload: &Value, scale: &Value) -> Value {
    let mut new = workload.clone();
    new["spec"]["replicas"] = scale["spec"]["replicas"].clone();
    for condition in ["resourceVersion", "uid"] {
        new["metadata"][condition] = scale["metadata"][condition].clone();
    }
    new
}
