//! What a Node shows of its drain: one condition, one annotation, and Events.
//!
//! The condition and the annotation go to `nodes/status` by a strategic merge patch, as the kubelet's own
//! writes do: the conditions of others stay. Events are core/v1 ones of the namespace `default`, as the
//! kubelet's are: that is where `kubectl describe node` looks, and there repeated Events are counted. Not
//! here: their content, and how often.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use kube::api::{Patch, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use super::{FIELD_MANAGER, api, own, signed};
use crate::client::{ApiClient, BuiltRequest};
use crate::error::Error;
use crate::names::NodeName;
use crate::slim::NodeObject;

/// Type of our condition: `True` for a node that is proved empty.
pub const CONDITION: &str = "pillar-rs/Drained";
/// Holds the state in one sentence.
pub const STATE_ANNOTATION: &str = "pillar-rs/drain-state";
const NAMESPACE: &str = "default";
const COMPONENT: &str = "pillar-rs";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainCondition {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word in CamelCase.
    pub reason: &'static str,
    pub message: String,
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedState {
    /// UID of the Node object.
    pub uid: String,
    /// Status and time of our condition; `None` without one.
    pub condition: Option<(String, Option<Timestamp>)>,
    /// Our annotation is there.
    pub annotated: bool,
}

pub async fn read(cluster: &ApiClient, node: &NodeName, device_uuid: &str) -> Result<ReportedState, Error> {
    Ok(found(&own(cluster, node, device_uuid).await?))
}

fn found(node: &NodeObject) -> ReportedState {
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ours = conditions.into_iter().find(|it| it.type_ == CONDITION);
    ReportedState {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        condition: ours.map(|it| (it.status.clone(), it.last_transition_time.as_ref().map(|it| it.0))),
        annotated: node.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(STATE_ANNOTATION)),
    }
}

/// Writes to the node with this UID; `since` is when its status began. `None` removes it.
///
/// Errors: those of [`ApiClient`]; a conflict where another object has taken the node's name.
pub async fn write(
    cluster: &ApiClient,
    node: &NodeName,
    uid: &str,
    shown: Option<&DrainCondition>,
    (since, now): (Timestamp, Timestamp),
) -> Result<(), Error> {
    let condition = match shown {
        Some(shown) => json!({
            "type": CONDITION, "status": shown.status, "reason": shown.reason, "message": shown.message,
            "lastTransitionTime": seconds(since), "lastHeartbeatTime": seconds(now),
        }),
        None => json!({ "type": CONDITION, "$patch": "delete" }),
    };
    let body = json!({
        "metadata": { "uid": uid, "annotations": { STATE_ANNOTATION: shown.map(|it| &it.state) } },
        "status": { "conditions": [condition] },
    });
    let patch = Patch::Strategic(body);
    let request = api().patch_subresource("status", node.as_str(), &signed(), &patch);
    cluster.order(&format!("report the drain on node {node}"), request).await
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// Its own name, which a repeated Event has too.
    pub name: String,
    pub node: NodeName,
    /// UID of the Node object.
    pub uid: String,
    /// `Warning`, else `Normal`.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// At most 1024 bytes.
    pub message: String,
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
}

/// False where one of its name exists.
pub async fn create(cluster: &ApiClient, event: &NodeEvent) -> Result<bool, Error> {
    let node = event.node.as_str();
    let body = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": event.name, "namespace": NAMESPACE },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": event.uid },
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason, "message": event.message, "count": event.count,
        "firstTimestamp": seconds(event.first), "lastTimestamp": seconds(event.last),
        "source": { "component": COMPONENT, "host": node },
        "reportingComponent": COMPONENT, "reportingInstance": node,
    });
    let how = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let made = cluster.order("create an Event", events().create(&how, bytes(&body))).await;
    match made {
        Err(error) if error.is_conflict() => Ok(false),
        made => made.map(|()| true),
    }
}

/// Counts a repetition. False where that Event is gone, as all are after a time (an hour by default).
pub async fn count(cluster: &ApiClient, event: &NodeEvent) -> Result<bool, Error> {
    let body = json!({
        "count": event.count, "lastTimestamp": seconds(event.last), "message": event.message,
    });
    let counted = cluster.order("count an Event", patch(&event.name, body)).await;
    match counted {
        Err(error) if error.is_not_found() => Ok(false),
        counted => counted.map(|()| true),
    }
}

fn patch(name: &str, body: Value) -> BuiltRequest {
    events().patch(name, &signed(), &Patch::Merge(body))
}

fn events() -> Request {
    Request::new(Event::url_path(&(), Some(NAMESPACE)))
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

/// As the API server writes times of conditions and Events.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
