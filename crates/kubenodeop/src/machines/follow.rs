//! What may change the fate of the machines of a node, as it changes.
//!
//! Nothing is kept but a mark of each object. Trouble with reading is found by whoever looks. Not here: the look itself
//! (`kubevirt`), what follows from it.

use std::collections::BTreeMap;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kubeapi::ApiClient;
use kubeapi::machines::calls::{MACHINES, path};
use kubeapi::names::NodeName;
use kubeapi::slim::NodeObject;
use kubeapi::slim::longhorn::{self, Engine};
use kubeapi::slim::{Known, Meta, Pod};
use kubeapi::watch::{Update, WatchScope, follow};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::kubevirt::{MIGRATIONS, guests, launchers};
use crate::plan::scheduling::peer;

/// A pod of which nothing is read but where it is.
#[derive(Debug, Clone, Deserialize)]
struct Placed {
    metadata: Meta,
    #[serde(default)]
    spec: PlacedSpec,
    #[serde(default)]
    status: PlacedStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlacedSpec {
    node_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PlacedStatus {
    phase: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineChange {
    Look,
    /// Something that is read once in an attempt.
    Once,
}

/// One item whenever an instance of `node`, a launcher there, a migration, or the spec or an annotation of a machine or a
/// namespace has changed, or what another node offers. It never ends.
pub(crate) fn changes(cluster: &ApiClient, node: &NodeName, seed: u64) -> BoxStream<'static, MachineChange> {
    let scope = |what: &str, kind: &str| WatchScope::all(what, path(kind));
    let version = |it: &Known| it.metadata.resource_version.clone();
    let all = |scope, seed| marked(cluster, scope, seed, version, MachineChange::Look);
    // The status of a machine follows that of its instance.
    let wanted = |it: &Known| {
        let Meta { uid, generation, annotations, labels, .. } = &it.metadata;
        (uid.clone(), *generation, annotations.clone(), labels.clone())
    };
    let (machines, namespaces) =
        (scope("virtual machines", MACHINES), WatchScope::all("namespaces", Namespace::url_path(&(), None)));
    let nodes = WatchScope::all("nodes", NodeObject::url_path(None));
    stream::select_all([
        all(guests(node), seed),
        all(launchers(node), seed ^ 1),
        all(scope("migrations of virtual machines", MIGRATIONS), seed ^ 2),
        marked(cluster, machines, seed ^ 3, wanted, MachineChange::Look),
        marked(cluster, namespaces, seed ^ 4, wanted, MachineChange::Once),
        marked(cluster, nodes, seed ^ 5, peer, MachineChange::Look),
    ])
    .boxed()
}

/// One item whenever a copy of a volume of Longhorn is in sync, or is not any more. For who knows that Longhorn is there.
pub(crate) fn copies(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let modes = |it: &Engine| it.status.replica_mode_map.clone();
    marked(cluster, longhorn::scope("engines"), seed, modes, MachineChange::Look)
}

/// One item whenever a pod of the cluster has got a node, has left it or has ended. For who waits for room.
pub(crate) fn room(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let node = |it: &Placed| {
        let over = matches!(it.status.phase.as_str(), "Succeeded" | "Failed");
        it.spec.node_name.clone().filter(|_| !over)
    };
    marked(cluster, WatchScope::all("pods", Pod::url_path(None)), seed, node, MachineChange::Look)
}

/// `change` whenever the mark of one of these objects is another one.
fn marked<K: NamedObject, M: PartialEq + Send + 'static>(
    cluster: &ApiClient,
    scope: WatchScope,
    seed: u64,
    mark: impl Fn(&K) -> M + Send + 'static,
    change: MachineChange,
) -> BoxStream<'static, MachineChange> {
    let mut marks: Option<BTreeMap<(String, String), M>> = None;
    follow::<K>(cluster.clone(), scope, seed)
        .filter_map(move |heard| {
            let is_new = match heard {
                Update::Listed(all) => {
                    let mut now = BTreeMap::new();
                    now.extend(all.iter().map(|it| (it.key(), mark(it))));
                    step::update(&mut marks, Some(now))
                }
                Update::Put(one) => {
                    let now = mark(&one);
                    let marks = marks.get_or_insert_default();
                    let is_new = marks.get(&one.key()) != Some(&now);
                    marks.insert(one.key(), now);
                    is_new
                }
                Update::Gone(one) => marks.get_or_insert_default().remove(&one.key()).is_some(),
                Update::Trouble(_) => false,
            };
            std::future::ready(is_new.then_some(change))
        })
        .boxed()
}

trait NamedObject: DeserializeOwned + Send + 'static {
    fn key(&self) -> (String, String);
}

impl NamedObject for Known {
    fn key(&self) -> (String, String) {
        let Meta { namespace, name, .. } = &self.metadata;
        (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default())
    }
}

impl NamedObject for Placed {
    fn key(&self) -> (String, String) {
        let Meta { namespace, name, .. } = &self.metadata;
        (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default())
    }
}

impl NamedObject for Engine {
    fn key(&self) -> (String, String) {
        (String::new(), self.metadata.name.clone().unwrap_or_default())
    }
}

impl NamedObject for NodeObject {
    fn key(&self) -> (String, String) {
        (String::new(), self.metadata.name.clone().unwrap_or_default())
    }
}
