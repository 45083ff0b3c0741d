//! Tables for `kubectl get`: columns and cells in place of objects.

use serde_json::{Value, json};

use crate::path::ResourcePath;
use crate::store::is_true;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// `None` when the request wants no table.
    pub(crate) fn wanted(accept: &str, include: Option<&str>) -> Option<Self> {
        // The first form is preferred.
        let best = accept.split(',').next().unwrap_or_default();
        (best.contains("as=Table") && best.contains("v=v1;")).then_some(match include {
            Some("None") => Self::Nothing,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        })
    }
}

/// Of objects in their outward form.
pub(crate) fn table(target: &ResourcePath, objects: &[Value], meta: &Value, include: Include) -> Value {
    let columns: Vec<Value> = columns(&target.resource)
        .split(',')
        .map(|column| {
            let (name, wide) = (column.trim_end_matches('*'), column.ends_with('*'));
            let format = if name == "Name" { "name" } else { "" };
            json!({ "name": name, "type": "string", "format": format, "description": "", "priority": u8::from(wide) })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let shown = match include {
                Include::Nothing => Value::Null,
                Include::Object => object.clone(),
                Include::Metadata => json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                }),
            };
            json!({ "cells": cells(&target.resource, object), "object": shown })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns,
        "rows": rows,
    })
}

/// Those with a star for `-o wide` only.
fn columns(resource: &str) -> &'static str {
    match resource {
        "nodes" => "Name,Status,Roles,Age,Version,Internal-IP*",
        "pods" => "Name,Ready,Status,Restarts,Age,IP*,Node*",
        "namespaces" => "Name,Status,Age",
        "events" => "Last ApiRequest,Type,Reason,Object,Message,Name*",
        "apps/deployments" => "Name,Ready,Up-to-date,Available,Age",
        "apps/replicasets" | "apps/daemonsets" => "Name,Desired,Current,Ready,Age",
        "apps/statefulsets" => "Name,Ready,Age",
        "policy/poddisruptionbudgets" => "Name,Min Available,Max Unavailable,Allowed Disruptions,Age",
        "coordination/leases" => "Name,Holder,Age",
        "persistentvolumes" => "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,Age",
        "persistentvolumeclaims" => "Name,Status,Volume,Capacity,Access Modes,StorageClass,Age",
        "storage/volumeattachments" => "Name,Attacher,PV,Node,Attached,Age",
        "scheduling/priorityclasses" => "Name,Value,Global-Default,Age",
        _ => "Name,Age",
    }
}

fn cells(resource: &str, it: &Value) -> Vec<Value> {
    let (spec, status) = (&it["spec"], &it["status"]);
    let name = it["metadata"]["name"].clone();
    let age = age(&it["metadata"]["creationTimestamp"]);
    let number = |value: &Value| Value::from(value.as_u64().unwrap_or_default());
    let of = |part: &Value, whole: &Value| {
        Value::from(format!("{}/{}", part.as_u64().unwrap_or_default(), whole.as_u64().unwrap_or(1)))
    };
    match resource {
        "nodes" => {
            let version = shown(&status["nodeInfo"]["kubeletVersion"]);
            let addresses = status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
            let inner = addresses.iter().find(|it| it["type"] == "InternalIP");
            let inner = inner.map_or_else(|| "<none>".into(), |it| it["address"].clone());
            vec![name, node_status(it), roles(it), age, version, inner]
        }
        "pods" => {
            let count = spec["containers"].as_array().map_or(0, Vec::len);
            let ready = if is_true(it, "Ready") { count } else { 0 };
            let restarts = status["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
            let restarts: u64 = restarts.iter().filter_map(|it| it["restartCount"].as_u64()).sum();
            let (ip, node) = (shown(&status["podIP"]), shown(&spec["nodeName"]));
            vec![
                name,
                format!("{ready}/{count}").into(),
                pod_status(it),
                restarts.to_string().into(),
                age,
                ip,
                node,
            ]
        }
        "namespaces" => vec![name, status["phase"].clone(), age],
        "events" => event_cells(it),
        "apps/deployments" => vec![
            name,
            of(&status["readyReplicas"], &spec["replicas"]),
            number(&status["updatedReplicas"]),
            number(&status["availableReplicas"]),
            age,
        ],
        "apps/replicasets" => {
            let (current, ready) = (number(&status["replicas"]), number(&status["readyReplicas"]));
            vec![name, number(&spec["replicas"]), current, ready, age]
        }
        "apps/daemonsets" => {
            let wanted = number(&status["desiredNumberScheduled"]);
            vec![name, wanted, number(&status["currentNumberScheduled"]), number(&status["numberReady"]), age]
        }
        "apps/statefulsets" => vec![name, of(&status["readyReplicas"], &spec["replicas"]), age],
        "policy/poddisruptionbudgets" => {
            let limit = |value: &Value| {
                let text = value.to_string();
                Value::from(if value.is_null() { "N/A" } else { text.trim_matches('"') })
            };
            let (least, most) = (limit(&spec["minAvailable"]), limit(&spec["maxUnavailable"]));
            vec![name, least, most, number(&status["disruptionsAllowed"]), age]
        }
        "coordination/leases" => vec![name, spec["holderIdentity"].clone(), age],
        "persistentvolumes" => {
            let claim = ["namespace", "name"].map(|it| spec["claimRef"][it].as_str().unwrap_or_default());
            let claim = if spec["claimRef"].is_null() { String::new() } else { claim.join("/") };
            let (capacity, modes) = (spec["capacity"]["storage"].clone(), access_modes(&spec["accessModes"]));
            let policy = spec["persistentVolumeReclaimPolicy"].clone();
            let class = spec["storageClassName"].clone();
            vec![name, capacity, modes, policy, status["phase"].clone(), claim.into(), class, age]
        }
        "persistentvolumeclaims" => {
            let (capacity, modes) =
                (status["capacity"]["storage"].clone(), access_modes(&status["accessModes"]));
            let class = spec["storageClassName"].clone();
            vec![name, status["phase"].clone(), spec["volumeName"].clone(), capacity, modes, class, age]
        }
        "storage/volumeattachments" => vec![
            name,
            spec["attacher"].clone(),
            spec["source"]["persistentVolumeName"].clone(),
            spec["nodeName"].clone(),
            status["attached"].as_bool().unwrap_or_default().into(),
            age,
        ],
        "scheduling/priorityclasses" => {
            let default = it["globalDefault"].as_bool().unwrap_or_default().into();
            vec![name, it["value"].clone(), default, age]
        }
        _ => vec![name, age],
    }
}

fn shown(value: &Value) -> Value {
    if value.is_null() { "<none>".into() } else { value.clone() }
}

/// `RWO,ROX` of access modes.
fn access_modes(modes: &Value) -> Value {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "?",
    };
    let all = modes.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(short).collect::<Vec<_>>().join(",").into()
}

