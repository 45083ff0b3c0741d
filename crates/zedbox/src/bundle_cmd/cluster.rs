//! Objects of the cluster that affect drains: names and status, and of some the specification. Never their
//! contents: no environment, no command, no annotation, no data.

use kubeapi::ApiClient;
use kubeapi::watch::WatchScope;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{Contents, TIME};

/// File name, path, and whether the specification is taken.
const COLLECTIONS: [(&str, &str, bool); 9] = [
    ("nodes", "/api/v1/nodes", true),
    ("pods", "/api/v1/pods", false),
    ("budgets", "/apis/policy/v1/poddisruptionbudgets", true),
    ("attachments", "/apis/storage.k8s.io/v1/volumeattachments", true),
    ("leases", "/apis/coordination.k8s.io/v1/leases", true),
    ("machines", "/apis/kubevirt.io/v1/virtualmachineinstances", false),
    ("longhorn-volumes", "/apis/longhorn.io/v1beta2/volumes", false),
    ("longhorn-replicas", "/apis/longhorn.io/v1beta2/replicas", false),
    ("longhorn-nodes", "/apis/longhorn.io/v1beta2/nodes", false),
];
/// Prefix of this program's annotations.
const OURS: &str = "pillar-rs/";

/// Adds them below `cluster`; failures with the reason.
pub(super) async fn collect(cluster: &ApiClient, contents: &mut Contents) {
    for (name, path, with_spec) in COLLECTIONS {
        let scope = WatchScope::all(name, path.to_owned());
        let failed = match timeout(TIME, scope.list_installed::<Value>(cluster)).await {
            Ok(Ok(None)) => continue,
            Ok(Ok(Some(objects))) => {
                let shown: Vec<Value> = objects.iter().map(|it| shown(it, with_spec)).collect();
                contents.add(
                    format!("cluster/{name}.json"),
                    serde_json::to_vec_pretty(&shown).unwrap_or_default(),
                );
                continue;
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => None,
        };
        let late = || format!("no answer within {} s; the rest was not asked for", TIME.as_secs());
        contents.add(format!("cluster/{name}.error"), failed.clone().unwrap_or_else(late));
        if failed.is_none() {
            return;
        }
    }
}

fn shown(object: &Value, with_spec: bool) -> Value {
    let meta = &object["metadata"];
    let annotations = meta["annotations"].as_object().into_iter().flatten();
    let ours: Map<String, Value> = annotations
        .filter(|(name, _)| name.starts_with(OURS))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    let mut shown = json!({
        "metadata": {
            "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "labels": meta["labels"], "annotations": ours, "ownerReferences": meta["ownerReferences"],
            "creationTimestamp": meta["creationTimestamp"], "deletionTimestamp": meta["deletionTimestamp"],
            "finalizers": meta["finalizers"],
        },
        "status": object["status"],
    });
    shown["spec"] =
        if with_spec { object["spec"].clone() } else { json!({ "nodeName": object["spec"]["nodeName"] }) };
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_only_its_name_its_node_and_its_state_are_taken() {
        let pod = json!({
            "metadata": { "name": "p", "annotations": { "a": "planted", "pillar-rs/x": "y" }, "managedFields": "planted" },
            "spec": { "nodeName": "n1", "containers": [{ "env": [{ "name": "P", "value": "planted" }] }] },
            "status": { "phase": "Running" }, "data": "planted",
        });
        let shown = shown(&pod, false);
        assert!(!shown.to_string().contains("planted"), "{shown}");
        assert_eq!(
            (&shown["spec"]["nodeName"], &shown["status"]["phase"]),
            (&"n1".into(), &"Running".into())
        );
        assert_eq!(shown["metadata"]["annotations"]["pillar-rs/x"], "y");
    }
}
