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
    let columns: Vec<(&str, &str)> =
        columns(&target.resource).split(',').filter_map(|it| it.split_once(' ')).collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|(name, _)| {
            let (name, wide) = (name.trim_end_matches('*').replace('_', " "), name.ends_with('*'));
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
            let cells: Vec<Value> = columns.iter().map(|(_, what)| cell(what, object)).collect();
            json!({ "cells": cells, "object": shown })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// Name and cell of each column, see [`cell`]; `_` stands for a space. Those with a star for `-o wide` only.
fn columns(resource: &str) -> &'static str {
    match resource {
        "nodes" => {
            "Name name,Status node,Roles roles,Age age,Version ?/status/nodeInfo/kubeletVersion,\
             Internal-IP* ?/status/addresses/0/address"
        }
        "pods" => {
            "Name name,Ready ready,Status pod,Restarts restarts,Age age,IP* ?/status/podIP,Node* ?/spec/nodeName"
        }
        "namespaces" => "Name name,Status /status/phase,Age age",
        "events" => "Last_Seen seen,Type /type,Reason /reason,Object about,Message note,Name* name",
        "apps/deployments" => {
            "Name name,Ready of,Up-to-date #/status/updatedReplicas,Available #/status/availableReplicas,Age age"
        }
        "apps/replicasets" | "kubevirt/virtualmachineinstancereplicasets" => {
            "Name name,Desired #/spec/replicas,Current #/status/replicas,Ready #/status/readyReplicas,Age age"
        }
        "apps/daemonsets" => {
            "Name name,Desired #/status/desiredNumberScheduled,Current #/status/currentNumberScheduled,\
             Ready #/status/numberReady,Age age"
        }
        "apps/statefulsets" => "Name name,Ready of,Age age",
        "policy/poddisruptionbudgets" => {
            "Name name,Min_Available least,Max_Unavailable most,Allowed_Disruptions #/status/disruptionsAllowed,Age age"
        }
        "coordination/leases" => "Name name,Holder /spec/holderIdentity,Age age",
        "persistentvolumes" => {
            "Name name,Capacity /spec/capacity/storage,Access_Modes modes,\
             Reclaim_Policy /spec/persistentVolumeReclaimPolicy,Status /status/phase,Claim claim,\
             StorageClass /spec/storageClassName,Age age"
        }
        "persistentvolumeclaims" => {
            "Name name,Status /status/phase,Volume /spec/volumeName,Capacity /status/capacity/storage,\
             Access_Modes modes,StorageClass /spec/storageClassName,Age age"
        }
        "storage/volumeattachments" => {
            "Name name,Attacher /spec/attacher,PV /spec/source/persistentVolumeName,Node /spec/nodeName,\
             Attached !/status/attached,Age age"
        }
        "scheduling/priorityclasses" => "Name name,Value /value,Global-Default !/globalDefault,Age age",
        "kubevirt/virtualmachines" => "Name name,Age age,Status /status/printableStatus",
        "kubevirt/virtualmachineinstances" => {
            "Name name,Age age,Phase /status/phase,NodeName /status/nodeName,Ready is-ready"
        }
        "kubevirt/virtualmachineinstancemigrations" => {
            "Name name,Phase /status/phase,VMI /spec/vmiName,Age age"
        }
        _ => "Name name,Age age",
    }
}

/// A JSON pointer, as it is or with `?` (`<none>` without), `#` (a number) or `!` (a bool); or a word.
fn cell(what: &str, it: &Value) -> Value {
    let at = |pointer: &str| it.pointer(pointer).cloned().unwrap_or_default();
    let number = |pointer: &str| at(pointer).as_u64().unwrap_or_default();
    let limit = |value: Value| {
        let text = value.to_string();
        Value::from(if value.is_null() { "N/A" } else { text.trim_matches('"') })
    };
    match what {
        "name" => at("/metadata/name"),
        "age" => age(&at("/metadata/creationTimestamp")),
        "node" => node_status(it),
        "roles" => roles(it),
        "ready" => {
            let count = it["spec"]["containers"].as_array().map_or(0, Vec::len);
            format!("{}/{count}", if is_true(it, "Ready") { count } else { 0 }).into()
        }
        "pod" if it["metadata"]["deletionTimestamp"].is_null() => at("/status/phase"),
        "pod" => "Terminating".into(),
        "restarts" => {
            let all = it["status"]["containerStatuses"].as_array().into_iter().flatten();
            all.filter_map(|it| it["restartCount"].as_u64()).sum::<u64>().to_string().into()
        }
        "of" => {
            let whole = it["spec"]["replicas"].as_u64().unwrap_or(1);
            format!("{}/{whole}", number("/status/readyReplicas")).into()
        }
        "least" => limit(at("/spec/minAvailable")),
        "most" => limit(at("/spec/maxUnavailable")),
        "modes" => access_modes(&it["spec"]["accessModes"]),
        "claim" if it["spec"]["claimRef"].is_null() => "".into(),
        "claim" => {
            let part = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            let claim = &it["spec"]["claimRef"];
            format!("{}/{}", part(&claim["namespace"]), part(&claim["name"])).into()
        }
        "is-ready" => if is_true(it, "Ready") { "True" } else { "False" }.into(),
        "seen" => {
            let seen = ["lastTimestamp", "deprecatedLastTimestamp", "eventTime"].map(|name| &it[name]);
            let made = &it["metadata"]["creationTimestamp"];
            age(seen.into_iter().find(|it| !it.is_null()).unwrap_or(made))
        }
        // An event has two forms.
        "about" => {
            let about = if it["regarding"].is_null() { &it["involvedObject"] } else { &it["regarding"] };
            let kind = about["kind"].as_str().unwrap_or_default().to_lowercase();
            format!("{kind}/{}", about["name"].as_str().unwrap_or_default()).into()
        }
        "note" if it["note"].is_null() => at("/message"),
        "note" => at("/note"),
        _ => match what.split_at(1) {
            ("?", pointer) if at(pointer).is_null() => "<none>".into(),
            ("?", pointer) => at(pointer),
            ("#", pointer) => number(pointer).into(),
            ("!", pointer) => at(pointer).as_bool().unwrap_or_default().into(),
            (_, _) => at(what),
        },
    }
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
    fn every_column_has_a_name_and_a_cell() {
        let own = ["virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"];
        let known = crate::kinds::KINDS.iter().map(|it| crate::kinds::key(it.api_version, it.plural));
        for resource in known.chain(own.map(|it| format!("kubevirt/{it}"))) {
            for column in columns(&resource).split(',') {
                let (name, what) = column.split_once(' ').unwrap();
                let is_pointer = what.trim_start_matches(['?', '#', '!']).starts_with('/');
                let word = cell(
                    what,
                    &json!({ "metadata": { "name": "x" }, "status": { "phase": "" }, "message": "" }),
                );
                assert!(!name.is_empty() && (is_pointer || !word.is_null()), "{resource}: {column}");
            }
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
