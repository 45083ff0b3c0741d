//! Decodes objects as API types: wrong types are always refused, unknown members when a client asks for that.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;
use crate::path::ResourcePath;

/// See [`check`].
pub(crate) type StrictCheck = fn(&ResourcePath, &Value, bool) -> Result<(), Failure>;

/// Refuses an object with wrong types; with `strict` also one with unknown members. The object is in its
/// stored form.
pub(crate) fn check(target: &ResourcePath, object: &Value, strict: bool) -> Result<(), Failure> {
    let read = match target.resource.as_str() {
        "nodes" => through::<core::Node>,
        "pods" => through::<core::Pod>,
        "namespaces" => through::<core::Namespace>,
        "events" => through::<core::Event>,
        "configmaps" => through::<core::ConfigMap>,
        "persistentvolumeclaims" => through::<core::PersistentVolumeClaim>,
        "persistentvolumes" => through::<core::PersistentVolume>,
        "services" => through::<core::Service>,
        "serviceaccounts" => through::<core::ServiceAccount>,
        "apps/deployments" => through::<Deployment>,
        "apps/replicasets" => through::<ReplicaSet>,
        "apps/statefulsets" => through::<StatefulSet>,
        "apps/daemonsets" => through::<DaemonSet>,
        "policy/poddisruptionbudgets" => through::<PodDisruptionBudget>,
        "coordination/leases" => through::<Lease>,
        "scheduling/priorityclasses" => through::<PriorityClass>,
        "storage/volumeattachments" => through::<VolumeAttachment>,
        "storage/storageclasses" => through::<StorageClass>,
        _ => return Ok(()),
    };
    let mut given = object.clone();
    if let Some(members) = given.as_object_mut() {
        members.insert("apiVersion".to_owned(), stored_version(target).into());
        members.insert("kind".to_owned(), target.kind().into());
    }
    let kept = read(given.clone()).map_err(|error| {
        let (kind, version) = (target.kind(), &target.api_version);
        Failure::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
        ))
    })?;
    let mut strangers = Vec::new();
    compare(&given, &kept, "", &mut strangers);
    if strict && !strangers.is_empty() {
        let all: Vec<String> = strangers.iter().map(|it| format!("unknown field \"{it}\"")).collect();
        return Err(Failure::bad_request(format!("strict decoding error: {}", all.join(", "))));
    }
    Ok(())
}

fn stored_version(target: &ResourcePath) -> &str {
    if target.resource == "events" { "v1" } else { &target.api_version }
}

fn through<T: DeserializeOwned + Serialize>(given: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(given)?)
}

/// Collects members that were given and not kept.
fn compare(given: &Value, kept: &Value, at: &str, strangers: &mut Vec<String>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                match kept.get(name) {
                    Some(kept) => compare(value, kept, &at, strangers),
                    None => strangers.push(at),
                }
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (place, (given, kept)) in given.iter().zip(kept).enumerate() {
                compare(given, kept, &format!("{at}[{place}]"), strangers);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(object: &Value, strict: bool) -> Result<(), String> {
        let target = ResourcePath::parse("/api/v1/namespaces/a/pods").unwrap();
        check(&target, object, strict).map_err(|failure| failure.message)
    }

    #[test]
    fn unknown_members_are_named_to_those_who_ask() {
        let object = json!({ "spec": { "containers": [{ "name": "c", "imagePullPolice": "Never" }], "nodeNam": "n" } });
        let said = "strict decoding error: unknown field \"spec.containers[0].imagePullPolice\", unknown field \"spec.nodeNam\"";
        assert_eq!(pod(&object, true), Err(said.to_owned()));
        assert_eq!(pod(&object, false), Ok(()));
    }

    #[test]
    fn a_wrong_type_is_refused() {
        let object = json!({ "spec": { "containers": "c" } });
        assert!(pod(&object, false).unwrap_err().contains("cannot be handled as a Pod"));
    }

    #[test]
    fn a_quantity_may_be_a_number() {
        let object = json!({ "spec": {
            "containers": [{ "name": "c", "resources": { "limits": { "cpu": 2 } } }],
            "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": 5 } }],
        } });
        assert_eq!(pod(&object, true), Ok(()));
    }
}
