//! Watching over the gate after a boot, and removing stale taints.
//!
//! Not here: what the gate wants (`gate`), the cordon (zedkube). It watches the node, its lease and its pods, and
//! reads everything now and then without an event: a watch that continues after a failure says nothing of what has not
//! changed. Sources: goals R4, R5.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use step::Mono;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::node::gate::{Fact, Gate, Layer, LeaseSeen, Limits, NodeSeen, Verdict, VolumesSeen};
use crate::plan::tier::Tier;
use crate::{calls::pods, node, node::taints, storage};
use kubeapi::Cluster;
use kubeapi::names::NodeName;
use kubeapi::reply::Reach;
use kubeapi::slim::{ContainerStatus, Meta, Pod};
use kubeapi::watch::{Scope, Update, follow};
use kubeapi::{Error, nodes};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a lease lasts that does not say so: what kubelets write.
const LEASE_LASTS: Duration = Duration::from_secs(40);
/// How often missing device nodes are looked for.
const DEVICES_LOOK: Duration = Duration::from_secs(2);
/// How often an API that is away is asked what it waits for.
const WAITS_LOOK: Duration = Duration::from_secs(10);

/// What to watch over.
#[derive(Debug, Clone)]
pub struct Boot {
    /// Our node.
    pub node: NodeName,
    /// The UUID of our device.
    pub device_uuid: String,
    /// The boot that it is.
    pub boot_id: String,
    /// Limits of the gate.
    pub limits: Limits,
    /// Wanted kernel parameters that this boot is without.
    pub lost: Vec<String>,
}

/// How the gate stands, and what was fixed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// `None` before the first look.
    pub verdict: Option<Verdict>,
    /// How often each stale taint was removed since the watch began.
    pub repairs: BTreeMap<String, u32>,
}

/// Watches over the gate and removes stale taints, for as long as the future is kept; it never ends. `missing` tells
/// which device nodes are not there, `waits` what an API that is away waits for, or nothing, `clock` the time. Each
/// change goes to `report`; only the newest counts. Dropping the future loses no more than what was seen of the lease.
pub async fn watch_over<W: Future<Output = String>>(
    cluster: &Cluster,
    boot: &Boot,
    missing: impl Fn() -> Vec<String>,
    waits: impl Fn() -> W,
    clock: impl Fn() -> Mono,
    report: &watch::Sender<Report>,
) {
    let mut facts: SelectAll<BoxStream<'static, Fact>> = SelectAll::new();
    facts.push(node_facts(cluster, boot));
    facts.push(lease_facts(cluster, boot));
    facts.push(pod_facts(cluster, boot));
    facts.push(volume_facts(cluster));
    let mut gate = Gate::new(boot.node.as_str(), boot.limits, clock());
    gate.hear(clock(), Fact::Lost(boot.lost.clone()));
    let mut look_at = clock() + boot.limits.look;
    let mut ask_at = clock();
    loop {
        let missing = missing();
        let lacks = !missing.is_empty();
        gate.hear(clock(), Fact::Devices(missing));
        if clock() >= look_at {
            // Beside the watches, so that no renewal is heard late.
            facts.push(looked(cluster.clone(), boot.clone()));
            look_at = clock() + boot.limits.look;
        }
        if gate.is_away() && clock() >= ask_at {
            gate.hear(clock(), Fact::Waits(waits().await));
            ask_at = clock() + WAITS_LOOK;
        }
        if gate.mends(clock()) {
            mend(cluster, boot, report).await;
        }
        let now = clock();
        let verdict = gate.judge(now);
        report.send_if_modified(|held| {
            let changed = held.verdict.as_ref() != Some(&verdict);
            held.verdict = Some(verdict);
            changed
        });
        let devices_at = lacks.then(|| now + DEVICES_LOOK);
        let asked_at = gate.is_away().then_some(ask_at);
        let wake = [gate.due(now), devices_at, asked_at].into_iter().flatten().fold(look_at, Ord::min);
        tokio::select! {
            Some(fact) = facts.next() => gate.hear(clock(), fact),
            () = sleep(wake.since(now)) => {}
        }
    }
}

/// Ends when taints of an outage are on our node, and says which. It keeps one watch open, of our Node object alone,
/// and lists once. Dropping the future loses nothing.
pub async fn until_tainted(cluster: &Cluster, boot: &Boot) -> Vec<String> {
    let mut facts = node_facts(cluster, boot);
    loop {
        match facts.next().await {
            Some(Fact::Node(NodeSeen { taints, .. })) if !taints.is_empty() => return taints,
            Some(_) => {}
            None => return std::future::pending().await,
        }
    }
}

