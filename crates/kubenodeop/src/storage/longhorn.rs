//! The storage adapter for Longhorn: a constant number of lists for a look, a constant number of watches to follow it.
//!
//! Without Longhorn, or any copy, one list finds that out; without a copy and an instance manager on our node two are all.
//! Not here: what is found (`guard`). Source: spec/vm-storage.md B1.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, FutureExt, try_join};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use kubeapi::names::NodeName;
use kubeapi::slim::NodeObject;
use kubeapi::slim::longhorn::{
    Attachment, Engine, Manager, Replica, Setting, StorageNode, Volume, condition, scope,
};
use kubeapi::slim::{Condition, Meta};
use kubeapi::watch::{Update, WatchScope, follow};
use kubeapi::{ApiClient, Error, found};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::follow::follow_read;
use super::{NodeDrainPolicy, NodeReadiness, StorageFacts, StorageView};

/// The setting that says what a cordon means to Longhorn.
const POLICY: &str = "node-drain-policy";

/// A node of which only this much is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlainNode {
    metadata: Meta,
    spec: PlainSpec,
    status: PlainStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlainSpec {
    unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlainStatus {
    conditions: Vec<Condition>,
}

impl PlainNode {
    fn state(&self) -> NodeReadiness {
        let ready = condition(&self.status.conditions, "Ready").is_some_and(|it| it.status == "True");
        NodeReadiness { ready, cordoned: self.spec.unschedulable }
    }
}

fn nodes() -> WatchScope {
    WatchScope::all("nodes", NodeObject::url_path(None))
}

fn name(meta: &Meta) -> String {
    meta.name.clone().unwrap_or_default()
}

/// What is known of the copies on `node`; `None` without Longhorn.
/// Errors: those of [`ApiClient`]: then nothing is proved.
pub async fn look(cluster: &ApiClient, node: &NodeName) -> Result<Option<StorageView>, Error> {
    let facts = read(cluster, node).await?;
    Ok(facts.map(|facts| StorageView::of(&facts, node.as_str())))
}

/// A volume whose last healthy copy is on `node`, by name.
pub async fn last_of_volume(cluster: &ApiClient, node: &NodeName) -> Result<Option<String>, Error> {
    let found = look(cluster, node).await?;
    Ok(found.and_then(|it| it.last().map(|it| it.volume.clone())))
}

/// How many copies are on `node`.
pub(crate) async fn count(cluster: &ApiClient, node: &NodeName) -> Result<usize, Error> {
    let all = replicas(cluster).await?.unwrap_or_default();
    Ok(all.iter().filter(|it| it.spec.node == node.as_str()).count())
}

/// `None` without Longhorn.
async fn replicas(cluster: &ApiClient) -> Result<Option<Vec<Replica>>, Error> {
    Ok(found(scope("replicas").list_all::<Replica>(cluster).await)?.map(|it| it.items))
}

fn all<K: DeserializeOwned + Send>(
    cluster: &ApiClient,
    scope: WatchScope,
) -> BoxFuture<'_, Result<Vec<K>, Error>> {
    async move { Ok(scope.list_all::<K>(cluster).await?.items) }.boxed()
}

/// `None` without Longhorn; nothing but copies and instance managers when none of both is on `node`: a volume may be attached
/// here without a copy here.
async fn read(cluster: &ApiClient, node: &NodeName) -> Result<Option<StorageFacts>, Error> {
    let Some(replicas) = replicas(cluster).await? else { return Ok(None) };
    let mut facts = StorageFacts::default();
    put(&mut facts.replicas, Update::Listed(replicas), |it| &it.metadata);
    if facts.replicas.is_empty() {
        return Ok(Some(facts));
    }
    let managers = all(cluster, scope("instancemanagers")).await?;
    put(&mut facts.managers, Update::Listed(managers), |it: &Manager| &it.metadata);
    if !has_part(&facts, node) {
        return Ok(Some(facts));
    }
    let settings = WatchScope { fields: Some(format!("metadata.name={POLICY}")), ..scope("settings") };
    let ((volumes, (engines, attachments)), (storage_nodes, (nodes, settings))) = try_join(
        try_join(
            all(cluster, scope("volumes")),
            try_join(all(cluster, scope("engines")), all(cluster, scope("volumeattachments"))),
        ),
        try_join(
            all(cluster, scope("nodes")),
            try_join(all::<PlainNode>(cluster, nodes()), all::<Setting>(cluster, settings)),
        ),
    )
    .await?;
    let policy = settings.iter().find(|it| it.metadata.name.as_deref() == Some(POLICY));
    facts.policy = NodeDrainPolicy::parse(policy.map_or("", |it| &it.value));
    put(&mut facts.volumes, Update::Listed(volumes), |it: &Volume| &it.metadata);
    put(&mut facts.engines, Update::Listed(engines), |it: &Engine| &it.metadata);
    put(&mut facts.attachments, Update::Listed(attachments), |it: &Attachment| &it.metadata);
    put(&mut facts.storage_nodes, Update::Listed(storage_nodes), |it: &StorageNode| &it.metadata);
    facts.nodes = nodes.iter().map(|it| (name(&it.metadata), it.state())).collect();
    Ok(Some(facts))
}

