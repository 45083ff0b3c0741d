//! Watching over the gate after a boot, and removing stale taints.
//!
//! Not here: what the gate wants (`gate`), the cordon (zedkube). It watches the node, its lease and its pods, and
//! begins anew now and then. Sources: goals R4, R5.

mod pods;
mod upper;

use std::collections::BTreeMap;
use std::time::Duration;

use checks::Finding;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kubeapi::slim::NodeObject;
use step::Mono;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::node::LastSeen;
use crate::node::cordon::CordonSeen;
use crate::node::gate::{Check, Gate, GateFact, GateNode, GateStatus, LayerLimits, LeaseSeen};
use crate::node::taints::UnusualTaints;
use crate::{node, node::taints, storage};
use kubeapi::ApiClient;
use kubeapi::Error;
use kubeapi::names::NodeName;
use kubeapi::reply::Reach;
use kubeapi::watch::{Manner, Update, WatchScope, follow, follow_from, jitter_seed};

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a lease lasts that does not say so: what kubelets write.
const LEASE_LASTS: Duration = Duration::from_secs(40);
/// How often missing device nodes are looked for, and the clock is compared while it is wrong.
const DEVICES_LOOK: Duration = Duration::from_secs(2);
/// While what is above the volumes is waited for: between the first looks, and the longest between two. Pods that start
/// with the node are there after seconds, and others wait for its turn meanwhile.
const UPPER_LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How often an API that is away is asked what it waits for.
const WAITS_LOOK: Duration = Duration::from_secs(10);

/// How long one watch of a node in service is kept open: waiting costs one request in so long.
const AT_REST: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
pub struct BootWatch {
    pub node: NodeName,
    pub device_uuid: String,
    pub boot_id: String,
    pub limits: LayerLimits,
    /// Wanted kernel parameters that this boot is without.
    pub lost: Vec<String>,
    /// The addresses of the node before this boot; empty where they are not known.
    pub addresses: Vec<String>,
    /// What is seen of the node.
    pub seen: LastSeen,
}

/// What the machine itself shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalHealth {
    pub devices: Vec<Finding>,
    pub clock: Vec<Finding>,
}

/// What is known of pods that the former boot has left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftoverPods {
    pub pending: bool,
    /// How many were cleared since the watch began.
    pub cleared: u32,
    /// What is left, and why; empty when nothing is.
    pub words: String,
    /// What a person can do about it.
    pub next_step: String,
}

/// How the gate stands, and what was fixed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateReport {
    /// `None` before the first look.
    pub verdict: Option<GateStatus>,
    /// How often each stale taint was removed since the watch began.
    pub repairs: BTreeMap<String, u32>,
    /// Pods that the former boot has left.
    pub leftovers: LeftoverPods,
    /// The cordon of the node; `None` before the first look.
    pub cordon: Option<CordonSeen>,
}