fn node_status(node: &Value) -> Value {
    let mut text = if is_true(node, "Ready") { "Ready" } else { "NotReady" }.to_owned();
    if node["spec"]["unschedulable"] == true {
        text.push_str(",SchedulingDisabled");
    }
    text.into()
}

fn roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object();
    let names = labels.into_iter().flat_map(|all| all.keys());
    let roles: Vec<&str> = names.filter_map(|key| key.strip_prefix("node-role.kubernetes.io/")).collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

fn pod_status(pod: &Value) -> Value {
    if pod["metadata"]["deletionTimestamp"].is_null() {
        return pod["status"]["phase"].clone();
    }
    "Terminating".into()
}

/// An event in either of its forms.
fn event_cells(event: &Value) -> Vec<Value> {
    let about = if event["regarding"].is_null() { &event["involvedObject"] } else { &event["regarding"] };
    let text = if event["note"].is_null() { &event["message"] } else { &event["note"] };
    let seen = ["lastTimestamp", "deprecatedLastTimestamp", "eventTime"].map(|name| &event[name]);
    let seen = seen.into_iter().find(|it| !it.is_null()).unwrap_or(&event["metadata"]["creationTimestamp"]);
    let kind = about["kind"].as_str().unwrap_or_default().to_lowercase();
    let object = format!("{kind}/{}", about["name"].as_str().unwrap_or_default());
    vec![
        age(seen),
        event["type"].clone(),
        event["reason"].clone(),
        object.into(),
        text.clone(),
        event["metadata"]["name"].clone(),
    ]
}

/// In one or two units.
fn age(since: &Value) -> Value {
    let Some(since) = since.as_str().and_then(|it| it.parse::<jiff::Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    elapsed(jiff::Timestamp::now().as_second() - since.as_second()).into()
}

fn elapsed(secs: i64) -> String {
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86400);
    match secs {
        ..0 => "0s".to_owned(),
        0..120 => format!("{secs}s"),
        120..600 => match secs % 60 {
            0 => format!("{minutes}m"),
            rest => format!("{minutes}m{rest}s"),
        },
        600..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        for known in &crate::kinds::KINDS {
            let resource = crate::kinds::key(known.api_version, known.plural);
            let cells = cells(&resource, &json!({ "metadata": { "name": "x" } }));
            assert_eq!(cells.len(), columns(&resource).split(',').count(), "{resource}");
        }
    }

    #[test]
    fn a_table_is_given_to_those_who_like_it_best() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Include::wanted(kubectl, None), Some(Include::Metadata));
        assert_eq!(Include::wanted(kubectl, Some("Object")), Some(Include::Object));
        assert_eq!(Include::wanted("application/json", None), None);
    }

    #[test]
    fn time_is_told_in_few_letters() {
        for (secs, text) in [
            (-1, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (180, "3m"),
            (7200, "120m"),
            (14_400, "4h"),
            (172_800, "2d"),
        ] {
            assert_eq!(elapsed(secs), text);
        }
    }
}
