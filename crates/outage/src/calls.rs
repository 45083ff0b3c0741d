//! The calls of a turn: the Lease, and the nodes with the signs of life of their kubelets.
//!
//! Not here: when, and what an answer means (`turn`). Every call has a deadline; dropping one leaves open whether it
//! was carried out.

use std::time::Duration;

use futures::stream::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Resource;
use kube::api::{GetParams, Patch};
use kubeapi::lease::{self, CALL_LIMIT};
use kubeapi::names::{APP_NAMESPACE, ETCD, NodeName, OWNER_ANNOTATION, TIE_BREAKER_LABEL, is_server};
use kubeapi::nodes::{self, CordonAnnotation, MachineIds, OUT_OF_SERVICE, signed};
use kubeapi::objects::{is_ready, items, text};
use kubeapi::reply::Reach;
use kubeapi::slim::Known;
use kubeapi::watch::{Manner, ObjectMirror, WatchScope, follow_from, jitter_seed};
use kubeapi::{ApiClient, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use step::{Inserted as _, Mono};
use tokio::sync::watch;

use crate::margin::facts::ServerNode;
use crate::turn::event::{ReadError, RecordWritten};
use crate::turn::pulses::Pulse;
pub use crate::turn::pulses::Pulses;
use crate::turn::record::{LEASE, RecordSnapshot, RecordWrite, TurnRecord};
use crate::turn::rule::{CordonMark, IGNORE_ANNOTATION, TurnNode};

/// How long one watch of the Lease is kept open: waiting costs one request in so long.
const SLOT: Duration = Duration::from_secs(600);
/// The namespace of the kubelets' leases.
const KUBELETS: &str = "kube-node-lease";

fn silent(error: &Error) -> ReadError {
    let why = error.advice();
    match error.reach() {
        Reach::Unreachable => ReadError::NoAnswer(why),
        Reach::Reachable | Reach::Throttled => ReadError::Refused(why),
    }
}

pub(crate) fn held(lease: Lease) -> Result<Box<RecordSnapshot>, ReadError> {
    let meta = lease.metadata;
    let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
    let record =
        TurnRecord::parse(meta.annotations.unwrap_or_default(), transitions).map_err(ReadError::BadRecord)?;
    Ok(Box::new(RecordSnapshot {
        record,
        uid: meta.uid.unwrap_or_default(),
        resource_version: meta.resource_version.unwrap_or_default(),
    }))
}

/// The Lease as it is now, from the store; `None` when there is none.
/// Errors: [`ReadError`]: no answer, or an unusable record.
pub async fn read(cluster: &ApiClient) -> LeaseRead {
    match lease::read(cluster, LEASE).await {
        Ok(lease) => lease.map(held).transpose(),
        Err(error) => Err(silent(&error)),
    }
}

/// Writes `order`; `wall` is what our wall clock shows, for people.
pub async fn write(cluster: &ApiClient, order: RecordWrite, wall: Timestamp) -> RecordWritten {
    let lease = match object(order, wall) {
        Ok(lease) => lease,
        Err(error) => {
            return RecordWritten::Unknown(format!("no JSON for lease {APP_NAMESPACE}/{LEASE}: {error}"));
        }
    };
    let verb = if lease.metadata.resource_version.is_none() { "create" } else { "write" };
    lease::write(cluster, LEASE, verb, &lease).await.read(|lease| held(lease).map_err(|why| why.to_string()))
}

fn object(order: RecordWrite, wall: Timestamp) -> Result<Lease, serde_json::Error> {
    let RecordWrite { on, mut record } = order;
    record.stamp(&wall.to_string());
    let (uid, resource_version) = on.unzip();
    Ok(Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(APP_NAMESPACE.to_owned()),
            uid,
            resource_version,
            annotations: Some(record.annotations()?),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(record.holder_identity()),
            lease_transitions: Some(record.transitions()),
            renew_time: Some(MicroTime(wall)),
            ..LeaseSpec::default()
        }),
    })
}

/// The Lease as the store has it, `None` where there is none; or why it cannot be used.
pub type LeaseRead = Result<Option<Box<RecordSnapshot>>, ReadError>;

/// The Lease as one watch of this process has seen it last, once it has. Each reader takes a clone of one
/// receiver that nobody reads: so it hears the newest first, also what came before it.
pub type Newest = watch::Receiver<Option<LeaseRead>>;

/// The record in what was seen, where there is a usable one.
pub fn record(seen: Option<&LeaseRead>) -> Option<&TurnRecord> {
    Some(&seen?.as_ref().ok()?.as_ref()?.record)
}

