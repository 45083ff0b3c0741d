//! Watching over the gate after a boot, and removing stale taints.
//!
//! Not here: what the gate wants (`gate`), the cordon (zedkube). It watches the node, its lease and its pods, and
//! begins anew now and then.
//!
//! Pods of our node, as the gate after a boot wants to know them: storage that is crash-looping, and what of
//! kube-system is not Ready.
//!
//! Virtual IPs, pods that no node has taken, and virtual machines: read now and then for the gate after a boot, as none
//! of them is worth a watch. Sources: the documentation of kube-vip (leases); the words of the Kubernetes scheduler
//! (plugins NodePorts, TaintToleration).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use checks::network::VirtualIp;
use checks::{Finding, IllObject, cluster, workloads};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kubeapi::names::{NodeName, SYSTEM_NAMESPACE};
use kubeapi::objects::{items, text};
use kubeapi::reply::Reach;
use kubeapi::slim::{NodeObject, Pod, ready_of_pod};
use kubeapi::watch::{Manner, ObjectMirror, Update, WatchScope, follow, follow_from, jitter_seed};
use kubeapi::{ApiClient, Error, nodes};
use serde_json::Value;
use step::{LiteMap, Mono, SmallSort as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::cordon::{self, UnusualTaints};
use crate::calls::pods;
use crate::machines::undo;
use crate::node::cordon::CordonSeen;
use crate::node::gate::{Check, Gate, GateFact, GateNode, GateStatus, LayerLimits, LeaseSeen};
use crate::node::{self, LastSeen};
use crate::plan::tier::Tier;
use crate::storage;

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

/// How long one watch of a node in service is kept open: waiting costs one request in so long, and an API that hangs is
/// noticed so much later.
const AT_REST: Duration = Duration::from_mins(1);

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

/// What one watch of a node in service shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeAtRest {
    /// `None` before the first look.
    pub cordon: Option<CordonSeen>,
    /// The API has not answered twice in a row.
    pub is_api_silent: bool,
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
            looks.push(look(cluster.clone(), boot.node.clone()));
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

/// Ends when taints are on our node that an outage has left, or that most nodes do not have, and says which; until then
/// `seen` has what else there is. It keeps one watch open, of our Node object alone, and lists once, but after an API
/// that was silent. Dropping the future loses nothing.
pub async fn until_tainted(
    cluster: &ApiClient,
    boot: &BootWatch,
    seen: &watch::Sender<NodeAtRest>,
) -> Vec<String> {
    let watched = || node_facts(cluster, boot, Manner { slot: AT_REST, ..Manner::default() });
    let (mut facts, mut was_away) = (watched(), false);
    loop {
        match facts.next().await {
            Some(GateFact::Node(Ok(GateNode { taints, .. }))) if !taints.is_empty() => return taints,
            Some(GateFact::Node(Ok(node))) => {
                if let Some(unusual) = node.unusual.into_iter().next() {
                    return vec![unusual.text];
                }
                was_away = false;
                let shown = NodeAtRest { cordon: Some(node.cordon), is_api_silent: false };
                seen.send_if_modified(|held| step::update(held, shown));
            }
            Some(GateFact::Away(_)) => {
                let is_silent = std::mem::replace(&mut was_away, true);
                seen.send_if_modified(|held| step::update(&mut held.is_api_silent, is_silent));
                sleep(WAITS_LOOK).await;
                // A new one asks at once, however long the pauses of the old one have grown.
                facts = watched();
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
        let pause = if gate.waits_for_upper(now) { grown } else { gate.limits.look };
        self.last.map_or(now, |at| at + pause)
    }
}

/// The node, its lease and its pods, and volumes: read now, and watched from then on.
fn watched(cluster: &ApiClient, boot: &BootWatch) -> SelectAll<BoxStream<'static, GateFact>> {
    stream::select_all([
        node_facts(cluster, boot, Manner::default()),
        lease_facts(cluster, boot),
        follow_pods(cluster, boot),
        volume_facts(cluster),
    ])
}

async fn remove_stale_taints(cluster: &ApiClient, boot: &BootWatch, report: &watch::Sender<GateReport>) {
    match cordon::remove_stale(cluster, &boot.node, &boot.device_uuid, &boot.boot_id).await {
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
            taints: cordon::of_outage(&node, &boot.boot_id),
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

fn lease_facts(cluster: &ApiClient, boot: &BootWatch) -> BoxStream<'static, GateFact> {
    let boot = boot.clone();
    let node = boot.node.as_str();
    let scope = WatchScope::one(format!("lease {LEASES}/{node}"), Lease::url_path(&(), Some(LEASES)), node);
    let heard = follow::<Lease>(cluster.clone(), scope, jitter_seed());
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

/// Networks that a pod asks for besides the one of all pods, and those that it has.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// Namespace and name of a pod where something is the matter with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ill {
    /// It gives volumes and is crash-looping.
    crashing: Option<IllObject>,
    /// It gives volumes, is to have an address in a network of its own, and has none there: with that network.
    unconnected: Option<IllObject>,
    /// It is of kube-system and not Ready, with why.
    system: Option<IllObject>,
}

fn waiting(pod: &Pod) -> impl Iterator<Item = &str> {
    let all = pod.status.iter().flat_map(|it| [&it.init_container_statuses, &it.container_statuses]);
    all.flatten().flatten().filter_map(|it| it.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
}

/// The network besides that of all pods that it asks for, as one for storage, and in which it has no address. What is to
/// have ended or has not begun needs none. Source: the Kubernetes Network Custom Resource Definition De-facto Standard 1.3.
fn unconnected(pod: &Pod) -> Option<String> {
    let marks = pod.metadata.annotations.as_ref()?;
    let wanted = marks.get(NETWORKS)?.trim();
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if wanted.is_empty() || phase != Some("Running") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    // A list of names with commas, or of objects; as namespace/name@interface.
    let of_objects = serde_json::from_str::<Vec<Value>>(wanted).ok();
    let names: Vec<String> = match of_objects {
        Some(all) => all.iter().map(|it| text(&it["name"])).collect(),
        None => wanted.split(',').map(str::to_owned).collect(),
    };
    let plain = |name: &str| {
        let name = name.trim().split('@').next().unwrap_or_default();
        name.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let seen: Value =
        marks.get(NETWORK_STATUS).and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    let has_address = |name: &String| {
        let mut all = items(&seen).iter();
        all.any(|it| plain(&text(&it["name"])) == *name && !items(&it["ips"]).is_empty())
    };
    names.iter().map(|it| plain(it)).find(|it| !it.is_empty() && !has_address(it))
}

/// Why a pod that should be Ready is not. One that has ended or is being deleted should not be.
fn not_ready(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let ready = ready_of_pod(pod);
    if ready.is_some_and(|it| it.status == "True") {
        return None;
    }
    let reason = ready.and_then(|it| it.reason.clone()).filter(|it| !it.is_empty());
    Some(waiting(pod).next().map(str::to_owned).or(reason).unwrap_or_else(|| format!("phase {phase}")))
}

fn facts(all: &LiteMap<String, Ill>) -> Vec<GateFact> {
    type Part = fn(&Ill) -> &Option<IllObject>;
    let (logs, describe) = ("logs --previous", "describe pod");
    let rows: [(Check, &str, &str, Part); 3] = [
        (Check::CrashLoops, "storage pods are crash-looping", logs, |it| &it.crashing),
        (
            Check::Unconnected,
            "storage pods have no address in the network that they ask for",
            describe,
            |it| &it.unconnected,
        ),
        (Check::SystemPods, "pods are not Ready", describe, |it| &it.system),
    ];
    let of = |(check, what, verb, part): (Check, &str, &str, Part)| {
        let mut all: Vec<IllObject> = all.values().filter_map(|it| part(it).clone()).collect();
        all.order();
        GateFact::Found(check, workloads::named(what, &all, verb))
    };
    rows.map(of).into()
}

/// What is kept of a pod, by its UID, where something is the matter with it.
fn kept(pod: Pod) -> (String, Option<Ill>) {
    let name = pods::pod_ref(&pod).to_string();
    let is_storage = pods::facts(&pod).tier == Tier::Storage;
    let is_crashing = is_storage && waiting(&pod).any(|reason| reason == "CrashLoopBackOff");
    let unconnected = is_storage.then(|| unconnected(&pod)).flatten();
    let is_system = pod.metadata.namespace.as_deref() == Some(SYSTEM_NAMESPACE);
    let ill = Ill {
        crashing: is_crashing.then(|| IllObject::alone(name.clone())),
        unconnected: unconnected.map(|it| IllObject::new(name.clone(), &format!("network {it}"))),
        system: not_ready(&pod).filter(|_| is_system).map(|why| IllObject::new(name, &why)),
    };
    (pod.metadata.uid.unwrap_or_default(), Some(ill).filter(|it| *it != Ill::default()))
}

/// Them, whenever one has changed.
fn follow_pods(cluster: &ApiClient, boot: &BootWatch) -> BoxStream<'static, GateFact> {
    // All of them: the apps that a drain keeps are storage for the most part.
    let scope = WatchScope { labels: None, ..pods::scope(&boot.node) };
    ObjectMirror::open(cluster, scope, Manner::default(), jitter_seed(), kept)
        .changes(facts)
        .map(|heard| heard.unwrap_or_else(|error| vec![found(Err(error), Check::CrashLoops)]))
        .flat_map(stream::iter)
        .boxed()
}

/// How the container of kube-vip is given the address of the control plane, and the lease of that.
const ADDRESS: [&str; 2] = ["address", "vip_address"];
const CONTROL_PLANE: &str = "plndr-cp-lock";
/// The time for the list of nodes.
const NODES_LIMIT: Duration = Duration::from_secs(10);

/// One look at all of them.
fn look(cluster: ApiClient, node: NodeName) -> BoxStream<'static, GateFact> {
    let look = async move {
        [
            fact(virtual_ips(&cluster, &node).await, GateFact::VirtualIps),
            found(pending(&cluster, &node).await, Check::Pending),
            found(machines(&cluster, &node).await, Check::Machines),
        ]
    };
    stream::once(look).flat_map(stream::iter).boxed()
}

async fn virtual_ips(cluster: &ApiClient, node: &NodeName) -> Result<Vec<VirtualIp>, Error> {
    let mut all = cluster::virtual_ips(cluster, |_| false).await?;
    if all.is_empty() {
        return Ok(all);
    }
    let members = nodes::members(cluster, NODES_LIMIT).await?;
    for it in &mut all {
        it.ready = members.iter().any(|node| node.name == it.holder && node.facts.ready == "True");
        // Nothing says which addresses of services a node has to serve.
        if it.lease.ends_with(CONTROL_PLANE) && it.holder == node.as_str() {
            let given = cluster::kube_vip(cluster, Some(node.as_str())).await?;
            let given = ADDRESS.iter().filter_map(|name| given.get(*name)?.parse::<IpAddr>().ok());
            let absent: Vec<String> = given.filter(|it| !is_here(*it)).map(|it| it.to_string()).collect();
            if !absent.is_empty() {
                it.address = format!("this node holds it, and has no interface with {}", absent.join(", "));
            }
        }
    }
    Ok(all)
}

/// Whether an interface has it: only then does the kernel bind a socket to it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).err().is_none_or(|it| it.kind() != ErrorKind::AddrNotAvailable)
}

/// Pods that no node has taken and that belong to this one, or to kube-system and to no other node.
async fn pending(cluster: &ApiClient, node: &NodeName) -> Result<Vec<Finding>, Error> {
    let fields = Some("spec.nodeName=,status.phase=Pending".to_owned());
    let scope = WatchScope { fields, ..WatchScope::all("pods that no node has taken", Pod::url_path(None)) };
    let list = scope.list_all::<Pod>(cluster).await?;
    let mut all: Vec<IllObject> = list.items.iter().filter_map(|pod| waits_for(pod, node.as_str())).collect();
    all.order();
    Ok(workloads::named("pods that no node has taken", &all, "describe pod"))
}

fn waits_for(pod: &Pod, node: &str) -> Option<IllObject> {
    let spec = pod.spec.as_ref()?;
    let term = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let terms = term.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    // What a DaemonSet writes into its pods.
    let pinned: Vec<&str> = terms
        .iter()
        .flat_map(|it| &it.node_selector_terms)
        .flat_map(|it| it.match_fields.iter().flatten())
        .filter(|it| it.key == "metadata.name" && it.operator == "In")
        .flat_map(|it| it.values.iter().flatten().map(String::as_str))
        .collect();
    let is_ours = if pinned.is_empty() {
        pod.metadata.namespace.as_deref() == Some(SYSTEM_NAMESPACE)
    } else {
        pinned.contains(&node)
    };
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let message =
        refused.and_then(|it| it.message.as_deref()).unwrap_or("not looked at by the scheduler yet");
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    (is_ours && !is_ending).then(|| IllObject::new(pods::pod_ref(pod).to_string(), &cause(message)))
}

/// What the scheduler says, short: a taint or a port is named as the cause.
fn cause(message: &str) -> String {
    let taint = message.split("untolerated taint ").nth(1).and_then(|it| it.split('}').next());
    if let Some(taint) = taint {
        return format!("no node: taint {}", taint.trim_start_matches('{').trim_end_matches([':', ' ']));
    }
    if message.contains("free ports") {
        return "no node: its host port is taken".to_owned();
    }
    let said = message.split(". preemption:").next().unwrap_or(message);
    format!("no node: {said}")
}

async fn machines(cluster: &ApiClient, node: &NodeName) -> Result<Vec<Finding>, Error> {
    let down = match undo::not_up(cluster, node).await {
        // A role without rights to read it is refused also where it is not installed.
        Err(error) if error.is_refused() && !undo::is_installed(cluster).await? => None,
        down => down?,
    };
    Ok(workloads::not_up("vmi", &down.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn r4_a_storage_pod_without_an_address_in_the_network_it_asks_for_is_named_and_one_that_asks_for_none_is_not()
     {
        let status = json!([{ "name": "cbr0", "ips": ["10.42.0.5"] }, { "name": "kube-system/lh", "interface": "lhnet1",
            "ips": ["172.16.0.5"] }])
        .to_string();
        let bare = json!([{ "name": "kube-system/lh", "ips": [] }]).to_string();
        let objects = json!([{ "name": "lh", "namespace": "kube-system" }]).to_string();
        // What it asks for, what it has, its phase, and the network that lacks.
        let table = [
            ("", "", "Running", None),
            ("kube-system/lh@lhnet1", status.as_str(), "Running", None),
            (objects.as_str(), status.as_str(), "Running", None),
            ("lh", "", "Running", Some("lh")),
            ("kube-system/lh@lhnet1", bare.as_str(), "Running", Some("lh")),
            (objects.as_str(), "[]", "Running", Some("lh")),
            ("lh, vlan5", status.as_str(), "Running", Some("vlan5")),
            ("lh", "no JSON", "Running", Some("lh")),
            ("lh", "", "Pending", None),
            ("lh", "", "Succeeded", None),
        ];
        for (networks, has, phase, lacks) in table {
            let pod = json!({
                "metadata": { "name": "im", "namespace": "longhorn-system", "labels": { "longhorn.io/component": "instance-manager" },
                    "annotations": { NETWORKS: networks, NETWORK_STATUS: has } },
                "status": { "phase": phase },
            });
            let read: Pod = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(unconnected(&read).as_deref(), lacks, "{networks} {has} {phase}");
            // Of a pod that serves no volumes nothing is wanted.
            let kept = |pod: &Value| kept(serde_json::from_value(pod.clone()).unwrap()).1.unwrap_or_default();
            assert_eq!(kept(&pod).unconnected.is_some(), lacks.is_some(), "{pod}");
            let mut other = pod;
            other["metadata"]["labels"] = json!({});
            other["metadata"]["namespace"] = "shop".into();
            assert_eq!(kept(&other).unconnected, None);
        }
    }

    /// A pod in this namespace, pinned to these nodes as a DaemonSet does it, and what the scheduler says of it.
    fn pod(namespace: &str, pinned: &[&str], said: Option<&str>) -> Value {
        let field = json!({ "key": "metadata.name", "operator": "In", "values": pinned });
        let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
        let condition = said.map(|it| json!({ "type": "PodScheduled", "status": "False", "message": it }));
        json!({
            "metadata": { "namespace": namespace, "name": "p" },
            "spec": { "affinity": if pinned.is_empty() { Value::Null } else { affinity } },
            "status": { "phase": "Pending", "conditions": condition.as_slice() },
        })
    }

    fn waiting(pod: Value) -> Option<String> {
        Some(waits_for(&serde_json::from_value(pod).unwrap(), "n1")?.as_ref().to_owned())
    }

    #[test]
    fn seed_1_06_of_a_pod_without_a_node_a_taint_or_a_port_is_named_as_the_cause() {
        // What the scheduler says, and what a person reads.
        let none = "0/3 nodes are available:";
        let (others, no_help) = (
            "2 node(s) didn't match Pod's node affinity/selector",
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling",
        );
        let table = [
            (
                format!(
                    "{none} 1 node(s) had untolerated taint {{node.kubernetes.io/unreachable: }}, {others}. {no_help}."
                ),
                "taint node.kubernetes.io/unreachable".to_owned(),
            ),
            (
                format!("{none} 1 node(s) had untolerated taint {{dedicated: db}}. {no_help}"),
                "taint dedicated: db".to_owned(),
            ),
            (
                format!("{none} 1 node(s) had untolerated taint(s)"),
                format!("{none} 1 node(s) had untolerated taint(s)"),
            ),
            (
                format!(
                    "{none} 1 node(s) didn't have free ports for the requested pod ports, {others}. {no_help}"
                ),
                "its host port is taken".to_owned(),
            ),
            (
                format!(
                    "{none} 3 Insufficient memory. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
                ),
                format!("{none} 3 Insufficient memory"),
            ),
            (String::new(), String::new()),
        ];
        for (said, words) in table {
            let shown = waiting(pod("kube-system", &[], Some(&said)));
            assert_eq!(shown, Some(format!("kube-system/p (no node: {words})")), "{said}");
        }
    }

    #[test]
    fn seed_1_06_pods_of_this_node_and_of_kube_system_are_waited_for_and_no_others() {
        let table = [
            (
                pod("kube-system", &[], None),
                Some("kube-system/p (no node: not looked at by the scheduler yet)"),
            ),
            (pod("shop", &[], None), None),
            (pod("shop", &["n1"], Some("free ports")), Some("shop/p (no node: its host port is taken)")),
            (pod("kube-system", &["n2"], Some("free ports")), None),
        ];
        for (pod, shown) in table {
            assert_eq!(waiting(pod.clone()).as_deref(), shown, "{pod}");
            let mut ending = pod;
            ending["metadata"]["deletionTimestamp"] = "2026-03-14T09:00:00Z".into();
            assert_eq!(waiting(ending), None);
        }
    }
}
