//! EvictionRequests of Kubernetes 1.37 (`lifecycle.k8s.io/v1alpha1`), with one scripted responder for all pods: only in a
//! cluster with [`Sim::add_eviction_requests`]; else the group is not served, as with its gate off.
//!
//! One Eviction for each pod that is asked for. The responder with the highest priority becomes active; at the end of its
//! time it deletes the pod, or the request fails. Not here: heartbeats that stay away, the default responder. Source:
//! kubernetes v1.37 `staging/src/k8s.io/api/lifecycle/v1alpha1/types.go`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Sim;
use crate::store::{Changed, ObjectStore, all, name, namespace, stamp, uid};
use crate::timers::Tick;

const VERSION: &str = "lifecycle.k8s.io/v1alpha1";
const REQUESTS: &str = "lifecycle/evictionrequests";
pub(crate) const EVICTIONS: &str = "lifecycle/evictions";
/// What the responder does; while it is there the group is served.
const SCRIPTS: &str = "lifecycle/scripts";

impl Sim {
    /// Serves EvictionRequests. Responders delete their pod `after` they became active, and never without it; with `fails`
    /// each request fails at once, for this reason.
    pub fn add_eviction_requests(&self, after: Option<Duration>, fails: &str) {
        let after = after.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let script = json!({
            "apiVersion": VERSION, "kind": "Script", "metadata": { "name": "script" }, "after": after, "fails": fails,
        });
        self.apply(SCRIPTS, script);
    }

    /// As after an upgrade that has dropped the group: its objects stay, and cannot be reached.
    pub fn drop_eviction_requests(&self) {
        self.remove(SCRIPTS, "", "script");
    }
}

pub(crate) fn is_served(store: &ObjectStore, api_version: &str) -> bool {
    api_version != VERSION || store.get(SCRIPTS, "", "script").is_some()
}

pub(crate) fn concerns(change: &Changed) -> bool {
    matches!(change.resource.as_str(), "pods" | REQUESTS)
}

pub(crate) fn round(store: &mut ObjectStore, tick: &mut Tick<'_>) {
    let Some(script) = store.get(SCRIPTS, "", "script").cloned() else { return };
    for request in all(store, REQUESTS) {
        let target = &request["spec"]["target"]["pod"];
        let (place, pod_name) = (namespace(&request), target["name"].as_str().unwrap_or_default());
        let pod = store.get("pods", &place, pod_name).filter(|it| it["metadata"]["uid"] == target["uid"]);
        let wanted = request["spec"]["intent"] == "Eviction";
        let fails = script["fails"].as_str().unwrap_or_default();
        let ends = match pod {
            None => Some(("Succeeded", Some("PodDeleted"))),
            Some(_) if !wanted => Some(("CanceledDueToNoRequesters", None)),
            Some(_) if !fails.is_empty() => Some((fails, None)),
            Some(_) => None,
        };
        let conditions = match ends {
            None => {
                vec![
                    condition("Failed", false, "AwaitingEviction"),
                    condition("TargetEvicted", false, "AwaitingEviction"),
                ]
            }
            Some((reason, None)) => {
                vec![condition("Failed", true, reason), condition("TargetEvicted", false, "EvictionFailed")]
            }
            Some((reason, Some(gone))) => {
                vec![condition("Failed", false, reason), condition("TargetEvicted", true, gone)]
            }
        };
        if request["status"]["conditions"] != json!(conditions) {
            store.edit(REQUESTS, &place, &name(&request), |it| {
                it["status"] = json!({ "conditions": conditions });
            });
        }
    }
    serve(store, tick, script["after"].as_u64().map(Duration::from_millis), script["fails"] == "");
}

/// Keeps an Eviction for each pod that is asked for, and ends those that have no request any more.
fn serve(store: &mut ObjectStore, tick: &mut Tick<'_>, after: Option<Duration>, serves: bool) {
    let requests = all(store, REQUESTS);
    for request in requests.iter().filter(|it| serves && it["spec"]["intent"] == "Eviction") {
        let target = &request["spec"]["target"]["pod"];
        let (place, eviction) = (namespace(request), target["uid"].as_str().unwrap_or_default());
        let pod = store.get("pods", &place, target["name"].as_str().unwrap_or_default()).cloned();
        let Some(pod) = pod.filter(|it| uid(it) == eviction) else { continue };
        let active = store.get(EVICTIONS, &place, eviction).is_some_and(|it| !state(it, "Active").is_null());
        if !active {
            store.put(EVICTIONS, new(request, &pod, eviction));
        }
        let key = (EVICTIONS.to_owned(), place.clone(), eviction.to_owned());
        if pod["metadata"]["deletionTimestamp"].is_null()
            && after.is_some_and(|after| tick.is_time(&key, "respond", after))
        {
            store.retire("pods", &place, &name(&pod), None);
        }
    }
    for eviction in all(store, EVICTIONS) {
        let asks = |it: &Value| {
            it["spec"]["intent"] == "Eviction" && it["spec"]["target"] == eviction["spec"]["target"]
        };
        if !requests.iter().any(|it| asks(it)) && !state(&eviction, "Active").is_null() {
            store.edit(EVICTIONS, &namespace(&eviction), &name(&eviction), |it| {
                it["status"]["targetResponders"][0]["state"] = "Canceled".into();
                it["status"]["requesters"][0]["intent"] = "Withdrawn".into();
            });
        }
    }
}

fn state<'a>(eviction: &'a Value, state: &str) -> &'a Value {
    let all = eviction["status"]["targetResponders"].as_array().into_iter().flatten();
    all.into_iter().find(|it| it["state"] == state).unwrap_or(&Value::Null)
}

fn new(request: &Value, pod: &Value, name: &str) -> Value {
    let mut declared = pod["spec"]["evictionResponders"].as_array().cloned().unwrap_or_default();
    declared.sort_by_key(|it| std::cmp::Reverse(it["priority"].as_i64()));
    declared.push(json!({ "name": "imperative-eviction.k8s.io/evictor", "priority": 100 }));
    let requester = request["spec"]["requester"].as_str().unwrap_or_default();
    let mut labels = json!({ requester: "requester" });
    let (mut states, mut said) = (Vec::new(), Vec::new());
    for (number, it) in declared.iter().enumerate() {
        let state = if number == 0 { "Active" } else { "Inactive" };
        let responder = it["name"].as_str().unwrap_or_default();
        labels[responder] = "responder".into();
        states.push(json!({ "name": responder, "priority": it["priority"], "state": state }));
        said.push(json!({ "name": responder }));
    }
    said[0]["startTime"] = stamp(0).into();
    said[0]["heartbeatTime"] = stamp(0).into();
    said[0]["expectedCompletionTime"] = stamp(60).into();
    said[0]["message"] = "copying\n40 %".into();
    json!({
        "apiVersion": VERSION, "kind": "Eviction",
        "metadata": { "name": name, "namespace": namespace(request), "labels": labels },
        "spec": { "target": request["spec"]["target"] },
        "status": {
            "requesters": [{ "name": requester, "intent": "Eviction" }], "targetResponders": states, "responders": said,
        },
    })
}

fn condition(kind: &str, is: bool, reason: &str) -> Value {
    json!({ "type": kind, "status": if is { "True" } else { "False" }, "reason": reason, "message": "" })
}
