//! The storage adapter for Longhorn: a constant number of lists for a look, a constant number of watches to follow it.
//!
//! Without Longhorn one list finds that out, without any volume two, and without a copy and an instance manager on our
//! node two or three are all. Shards are read and followed where a volume is sharded. The gate after a boot follows the
//! volumes of the whole cluster that are not well. Not here: what is found (`guard`).

use futures::future::{BoxFuture, FutureExt};
use futures::stream;
use futures::stream::{BoxStream, Stream, StreamExt};
use kubeapi::names::NodeName;
use kubeapi::pace::Pace;
use kubeapi::slim::longhorn::{DRAIN_POLICY, Replica, Setting, Shard, Volume, scope};
use kubeapi::slim::{Meta, NodeObject};
use kubeapi::watch::{Update, WatchScope, follow};
use kubeapi::{ApiClient, Error};
use serde::de::DeserializeOwned;
use step::LiteMap;
use tokio::time::sleep;

use super::{NodeDrainPolicy, NodeReadiness, StorageFacts, StorageView, VolumesSeen};
use crate::node;

fn nodes() -> WatchScope {
    WatchScope::all("nodes", NodeObject::url_path(None))
}

fn readiness(node: NodeObject) -> (String, Option<NodeReadiness>) {
    let cordoned = node.spec.as_ref().is_some_and(|it| it.unschedulable == Some(true));
    let ready = node::is_ready(&node);
    (node.metadata.name.unwrap_or_default(), Some(NodeReadiness { ready, cordoned }))
}

/// An object whole, by its name.
pub(super) fn named<K: AsRef<Meta>>(it: K) -> (String, Option<K>) {
    (it.as_ref().name.clone().unwrap_or_default(), Some(it))
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

/// How many copies and shards are on `node`.
pub(crate) async fn count(cluster: &ApiClient, node: &NodeName) -> Result<usize, Error> {
    let copies = installed::<Replica>(cluster, "replicas").await?.unwrap_or_default();
    let copies = copies.values().filter(|it| it.spec.node == node.as_str()).count();
    if !installed::<Volume>(cluster, "volumes").await?.unwrap_or_default().values().any(Volume::is_sharded) {
        return Ok(copies);
    }
    let shards = table::<Shard, _>(cluster, scope("shards"), named).await?;
    Ok(copies + shards.values().filter(|it| it.spec.node == node.as_str()).count())
}

/// All objects of a kind; `None` without Longhorn.
async fn installed<K: DeserializeOwned + AsRef<Meta> + PartialEq + Send>(
    cluster: &ApiClient,
    kind: &str,
) -> Result<Option<LiteMap<String, K>>, Error> {
    scope(kind).list_installed::<K>(cluster).await?.map(|all| tabled(all, named)).transpose()
}

/// What there is of `scope`, as `keep` keeps it.
fn table<K: DeserializeOwned + Send + 'static, V: PartialEq + Send + 'static>(
    cluster: &ApiClient,
    scope: WatchScope,
    keep: fn(K) -> (String, Option<V>),
) -> BoxFuture<'_, Result<LiteMap<String, V>, Error>> {
    async move { tabled(scope.list_all::<K>(cluster).await?.items, keep) }.boxed()
}

fn tabled<K, V: PartialEq>(
    all: Vec<K>,
    keep: fn(K) -> (String, Option<V>),
) -> Result<LiteMap<String, V>, Error> {
    let mut table = LiteMap::new();
    Update::Listed(all).into_table(&mut table, keep)?;
    Ok(table)
}

/// `None` without Longhorn; nothing but copies and instance managers when none of both is on `node`: a volume may be attached
/// here without a copy here, and where a shard is there is an instance manager.
async fn read(cluster: &ApiClient, node: &NodeName) -> Result<Option<StorageFacts>, Error> {
    let Some(replicas) = installed(cluster, "replicas").await? else { return Ok(None) };
    let mut facts = StorageFacts { replicas, ..StorageFacts::default() };
    // Of sharded volumes there are none.
    if facts.replicas.is_empty()
        && installed::<Volume>(cluster, "volumes").await?.unwrap_or_default().is_empty()
    {
        return Ok(Some(facts));
    }
    facts.managers = table(cluster, scope("instancemanagers"), named).await?;
    if !has_part(&facts, node) {
        return Ok(Some(facts));
    }
    let policy = WatchScope { fields: Some(format!("metadata.name={DRAIN_POLICY}")), ..scope("settings") };
    let settings;
    (facts.volumes, facts.engines, facts.attachments, facts.storage_nodes, facts.nodes, settings) = tokio::try_join!(
        table(cluster, scope("volumes"), named),
        table(cluster, scope("engines"), named),
        table(cluster, scope("volumeattachments"), named),
        table(cluster, scope("nodes"), named),
        table(cluster, nodes(), readiness),
        table::<Setting, _>(cluster, policy, named),
    )?;
    facts.policy = NodeDrainPolicy::parse(settings.get(DRAIN_POLICY).map_or("", |it| &it.value));
    // Where no volume is sharded nothing is asked, as older ones serve neither kind.
    if facts.volumes.values().any(Volume::is_sharded) {
        (facts.shards, facts.shard_groups) = tokio::try_join!(
            table(cluster, scope("shards"), named),
            table(cluster, scope("shardgroups"), named),
        )?;
    }
    Ok(Some(facts))
}

