//! Reads a cluster from its etcd up, and judges each layer.
//!
//! Without the API nothing else is read. Dropping the future loses nothing.

use futures::join;
use jiff::Timestamp;
use kubeapi::machines::calls::{MACHINES, path};
use kubeapi::reply::Reach;
use kubeapi::slim::longhorn::{self, Volume};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use serde_json::Value;
use topics::VerifyLayer;

use super::{LayerCheck, unknown};
use crate::cluster::{etcd_snapshots, events, listed, server_time};
use crate::finding::{warnings, without_hints};
use crate::{Finding, Severity, certificates, machines, network, node, nodes, storage, workloads};

/// The layers of the cluster, lowest first; `own` gives our wall clock. Without the certificates of this
/// machine and `turns`, which callers add.
pub async fn look(cluster: &ApiClient, own: impl Fn() -> Timestamp) -> Vec<VerifyLayer> {
    let server = match server_time(cluster).await {
        Ok(server) => server,
        Err(error) => return without_api(&error),
    };
    let now = server.unwrap_or_else(&own);
    let mut clock = LayerCheck::default();
    match server {
        Some(server) => clock.read("the clock of the API server").found(node::clock(server, own())),
        None => clock.found([Finding::new(
            "clock",
            "the API server does not say what time it is",
            "compare date on this machine and on a server",
        )
        .with(Severity::Warns)]),
    };
    let many = |what: &str, path: &str| WatchScope::all(what, path.to_owned());
    let (all_nodes, snapshots, events, leases, renewals, volumes, disks, attached) = join!(
        Box::pin(listed::<Value>(cluster, many("nodes", "/api/v1/nodes"))),
        Box::pin(listed::<Value>(cluster, etcd_snapshots())),
        Box::pin(listed::<Value>(cluster, events())),
        Box::pin(listed::<Value>(cluster, many("leases of kube-system", &leases_of("kube-system")))),
        Box::pin(listed::<Value>(cluster, many("leases of nodes", &leases_of("kube-node-lease")))),
        Box::pin(listed::<Volume>(cluster, longhorn::scope("volumes"))),
        Box::pin(listed(cluster, longhorn::scope("nodes"))),
        Box::pin(listed::<Value>(
            cluster,
            many("volume attachments", "/apis/storage.k8s.io/v1/volumeattachments")
        )),
    );
    let (pods, deployments, sets, daemons, guests, disruptions) = join!(
        Box::pin(listed::<Value>(cluster, many("pods", "/api/v1/pods"))),
        Box::pin(listed::<Value>(cluster, many("deployments", "/apis/apps/v1/deployments"))),
        Box::pin(listed::<Value>(cluster, many("stateful sets", "/apis/apps/v1/statefulsets"))),
        Box::pin(listed::<Value>(cluster, many("daemon sets", "/apis/apps/v1/daemonsets"))),
        Box::pin(listed::<Value>(cluster, many("virtual machines", &path(MACHINES)))),
        Box::pin(listed::<Value>(cluster, many("budgets", "/apis/policy/v1/poddisruptionbudgets"))),
    );
    let known = all_nodes.as_deref().unwrap_or_default();
    // No finding about nodes that could not be read.
    let by_nodes = |found: Vec<Finding>| if all_nodes.is_ok() { found } else { Vec::new() };
    let members = known.iter().filter(|it| nodes::is_member(it)).count();
    let mut quorum = LayerCheck::default();
    if members > 0 {
        quorum
            .list("nodes", all_nodes.as_deref(), nodes::voters)
            .read(format!("{members} of them members of etcd"));
        quorum.list("snapshots", snapshots.as_deref(), |all| old_snapshot(all, now));
    }
    let kinds = [
        ("deployments", parted(deployments)),
        ("stateful sets", parted(sets)),
        ("daemon sets", parted(daemons)),
    ];
    let pods = parted(pods);
    let workloads = |half: fn(&Halves) -> &[Value]| {
        let mut all = LayerCheck::default();
        for (what, read) in &kinds {
            all.list(what, read.as_ref().map(half), |some| workloads::short(what, some));
        }
        all.list("pods", pods.as_ref().map(half), |some| workloads::pods(some, now));
        all
    };
    let mut volumes_layer = LayerCheck::default();
    volumes_layer.list("volumes", volumes.as_deref(), |all| {
        let (faulted, others): (Vec<Volume>, Vec<Volume>) =
            all.iter().cloned().partition(|it| it.status.robustness == "faulted");
        [storage::unhealthy(&faulted), warnings(storage::unhealthy(&others))].concat()
    });
    let volumes = volumes.as_deref().unwrap_or_default();
    volumes_layer.list("storage nodes", disks.as_deref(), |all| warnings(storage::full(all, volumes))).list(
        "attachments",
        attached.as_deref(),
        |all| by_nodes(storage::stale_attachments(all, known)),
    );
    vec![
        LayerCheck::default()
            .list("events of nodes", events.as_deref(), |all| warnings(certificates::events(all)))
            .layer("certificates"),
        clock.layer("clock"),
        LayerCheck::default()
            .list("leases", leases.as_deref(), |all| by_nodes(network::addresses(all, known, now)))
            .layer("network"),
        quorum.layer("etcd"),
        LayerCheck::default().read(format!("{} answers", cluster.address())).layer("api"),
        LayerCheck::default()
            .list("nodes", all_nodes.as_deref(), of_nodes)
            .list("leases", renewals.as_deref(), |all| nodes::silent(known, all, now))
            .found(of_images(known, &pods))
            .layer("nodes"),
        LayerCheck::default().list("nodes", all_nodes.as_deref(), of_taints).layer("taints"),
        volumes_layer.layer("storage"),
        workloads(|it| &it.0).layer("system"),
        workloads(|it| &it.1).layer("applications"),
        LayerCheck::default().list("budgets", disruptions.as_deref(), workloads::budgets).layer("budgets"),
        LayerCheck::default()
            .list("virtual machines", guests.as_deref(), machines::not_running)
            .layer("machines"),
    ]
}

