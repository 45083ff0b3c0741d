//! `KubeUserServices`: which ports of services and paths of ingresses of users nim opens at the uplinks, on every
//! node.
//!
//! Members of a wrong type count as missing. While no nim is on the device nobody opens ports, and nothing is
//! followed. Nothing is published before services and ingresses were listed, and the load balancer's settings as well
//! unless they cannot be read. A collection that was never listed is not known, and one whose calls fail keeps what
//! it had: a firewall is not closed because an API server is away (D-V10, D-V11). Not here: the firewall. Source: the
//! Kubernetes API reference.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use agent::{AgentContext, Clock, Error, Outlet, Tasks, Troubles};
use futures::future::OptionFuture;
use kubeapi::ApiClient;
use kubeapi::objects::{RawObject, items, text};
use kubeapi::watch::{Manner, ObjectMirror, WatchScope};
use serde_json::Value;
use step::{Inserted as _, Mono, SmallSort as _};
use topics::{
    Cidr, DeviceNetworkStatus, EdgeNodeClusterStatus, ErrorDescription, ErrorSeverity, GoTime,
    KubeIngressInfo, KubeLbPoolStatus, KubeServiceInfo, KubeUserServices,
};
use tracing::{debug, info, warn};

use crate::collections::{FactItem, ObjectFact, ObjectTable, SLOT};
use crate::{GLOBAL, NAME, listed, seed};

#[cfg(test)]
mod tests;

/// Namespaces of the device's own software.
const OWN: [&str; 5] = ["kube-system", "kubevirt", "longhorn-system", "cdi", "eve-kube-app"];
/// Services of the cluster itself, by namespace and name.
const OWN_SERVICES: [(&str, &str); 2] = [("default", "kubernetes"), ("cattle-system", "zks-cluster-agent")];
/// With it kube-vip is asked for an address.
const ADDRESS: &str = "kube-vip.io/loadbalancerIPs";

