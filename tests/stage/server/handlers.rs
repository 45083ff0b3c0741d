//! Plays what KubeVirt needs a machine for: kubelets of launcher pods, and virt-handler of each node.
//!
//! A machine is up once its pod runs, a migration ends when the script lets it, and each write of an instance is made in the
//! name of virt-handler of that node, so that virt-api's own rules for it hold.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::kubevirt::{Door, GUESTS};

#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) virt_api: bool,
    pub(crate) down: BTreeSet<String>,
    pub(crate) fixed: BTreeSet<String>,
    pub(crate) hang: BTreeSet<String>,
}

pub(crate) async fn play(door: Door, script: Arc<Mutex<Script>>) {
    let mut often = tokio::time::interval(Duration::from_millis(150));
    loop {
        often.tick().await;
        let script = script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let guests = door.list(GUESTS).await;
        let pods = door.list("/api/v1/pods?labelSelector=kubevirt.io%3Dvirt-launcher").await;
        // Refused or outdated writes are repeated in the next round.
        for guest in &guests {
            if let Some((node, patch)) = of_handler(guest, &pods, &script) {
                drop(door.call_as(Some(&node), "PATCH", &at(GUESTS, guest), &patch).await);
            }
        }
        for pod in &pods {
            let here = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            if here.is_empty() || script.down.contains(here) {
                continue;
            }
            let of = pod["metadata"]["labels"]["kubevirt.io/created-by"].as_str();
            let guest = guests.iter().find(|it| it["metadata"]["uid"].as_str() == of);
            let path = at("/api/v1/pods", pod);
            match of_kubelet(pod, guest) {
                OfKubelet::Nothing => {}
                OfKubelet::Status(status) => {
                    drop(door.call("PATCH", &format!("{path}/status"), &json!({ "status": status })).await);
                }
                OfKubelet::Gone => {
                    drop(door.call("DELETE", &path, &json!({ "gracePeriodSeconds": 0 })).await);
                }
            }
        }
    }
}

/// An object's path in the list at `all`.
fn at(all: &str, object: &Value) -> String {
    let (group, kind) = all.rsplit_once('/').unwrap();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let meta = &object["metadata"];
    format!("{group}/namespaces/{}/{kind}/{}", text(&meta["namespace"]), text(&meta["name"]))
}

fn is_over(phase: &Value) -> bool {
    matches!(phase.as_str(), Some("Succeeded" | "Failed"))
}

fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The next write on an instance, and the node of its virt-handler.
fn of_handler(guest: &Value, pods: &[Value], script: &Script) -> Option<(String, Value)> {
    let node = guest["status"]["nodeName"].as_str().filter(|it| !script.down.contains(*it))?;
    let version = guest["metadata"]["resourceVersion"].clone();
    let name = guest["metadata"]["name"].as_str().unwrap_or_default();
    let writes = |node: &str, status: Value| {
        let patch = json!({ "metadata": { "resourceVersion": version.clone() }, "status": status });
        Some((node.to_owned(), patch))
    };
    let own = |pod: &&Value| {
        pod["metadata"]["labels"]["kubevirt.io/created-by"] == guest["metadata"]["uid"]
            && pod["spec"]["nodeName"] == node
    };
    let launcher = pods.iter().find(own);
    match guest["status"]["phase"].as_str() {
        Some("Scheduled") => {
            let mut conditions = guest["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let fixed = script.fixed.contains(name);
            let status = if fixed { "False" } else { "True" };
            let mut migratable = json!({ "type": "LiveMigratable", "status": status });
            // virt-controller compares the list in Go's form before it changes it.
            migratable["lastProbeTime"] = now().into();
            migratable["lastTransitionTime"] = now().into();
            if fixed {
                migratable["reason"] = "DisksNotLiveMigratable".into();
                migratable["message"] = "cannot migrate VMI with non-shared HostDisk".into();
            }
            conditions.push(migratable);
            let method = "LiveMigration";
            writes(
                node,
                json!({ "phase": "Running", "selinuxContext": "none", "migrationMethod": method, "conditions": conditions }),
            )
        }
        Some("Running") => {
            let ends = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
            if ends(guest) || launcher.is_some_and(ends) {
                return writes(node, json!({ "phase": "Succeeded" }));
            }
            let state = &guest["status"]["migrationState"];
            let target = state["targetNode"].as_str().filter(|_| state["completed"] != true)?;
            if state["targetNodeAddress"].is_null() {
                let ports = json!({ "49152": 49152 });
                let ready =
                    json!({ "targetNodeAddress": "10.0.0.1", "targetDirectMigrationNodePorts": ports });
                return writes(target, json!({ "migrationState": ready }));
            }
            if state["startTimestamp"].is_null() {
                return writes(node, json!({ "migrationState": { "startTimestamp": now() } }));
            }
            if state["abortRequested"] == true {
                let aborted = json!({
                    "completed": true, "failed": true, "endTimestamp": now(), "abortStatus": "Succeeded",
                    "failureReason": "Live migration aborted ",
                });
                return writes(node, json!({ "migrationState": aborted }));
            }
            if script.hang.contains(name) {
                return None;
            }
            let moved = json!({
                "completed": true, "endTimestamp": now(), "targetNodeDomainDetected": true,
                "targetNodeDomainReadyTimestamp": now(),
            });
            let status = json!({ "nodeName": target, "evacuationNodeName": null, "migrationState": moved });
            let labels = json!({ "kubevirt.io/nodeName": target });
            let patch =
                json!({ "metadata": { "resourceVersion": version, "labels": labels }, "status": status });
            Some((target.to_owned(), patch))
        }
        _ => None,
    }
}

enum OfKubelet {
    Nothing,
    Status(Value),
    Gone,
}

fn of_kubelet(pod: &Value, guest: Option<&Value>) -> OfKubelet {
    let ends = !pod["metadata"]["deletionTimestamp"].is_null();
    let phase = &pod["status"]["phase"];
    let here = &pod["spec"]["nodeName"];
    let is_target =
        guest.is_some_and(|it| &it["status"]["nodeName"] != here && !it["status"]["nodeName"].is_null());
    let has_left = guest.is_some_and(|it| {
        let state = &it["status"]["migrationState"];
        state["completed"] == true && state["failed"] != true && &state["sourceNode"] == here && is_target
    });
    // Its migration has failed: it is empty.
    let is_lost = guest.is_some_and(|it| {
        let state = &it["status"]["migrationState"];
        is_target && state["failed"] == true && state["targetPod"] == pod["metadata"]["name"]
    });
    let over = has_left || is_lost || guest.is_none_or(|it| is_over(&it["status"]["phase"]));
    if ends && (over || is_over(phase) || is_target) {
        return OfKubelet::Gone;
    }
    if over && !is_over(phase) {
        return OfKubelet::Status(json!({ "phase": "Succeeded" }));
    }
    if ends || over || phase == "Running" {
        return OfKubelet::Nothing;
    }
    let running = |it: &Value| {
        let state = json!({ "running": { "startedAt": now() } });
        json!({ "name": it["name"], "image": it["image"], "imageID": "", "ready": true, "restartCount": 0, "state": state })
    };
    let containers: Vec<Value> = pod["spec"]["containers"].as_array().unwrap().iter().map(running).collect();
    OfKubelet::Status(json!({
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": containers,
        "podIP": "10.0.0.2", "podIPs": [{ "ip": "10.0.0.2" }],
    }))
}
