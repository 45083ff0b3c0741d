//! Node objects without a watch: all of them in one call, a probe of the API, and the deletion of one.
//!
//! Not here: our own node and its cordon (`kubenodeop`). Servers are asked for `/cluster-app`.
//!
//! The annotation that marks a cordon as ours: written by a drain, read by it and by the turn rule.
//!
//! What a Node shows of its drain: one condition, one annotation, and Events. The condition and the annotation go to
//! `nodes/status` by a strategic merge patch, as the kubelet's own writes do: the conditions of others stay. Events are
//! core/v1 ones of the namespace `default`, as the kubelet's are: that is where `kubectl describe node` looks, and
//! there repeated Events are counted.

use std::time::Duration;

use core::net::IpAddr;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
pub use machine::MachineIds;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use step::{Inserted as _, LiteMap};

use crate::client::{ApiClient, BuiltRequest, PROBE_LIMIT};
use crate::error::Error;
use crate::names::{CONTROL_PLANE, ETCD, NodeName};
use crate::objects::{RawObject, condition, items, text, time};
use crate::slim::{Condition, NodeObject};

mod machine;

/// Names the device of a node.
pub const UUID_LABEL: &str = "node-uuid";
/// Our name in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "pillar-rs";

/// Next step where there is no Node object of our name.
pub const NO_NODE: &str = "the kubelet registers its Node object only when it starts: `systemctl restart k3s` (or rke2-server, \
                           rke2-agent, k3s-agent, kubelet) on this node; where the device has another name: `kubectl get nodes`";

pub fn signed() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Of the condition Ready: `True`, `False`, `Unknown`.
    pub ready: String,
    /// Last change of that.
    pub ready_since: Option<Timestamp>,
    pub created: Option<Timestamp>,
    pub kubelet: String,
    /// Its first `InternalIP`, the main one of two families.
    pub internal_ip: String,
    /// Its first `ExternalIP`.
    pub external_ip: String,
    pub unschedulable: bool,
    /// It has a role label of the control plane, the old one or the new one (D-K19).
    pub control_plane: bool,
    pub etcd: bool,
    /// The label `node-uuid`.
    pub device: String,
}

const MOST: u32 = 500;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReachableNode {
    pub name: String,
    pub facts: Node,
    /// Its addresses of type `InternalIP`, in order; invalid texts are skipped.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodePage {
    items: Vec<RawObject>,
}

/// At most 500 nodes, in the server's order. Dropping it loses nothing.
///
/// Errors: those of [`ApiClient`], also when the answer takes longer than `limit`.
pub async fn members(cluster: &ApiClient, limit: Duration) -> Result<Vec<ReachableNode>, Error> {
    let list = api().list(&ListParams::default().limit(MOST));
    let page: NodePage = cluster.ask_within(limit, "list nodes", list).await?;
    Ok(page.items.iter().map(member).collect())
}

fn member(raw: &RawObject) -> ReachableNode {
    let internal = items(&raw.status["addresses"]).iter().filter(|it| it["type"] == "InternalIP");
    ReachableNode {
        name: raw.metadata.name.clone().unwrap_or_default(),
        facts: node(raw),
        addresses: internal.filter_map(|it| it["address"].as_str()?.parse().ok()).collect(),
    }
}

pub fn node(raw: &RawObject) -> Node {
    let ready = condition(&raw.status, "Ready");
    let has = |label: &str| !raw.metadata.labels[label].is_null();
    let address = |kind: &str| {
        let first = items(&raw.status["addresses"]).iter().find(|it| it["type"] == kind);
        first.map(|it| text(&it["address"])).unwrap_or_default()
    };
    Node {
        ready: text(&ready["status"]),
        ready_since: time(&ready["lastTransitionTime"]),
        created: raw.created(),
        kubelet: text(&raw.status["nodeInfo"]["kubeletVersion"]),
        internal_ip: address("InternalIP"),
        external_ip: address("ExternalIP"),
        unschedulable: raw.spec["unschedulable"] == true,
        control_plane: CONTROL_PLANE.into_iter().any(has),
        etcd: has(ETCD),
        device: raw.label(UUID_LABEL),
    }
}

/// Asks for any one node. The error's [`Error::reach`] shows whether a server answers at all.
pub async fn probe(cluster: &ApiClient) -> Result<(), Error> {
    let one = api().list(&ListParams::default().limit(1));
    cluster.ask_within::<Value>(PROBE_LIMIT, "reach the API", one).await.map(drop)
}