fn has_part(facts: &StorageFacts, node: &NodeName) -> bool {
    facts.replicas.values().any(|it| it.spec.node == node.as_str())
        || facts.managers.values().any(|it| it.spec.node == node.as_str())
}

/// Takes an update into a table by name. The trouble in it is given back.
pub(super) fn put<K>(
    table: &mut BTreeMap<String, K>,
    update: Update<K>,
    meta: impl Fn(&K) -> &Meta,
) -> Option<Error> {
    match update {
        Update::Listed(all) => {
            table.clear();
            table.extend(all.into_iter().map(|it| (name(meta(&it)), it)));
        }
        Update::Put(one) => drop(table.insert(name(meta(&one)), one)),
        Update::Gone(one) => drop(table.remove(&name(meta(&one)))),
        Update::Trouble(error) => return Some(error),
    }
    None
}

enum StorageUpdate {
    Volume(Update<Volume>),
    Replica(Update<Replica>),
    Engine(Update<Engine>),
    Attachment(Update<Attachment>),
    Manager(Update<Manager>),
    StorageNode(Update<StorageNode>),
    Node(Update<PlainNode>),
}

impl StorageUpdate {
    /// Takes it into `facts`. The trouble in it is given back.
    fn into(self, facts: &mut StorageFacts) -> Option<Error> {
        match self {
            Self::Volume(it) => put(&mut facts.volumes, it, |it| &it.metadata),
            Self::Replica(it) => put(&mut facts.replicas, it, |it| &it.metadata),
            Self::Engine(it) => put(&mut facts.engines, it, |it| &it.metadata),
            Self::Attachment(it) => put(&mut facts.attachments, it, |it| &it.metadata),
            Self::Manager(it) => put(&mut facts.managers, it, |it| &it.metadata),
            Self::StorageNode(it) => put(&mut facts.storage_nodes, it, |it| &it.metadata),
            Self::Node(Update::Listed(all)) => {
                facts.nodes.clear();
                facts.nodes.extend(all.iter().map(|it| (name(&it.metadata), it.state())));
                None
            }
            Self::Node(Update::Put(one)) => {
                facts.nodes.insert(name(&one.metadata), one.state());
                None
            }
            Self::Node(Update::Gone(one)) => {
                facts.nodes.remove(&name(&one.metadata));
                None
            }
            Self::Node(Update::Trouble(error)) => Some(error),
        }
    }
}

/// What is known of the copies on `node`: first, and again whenever it has changed. Without Longhorn, and without a part
/// of it on the node, nothing is followed.
pub(crate) fn follow_looks(
    cluster: ApiClient,
    node: NodeName,
    seed: u64,
) -> impl Stream<Item = Result<Option<StorageView>, Error>> + Send {
    let own = node.to_string();
    let read = move || {
        let (cluster, node) = (cluster.clone(), node.clone());
        async move {
            let facts = read(&cluster, &node).await?;
            let first = facts.as_ref().map(|it| StorageView::of(it, node.as_str()));
            let facts = facts.filter(|it| has_part(it, &node));
            Ok((first, facts.map(|it| (it, pieces(&cluster, seed)))))
        }
    };
    let take = |facts: &mut StorageFacts, piece: StorageUpdate| piece.into(facts);
    follow_read(read, take, move |facts| Some(StorageView::of(facts, &own)), seed)
}

fn pieces(cluster: &ApiClient, seed: u64) -> BoxStream<'static, StorageUpdate> {
    fn updates<K: DeserializeOwned + Send + 'static>(
        cluster: &ApiClient,
        scope: WatchScope,
        seed: u64,
        piece: fn(Update<K>) -> StorageUpdate,
    ) -> BoxStream<'static, StorageUpdate> {
        follow::<K>(cluster.clone(), scope, seed).map(piece).boxed()
    }
    stream::select_all([
        updates(cluster, scope("volumes"), seed, StorageUpdate::Volume),
        updates(cluster, scope("replicas"), seed, StorageUpdate::Replica),
        updates(cluster, scope("engines"), seed, StorageUpdate::Engine),
        updates(cluster, scope("volumeattachments"), seed, StorageUpdate::Attachment),
        updates(cluster, scope("instancemanagers"), seed, StorageUpdate::Manager),
        updates(cluster, scope("nodes"), seed, StorageUpdate::StorageNode),
        updates(cluster, nodes(), seed, StorageUpdate::Node),
    ])
    .boxed()
}