/// Watches the Lease for all readers of `newest`, until it is dropped.
pub async fn follow(cluster: &ApiClient, newest: &watch::Sender<Option<LeaseRead>>) {
    let changes = changes(cluster, jitter_seed());
    changes.for_each(|held| async move { drop(newest.send_replace(Some(held))) }).await;
}

/// Each change of the Lease, `None` for a deleted one. What cannot be used as a record is a change too: readers then ask
/// for the Lease itself.
fn changes(cluster: &ApiClient, seed: u64) -> impl Stream<Item = LeaseRead> + Send + use<> {
    let all = Lease::url_path(&(), Some(APP_NAMESPACE));
    let scope = WatchScope::one(format!("lease {APP_NAMESPACE}/{LEASE}"), all, LEASE);
    let manner = Manner { slot: SLOT, ..Manner::default() };
    follow_from::<Lease>(cluster.clone(), scope, manner, seed).filter_map(|heard| {
        std::future::ready(heard.one(|_| true).ok().map(|lease| lease.map(held).transpose()))
    })
}

/// Label of a node that is never declared dead.
const NO_FAILOVER_LABEL: &str = "pillar-rs/no-failover";

/// A node, with what a write has to name.
#[derive(Debug, Clone)]
pub struct NodeItem {
    pub seen: TurnNode,
    /// What [`IGNORE_ANNOTATION`] says.
    pub away: Option<String>,
    /// Another one after every write by anybody.
    pub(crate) version: String,
    /// `spec.taints`.
    pub(crate) taints: Vec<Value>,
    is_excluded: bool,
    server: ServerNode,
    /// The machine that has reported it.
    machine: MachineIds,
}

impl<'de> Deserialize<'de> for NodeItem {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(from)?;
        let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let has = |label: &str| !meta["labels"][label].is_null();
        let note = |name: &str| meta["annotations"][name].as_str();
        Ok(Self {
            seen: TurnNode {
                name: text(&meta["name"]),
                uid: text(&meta["uid"]),
                boot_id: text(&status["nodeInfo"]["bootID"]),
                ready: is_ready(&object),
                unschedulable: spec["unschedulable"] == true,
                tie_breaker: meta["labels"][TIE_BREAKER_LABEL] == "true",
                server: is_server(has),
                etcd: has(ETCD),
                pulse: Pulse::Unknown,
                being_deleted: !meta["deletionTimestamp"].is_null(),
                out_of_service: items(&spec["taints"])
                    .iter()
                    .find(|it| it["key"] == OUT_OF_SERVICE)
                    .map(|it| text(&it["value"])),
                ignored: note(IGNORE_ANNOTATION).is_some(),
                idle: false,
                mark: note(OWNER_ANNOTATION).and_then(CordonAnnotation::parse).and_then(CordonMark::of),
            },
            away: note(IGNORE_ANNOTATION).map(str::to_owned),
            version: text(&meta["resourceVersion"]),
            taints: items(&spec["taints"]).to_vec(),
            is_excluded: meta["labels"][NO_FAILOVER_LABEL] == "true",
            server: ServerNode::read(&object, true, Duration::ZERO),
            machine: MachineIds {
                boot: text(&status["nodeInfo"]["bootID"]),
                machine: text(&status["nodeInfo"]["machineID"]),
                system: text(&status["nodeInfo"]["systemUUID"]),
            },
        })
    }
}

/// All nodes of one moment, and how they look to etcd.
#[derive(Debug, Clone, Default)]
pub struct NodeListing {
    /// For the rule of turns.
    pub nodes: Vec<TurnNode>,
    pub servers: Vec<ServerNode>,
    /// Those with the label that says never to declare them dead.
    pub excluded: Vec<String>,
}

fn nodes_scope() -> WatchScope {
    WatchScope::all("nodes", Node::url_path(&(), None))
}

/// All nodes of one moment for a reader that stays for no time: whether a kubelet lives takes longer to see, so each counts
/// as if it did. With each node what [`IGNORE_ANNOTATION`] says.
pub async fn glance(cluster: &ApiClient) -> Result<Vec<(TurnNode, Option<String>)>, ReadError> {
    let nodes = nodes_scope().list_all::<NodeItem>(cluster).await.map_err(|it| silent(&it))?;
    let seen = |it: NodeItem| (TurnNode { pulse: Pulse::Moving, ..it.seen }, it.away);
    Ok(nodes.items.into_iter().map(seen).collect())
}

