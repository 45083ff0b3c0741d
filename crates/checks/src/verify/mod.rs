//! Whether a cluster is well again after an outage: each layer with what was read, what is not well, and what to do.
//!
//! `read` asks the cluster, once for each kind of object. Not here: this machine (`local`), probes and words for a
//! person (zedbox).
//!
//! Reads a cluster from its etcd up, and judges each layer. Without the API nothing else is read. Dropping the future
//! loses nothing.

use futures::join;
use jiff::Timestamp;
use kubeapi::machines::calls::{MACHINES, path};
use kubeapi::reply::Reach;
use kubeapi::slim::longhorn::{self, Volume};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error};
use serde_json::Value;
use step::SmallSort as _;
use topics::{VerifyFinding, VerifyLayer, VerifyResult, number};

use crate::cluster::{etcd_snapshots, events, listed, server_time};
use crate::finding::{warnings, without_hints};
use crate::{Finding, Severity, certificates, network, nodes, storage, workloads};

#[cfg(test)]
mod tests;

/// The layers, lowest first, as they are named in reports.
pub const LAYERS: [&str; 15] = [
    "devices",
    "certificates",
    "clock",
    "network",
    "etcd",
    "api",
    "nodes",
    "taints",
    "turns",
    "storage",
    "system",
    "applications",
    "budgets",
    "machines",
    "probes",
];

/// Why a layer is unknown while the API does not answer, and the next step.
pub const NO_API: &str = "not checked, as the Kubernetes API cannot be used";
/// See [`NO_API`].
pub const SEE_API: &str = "see layer api";

/// A layer while it is looked at.
#[derive(Debug, Default)]
pub struct LayerCheck {
    read: Vec<String>,
    found: Vec<Finding>,
}

impl LayerCheck {
    /// What was read, as `3 nodes`.
    pub fn read(&mut self, what: impl Into<String>) -> &mut Self {
        self.read.push(what.into());
        self
    }

    /// What was found in it.
    pub fn found(&mut self, found: impl IntoIterator<Item = Finding>) -> &mut Self {
        self.found.extend(found);
        self
    }

    /// Judges a list by `rule`, or says that it could not be read.
    pub fn list<T>(
        &mut self,
        what: &str,
        read: Result<&[T], &Error>,
        rule: impl FnOnce(&[T]) -> Vec<Finding>,
    ) -> &mut Self {
        match read {
            Ok(all) => self.read(number(all.len(), what.trim_end_matches('s'))).found(rule(all)),
            Err(error) => self.found([Finding::unreadable(what, error)]),
        }
    }

    /// The layer, with the worst first.
    pub fn layer(&mut self, layer: &str) -> VerifyLayer {
        let mut findings: Vec<VerifyFinding> =
            std::mem::take(&mut self.found).into_iter().map(shown).collect();
        findings.order_by_key(|it| std::cmp::Reverse(it.result));
        findings.dedup();
        let worst = findings.iter().map(|it| it.result).max();
        let unread = if self.read.is_empty() { VerifyResult::Skipped } else { VerifyResult::Pass };
        VerifyLayer {
            layer: layer.to_owned(),
            result: worst.unwrap_or(unread),
            read: self.read.join(", "),
            findings,
        }
    }
}

/// A layer that was not looked at, and why.
pub fn skipped(layer: &str, why: &str) -> VerifyLayer {
    VerifyLayer { layer: layer.to_owned(), read: why.to_owned(), ..VerifyLayer::default() }
}

/// A layer that cannot be looked at while one below it does not work.
pub fn unknown(layer: &str, why: &str, next_step: &str) -> VerifyLayer {
    let result = VerifyResult::Unknown;
    let finding = VerifyFinding { result, text: why.to_owned(), next_step: next_step.to_owned() };
    VerifyLayer { layer: layer.to_owned(), result, read: String::new(), findings: vec![finding] }
}

fn shown(finding: Finding) -> VerifyFinding {
    let result = match finding.severity {
        _ if finding.unread => VerifyResult::Unknown,
        Severity::Blocks => VerifyResult::Fail,
        Severity::Warns => VerifyResult::Warn,
        Severity::Hint => VerifyResult::Pass,
    };
    VerifyFinding { result, text: finding.text, next_step: finding.next }
}

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
        Some(server) => clock.read("the clock of the API server").found(nodes::clock(server, own())),
        None => clock.found([Finding::new(
            "clock",
            "the API server does not say what time it is",
            "compare date on this machine and on a server",
        )
        .with(Severity::Warns)]),
    };
    let many =
        |what: &str, path: &str| Box::pin(listed::<Value>(cluster, WatchScope::all(what, path.to_owned())));
    let (all_nodes, snapshots, events, leases, renewals, volumes, disks, attached) = join!(
        many("nodes", "/api/v1/nodes"),
        Box::pin(listed::<Value>(cluster, etcd_snapshots())),
        Box::pin(listed::<Value>(cluster, events())),
        many("leases of kube-system", &leases_of("kube-system")),
        many("leases of nodes", &leases_of("kube-node-lease")),
        Box::pin(listed::<Volume>(cluster, longhorn::scope("volumes"))),
        Box::pin(listed(cluster, longhorn::scope("nodes"))),
        many("volume attachments", "/apis/storage.k8s.io/v1/volumeattachments"),
    );
    let (pods, deployments, sets, daemons, guests, disruptions) = join!(
        many("pods", "/api/v1/pods"),
        many("deployments", "/apis/apps/v1/deployments"),
        many("stateful sets", "/apis/apps/v1/statefulsets"),
        many("daemon sets", "/apis/apps/v1/daemonsets"),
        many("virtual machines", &path(MACHINES)),
        many("budgets", "/apis/policy/v1/poddisruptionbudgets"),
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
            .list("certificate events", events.as_deref(), |all| warnings(certificates::events(all)))
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
            .list("virtual machines", guests.as_deref(), workloads::not_running)
            .layer("machines"),
    ]
}

/// Whether Harvester renews the certificates of rke2 automatically, in words; `None` without Harvester.
///
/// Errors: [`Finding`] of `certificates`: it cannot be read.
pub async fn rotation(cluster: &ApiClient) -> Result<Option<String>, Finding> {
    // One setting only: others of Harvester may hold secrets.
    let path = "/apis/harvesterhci.io/v1beta1/settings".to_owned();
    match listed::<Value>(cluster, WatchScope::one("settings", path, certificates::ROTATION)).await {
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
    let layers = LAYERS.into_iter().filter(|it| !["devices", "turns", "probes"].contains(it));
    let of = |layer| {
        if layer == "api" { api.layer(layer) } else { unknown(layer, NO_API, SEE_API) }
    };
    layers.map(of).collect()
}
