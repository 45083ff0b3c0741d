//! What a whole-site operation reads and writes of the cluster: applications with volumes, attached and faulted
//! volumes, virtual machines, the virtual IP of the API; and what speaks against an operation before it begins.
//!
//! Not here: when, and what follows (`coordinate`), how a machine is stopped and started (`kubeapi::machines`), nodes
//! and the Lease (`crate::calls`). Every call has the deadline of [`ApiClient`]. What is not installed is not there: a
//! list of an unknown kind is empty. An application is changed by one patch that names its version and says what it had
//! before.

use std::collections::BTreeSet;
use std::time::Duration;

use checks::cluster;
use checks::network::{self, VirtualIp};
pub use checks::{Finding, blocking};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Resource;
use kube::api::Patch;
use kube::core::Request;
use kubeapi::machines::SITE;
pub use kubeapi::machines::calls::act;
use kubeapi::machines::calls::{GUESTS, LAUNCHERS, MACHINES, SETS, described, is_over, path};
use kubeapi::names::STORAGE_NAMESPACE;
use kubeapi::nodes::signed;
use kubeapi::objects::{items, named, text};
use kubeapi::slim::longhorn::{self, Volume};
use kubeapi::watch::WatchScope;
use kubeapi::{ApiClient, Error, found};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use step::Inserted as _;
use tokio::net::TcpStream;

use super::record::{Machines, PhaseReadings, ScaledWorkload, SitePhase};
use crate::turn::pulses::Pulse;
use crate::turn::record::{Holder, TurnRecord};
use crate::turn::rule::TurnNode;

/// Annotation of a workload: what a whole-site operation changed there, a JSON object [`Scaled`].
pub const SCALED: &str = "pillar-rs/site-scaled";
/// Namespaces in which workloads are never scaled: the cluster's own, storage, machines.
const LEFT_ALONE: [&str; 6] =
    ["kube-system", "kube-public", "kube-node-lease", STORAGE_NAMESPACE, "kubevirt", "cdi"];

/// What was changed on a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaled {
    pub id: String,
    /// What it had before.
    pub replicas: i64,
}

/// Reads what this phase needs, for the operation `id`.
pub async fn find(cluster: &ApiClient, phase: &SitePhase, id: &str) -> Result<PhaseReadings, Error> {
    let mut found = PhaseReadings::default();
    match phase {
        SitePhase::Stopping => {
            (found.machines, found.work) = futures::try_join!(machines(cluster), applications(cluster, id))?;
        }
        SitePhase::Detaching => found.blocking = attached(cluster).await?,
        SitePhase::Starting => {
            let all: Vec<Volume> = cluster::listed(cluster, longhorn::scope("volumes")).await?;
            let faulted = all.iter().filter(|it| it.status.robustness == "faulted");
            found.blocking = faulted.map(|it| format!("storage, a faulted volume: {}", it.shown())).collect();
        }
        SitePhase::Restoring => {
            (found.machines, found.work) = futures::try_join!(machines(cluster), scaled(cluster, id))?;
        }
        // Nothing but the nodes.
        SitePhase::Announced
        | SitePhase::Cordoning
        | SitePhase::WorkersGoing
        | SitePhase::ServersGoing
        | SitePhase::Uncordoning
        | SitePhase::Restarting
        | SitePhase::Stopped
        | SitePhase::Checking
        | SitePhase::Stranger(_) => {}
    }
    Ok(found)
}

/// Volumes that are attached to a node, and those of Longhorn that are not detached.
async fn attached(cluster: &ApiClient) -> Result<Vec<String>, Error> {
    let path = VolumeAttachment::url_path(&(), None);
    let (all, longhorn) = futures::try_join!(
        cluster::listed::<Value>(cluster, WatchScope::all("volume attachments", path)),
        cluster::listed::<Volume>(cluster, longhorn::scope("volumes"))
    )?;
    let attached = all.iter().filter(|it| it["status"]["attached"] == true).map(|it| {
        let spec = &it["spec"];
        format!("{} on node {}", text(&spec["source"]["persistentVolumeName"]), text(&spec["nodeName"]))
    });
    let mut found: Vec<String> = attached.collect();
    let known = found.join(" ");
    let more = longhorn.iter().filter(|it| it.status.state != "detached" && !known.contains(&it.name()));
    found.extend(more.map(Volume::shown));
    Ok(found)
}