/// Whether Harvester renews the certificates of rke2 automatically, in words; `None` without Harvester.
///
/// Errors: [`Finding`] of `certificates`: it cannot be read.
pub async fn rotation(cluster: &ApiClient) -> Result<Option<String>, Finding> {
    // One setting only: others of Harvester may hold secrets.
    let all = WatchScope::all("settings", "/apis/harvesterhci.io/v1beta1/settings".to_owned());
    let fields = Some(format!("metadata.name={}", certificates::ROTATION));
    match listed::<Value>(cluster, WatchScope { fields, ..all }).await {
        Ok(settings) => Ok(certificates::rotation(&settings)),
        Err(error) => Err(Finding::unreadable("certificates", &error)),
    }
}

fn of_taints(all: &[Value]) -> Vec<Finding> {
    [nodes::tainted(all), nodes::unusual_taints(all)].concat()
}

fn of_nodes(all: &[Value]) -> Vec<Finding> {
    let mixed = nodes::mixed_versions(all).into_iter().map(|it| it.with(Severity::Warns)).collect();
    [nodes::unready(all), nodes::cordoned(all, ""), nodes::full_disks(all), mixed].concat()
}

fn of_images(nodes: &[Value], pods: &Result<Halves, Error>) -> Vec<Finding> {
    let found = |(system, others): &Halves| nodes::unused_images(nodes, &system.iter().chain(others));
    pods.as_ref().map(found).unwrap_or_default()
}

fn old_snapshot(all: &[Value], now: Timestamp) -> Vec<Finding> {
    warnings(without_hints(nodes::snapshot(all, now)))
}

fn leases_of(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Objects of the system, and others.
type Halves = (Vec<Value>, Vec<Value>);

fn parted(read: Result<Vec<Value>, Error>) -> Result<Halves, Error> {
    read.map(|all| all.into_iter().partition(workloads::is_system))
}

/// The API does not answer, or refuses us.
fn without_api(error: &Error) -> Vec<VerifyLayer> {
    let (text, next) = (error.plain(), error.next_step());
    let off = error.reach() == Reach::Unreachable && !matches!(error, Error::Kubeconfig { .. });
    let mut api = LayerCheck::default();
    api.found([if off { Finding::new("api", text, next) } else { Finding::unreadable("api", error) }]);
    let layers = super::LAYERS.into_iter().filter(|it| !["devices", "turns", "probes"].contains(it));
    let of = |layer| {
        if layer == "api" { api.layer(layer) } else { unknown(layer, super::NO_API, super::SEE_API) }
    };
    layers.map(of).collect()
}