fn is_own(namespace: &str) -> bool {
    OWN.contains(&namespace)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Service {
    kind: String,
    /// None of the device or the cluster, and none that an uplink does not reach.
    ports: Vec<KubeServiceInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Ingress {
    /// In the order of its rules, without addresses and the type of the service.
    paths: Vec<KubeIngressInfo>,
    /// IP address, or host name where there is none.
    addresses: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Pool {
    interface: String,
    prefix: String,
}

fn number(value: &Value) -> i32 {
    value.as_i64().and_then(|it| i32::try_from(it).ok()).unwrap_or_default()
}

fn name_of(raw: &RawObject) -> [String; 2] {
    [&raw.metadata.namespace, &raw.metadata.name].map(|it| it.clone().unwrap_or_default())
}

impl ObjectFact for Service {
    fn of(raw: &RawObject) -> Self {
        let RawObject { metadata, spec, .. } = raw;
        let [namespace, name] = name_of(raw);
        let kind = text(&spec["type"]);
        let balanced = kind == LOAD_BALANCER;
        let first = items(&spec["externalIPs"]).first().map(text).unwrap_or_default();
        let wanted = [text(&spec["loadBalancerIP"]), first, text(&metadata.annotations[ADDRESS])];
        let address = wanted.into_iter().find(|it| balanced && !it.is_empty()).unwrap_or_default();
        let inside = balanced && (address.is_empty() || is_within(CLUSTER_ADDRESSES, &address) == Some(true));
        let own = is_own(&namespace) || OWN_SERVICES.contains(&(namespace.as_str(), name.as_str()));
        let port = |it: &Value| {
            let port = number(&it["port"]);
            let manager = (namespace.as_str(), port) == MANAGER;
            KubeServiceInfo {
                name: name.clone(),
                namespace: namespace.clone(),
                protocol: text(&it["protocol"]),
                port: if manager { API_PORT } else { port },
                node_port: number(&it["nodePort"]),
                r#type: if manager { "NodePort" } else { &kind }.to_owned(),
                load_balancer_ip: address.clone(),
                ace_enabled: manager,
            }
        };
        let ports = items(&spec["ports"]).iter().filter(|_| !own && !inside).map(port).collect();
        Self { kind, ports }
    }
}

impl ObjectFact for Ingress {
    fn of(raw: &RawObject) -> Self {
        let RawObject { spec, status, .. } = raw;
        let [namespace, name] = name_of(raw);
        let tls_hosts: Vec<String> =
            items(&spec["tls"]).iter().flat_map(|it| items(&it["hosts"])).map(text).collect();
        let mut paths = Vec::new();
        for rule in items(&spec["rules"]).iter().filter(|_| !is_own(&namespace)) {
            let host = text(&rule["host"]);
            // An empty one is for all.
            let tls = tls_hosts.iter().any(|it| *it == host || it.is_empty());
            for path in items(&rule["http"]["paths"]) {
                let service = &path["backend"]["service"];
                if service.is_object() {
                    paths.push(KubeIngressInfo {
                        name: name.clone(),
                        namespace: namespace.clone(),
                        hostname: host.clone(),
                        path: text(&path["path"]),
                        path_type: text(&path["pathType"]),
                        protocol: if tls { "https" } else { "http" }.to_owned(),
                        service: text(&service["name"]),
                        service_port: number(&service["port"]["number"]),
                        ..KubeIngressInfo::default()
                    });
                }
            }
        }
        let served = items(&status["loadBalancer"]["ingress"]).iter();
        Self { paths, addresses: served.map(|it| (text(&it["ip"]), text(&it["hostname"]))).collect() }
    }
}

impl ObjectFact for Pool {
    fn of(raw: &RawObject) -> Self {
        Self { interface: text(&raw.data["interface-global"]), prefix: text(&raw.data["cidr-global"]) }
    }
}

/// Addresses of services inside of the cluster: not reachable at an uplink.
const CLUSTER_ADDRESSES: &str = "10.43.0.0/16";
/// The API of the cluster through its manager's agent.
const MANAGER: (&str, i32) = ("cattle-system", 443);
const API_PORT: i32 = 6443;
const LOAD_BALANCER: &str = "LoadBalancer";
const ORPHANS: &str = "kube-vip LB removed but services still have LoadBalancer allocated IPs";
const OUT_OF_RANGE: &str = "services have LoadBalancer IPs outside the current kube-vip prefix";

struct ServicesView<'a> {
    services: &'a ObjectTable<Service>,
    ingresses: &'a ObjectTable<Ingress>,
    /// The load balancer's settings, if any; `None` where unknown.
    pools: Option<&'a ObjectTable<Pool>>,
    /// Addresses of this node's ports.
    own: &'a BTreeSet<IpAddr>,
    /// What is wrong with the load balancer's addresses in this node's config.
    config_error: &'a ErrorDescription,
    now: GoTime,
}

/// The value to publish after `before`: an unchanged error keeps its time.
fn fold(view: &ServicesView<'_>, before: Option<&KubeUserServices>) -> KubeUserServices {
    let services: Vec<_> = view.services.values().flat_map(|it| &it.ports).cloned().collect();
    let allocated = services.iter().map(|it| it.load_balancer_ip.clone()).filter(|it| !it.is_empty());
    let allocated: BTreeSet<String> = allocated.into_set();
    let user_ingress = listed(paths(view, &services));
    let user_service = listed(services);
    let Some(pools) = view.pools else {
        return KubeUserServices { user_service, user_ingress, ..before.cloned().unwrap_or_default() };
    };
    let pool = pool(view, pools.values().next(), &allocated);
    let error = match pool.as_ref().map(|it| it.ip_prefix.as_str()).filter(|it| !it.is_empty()) {
        None if !allocated.is_empty() => ORPHANS,
        Some(prefix) if allocated.iter().any(|it| is_within(prefix, it) == Some(false)) => OUT_OF_RANGE,
        None | Some(_) => "",
    };
    let mut service_error = ErrorDescription::default();
    if !error.is_empty() {
        let same = before.map(|it| &it.service_error).filter(|it| it.error == error);
        error.clone_into(&mut service_error.error);
        service_error.error_time = same.map_or(view.now, |it| it.error_time);
        service_error.error_severity = ErrorSeverity::Warning;
    }
    KubeUserServices { user_service, user_ingress, lb_pool_status: pool, service_error }
}

fn paths(view: &ServicesView<'_>, ports: &[KubeServiceInfo]) -> Vec<KubeIngressInfo> {
    let mut all = Vec::new();
    for ingress in view.ingresses.values() {
        let is_ours = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|it| view.own.contains(&it.to_canonical()));
        let served = ingress.addresses.iter().filter_map(|(ip, host)| {
            let kept = if ip.is_empty() { !host.is_empty() } else { is_ours(ip) };
            kept.then(|| if ip.is_empty() { host } else { ip }.clone())
        });
        let mut served: Vec<String> = served.collect();
        served.order();
        for path in &ingress.paths {
            let is_of = |it: &&KubeServiceInfo| it.namespace == path.namespace && it.name == path.service;
            let service = view.services.get(&(path.namespace.clone(), path.service.clone()));
            let kind = ports.iter().find(is_of).map(|it| &it.r#type).or(service.map(|it| &it.kind));
            all.push(KubeIngressInfo {
                service_type: kind.map_or("ClusterIP", String::as_str).to_owned(),
                ingress_ip: listed(served.clone()),
                ..path.clone()
            });
        }
    }
    all
}

fn pool(
    view: &ServicesView<'_>,
    pool: Option<&Pool>,
    allocated: &BTreeSet<String>,
) -> Option<KubeLbPoolStatus> {
    let error = view.config_error.clone();
    match pool.filter(|it| !it.interface.is_empty() && !it.prefix.is_empty()) {
        Some(pool) => Some(KubeLbPoolStatus {
            interface: pool.interface.clone(),
            ip_prefix: pool.prefix.clone(),
            allocated_ips: listed(allocated.iter().cloned()),
            error,
        }),
        None if error.error.is_empty() => None,
        None => Some(KubeLbPoolStatus { error, ..KubeLbPoolStatus::default() }),
    }
}

/// `None` where one of them is invalid.
fn is_within(prefix: &str, address: &str) -> Option<bool> {
    Some(Cidr::parse(prefix)?.contains(address.parse().ok()?))
}

/// Between two publications: each makes nim write its rules again.
const GAP: Duration = Duration::from_secs(5);

enum ServicesInput {
    Ports(BTreeSet<IpAddr>),
    ConfigError(ErrorDescription),
}

struct Followers {
    services: FollowedTable<Service>,
    ingresses: FollowedTable<Ingress>,
    pool: FollowedTable<Pool>,
}

impl Followers {
    fn open(cluster: &ApiClient, clock: Clock) -> Self {
        let seed = seed(clock);
        let services = WatchScope::all("services of users", "/api/v1/services".to_owned());
        let ingresses =
            WatchScope::all("ingresses of users", "/apis/networking.k8s.io/v1/ingresses".to_owned());
        let pool = WatchScope {
            fields: Some("metadata.name=kubevip".to_owned()),
            ..WatchScope::all(
                "settings of the load balancer",
                "/api/v1/namespaces/kube-system/configmaps".to_owned(),
            )
        };
        Self {
            services: FollowedTable::open(cluster, services, seed),
            ingresses: FollowedTable::open(cluster, ingresses, seed ^ 1),
            pool: FollowedTable::open(cluster, pool, seed ^ 2),
        }
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.services.changed() => {}
            () = self.ingresses.changed() => {}
            () = self.pool.changed() => {}
        }
    }
}

/// Published values stay.
pub async fn run(context: &AgentContext, troubles: &Troubles, cluster: ApiClient) -> Result<(), Error> {
    let clock = context.clock;
    let mut outlet = Outlet::<KubeUserServices>::open(troubles)?;
    let (outbox, mut inbox) = agent::inbox();
    let mut tasks = Tasks::new(outbox);
    tasks.follow::<DeviceNetworkStatus>(&context.topic_root, "nim", |change| {
        Some(ServicesInput::Ports(addresses(&change.put()?)))
    });
    tasks.follow::<EdgeNodeClusterStatus>(&context.topic_root, NAME, |change| {
        let error = change.latest()?.map(|it| it.lb_config_error);
        Some(ServicesInput::ConfigError(error.unwrap_or_default()))
    });
    let (mut own, mut config_error) = (None, ErrorDescription::default());
    let mut followers: Option<Followers> = None;
    let (mut owed, mut quiet) = (false, Mono::START);
    loop {
        if own.is_some() && followers.is_none() {
            followers = Some(Followers::open(&cluster, clock));
        }
        let now = clock.now();
        if owed
            && now >= quiet
            && let Some(own) = &own
            && let Some(value) = folded(followers.as_ref(), own, &config_error, clock, outlet.get(GLOBAL))
        {
            if outlet.get(GLOBAL) != Some(&value) {
                let count = |length: Option<usize>| length.unwrap_or_default();
                info!(
                    ports = count(value.user_service.as_ref().map(Vec::len)),
                    paths = count(value.user_ingress.as_ref().map(Vec::len)),
                    "services of users"
                );
            }
            owed = !outlet.put(GLOBAL, &value);
            quiet = now + GAP;
        }
        let due = owed.then_some(quiet).filter(|it| *it > now);
        tokio::select! {
            biased;
            heard = inbox.recv() => match heard {
                Some(ServicesInput::Ports(ports)) => own = Some(ports),
                Some(ServicesInput::ConfigError(error)) => config_error = error,
                None => return Ok(()),
            },
            Some(()) = OptionFuture::from(followers.as_mut().map(Followers::changed)) => {}
            () = clock.sleep_until(due), if due.is_some() => continue,
        }
        owed = true;
    }
}

/// `None` while something is unknown.
fn folded(
    followers: Option<&Followers>,
    own: &BTreeSet<IpAddr>,
    config_error: &ErrorDescription,
    clock: Clock,
    before: Option<&KubeUserServices>,
) -> Option<KubeUserServices> {
    let all = followers?;
    let pools = all.pool.mirror.known();
    if pools.is_none() && !all.pool.failing {
        return None;
    }
    let view = ServicesView {
        services: all.services.mirror.known()?,
        ingresses: all.ingresses.mirror.known()?,
        pools,
        own,
        config_error,
        now: clock.wall(),
    };
    Some(fold(&view, before))
}

fn addresses(network: &DeviceNetworkStatus) -> BTreeSet<IpAddr> {
    let ports = network.ports.iter().flatten();
    let all = ports.flat_map(|it| it.addr_info_list.iter().flatten()).filter_map(|it| it.addr.0);
    all.map(|it| it.to_canonical()).into_set()
}

/// Dropping it closes the watch.
struct FollowedTable<T> {
    what: String,
    mirror: ObjectMirror<FactItem<T>, (String, String), T>,
    failing: bool,
}

impl<T: ObjectFact + Sync> FollowedTable<T> {
    /// The first call is made by the first [`FollowedTable::changed`].
    fn open(cluster: &ApiClient, scope: WatchScope, seed: u64) -> Self {
        let (what, manner) = (scope.what.clone(), Manner { slot: SLOT, ..Manner::default() });
        Self {
            what,
            mirror: ObjectMirror::open(cluster, scope, manner, seed, FactItem::kept),
            failing: false,
        }
    }

    /// Waits until the objects change, or cannot be read before the first list. Dropping it loses nothing.
    async fn changed(&mut self) {
        loop {
            let changed = match self.mirror.changed().await {
                Ok(changed) => changed,
                Err(error) => {
                    let (error, next_step) = (error.line(), error.next_step());
                    if self.failing {
                        debug!(error, "still cannot follow {}", self.what);
                    } else {
                        warn!(error, next_step, "cannot follow {}: what was published stays", self.what);
                    }
                    if !std::mem::replace(&mut self.failing, true) && self.mirror.known().is_none() {
                        return;
                    }
                    continue;
                }
            };
            if std::mem::take(&mut self.failing) {
                info!("{}: followed again", self.what);
            }
            if changed {
                return;
            }
        }
    }
}