/// Watches over the gate and removes stale taints, for as long as the future is kept; it never ends. `local` says
/// what the machine shows, `layers` what it shows of those above the node, now and then, `waits` what an API that is
/// away waits for, or nothing, `clock` the time. Each change goes to `report`; only the newest counts. Dropping the
/// future loses no more than what was seen of the lease.
pub async fn watch_over<W: Future<Output = String>>(
    cluster: &ApiClient,
    boot: &BootWatch,
    local: impl Fn() -> LocalHealth,
    layers: impl Fn() -> BoxFuture<'static, Vec<GateFact>>,
    waits: impl Fn() -> W,
    clock: impl Fn() -> Mono,
    report: &watch::Sender<GateReport>,
) {
    let (mut facts, mut looks) = (watched(cluster, boot), SelectAll::new());
    let mut gate = Gate::new(boot.node.as_str(), boot.limits, clock());
    gate.lost.clone_from(&boot.lost);
    gate.known.clone_from(&boot.addresses);
    let mut look_at = clock() + boot.limits.look;
    let (mut ask_at, mut upper) = (clock(), UpperLooks::default());
    loop {
        let LocalHealth { devices, clock: wrong } = local();
        let lacks = !devices.is_empty() || !wrong.is_empty();
        gate.hear(clock(), GateFact::Found(Check::Devices, devices));
        gate.hear(clock(), GateFact::Found(Check::Clock, wrong));
        if clock() >= look_at {
            // A watch that continues after a failure says nothing of what has not changed.
            facts = watched(cluster, boot);
            look_at = clock() + boot.limits.look;
        }
        let now = clock();
        if !gate.is_away() && now >= upper.due(&gate, now) {
            looks.push(stream::once(layers()).flat_map(stream::iter).boxed());
            looks.push(upper::look(cluster.clone(), boot.node.clone()));
            upper = UpperLooks { last: Some(now), count: upper.count.saturating_add(1) };
        }
        if gate.is_away() && clock() >= ask_at {
            gate.hear(clock(), GateFact::Waits(waits().await));
            ask_at = clock() + WAITS_LOOK;
        }
        if gate.removes_taints(clock()) {
            remove_stale_taints(cluster, boot, report).await;
        }
        let now = clock();
        let verdict = gate.judge(now);
        report.send_if_modified(|held| step::update(&mut held.verdict, Some(verdict)));
        let devices_at = lacks.then(|| now + DEVICES_LOOK);
        let asked_at = if gate.is_away() { ask_at } else { upper.due(&gate, now) };
        let wake = [gate.due(now), devices_at, Some(asked_at)].into_iter().flatten().fold(look_at, Ord::min);
        tokio::select! {
            Some(fact) = facts.next() => {
                if let GateFact::Node(Ok(node)) = &fact {
                    report.send_if_modified(|held| step::update(&mut held.cordon, Some(node.cordon)));
                }
                gate.hear(clock(), fact);
            }
            Some(fact) = looks.next() => gate.hear(clock(), fact),
            () = sleep(wake.since(now)) => {}
        }
    }
}

/// Ends when taints are on our node that an outage has left, or that most nodes do not have, and says which; until then `cordon` has its cordon. It keeps one watch
/// open, of our Node object alone, and lists once. Dropping the future loses nothing.
pub async fn until_tainted(
    cluster: &ApiClient,
    boot: &BootWatch,
    cordon: &watch::Sender<Option<CordonSeen>>,
) -> Vec<String> {
    let mut facts = node_facts(cluster, boot, Manner { slot: AT_REST, ..Manner::default() });
    loop {
        match facts.next().await {
            Some(GateFact::Node(Ok(GateNode { taints, .. }))) if !taints.is_empty() => return taints,
            Some(GateFact::Node(Ok(node))) => {
                if let Some(unusual) = node.unusual.into_iter().next() {
                    return vec![unusual.text];
                }
                cordon.send_if_modified(|held| step::update(held, Some(node.cordon)));
            }
            Some(_) => {}
            None => return std::future::pending().await,
        }
    }
}

/// Looks at the runtime, virtual IPs, pending pods and machines.
#[derive(Default)]
struct UpperLooks {
    last: Option<Mono>,
    count: u32,
}

impl UpperLooks {
    /// When the next one is due.
    fn due(&self, gate: &Gate, now: Mono) -> Mono {
        let (first, longest) = UPPER_LOOKS;
        let grown = step::doubled(first, longest, self.count);
        let pause = if gate.waits_for_upper(now) { grown } else { gate.look() };
        self.last.map_or(now, |at| at + pause)
    }
}

/// The node, its lease and its pods, and volumes: read now, and watched from then on.
fn watched(cluster: &ApiClient, boot: &BootWatch) -> SelectAll<BoxStream<'static, GateFact>> {
    stream::select_all([
        node_facts(cluster, boot, Manner::default()),
        lease_facts(cluster, boot),
        pods::follow(cluster, boot),
        volume_facts(cluster),
    ])
}