/// One look at everything, from the bottom up.
fn looked(cluster: Cluster, boot: Boot) -> BoxStream<'static, Fact> {
    let look = async move {
        if let Err(error) = nodes::probe(&cluster).await
            && error.reach() == Reach::Unreachable
        {
            return vec![Fact::Service(Err(error.line()))];
        }
        let node = node_fact(&boot, listed(&cluster, &node::scope(&boot.node)).await);
        let lease = lease_fact(&boot, listed(&cluster, &lease_scope(&boot)).await);
        let storage = match listed::<Lean>(&cluster, &pod_scope(&boot)).await {
            Update::Listed(all) => crashing_pods(all.into_iter().filter_map(|pod| pod.crashing)),
            Update::Put(_) | Update::Gone(_) => return vec![node, lease],
            Update::Trouble(error) => trouble(Layer::Storage, &error),
        };
        let volumes = volume_fact(storage::troubled(&cluster).await);
        vec![Fact::Service(Ok(())), node, lease, storage, volumes]
    };
    stream::once(look).flat_map(stream::iter).boxed()
}

async fn listed<K: DeserializeOwned + Send>(cluster: &Cluster, scope: &Scope) -> Update<K> {
    match scope.list_all::<K>(cluster).await {
        Ok(list) => Update::Listed(list.items),
        Err(error) => Update::Trouble(error),
    }
}

async fn mend(cluster: &Cluster, boot: &Boot, report: &watch::Sender<Report>) {
    match taints::remove_stale(cluster, &boot.node, &boot.device_uuid).await {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            for taint in &removed {
                warn!(node = %boot.node, taint, "stale taint removed: kubelet is Ready and renews its lease");
            }
            report.send_modify(|held| {
                for taint in removed {
                    *held.repairs.entry(taint).or_default() += 1;
                }
            });
        }
        Err(error) => warn!(node = %boot.node, error = error.line(), "cannot remove stale taints yet"),
    }
}

/// What a failed call says of a layer, or of the API below it.
fn trouble(layer: Layer, error: &Error) -> Fact {
    debug!(layer = layer.text(), error = error.line(), "trouble at the gate");
    match error.reach() {
        Reach::Unreachable => Fact::Away(error.line()),
        Reach::Reachable | Reach::Throttled => {
            Fact::Trouble(layer, format!("{} ({})", error.line(), error.next_step()))
        }
    }
}

fn heard<K: DeserializeOwned + Send + 'static>(
    cluster: &Cluster,
    scope: Scope,
) -> BoxStream<'static, Update<K>> {
    follow::<K>(cluster.clone(), scope, RandomState::new().hash_one("jitter")).boxed()
}

fn node_facts(cluster: &Cluster, boot: &Boot) -> BoxStream<'static, Fact> {
    let boot = boot.clone();
    heard::<Node>(cluster, node::scope(&boot.node)).map(move |heard| node_fact(&boot, heard)).boxed()
}

fn node_fact(boot: &Boot, heard: Update<Node>) -> Fact {
    let node = match heard {
        Update::Listed(all) => {
            all.into_iter().find(|it| it.metadata.name.as_deref() == Some(boot.node.as_str()))
        }
        Update::Put(node) => Some(node),
        Update::Gone(_) => None,
        Update::Trouble(error) => return trouble(Layer::Node, &error),
    };
    let Some(node) = node else {
        return Fact::Trouble(Layer::Node, "there is no such Node object".to_owned());
    };
    match node::owned(&node, &boot.device_uuid) {
        Ok(_) => Fact::Node(NodeSeen {
            not_ready: not_ready(&node),
            taints: taints::of_outage(&node),
            volumes: node::recorded_volumes(&node).filter(|it| it.is_before(&boot.boot_id)),
        }),
        Err(error) => trouble(Layer::Node, &error),
    }
}

/// What condition Ready says, or nothing when it is True.
fn not_ready(node: &Node) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    match conditions.into_iter().find(|it| it.type_ == "Ready") {
        None => "it has no condition Ready yet".to_owned(),
        Some(ready) if ready.status == "True" => String::new(),
        Some(ready) => {
            let said = [ready.reason.as_deref(), ready.message.as_deref()];
            let said: Vec<&str> = said.into_iter().flatten().filter(|it| !it.is_empty()).collect();
            format!("Ready is {} {}", ready.status, said.join(": ")).trim_end().to_owned()
        }
    }
}