async fn workloads(cluster: &ApiClient) -> Result<Vec<(&'static str, Value)>, Error> {
    let (deployments, sets) = (Deployment::url_path(&(), None), StatefulSet::url_path(&(), None));
    let mut all = Vec::new();
    for (kind, path) in [("deployments", deployments), ("statefulsets", sets)] {
        let listed = WatchScope::all(kind, path).list_all::<Value>(cluster).await?;
        all.extend(listed.items.into_iter().map(|it| (kind, it)));
    }
    Ok(all)
}

fn mark(object: &Value) -> Option<Scaled> {
    serde_json::from_str(object["metadata"]["annotations"][SCALED].as_str()?).ok()
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn is_once(modes: &Value) -> bool {
    items(modes).iter().any(|it| it == "ReadWriteOnce" || it == "ReadWriteOncePod")
}

/// Workloads that have replicas and pods with a volume that one node alone may use: what they are to have, and what is
/// to be written there.
async fn applications(cluster: &ApiClient, id: &str) -> Result<Vec<ScaledWorkload>, Error> {
    let claims = WatchScope::all("persistent volume claims", "/api/v1/persistentvolumeclaims".to_owned());
    let claims = claims.list_all::<Value>(cluster).await?;
    let once: BTreeSet<String> =
        claims.items.iter().filter(|it| is_once(&it["spec"]["accessModes"])).map(named).collect();
    let stops = |(kind, it): &(&'static str, Value)| {
        let namespace = text(&it["metadata"]["namespace"]);
        let volumes = items(&it["spec"]["template"]["spec"]["volumes"]);
        let claim = |it: &Value| format!("{namespace}/{}", text(&it["persistentVolumeClaim"]["claimName"]));
        let ephemeral = |it: &Value| is_once(&it["ephemeral"]["volumeClaimTemplate"]["spec"]["accessModes"]);
        let templates = items(&it["spec"]["volumeClaimTemplates"]);
        let own = *kind == "statefulsets" && templates.iter().any(|it| is_once(&it["spec"]["accessModes"]));
        !LEFT_ALONE.contains(&namespace.as_str())
            && replicas(it) > 0
            && (own || volumes.iter().any(|it| once.contains(&claim(it)) || ephemeral(it)))
    };
    let order = |(kind, it): (&'static str, Value)| {
        // Scaled up again by somebody in between: what it had first is kept.
        let before = mark(&it).filter(|it| it.id == id).map_or_else(|| replicas(&it), |it| it.replicas);
        let mark = json!(Scaled { id: id.to_owned(), replicas: before });
        workload(kind, &it, 0, Some(mark.to_string()))
    };
    Ok(workloads(cluster).await?.into_iter().filter(stops).map(order).collect())
}

/// Workloads that the operation `id` has scaled down. Those that somebody has scaled since keep what they have.
async fn scaled(cluster: &ApiClient, id: &str) -> Result<Vec<ScaledWorkload>, Error> {
    let order = |(kind, it): (&'static str, Value)| {
        let mark = mark(&it).filter(|it| it.id == id)?;
        let wanted = if replicas(&it) == 0 { mark.replicas } else { replicas(&it) };
        Some(workload(kind, &it, wanted, None))
    };
    Ok(workloads(cluster).await?.into_iter().filter_map(order).collect())
}

fn workload(kind: &'static str, object: &Value, replicas: i64, mark: Option<String>) -> ScaledWorkload {
    let meta = &object["metadata"];
    ScaledWorkload {
        kind,
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        replicas,
        mark,
        version: text(&meta["resourceVersion"]),
    }
}

/// Scales one workload, with what it had written beside it in the same patch. A lost race changes nothing: it is read
/// again.
/// Errors: those of [`ApiClient`] but a conflict.
pub async fn scale(cluster: &ApiClient, it: &ScaledWorkload) -> Result<(), Error> {
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": it.version, "annotations": { SCALED: it.mark } },
        "spec": { "replicas": it.replicas },
    }));
    let all = format!("/apis/apps/v1/namespaces/{}/{}", it.namespace, it.kind);
    let what = format!("scale {} {}/{} to {}", it.kind, it.namespace, it.name, it.replicas);
    match cluster.order(&what, Request::new(all).patch(&it.name, &signed(), &patch)).await {
        Err(error) if error.is_conflict() => Ok(()),
        // One that was deleted since it was read is no error.
        other => found(other).map(drop),
    }
}