/// Our own Node by its name. Without one, or without a device label, also looks for a Node with our device's
/// UUID: ours under another name.
///
/// Errors: [`Error::WrongNode`] when it has another device's UUID, [`Error::OtherMachine`] when another
/// machine reported it, [`Error::OtherName`] when our device's UUID is on another node, and all of
/// [`ApiClient`]'s.
pub async fn own(cluster: &ApiClient, name: &NodeName, device_uuid: &str) -> Result<NodeObject, Error> {
    let what = format!("read node {name}");
    let read: Result<NodeObject, Error> =
        cluster.ask(&what, api().get(name.as_str(), &GetParams::default())).await;
    let is_named = match &read {
        Ok(node) => device_of(node).is_some(),
        Err(error) => !error.is_not_found(),
    };
    if !is_named && !device_uuid.is_empty() {
        let label = format!("{UUID_LABEL}={device_uuid}");
        let labelled = api().list(&ListParams::default().labels(&label));
        let labelled: Result<NodePage, Error> = cluster.ask("find our own node", labelled).await;
        // Where this fails, the missing Node is reported.
        let items = labelled.map(|it| it.items).unwrap_or_default();
        if let Some(other) = items.first().and_then(|it| it.metadata.name.clone()) {
            return Err(Error::OtherName {
                node: other,
                name: name.to_string(),
                device: device_uuid.to_owned(),
            });
        }
    }
    let node = read?;
    check_device(&node, device_uuid, cluster.machine())?;
    Ok(node)
}

fn device_of(node: &NodeObject) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(UUID_LABEL).map(String::as_str)
}

/// Checks that `node` is neither labelled for another device nor reported by another machine.
///
/// Errors: [`Error::WrongNode`] and [`Error::OtherMachine`].
pub fn check_device(node: &NodeObject, device_uuid: &str, here: &MachineIds) -> Result<(), Error> {
    let name = || node.metadata.name.clone().unwrap_or_default();
    match device_of(node) {
        Some(label) if !label.eq_ignore_ascii_case(device_uuid) => {
            Err(Error::WrongNode { node: name(), label: label.to_owned(), device: device_uuid.to_owned() })
        }
        Some(_) | None => check_machine(&name(), &MachineIds::reported(node), here),
    }
}

/// Checks that the kubelet of `node`, which reported `there`, may be on the machine `here`.
///
/// Errors: [`Error::OtherMachine`].
pub fn check_machine(node: &str, there: &MachineIds, here: &MachineIds) -> Result<(), Error> {
    if !here.differs(there) {
        return Ok(());
    }
    Err(Error::OtherMachine { node: node.to_owned(), there: there.to_string(), here: here.to_string() })
}

/// Only with this UID.
pub async fn delete(cluster: &ApiClient, name: &NodeName, uid: Option<String>) -> Result<(), Error> {
    let how = DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    };
    let request = api().delete(name.as_str(), &how);
    cluster.order(&format!("delete node {name}"), request).await
}

pub fn api() -> Request {
    Request::new(NodeObject::url_path(None))
}

/// Taint of a node that somebody vouches to be off: Kubernetes takes pods and volumes off it (GA in 1.28). Source: the page
/// "Node Shutdowns".
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Annotation of a Node with that taint of ours: the boot that was declared dead.
pub const DEAD_BOOT_ANNOTATION: &str = "pillar-rs/dead-boot";
/// Who wants the cordon of a node that comes back after that; requesters have lower numbers.
const FAILOVER: u8 = 9;
/// What the value of our taint begins with, and ends with where a person has to lift the cordon of its way back.
pub const FAILOVER_MARK: &str = "pillar-rs-";
pub const FAILOVER_STAYS: &str = "-stays";

/// Whether a taint of this key and value is ours.
pub fn is_of_failover(key: &str, value: &str) -> bool {
    key == OUT_OF_SERVICE && value.starts_with(FAILOVER_MARK)
}

/// The owner of our cordon; the annotation is this as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CordonAnnotation {
    pub boot_id: String,
    pub requested_by: u8,
    /// When it was requested, RFC 3339.
    pub requested_at: String,
    /// Number of its turn; 0 where nodes take no turns.
    #[serde(default, skip_serializing_if = "is_none")]
    pub fence: u32,
    /// UID of that turn's Lease; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lease_uid: String,
    /// The whole-site operation; empty for a request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
}