async fn remove_stale_taints(cluster: &ApiClient, boot: &BootWatch, report: &watch::Sender<GateReport>) {
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

/// What a call says, or why there is nothing to be said; of one that has not reached the API, that.
fn fact<T>(read: Result<T, Error>, of: impl FnOnce(Result<T, String>) -> GateFact) -> GateFact {
    match read {
        Ok(seen) => of(Ok(seen)),
        Err(error) => {
            debug!(error = error.line(), "trouble at the gate");
            match error.reach() {
                Reach::Unreachable => GateFact::Away(error.line()),
                Reach::Reachable | Reach::Throttled => of(Err(error.advice())),
            }
        }
    }
}

/// What a call has found, or that it could not be looked.
fn found(read: Result<Vec<Finding>, Error>, check: Check) -> GateFact {
    fact(read, |read| GateFact::Found(check, read.unwrap_or_else(|why| check.unread(&why))))
}

fn node_facts(cluster: &ApiClient, boot: &BootWatch, manner: Manner) -> BoxStream<'static, GateFact> {
    let (boot, asks) = (boot.clone(), cluster.clone());
    let scope = node::scope(&boot.node);
    let heard = follow_from::<NodeObject>(cluster.clone(), scope, manner, jitter_seed()).boxed();
    let next = move |(mut heard, mut unusual): (BoxStream<'static, _>, UnusualTaints)| {
        let (boot, asks) = (boot.clone(), asks.clone());
        async move {
            let fact = node_fact(&asks, &boot, heard.next().await?, &mut unusual).await;
            Some((fact, (heard, unusual)))
        }
    };
    stream::unfold((heard, UnusualTaints::default()), next).boxed()
}

async fn node_fact(
    cluster: &ApiClient,
    boot: &BootWatch,
    heard: Update<NodeObject>,
    unusual: &mut UnusualTaints,
) -> GateFact {
    let node = match heard.one(|it| it.metadata.name.as_deref() == Some(boot.node.as_str())) {
        Ok(Some(node)) => node,
        Ok(None) => return GateFact::Node(Err("there is no such Node object".to_owned())),
        Err(error) => return fact(Err(error), GateFact::Node),
    };
    let owned = node::owned(cluster, &node, &boot.device_uuid);
    boot.seen.set(owned.as_ref().ok().cloned());
    let seen = match owned {
        Ok(facts) => Ok(GateNode {
            not_ready: node::not_ready(&node),
            taints: taints::of_outage(&node),
            unusual: unusual.of(cluster, &node).await,
            addresses: addresses(&node),
            cordon: facts.seen(),
            volumes: node::recorded_volumes(&node).filter(|it| it.is_before(&boot.boot_id)),
        }),
        Err(error) => Err(error),
    };
    fact(seen, GateFact::Node)
}

fn addresses(node: &NodeObject) -> Vec<String> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.filter(|it| it.type_ == "InternalIP").map(|it| it.address.clone()).collect()
}

fn lease_scope(boot: &BootWatch) -> WatchScope {
    WatchScope {
        what: format!("lease {LEASES}/{}", boot.node),
        path: Lease::url_path(&(), Some(LEASES)),
        fields: Some(format!("metadata.name={}", boot.node)),
        labels: None,
    }
}

fn lease_facts(cluster: &ApiClient, boot: &BootWatch) -> BoxStream<'static, GateFact> {
    let boot = boot.clone();
    let heard = follow::<Lease>(cluster.clone(), lease_scope(&boot), jitter_seed());
    heard.map(move |heard| lease_fact(&boot, heard)).boxed()
}

fn lease_fact(boot: &BootWatch, heard: Update<Lease>) -> GateFact {
    let lease = heard.one(|it| it.metadata.name.as_deref() == Some(boot.node.as_str()));
    fact(lease, |lease| {
        let none = || "there is no such lease".to_owned();
        GateFact::Lease(lease.and_then(|it| it.as_ref().map(renewal).ok_or_else(none)))
    })
}

fn renewal(lease: &Lease) -> LeaseSeen {
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string());
    let lasts = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|secs| u64::try_from(secs).ok());
    LeaseSeen {
        renewed: renewed.unwrap_or_default(),
        lasts: lasts.filter(|secs| *secs > 0).map_or(LEASE_LASTS, Duration::from_secs),
    }
}

/// Volumes as they are, again whenever one of them changes. Without Longhorn nothing is followed.
fn volume_facts(cluster: &ApiClient) -> BoxStream<'static, GateFact> {
    let seen = storage::follow_troubled(cluster.clone(), jitter_seed());
    seen.map(|seen| fact(seen, GateFact::Volumes)).boxed()
}
