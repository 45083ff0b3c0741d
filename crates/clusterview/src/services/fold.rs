//! The published value from services, ingresses and the load balancer.
//!
//! Source: spec/agents.md 4.11, spec/eve-rest.md 3.3. Pure: no clock, no I/O, no task.

use core::net::IpAddr;
use std::collections::BTreeSet;

use step::Inserted as _;
use topics::{
    Cidr, ErrorDescription, ErrorSeverity, GoTime, KubeIngressInfo, KubeLbPoolStatus, KubeServiceInfo,
    KubeUserServices,
};

use super::facts::{Ingress, Pool, Service, is_own};
use crate::collections::ObjectTable;

/// Addresses of services inside of the cluster: not reachable at an uplink.
const CLUSTER_ADDRESSES: &str = "10.43.0.0/16";
/// The API of the cluster through its manager's agent.
const MANAGER: (&str, i32) = ("cattle-system", 443);
const API_PORT: i32 = 6443;
const LOAD_BALANCER: &str = "LoadBalancer";
const ORPHANS: &str = "kube-vip LB removed but services still have LoadBalancer allocated IPs";
const OUT_OF_RANGE: &str = "services have LoadBalancer IPs outside the current kube-vip prefix";

pub(super) struct ServicesView<'a> {
    pub(super) services: &'a ObjectTable<Service>,
    pub(super) ingresses: &'a ObjectTable<Ingress>,
    /// The load balancer's settings, if any; `None` where unknown.
    pub(super) pools: Option<&'a ObjectTable<Pool>>,
    /// Addresses of this node's ports.
    pub(super) own: &'a BTreeSet<IpAddr>,
    /// What is wrong with the load balancer's addresses in this node's config.
    pub(super) config_error: &'a ErrorDescription,
    pub(super) now: GoTime,
}

/// The value to publish after `before`: an unchanged error keeps its time.
pub(super) fn fold(view: &ServicesView<'_>, before: Option<&KubeUserServices>) -> KubeUserServices {
    let services = ports(view.services);
    let allocated: BTreeSet<&str> =
        services.iter().map(|it| it.load_balancer_ip.as_str()).filter(|it| !it.is_empty()).into_set();
    let ingresses = paths(view, &services);
    let Some(pools) = view.pools else {
        let was = before.cloned().unwrap_or_default();
        return KubeUserServices {
            user_service: (!services.is_empty()).then_some(services),
            user_ingress: (!ingresses.is_empty()).then_some(ingresses),
            ..was
        };
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
    KubeUserServices {
        user_service: (!services.is_empty()).then_some(services),
        user_ingress: (!ingresses.is_empty()).then_some(ingresses),
        lb_pool_status: pool,
        service_error,
    }
}

fn ports(services: &ObjectTable<Service>) -> Vec<KubeServiceInfo> {
    let mut all = Vec::new();
    for ((namespace, name), service) in services.iter().filter(|(_, it)| !it.own) {
        let balanced = service.kind == LOAD_BALANCER;
        if balanced
            && (service.address.is_empty() || is_within(CLUSTER_ADDRESSES, &service.address) == Some(true))
        {
            continue;
        }
        for port in &service.ports {
            let manager = (namespace.as_str(), port.number) == MANAGER;
            all.push(KubeServiceInfo {
                name: name.clone(),
                namespace: namespace.clone(),
                protocol: port.protocol.clone(),
                port: if manager { API_PORT } else { port.number },
                node_port: port.on_nodes,
                r#type: if manager { "NodePort".to_owned() } else { service.kind.clone() },
                load_balancer_ip: if balanced { service.address.clone() } else { String::new() },
                ace_enabled: manager,
            });
        }
    }
    all
}

fn paths(view: &ServicesView<'_>, ports: &[KubeServiceInfo]) -> Vec<KubeIngressInfo> {
    let mut all = Vec::new();
    for ((namespace, name), ingress) in view.ingresses.iter().filter(|((namespace, _), _)| !is_own(namespace))
    {
        let is_ours = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|it| view.own.contains(&it.to_canonical()));
        let served = ingress.addresses.iter().filter_map(|(ip, host)| {
            let kept = if ip.is_empty() { !host.is_empty() } else { is_ours(ip) };
            kept.then(|| if ip.is_empty() { host } else { ip }.clone())
        });
        let mut served: Vec<String> = served.collect();
        served.sort();
        for path in &ingress.paths {
            let is_of = |it: &&KubeServiceInfo| it.namespace == *namespace && it.name == path.service;
            let service = || view.services.get(&(namespace.clone(), path.service.clone()));
            let kind = ports.iter().find(is_of).map(|it| it.r#type.clone());
            let tls = ingress.tls_hosts.iter().any(|it| *it == path.host || it.is_empty());
            all.push(KubeIngressInfo {
                name: name.clone(),
                namespace: namespace.clone(),
                hostname: path.host.clone(),
                path: path.prefix.clone(),
                path_type: path.kind.clone(),
                protocol: if tls { "https" } else { "http" }.to_owned(),
                service: path.service.clone(),
                service_port: path.port,
                service_type: kind
                    .or_else(|| service().map(|it| it.kind.clone()))
                    .unwrap_or_else(|| "ClusterIP".to_owned()),
                ingress_ip: (!served.is_empty()).then(|| served.clone()),
            });
        }
    }
    all
}

fn pool(
    view: &ServicesView<'_>,
    pool: Option<&Pool>,
    allocated: &BTreeSet<&str>,
) -> Option<KubeLbPoolStatus> {
    let error = view.config_error.clone();
    match pool.filter(|it| !it.interface.is_empty() && !it.prefix.is_empty()) {
        Some(pool) => Some(KubeLbPoolStatus {
            interface: pool.interface.clone(),
            ip_prefix: pool.prefix.clone(),
            allocated_ips: (!allocated.is_empty())
                .then(|| allocated.iter().map(|&it| it.to_owned()).collect()),
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

#[cfg(test)]
mod tests;