impl CordonAnnotation {
    /// That of a node which comes back after its boot `dead` was declared dead, by the entry of `mark`.
    #[must_use]
    pub fn of_failover(dead: &str, mark: &str) -> Self {
        Self {
            boot_id: dead.to_owned(),
            requested_by: FAILOVER,
            requested_at: mark.to_owned(),
            ..Self::default()
        }
    }

    /// `None` for a text that is not ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    #[must_use]
    pub fn purpose(&self) -> &'static str {
        match self.requested_by {
            _ if !self.site.is_empty() => "an operation on the whole site",
            2 => "a reboot or shutdown",
            3 => "an OS update",
            4 => "the work of a person",
            5 => "an update of k3s",
            6 => "a NodeMaintenance",
            FAILOVER => "its way back after it was declared dead",
            _ => "a requester that this version does not know",
        }
    }

    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(fence: &u32) -> bool {
    *fence == 0
}

/// Type of our condition: `True` for a node that is proved empty.
pub const CONDITION: &str = "pillar-rs/Drained";
/// Kubernetes' own conditions of a node that goes out of service, from 1.37 on. Source: KEP-5683.
pub const LIFECYCLE: [&str; 4] =
    ["DrainInProgress", "Drained", "MaintenancePlanned", "MaintenanceInProgress"];
step::named! {
    /// Why we say so of them.
    pub enum LifecycleReason {
        Unknown = "Unknown",
        NotRequested = "NotRequested",
        /// A person or a controller wants it, and nothing keeps it waiting.
        Requested = "AdminRequested",
        Window = "MaintenanceWindow",
        Turn = "WaitingForTurn",
        Blocked = "DrainBlocked",
        Completed = "DrainCompleted",
        NotProved = "NotProved",
        Shutdown = "NodeShutdown",
        AfterBoot = "AfterBoot",
    }
}

/// Whether a condition with this reason may be another's, as that of `kubectl drain`.
pub fn is_foreign_lifecycle(reason: &str) -> bool {
    LifecycleReason::ALL.iter().all(|it| it.text() != reason)
}

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
    /// The status of each of [`LIFECYCLE`], and why.
    pub lifecycle: ([&'static str; 4], LifecycleReason),
}

impl DrainCondition {
    /// Type, status and reason of all conditions, ours first.
    fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let (statuses, reason) = self.lifecycle;
        let lifecycle = LIFECYCLE.into_iter().zip(statuses);
        std::iter::once((CONDITION, self.status, self.reason))
            .chain(lifecycle.map(move |(kind, status)| (kind, status, reason.text())))
    }

    /// Whether `before` says the same, but for words.
    pub fn is_same_state(&self, before: &Self) -> bool {
        self.all().eq(before.all())
    }
}

/// A condition as it was found or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCondition {
    status: String,
    reason: String,
    since: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportedState {
    /// UID of the Node object.
    pub uid: String,
    /// By type: our condition and those of [`LIFECYCLE`], by whomever.
    pub conditions: LiteMap<String, FoundCondition>,
    /// Our annotation is there.
    pub annotated: bool,
}

pub async fn read(cluster: &ApiClient, node: &NodeName, device_uuid: &str) -> Result<ReportedState, Error> {
    Ok(found(&own(cluster, node, device_uuid).await?))
}

fn found(node: &NodeObject) -> ReportedState {
    let conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let known = conditions.filter(|it| it.type_ == CONDITION || LIFECYCLE.contains(&it.type_.as_str()));
    let found = |it: &Condition| FoundCondition {
        status: it.status.clone(),
        reason: it.reason.clone().unwrap_or_default(),
        since: it.last_transition_time.as_ref().map(|it| it.0),
    };
    ReportedState {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        conditions: known.map(|it| (it.type_.clone(), found(it))).into_lite(),
        annotated: node.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(STATE_ANNOTATION)),
    }
}

