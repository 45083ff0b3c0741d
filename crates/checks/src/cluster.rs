//! Reading the cluster, and judging what was read; each kind is asked for once, all at the same time.
//!
//! What cannot be read is a finding too; what is not installed is none. Dropping the future loses nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use futures::{FutureExt as _, join};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kubeapi::slim::NodeObject;

use kube::Resource;
use kube::api::GetParams;
use kube::core::Request;
use kubeapi::machines::calls::{GUESTS, MACHINES, path};
use kubeapi::names::{SYSTEM_NAMESPACE, VIRTUAL_IPS};
use kubeapi::objects::{items, text};
use kubeapi::slim::longhorn;
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found};
use serde::de::DeserializeOwned;
use serde_json::Value;
use step::{Inserted as _, LiteMap};

use crate::finding::{warnings, without_hints};
use crate::network::VirtualIp;
use crate::{Finding, Severity, certificates, nodes, storage, workloads};

/// What is read of the cluster before a drain, one request each where it has one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterSource {
    /// Nodes, and snapshots of etcd.
    Nodes,
    /// Events of nodes, which k3s writes for certificates.
    Events,
    /// Volumes of Longhorn, and their engines.
    Volumes,
    Disks,
    Backups,
    Snapshots,
    Machines,
    Guests,
    /// The clock of the API server.
    Clock,
}

impl ClusterSource {
    pub const ALL: [Self; 9] = [
        Self::Nodes,
        Self::Events,
        Self::Volumes,
        Self::Disks,
        Self::Backups,
        Self::Snapshots,
        Self::Machines,
        Self::Guests,
        Self::Clock,
    ];
}

/// What speaks against a drain of `node`, by what it was found in; `own` gives our wall clock. What cannot be read only
/// warns: a drain waits for nothing that it need not know.
pub async fn drain(
    cluster: &ApiClient,
    node: &str,
    sources: &BTreeSet<ClusterSource>,
    own: impl Fn() -> Timestamp,
) -> LiteMap<ClusterSource, Vec<Finding>> {
    let own = &own;
    let all = sources.iter().map(|source| look(cluster, node, *source, own).map(|it| (*source, it)));
    join_all(all).await.into_iter().into_lite()
}

async fn look(
    cluster: &ApiClient,
    node: &str,
    source: ClusterSource,
    own: &impl Fn() -> Timestamp,
) -> Vec<Finding> {
    let mut found = Vec::new();
    match source {
        ClusterSource::Nodes => {
            let (all, snapshots) = join!(
                listed(cluster, WatchScope::all("nodes", NodeObject::url_path(None))),
                listed::<Value>(cluster, etcd_snapshots())
            );
            judge("nodes", &all, &mut found, |all| {
                let warns = warnings([nodes::unready(all), nodes::voters(all)].concat());
                [warns, nodes::cordoned(all, node), nodes::full_disks(all), nodes::mixed_versions(all)]
                    .concat()
            });
            if all.is_ok_and(|all| all.iter().any(nodes::is_member)) {
                judge("snapshot", &snapshots, &mut found, |all| warnings(nodes::snapshot(all, own())));
            }
        }
        ClusterSource::Events => {
            let all = listed::<Value>(cluster, events()).await;
            judge("certificates", &all, &mut found, |all| warnings(certificates::events(all)));
        }
        ClusterSource::Volumes => {
            let (volumes, engines) = join!(
                listed(cluster, longhorn::scope("volumes")),
                listed(cluster, longhorn::scope("engines"))
            );
            judge("volumes", &volumes, &mut found, |all| {
                let sick = warnings(storage::unhealthy(all));
                [sick, storage::single(all), storage::restoring(all, own())].concat()
            });
            let known = volumes.as_deref().unwrap_or_default();
            judge("rebuilds", &engines, &mut found, |all| storage::rebuilding(all, known));
            let thin = storage::thin(known, engines.as_deref().unwrap_or_default());
            if !thin.is_empty() {
                let replicas = listed(cluster, longhorn::scope("replicas")).await;
                judge("last-copy", &replicas, &mut found, |all| storage::last_copies(&thin, all, node));
            }
        }
        ClusterSource::Disks => {
            let all = listed(cluster, longhorn::scope("nodes")).await;
            judge("volumes", &all, &mut found, |all| warnings(storage::full(all, &[])));
        }
        ClusterSource::Backups => {
            let all = listed(cluster, longhorn::scope("backups")).await;
            judge("backups", &all, &mut found, |all| storage::backing_up(all, own()));
        }
        ClusterSource::Snapshots => {
            let path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshots".to_owned();
            let all = listed(cluster, WatchScope::all("volume snapshots", path)).await;
            judge("backups", &all, &mut found, |all| storage::csi_snapshots(all, own()));
        }
        ClusterSource::Machines => {
            let all = listed(cluster, WatchScope::all("virtual machines", path(MACHINES))).await;
            judge("backups", &all, &mut found, |all| storage::machine_snapshots(all, own()));
        }
        ClusterSource::Guests => {
            let all = listed(cluster, WatchScope::all("running virtual machines", path(GUESTS))).await;
            judge("machines", &all, &mut found, |all| workloads::not_migratable(all, node));
        }
        ClusterSource::Clock => match server_time(cluster).await {
            Ok(Some(server)) => found.extend(nodes::clock(server, own())),
            Ok(None) => {}
            Err(error) => found.push(Finding::unreadable("clock", &error)),
        },
    }
    let unread = |it: Finding| if it.unread { it.with(Severity::Warns) } else { it };
    found.into_iter().map(unread).collect()
}