/// Machines, their sets, and the guests that are there.
async fn machines(cluster: &ApiClient) -> Result<Machines, Error> {
    let guests = WatchScope::all("virtual machines", path(GUESTS)).list_installed::<Value>(cluster).await?;
    let Some(guests) = guests else { return Ok(Machines::default()) };
    let launchers = WatchScope {
        labels: Some(LAUNCHERS.to_owned()),
        ..WatchScope::all("launchers of virtual machines", Pod::url_path(&(), None))
    };
    let (machines, sets, launchers) = futures::try_join!(
        cluster::listed::<Value>(cluster, WatchScope::all(MACHINES, path(MACHINES))),
        cluster::listed::<Value>(cluster, WatchScope::all(SETS, path(SETS))),
        cluster::listed::<Value>(cluster, launchers)
    )?;
    let guests: Vec<&Value> = guests.iter().filter(|it| !is_over(it)).collect();
    let running: BTreeSet<String> = guests.iter().map(|it| named(it)).into_set();
    let own = |machine: &Value| guests.iter().find(|it| named(it) == named(machine)).copied();
    let mut found = Machines {
        all: machines.iter().map(|it| described(MACHINES, it, own(it), &SITE)).collect(),
        guests: running.iter().cloned().collect(),
        loose: guests.iter().filter(|it| is_loose(it)).map(|it| named(it)).collect(),
        starting: guests.iter().filter(|it| it["status"]["phase"] != "Running").count(),
    };
    found.all.extend(sets.iter().map(|it| described(SETS, it, None, &SITE)));
    let guest = |pod: &Value| {
        let meta = &pod["metadata"];
        format!("{}/{}", text(&meta["namespace"]), text(&meta["annotations"]["kubevirt.io/domain"]))
    };
    let left = launchers.iter().filter(|it| !is_over(it) && !running.contains(&guest(it)));
    found.guests.extend(left.map(|it| format!("launcher {}", named(it))));
    Ok(found)
}

fn is_loose(guest: &Value) -> bool {
    let owner = |it: &Value| {
        matches!(it["kind"].as_str(), Some("VirtualMachine" | "VirtualMachineInstanceReplicaSet"))
    };
    !items(&guest["metadata"]["ownerReferences"]).iter().any(owner)
}

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The leases of kube-vip as they were seen first with a holder that is Ready; one is renewed once its time is another one.
#[derive(Debug, Default)]
pub struct Address(Vec<VirtualIp>);

impl Address {
    /// Why it is not there yet.
    pub async fn look(&mut self, cluster: &ApiClient, nodes: &[TurnNode]) -> Result<Option<String>, Error> {
        let is_ready =
            |name: &str| nodes.iter().any(|it| it.name == name && it.ready && it.pulse != Pulse::Still);
        let all = cluster::virtual_ips(cluster, is_ready).await?;
        for it in &all {
            if it.ready && !self.0.iter().any(|first| first.lease == it.lease) {
                self.0.push(it.clone());
            }
        }
        if let Some(found) = network::virtual_ips(&network::renewed(&all, &self.0)).pop() {
            return Ok(Some(found.text));
        }
        let address = if all.is_empty() { None } else { configured(cluster).await? };
        let Some(address) = address else { return Ok(None) };
        let why = match tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => return Ok(None),
            Ok(Err(why)) => why.to_string(),
            Err(_elapsed) => format!("no answer within {} s", CONNECT_LIMIT.as_secs()),
        };
        Ok(Some(format!("the virtual IP {address}: {why}")))
    }
}

/// Address and port of the control plane, as kube-vip was given them.
async fn configured(cluster: &ApiClient) -> Result<Option<String>, Error> {
    let variables = cluster::kube_vip(cluster, None).await?;
    let given = |name: &str| variables.get(name).filter(|it| !it.is_empty());
    let port = given("port").map_or("6443", String::as_str);
    let address = given("address").or_else(|| given("vip_address"));
    Ok(address
        .filter(|_| given("cp_enable").is_none_or(|it| it == "true"))
        .map(|it| if it.contains(':') { format!("[{it}]:{port}") } else { format!("{it}:{port}") }))
}

pub const CODES: [&str; 8] =
    [TURN, "nodes", "paused", "etcd", "snapshot", "certificates", "volumes", "backups"];
/// Of a turn that is held.
pub const TURN: &str = "turn";

pub(super) fn turn_held(it: &Holder) -> Finding {
    let text = format!("node {} holds a turn ({}, phase {})", it.node, it.op.text(), it.phase.text());
    Finding::new(TURN, text, "wait until it is back, or stop what it does: --pass turn")
}

/// Looks at all of it; `now` is the wall clock.
pub async fn look(cluster: &ApiClient, record: &TurnRecord, now: Timestamp) -> Vec<Finding> {
    let mut found: Vec<Finding> = record.holders.iter().map(turn_held).collect();
    found.extend(cluster::site(cluster, now).await);
    found
}