/// Writes to the node that was `found`, and notes it there; `before` is what was written last. `None` removes what is ours. One of
/// [`LIFECYCLE`] that another has set stays while nothing of ours changes.
///
/// Errors: those of [`ApiClient`]; a conflict where another object has taken the node's name.
pub async fn write(
    cluster: &ApiClient,
    node: &NodeName,
    found: &mut ReportedState,
    (before, shown): (Option<&DrainCondition>, Option<&DrainCondition>),
    now: Timestamp,
) -> Result<(), Error> {
    let is_others = |kind: &str, it: &FoundCondition| kind != CONDITION && is_foreign_lifecycle(&it.reason);
    let mut kept = found.conditions.clone();
    let mut conditions = Vec::new();
    if shown.is_none() {
        kept.retain(|kind, it| is_others(kind, it));
        let ours = found.conditions.keys().filter(|it| !kept.contains_key(*it));
        conditions.extend(ours.map(|kind| json!({ "type": kind, "$patch": "delete" })));
    }
    for (kind, status, reason) in shown.into_iter().flat_map(DrainCondition::all) {
        let old = found.conditions.get(kind);
        let is_news = before.map_or(status == "True", |it| it.all().all(|it| it != (kind, status, reason)));
        if old.is_some_and(|it| is_others(kind, it)) && !is_news {
            continue;
        }
        let since = old.filter(|it| it.status == status).and_then(|it| it.since).unwrap_or(now);
        conditions.push(json!({
            "type": kind, "status": status, "reason": reason, "message": shown.map(|it| &it.message),
            "lastTransitionTime": seconds(since), "lastHeartbeatTime": seconds(now),
        }));
        let (status, reason) = (status.to_owned(), reason.to_owned());
        kept.insert(kind.to_owned(), FoundCondition { status, reason, since: Some(since) });
    }
    let body = json!({
        "metadata": { "uid": found.uid, "annotations": { STATE_ANNOTATION: shown.map(|it| &it.state) } },
        "status": { "conditions": conditions },
    });
    let patch = Patch::Strategic(body);
    let request = api().patch_subresource("status", node.as_str(), &signed(), &patch);
    cluster.order(&format!("report the drain on node {node}"), request).await?;
    found.conditions = kept;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn internal_addresses_of_both_families_are_kept_and_nonsense_is_left_out() {
        let raw: RawObject = serde_json::from_value(json!({
            "metadata": { "name": "n2", "labels": { "node-role.kubernetes.io/etcd": "true" } },
            "spec": { "unschedulable": true },
            "status": { "addresses": [
                { "type": "Hostname", "address": "n2" },
                { "type": "InternalIP", "address": "10.244.244.2" },
                { "type": "ExternalIP", "address": "192.0.2.7" },
                { "type": "InternalIP", "address": "evil/../" },
                { "type": "InternalIP", "address": "fd00::2" },
                { "type": "InternalIP" },
            ] },
        }))
        .unwrap();
        let seen = member(&raw);
        let addresses: Vec<String> = seen.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.244.244.2", "fd00::2"]);
        assert_eq!((seen.name.as_str(), seen.facts.etcd, seen.facts.unschedulable), ("n2", true, true));
    }

    fn read(object: Value) -> Node {
        node(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn d_k19_either_role_label_makes_a_master_and_only_its_own_label_an_etcd_member() {
        for (label, control_plane, etcd) in [
            ("node-role.kubernetes.io/master", true, false),
            ("node-role.kubernetes.io/control-plane", true, false),
            ("node-role.kubernetes.io/etcd", false, true),
            ("node-role.kubernetes.io/worker", false, false),
        ] {
            // Kubernetes sets them with an empty value, k3s with "true".
            for value in ["", "true"] {
                let seen = read(json!({ "metadata": { "labels": { label: value } } }));
                assert_eq!((seen.control_plane, seen.etcd), (control_plane, etcd), "{label}={value:?}");
            }
        }
    }

    #[test]
    fn the_first_address_of_each_type_counts_and_odd_members_count_as_left_out() {
        let object = json!({
            "metadata": { "name": "n1", "labels": null, "creationTimestamp": 7 },
            "spec": { "unschedulable": "yes" },
            "status": {
                "addresses": [
                    { "type": "Hostname", "address": "n1" },
                    { "type": "InternalIP", "address": "10.244.244.2" },
                    { "type": "InternalIP", "address": "fd00::2" },
                ],
                "conditions": null,
                "nodeInfo": [],
            },
        });
        let seen = read(object);
        assert_eq!(seen, Node { internal_ip: "10.244.244.2".to_owned(), ..Node::default() });
    }
}