/// The clock of the API server, where it says: by its last answer, and asked for where there is none of the last minute.
pub(crate) async fn server_time(cluster: &ApiClient) -> Result<Option<Timestamp>, Error> {
    if let Some(said) = cluster.server_time() {
        return Ok(said.0);
    }
    let request = Request::new("").get("version", &GetParams::default());
    let (_, date) = cluster.ask_with_date::<Value>("read the version of the API server", request).await?;
    Ok(date)
}

/// The leases of virtual IPs; none without kube-vip. `is_ready` says whether a node is.
/// Errors: those of [`ApiClient`].
pub async fn virtual_ips(
    cluster: &ApiClient,
    is_ready: impl Fn(&str) -> bool,
) -> Result<Vec<VirtualIp>, Error> {
    let mut all = Vec::new();
    for name in VIRTUAL_IPS {
        let request =
            Request::new(Lease::url_path(&(), Some(SYSTEM_NAMESPACE))).get(name, &GetParams::default());
        let lease = cluster.ask::<Value>(&format!("read lease {SYSTEM_NAMESPACE}/{name}"), request).await;
        all.extend(found(lease)?.map(|it| VirtualIp::of(&it, &is_ready)));
    }
    Ok(all)
}

/// What the containers of kube-vip that run are given as environment, on one node or on all; empty without kube-vip.
/// Errors: those of [`ApiClient`].
pub async fn kube_vip(cluster: &ApiClient, node: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let here = node.map(|it| format!("spec.nodeName={it},")).unwrap_or_default();
    let fields = Some(format!("{here}status.phase=Running"));
    let path = Pod::url_path(&(), Some(SYSTEM_NAMESPACE));
    let pods = WatchScope { fields, ..WatchScope::all("pods of kube-vip", path) };
    let pods = pods.list_all::<Value>(cluster).await?.items;
    let containers = pods.iter().flat_map(|it| items(&it["spec"]["containers"]));
    let given =
        containers.filter(|it| text(&it["image"]).contains("kube-vip")).flat_map(|it| items(&it["env"]));
    Ok(given.map(|it| (text(&it["name"]), text(&it["value"]))).into_map())
}

pub(crate) fn etcd_snapshots() -> WatchScope {
    WatchScope::all("etcd snapshots", "/apis/k3s.cattle.io/v1/etcdsnapshotfiles".to_owned())
}

pub(crate) fn events() -> WatchScope {
    let all = WatchScope::all("events of nodes", Event::url_path(&(), Some("default")));
    WatchScope { fields: Some("involvedObject.kind=Node".to_owned()), ..all }
}

/// Everything that speaks against taking the whole site down; `now` is the wall clock.
pub async fn site(cluster: &ApiClient, now: Timestamp) -> Vec<Finding> {
    let (all_nodes, snapshots, events, volumes, disks, backups, machines) = join!(
        Box::pin(listed::<Value>(cluster, WatchScope::all("nodes", NodeObject::url_path(None)))),
        Box::pin(listed::<Value>(cluster, etcd_snapshots())),
        Box::pin(listed::<Value>(cluster, events())),
        Box::pin(listed(cluster, longhorn::scope("volumes"))),
        Box::pin(listed(cluster, longhorn::scope("nodes"))),
        Box::pin(listed(cluster, longhorn::scope("backups"))),
        Box::pin(listed::<Value>(cluster, WatchScope::all("virtual machines", path(MACHINES)))),
    );
    let mut found = Vec::new();
    let has_etcd = all_nodes.as_ref().is_ok_and(|all| all.iter().any(nodes::is_member));
    judge("nodes", &all_nodes, &mut found, |all| {
        [nodes::unready(all), nodes::voters(all), nodes::paused(all)].concat()
    });
    if has_etcd {
        judge("snapshot", &snapshots, &mut found, |all| nodes::snapshot(all, now));
    }
    judge("certificates", &events, &mut found, certificates::events);
    judge("volumes", &volumes, &mut found, storage::unhealthy);
    let known = volumes.as_deref().unwrap_or_default();
    judge("volumes", &disks, &mut found, |all| storage::full(all, known));
    judge("backups", &backups, &mut found, |all| storage::backing_up(all, now));
    judge("backups", &volumes, &mut found, |all| storage::restoring(all, now));
    judge("backups", &machines, &mut found, |all| storage::machine_snapshots(all, now));
    found.dedup();
    without_hints(found)
}

/// All objects of a kind, none where it is not installed.
/// Errors: those of [`ApiClient`].
pub async fn listed<T: DeserializeOwned + Send>(
    cluster: &ApiClient,
    scope: WatchScope,
) -> Result<Vec<T>, Error> {
    Ok(scope.list_installed(cluster).await?.unwrap_or_default())
}

fn judge<T>(
    code: &str,
    read: &Result<Vec<T>, Error>,
    found: &mut Vec<Finding>,
    rule: impl FnOnce(&[T]) -> Vec<Finding>,
) {
    match read {
        Ok(all) => found.extend(rule(all)),
        Err(error) => found.push(Finding::unreadable(code, error)),
    }
}