fn has_part(facts: &StorageFacts, node: &NodeName) -> bool {
    facts.replicas.values().any(|it| it.spec.node == node.as_str())
        || facts.managers.values().any(|it| it.spec.node == node.as_str())
}

/// Takes an update into the facts.
type TakeUpdate = Box<dyn FnOnce(&mut StorageFacts) -> Result<bool, Error> + Send>;

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
            let followed = facts.as_ref().filter(|it| has_part(it, &node));
            let updates = followed.map_or_else(|| stream::pending().boxed(), |it| pieces(&cluster, it, seed));
            let kept = facts.filter(|it| has_part(it, &node)).unwrap_or_default();
            Ok((first, kept, updates))
        }
    };
    let take = |facts: &mut StorageFacts, update: TakeUpdate| update(facts).err();
    follow_read(read, take, move |facts| Some(StorageView::of(facts, &own)), seed)
}

fn pieces(cluster: &ApiClient, facts: &StorageFacts, seed: u64) -> BoxStream<'static, TakeUpdate> {
    fn updates<K: DeserializeOwned + Send + 'static, V: PartialEq + 'static>(
        cluster: &ApiClient,
        scope: WatchScope,
        seed: u64,
        table: fn(&mut StorageFacts) -> &mut LiteMap<String, V>,
        keep: fn(K) -> (String, Option<V>),
    ) -> BoxStream<'static, TakeUpdate> {
        let take =
            move |it: Update<K>| -> TakeUpdate { Box::new(move |facts| it.into_table(table(facts), keep)) };
        follow::<K>(cluster.clone(), scope, seed).map(take).boxed()
    }
    let mut all = vec![
        updates(cluster, scope("volumes"), seed, |it| &mut it.volumes, named),
        updates(cluster, scope("replicas"), seed, |it| &mut it.replicas, named),
        updates(cluster, scope("engines"), seed, |it| &mut it.engines, named),
        updates(cluster, scope("volumeattachments"), seed, |it| &mut it.attachments, named),
        updates(cluster, scope("instancemanagers"), seed, |it| &mut it.managers, named),
        updates(cluster, scope("nodes"), seed, |it| &mut it.storage_nodes, named),
        updates(cluster, nodes(), seed, |it| &mut it.nodes, readiness),
    ];
    if facts.volumes.values().any(Volume::is_sharded) {
        all.push(updates(cluster, scope("shards"), seed, |it| &mut it.shards, named));
        all.push(updates(cluster, scope("shardgroups"), seed, |it| &mut it.shard_groups, named));
    }
    stream::select_all(all).boxed()
}

/// What `read` shows, and what `show` does whenever what it has kept has changed by its updates, which `take` takes in. A
/// failure of either is reported, and all is read again: a watch that continues says nothing of what has not changed. The
/// stream never ends; dropping it closes its connections.
fn follow_read<T, P, S, F>(
    read: impl Fn() -> F + Send + Sync,
    take: impl Fn(&mut T, P) -> Option<Error> + Send + Sync,
    show: impl Fn(&T) -> S + Send + Sync,
    seed: u64,
) -> impl Stream<Item = Result<S, Error>> + Send
where
    T: Send,
    P: Send + 'static,
    S: Clone + PartialEq + Send,
    F: Future<Output = Result<(S, T, BoxStream<'static, P>), Error>> + Send,
{
    // What is followed, if anything by now.
    let state = (None::<(S, T, BoxStream<'static, P>)>, Pace::new(seed), 0_u32, (read, take, show));
    stream::unfold(state, |(mut at, mut pace, mut tries, calls)| async move {
        let (read, take, show) = &calls;
        let item = if let Some((last, kept, updates)) = &mut at {
            loop {
                let Some(update) = updates.next().await else { std::future::pending().await };
                if let Some(error) = take(kept, update) {
                    break Err(error);
                }
                let now = show(kept);
                if now != *last {
                    tries = 0;
                    last.clone_from(&now);
                    break Ok(now);
                }
            }
        } else {
            if tries > 0 {
                sleep(pace.pause(tries, None)).await;
            }
            read().await.map(|it| at.insert(it).0.clone())
        };
        if item.is_err() {
            at = None;
            tries = tries.saturating_add(1);
        }
        Some((item, (at, pace, tries, calls)))
    })
}

fn summary<'a>(all: impl Iterator<Item = &'a Volume>) -> VolumesSeen {
    let mut seen = VolumesSeen::default();
    for volume in all {
        let (name, shown) = (volume.name(), volume.shown());
        match volume.status.robustness.as_str() {
            "faulted" => drop(seen.faulted.insert(name, shown)),
            "degraded" => drop(seen.degraded.insert(name, shown)),
            _ => {}
        }
    }
    seen
}

/// Volumes that are faulted or degraded, first and again whenever that has changed; none without Longhorn.
pub(crate) fn follow_troubled(
    cluster: ApiClient,
    seed: u64,
) -> impl Stream<Item = Result<VolumesSeen, Error>> + Send {
    let read = move || {
        let cluster = cluster.clone();
        async move {
            let (all, updates) = match installed::<Volume>(&cluster, "volumes").await? {
                Some(all) => (all, follow::<Volume>(cluster, scope("volumes"), seed).boxed()),
                None => (LiteMap::new(), stream::pending().boxed()),
            };
            Ok((summary(all.values()), all, updates))
        }
    };
    let take = |all: &mut LiteMap<_, _>, update: Update<Volume>| update.into_table(all, named).err();
    follow_read(read, take, |all| summary(all.values()), seed)
}
