//! Follows each part: updates become changes of the facts.
//!
//! Not here: how a watch survives (`watch`), what a part's state means (`parts`). An unknown resource is
//! normal: it is requested again once its API group is served (`groups`).

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Deserializer};

use super::facts::{
    ClaimFact, ClusterFacts, DaemonSet, EngineFact, ObjectTable, PodFact, Replica, Snapshot, StorageNode, Vm,
    Volume,
};
use super::groups::Groups;
use super::objects;
use super::parts::Collection;
use kubeapi::ApiClient;
use kubeapi::nodes::{self, Node};
use kubeapi::objects::RawObject;
use kubeapi::watch::{self, Manner, Update, WatchScope, follow_in};

/// How long one watch is kept open: each opening is a request. A silently dead connection is noticed after
/// this time.
pub(crate) const SLOT: Duration = Duration::from_secs(240);

pub(super) struct CollectionNews {
    pub(super) part: Collection,
    pub(super) what: NewsContent,
}

pub(super) enum NewsContent {
    /// The content may have changed; the function applies it and returns whether it has.
    Content(Box<dyn FnOnce(&mut ClusterFacts) -> bool + Send>),
    /// The watch works again; nothing was missed.
    Recovered,
    /// The cluster does not know the resource.
    Absent,
    Failed {
        error: String,
        next_step: String,
    },
}

/// All parts. The stream never ends; dropping it closes all connections.
pub(super) fn all(cluster: &ApiClient, seed: u64) -> stream::SelectAll<BoxStream<'static, CollectionNews>> {
    let groups = Groups::default();
    stream::select_all([
        of::<Node>(cluster, seed, &groups),
        of::<PodFact>(cluster, seed, &groups),
        of::<Vm>(cluster, seed, &groups),
        of::<ClaimFact>(cluster, seed, &groups),
        of::<DaemonSet>(cluster, seed, &groups),
        of::<Volume>(cluster, seed, &groups),
        of::<Replica>(cluster, seed, &groups),
        of::<EngineFact>(cluster, seed, &groups),
        of::<Snapshot>(cluster, seed, &groups),
        of::<StorageNode>(cluster, seed, &groups),
        stream::once(groups.keep(cluster.clone())).boxed(),
    ])
}

pub(crate) trait ObjectFact: Clone + Debug + PartialEq + Send + 'static {
    fn of(raw: &RawObject) -> Self;
}

trait PartKind: ObjectFact {
    const PART: Collection;
    const PATH: &'static str;
    /// Whether it may not be installed.
    const OPTIONAL: bool;

    fn table(facts: &mut ClusterFacts) -> &mut ObjectTable<Self>;
}

macro_rules! kept {
    ($($kind:ident = $part:ident, $table:ident, $read:path, $optional:literal, $path:literal;)+) => {
        $(
        impl ObjectFact for $kind {
            fn of(raw: &RawObject) -> Self {
                $read(raw)
            }
        }

        impl PartKind for $kind {
            const PART: Collection = Collection::$part;
            const PATH: &'static str = $path;
            const OPTIONAL: bool = $optional;

            fn table(facts: &mut ClusterFacts) -> &mut ObjectTable<Self> {
                &mut facts.$table
            }
        }
        )+

        /// Returns whether there was something in it.
        pub(super) fn empty(facts: &mut ClusterFacts, part: Collection) -> bool {
            match part {
                $(Collection::$part => !std::mem::take(&mut facts.$table).is_empty(),)+
            }
        }
    };
}

kept! {
    Node = Nodes, nodes, nodes::node, false, "/api/v1/nodes";
    PodFact = Pods, pods, objects::pod, false, "/api/v1/pods";
    ClaimFact = Claims, claims, objects::claim, false, "/api/v1/namespaces/eve-kube-app/persistentvolumeclaims";
    DaemonSet = DaemonSets, daemon_sets, objects::daemon_set, false,
        "/apis/apps/v1/namespaces/longhorn-system/daemonsets";
    Vm = Vms, vms, objects::vm, true,
        "/apis/kubevirt.io/v1/namespaces/eve-kube-app/virtualmachineinstances";
    Volume = Volumes, volumes, objects::volume, true,
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes";
    Replica = Replicas, replicas, objects::replica, true,
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/replicas";
    EngineFact = Engines, engines, objects::engine, true,
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/engines";
    Snapshot = Snapshots, snapshots, objects::snapshot, true,
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/snapshots";
    StorageNode = StorageNodes, storage_nodes, objects::storage_node, true,
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/nodes";
}

/// Keeps only the fact of an object: no two whole objects of a list are in memory at the same time.
#[derive(Debug, Clone)]
pub(crate) struct FactItem<T> {
    pub(crate) key: (String, String),
    pub(crate) fact: T,
}

impl<'de, T: ObjectFact> Deserialize<'de> for FactItem<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut raw = RawObject::deserialize(from)?;
        let fact = T::of(&raw);
        let key =
            (raw.metadata.namespace.take().unwrap_or_default(), raw.metadata.name.take().unwrap_or_default());
        Ok(Self { key, fact })
    }
}

impl<T> FactItem<T> {
    /// As tables keep it.
    pub(crate) fn kept(self) -> ((String, String), Option<T>) {
        (self.key, Some(self.fact))
    }
}

struct CollectionReader<T> {
    cluster: ApiClient,
    seed: u64,
    groups: Groups,
    open: Option<BoxStream<'static, watch::FollowNews<FactItem<T>>>>,
    absent: bool,
}

fn of<T: PartKind>(cluster: &ApiClient, seed: u64, groups: &Groups) -> BoxStream<'static, CollectionNews> {
    let (cluster, groups) = (cluster.clone(), groups.clone());
    let reader = CollectionReader::<T> { cluster, seed, groups, open: None, absent: false };
    stream::unfold(reader, |mut reader| async move {
        let news = CollectionNews { part: T::PART, what: reader.next().await };
        Some((news, reader))
    })
    .boxed()
}

impl<T: PartKind> CollectionReader<T> {
    async fn next(&mut self) -> NewsContent {
        if self.open.is_none() && self.absent {
            self.groups.until_served(T::PATH).await;
        }
        let open = self.open.get_or_insert_with(|| {
            let scope = WatchScope::all(T::PART.text(), T::PATH.to_owned());
            let manner = Manner { slot: SLOT, ..Manner::default() };
            // Parts do not ask in step.
            follow_in(self.cluster.clone(), scope, manner, self.seed ^ T::PART as u64).boxed()
        });
        let Some(news) = open.next().await else { std::future::pending().await };
        match news {
            watch::FollowNews::Recovered => NewsContent::Recovered,
            watch::FollowNews::Update(Update::Trouble(error)) if T::OPTIONAL && error.is_not_found() => {
                self.open = None;
                self.absent = true;
                NewsContent::Absent
            }
            watch::FollowNews::Update(Update::Trouble(error)) => {
                NewsContent::Failed { error: error.line(), next_step: error.next_step() }
            }
            watch::FollowNews::Update(update) => NewsContent::Content(Box::new(move |facts| {
                update.into_table(T::table(facts), FactItem::kept).is_ok_and(|changed| changed)
            })),
        }
    }
}
