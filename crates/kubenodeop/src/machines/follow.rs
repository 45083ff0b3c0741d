//! What may change the fate of the machines of a node, as it changes.
//!
//! Nothing is kept but a mark of each object. Trouble with reading is found by whoever looks. Not here: the look itself
//! (`kubevirt`), what follows from it.

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kubeapi::ApiClient;
use kubeapi::machines::calls::{MACHINES, path};
use kubeapi::names::NodeName;
use kubeapi::slim::NodeObject;
use kubeapi::slim::longhorn::{self, Engine};
use kubeapi::slim::{Known, Meta, Pod};
use kubeapi::watch::{Manner, ObjectMirror, WatchScope};
use serde::de::DeserializeOwned;

use super::kubevirt::{MIGRATIONS, guests, launchers};
use crate::plan::scheduling::peer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineChange {
    Look,
    /// Something that is read once in an attempt.
    Once,
}

/// One item whenever an instance of `node`, a launcher there, a migration, or the spec or an annotation of a machine or a
/// namespace has changed, or what another node offers. It never ends.
pub(crate) fn changes(cluster: &ApiClient, node: &NodeName, seed: u64) -> BoxStream<'static, MachineChange> {
    let scope = |what: &str, kind: &str| WatchScope::all(what, path(kind));
    let version = |it: &Known| (named(&it.metadata), it.metadata.resource_version.clone());
    let all = |scope, seed| marked(cluster, scope, seed, version, MachineChange::Look);
    // The status of a machine follows that of its instance.
    let wanted = |it: &Known| {
        let Meta { uid, generation, annotations, labels, .. } = it.metadata.clone();
        (named(&it.metadata), (uid, generation, annotations, labels))
    };
    let (machines, namespaces) =
        (scope("virtual machines", MACHINES), WatchScope::all("namespaces", Namespace::url_path(&(), None)));
    let nodes = WatchScope::all("nodes", NodeObject::url_path(None));
    let offered = |it: &NodeObject| ((None, it.metadata.name.clone()), peer(it));
    stream::select_all([
        all(guests(node), seed),
        all(launchers(node), seed ^ 1),
        all(scope("migrations of virtual machines", MIGRATIONS), seed ^ 2),
        marked(cluster, machines, seed ^ 3, wanted, MachineChange::Look),
        marked(cluster, namespaces, seed ^ 4, wanted, MachineChange::Once),
        marked(cluster, nodes, seed ^ 5, offered, MachineChange::Look),
    ])
    .boxed()
}

/// One item whenever a copy of a volume of Longhorn is in sync, or is not any more. For who knows that Longhorn is there.
pub(crate) fn copies(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let modes = |it: &Engine| (named(&it.metadata), it.status.replica_mode_map.clone());
    marked(cluster, longhorn::scope("engines"), seed, modes, MachineChange::Look)
}

/// One item whenever a pod of the cluster has got a node, has left it or has ended. For who waits for room.
pub(crate) fn room(cluster: &ApiClient, seed: u64) -> BoxStream<'static, MachineChange> {
    let node = |it: &Pod| {
        let phase = it.status.as_ref().and_then(|it| it.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed"));
        (named(&it.metadata), it.spec.as_ref().and_then(|it| it.node_name.clone()).filter(|_| !over))
    };
    marked(cluster, WatchScope::all("pods", Pod::url_path(None)), seed, node, MachineChange::Look)
}

/// `change` whenever the mark of one of these objects is another one, or they were read again after trouble; `keep` says
/// which object it is, and its mark.
fn marked<K: DeserializeOwned + Send + 'static, M: PartialEq + Send + Sync + 'static>(
    cluster: &ApiClient,
    scope: WatchScope,
    seed: u64,
    keep: impl Fn(&K) -> (MarkedName, M) + Send + Sync + 'static,
    change: MachineChange,
) -> BoxStream<'static, MachineChange> {
    let keep = move |it: K| {
        let (name, mark) = keep(&it);
        (name, Some(mark))
    };
    let changes = ObjectMirror::open(cluster, scope, Manner::default(), seed, keep).changes(move |_| change);
    changes.filter_map(|heard| std::future::ready(heard.ok())).boxed()
}

/// Namespace and name of an object.
type MarkedName = (Option<String>, Option<String>);

fn named(meta: &Meta) -> MarkedName {
    (meta.namespace.clone(), meta.name.clone())
}