/// The same as they look to etcd.
pub async fn servers(cluster: &ApiClient) -> Result<Vec<ServerNode>, ReadError> {
    let nodes = nodes_scope().list_all::<NodeItem>(cluster).await.map_err(|it| silent(&it))?;
    Ok(nodes.items.into_iter().map(|it| it.server).collect())
}

/// One node, from the store.
pub async fn named(cluster: &ApiClient, name: &NodeName) -> Result<NodeItem, ReadError> {
    let read = nodes::api().get(name.as_str(), &GetParams::default());
    cluster.ask_within(CALL_LIMIT, &format!("read node {name}"), read).await.map_err(|it| silent(&it))
}

/// Sets [`IGNORE_ANNOTATION`] of the node as it was read, or removes it. Returns whether the node still was that one.
pub async fn mark(cluster: &ApiClient, node: &NodeItem, text: Option<&str>) -> Result<bool, ReadError> {
    let name = &node.seen.name;
    let patch = Patch::Merge(json!({ "metadata": {
        "resourceVersion": node.version, "annotations": { IGNORE_ANNOTATION: text },
    } }));
    let what = format!("mark node {name}");
    match cluster.ask_within::<NodeItem>(CALL_LIMIT, &what, nodes::api().patch(name, &signed(), &patch)).await
    {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(silent(&error)),
    }
}

fn kubelets() -> WatchScope {
    WatchScope::all("leases of kubelets", Lease::url_path(&(), Some(KUBELETS)))
}

/// Name of a node and version of its kubelet's lease.
fn version(lease: Known) -> (String, String) {
    (lease.metadata.name.unwrap_or_default(), lease.metadata.resource_version.unwrap_or_default())
}

/// By node the version of its kubelet's lease, by one watch.
pub type Renewals = ObjectMirror<Known, String, String>;

/// Dropping it closes the watch.
pub fn renewals(cluster: &ApiClient) -> Renewals {
    let manner = Manner { slot: SLOT, ..Manner::default() };
    ObjectMirror::open(cluster, kubelets(), manner, jitter_seed(), |it| {
        let (node, version) = version(it);
        (node, Some(version))
    })
}

/// Reads the nodes from the store, and after them the leases of their kubelets.
/// Errors: no answer, or `own` was last reported by another machine than this one.
pub async fn look(
    cluster: &ApiClient,
    own: &NodeName,
    pulses: &mut Pulses,
    now: Mono,
) -> Result<NodeListing, ReadError> {
    let (all, renewed) = (nodes_scope(), kubelets());
    let (all, renewed) =
        futures::try_join!(all.list_all::<NodeItem>(cluster), renewed.list_all::<Known>(cluster))
            .map_err(|it| silent(&it))?;
    if let Some(it) = all.items.iter().find(|it| it.seen.name == own.as_str()) {
        nodes::check_machine(&it.seen.name, &it.machine, cluster.machine()).map_err(|it| silent(&it))?;
    }
    let mut leases = renewed.items.into_iter().map(version).into_lite();
    let lease = |it: &NodeItem| (it.seen.name.clone(), leases.remove(&it.seen.name).unwrap_or_default());
    pulses.take(now, all.items.iter().map(lease));
    let mut looked = NodeListing::default();
    for NodeItem { mut seen, mut server, is_excluded, .. } in all.items {
        looked.excluded.extend(is_excluded.then(|| seen.name.clone()));
        seen.pulse = pulses.of(now, &seen.name);
        server.lease_moving = seen.pulse != Pulse::Still;
        looked.nodes.push(seen);
        looked.servers.push(server);
    }
    Ok(looked)
}

/// Our own node by its name: its UID.
/// Errors: those of [`ApiClient`], [`Error::WrongNode`] when it is another device's, [`Error::OtherMachine`] when another machine has
/// reported it.
pub async fn own(cluster: &ApiClient, name: &NodeName, device_uuid: &str) -> Result<OwnNodeFacts, Error> {
    let node = nodes::own(cluster, name, device_uuid).await?;
    let labels = node.metadata.labels.unwrap_or_default();
    Ok(OwnNodeFacts {
        uid: node.metadata.uid.unwrap_or_default(),
        server: is_server(|it| labels.contains_key(it)),
        tie_breaker: labels.get(TIE_BREAKER_LABEL).is_some_and(|it| it == "true"),
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNodeFacts {
    pub uid: String,
    /// It is a control-plane node or an etcd member.
    pub server: bool,
    /// It carries no workloads.
    pub tie_breaker: bool,
}