fn lease_scope(boot: &Boot) -> Scope {
    Scope {
        what: format!("lease {LEASES}/{}", boot.node),
        path: Lease::url_path(&(), Some(LEASES)),
        fields: Some(format!("metadata.name={}", boot.node)),
        labels: None,
    }
}

fn lease_facts(cluster: &Cluster, boot: &Boot) -> BoxStream<'static, Fact> {
    let boot = boot.clone();
    heard::<Lease>(cluster, lease_scope(&boot)).map(move |heard| lease_fact(&boot, heard)).boxed()
}

fn lease_fact(boot: &Boot, heard: Update<Lease>) -> Fact {
    let lease = match heard {
        Update::Listed(all) => {
            all.into_iter().find(|it| it.metadata.name.as_deref() == Some(boot.node.as_str()))
        }
        Update::Put(lease) => Some(lease),
        Update::Gone(_) => None,
        Update::Trouble(error) => return trouble(Layer::Lease, &error),
    };
    lease.map_or_else(
        || Fact::Trouble(Layer::Lease, "there is no such lease".to_owned()),
        |lease| Fact::Lease(seen(&lease)),
    )
}

fn seen(lease: &Lease) -> LeaseSeen {
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
    let lasts = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|secs| u64::try_from(secs).ok());
    LeaseSeen {
        renewed: renewed.unwrap_or_default(),
        lasts: lasts.filter(|secs| *secs > 0).map_or(LEASE_LASTS, Duration::from_secs),
    }
}

/// A pod of which only this much is kept.
#[derive(Debug, Clone)]
struct Lean {
    uid: Option<String>,
    /// Namespace and name when it gives volumes and is crash-looping.
    crashing: Option<String>,
}

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(from)?;
        let crashing = is_crash_looping(&pod) && pods::facts(&pod).tier == Tier::Storage;
        let Meta { name, namespace, uid, .. } = pod.metadata;
        let named =
            format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
        Ok(Self { uid, crashing: crashing.then_some(named) })
    }
}

fn is_crash_looping(pod: &Pod) -> bool {
    let waits = |it: &ContainerStatus| {
        let waiting = it.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    pod.status.as_ref().is_some_and(|status| {
        let all = [&status.container_statuses, &status.init_container_statuses];
        all.into_iter().flatten().flatten().any(waits)
    })
}

fn pod_scope(boot: &Boot) -> Scope {
    // All of them: the apps that a drain keeps are storage for the most part.
    Scope { labels: None, ..pods::scope(&boot.node) }
}

/// Volumes as they are, again whenever one of them changes. Without Longhorn nothing is followed.
fn volume_facts(cluster: &Cluster) -> BoxStream<'static, Fact> {
    storage::follow_troubled(cluster.clone(), RandomState::new().hash_one("jitter")).map(volume_fact).boxed()
}

fn volume_fact(seen: Result<VolumesSeen, Error>) -> Fact {
    seen.map_or_else(|error| trouble(Layer::Volumes, &error), Fact::Volumes)
}

fn crashing_pods(crashing: impl Iterator<Item = String>) -> Fact {
    let mut all: Vec<String> = crashing.collect();
    all.sort();
    Fact::Storage(all)
}

fn pod_facts(cluster: &Cluster, boot: &Boot) -> BoxStream<'static, Fact> {
    let crashing: BTreeMap<String, String> = BTreeMap::new();
    let uid = |pod: &Lean| pod.uid.clone().unwrap_or_default();
    heard::<Lean>(cluster, pod_scope(boot))
        .scan(crashing, move |crashing, heard| {
            match heard {
                Update::Listed(all) => {
                    let all = all.into_iter().map(|pod| (uid(&pod), pod.crashing));
                    *crashing = all.filter_map(|(uid, named)| Some((uid, named?))).collect();
                }
                Update::Put(pod) => match pod.crashing.clone() {
                    Some(named) => drop(crashing.insert(uid(&pod), named)),
                    None => drop(crashing.remove(&uid(&pod))),
                },
                Update::Gone(pod) => drop(crashing.remove(&uid(&pod))),
                Update::Trouble(error) => {
                    return std::future::ready(Some(trouble(Layer::Storage, &error)));
                }
            }
            std::future::ready(Some(crashing_pods(crashing.values().cloned())))
        })
        .boxed()
}
