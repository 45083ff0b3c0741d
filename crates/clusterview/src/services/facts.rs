//! Services, ingresses and the load balancer's settings, reduced to what the firewall needs.
//!
//! Members of a wrong type count as missing. Sources: spec/eve-rest.md 3.3; the Kubernetes API reference.
//! Pure: no clock, no I/O, no task.

use kubeapi::objects::{RawObject, items, text};
use serde_json::Value;

use crate::collections::ObjectFact;

/// Namespaces of the device's own software.
const OWN: [&str; 5] = ["kube-system", "kubevirt", "longhorn-system", "cdi", "eve-kube-app"];
/// Services of the cluster itself, by namespace and name.
const OWN_SERVICES: [(&str, &str); 2] = [("default", "kubernetes"), ("cattle-system", "zks-cluster-agent")];
/// With it kube-vip is asked for an address.
const ADDRESS: &str = "kube-vip.io/loadbalancerIPs";

pub(super) fn is_own(namespace: &str) -> bool {
    OWN.contains(&namespace)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Service {
    /// Of the device or the cluster, not a user's.
    pub(super) own: bool,
    pub(super) kind: String,
    /// The wanted address of the load balancer, or empty.
    pub(super) address: String,
    pub(super) ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Port {
    pub(super) protocol: String,
    pub(super) number: i32,
    pub(super) on_nodes: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ingress {
    /// In the order of its rules.
    pub(super) paths: Vec<Path>,
    /// Hosts with TLS; an empty one for all.
    pub(super) tls_hosts: Vec<String>,
    /// IP address, or host name where there is none.
    pub(super) addresses: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Path {
    pub(super) host: String,
    pub(super) prefix: String,
    pub(super) kind: String,
    pub(super) service: String,
    pub(super) port: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pool {
    pub(super) interface: String,
    pub(super) prefix: String,
}

fn number(value: &Value) -> i32 {
    value.as_i64().and_then(|it| i32::try_from(it).ok()).unwrap_or_default()
}

impl ObjectFact for Service {
    fn of(raw: &RawObject) -> Self {
        let RawObject { metadata, spec, .. } = raw;
        let [namespace, name] =
            [&metadata.namespace, &metadata.name].map(|it| it.as_deref().unwrap_or_default());
        let first = items(&spec["externalIPs"]).first().map(text).unwrap_or_default();
        let wanted = [text(&spec["loadBalancerIP"]), first, text(&metadata.annotations[ADDRESS])];
        let port = |it: &Value| Port {
            protocol: text(&it["protocol"]),
            number: number(&it["port"]),
            on_nodes: number(&it["nodePort"]),
        };
        Self {
            own: is_own(namespace) || OWN_SERVICES.contains(&(namespace, name)),
            kind: text(&spec["type"]),
            address: wanted.into_iter().find(|it| !it.is_empty()).unwrap_or_default(),
            ports: items(&spec["ports"]).iter().map(port).collect(),
        }
    }
}

impl ObjectFact for Ingress {
    fn of(raw: &RawObject) -> Self {
        let RawObject { spec, status, .. } = raw;
        let mut paths = Vec::new();
        for rule in items(&spec["rules"]) {
            for path in items(&rule["http"]["paths"]) {
                let service = &path["backend"]["service"];
                if service.is_object() {
                    paths.push(Path {
                        host: text(&rule["host"]),
                        prefix: text(&path["path"]),
                        kind: text(&path["pathType"]),
                        service: text(&service["name"]),
                        port: number(&service["port"]["number"]),
                    });
                }
            }
        }
        let served = items(&status["loadBalancer"]["ingress"]).iter();
        Self {
            paths,
            tls_hosts: items(&spec["tls"]).iter().flat_map(|it| items(&it["hosts"])).map(text).collect(),
            addresses: served.map(|it| (text(&it["ip"]), text(&it["hostname"]))).collect(),
        }
    }
}

impl ObjectFact for Pool {
    fn of(raw: &RawObject) -> Self {
        Self { interface: text(&raw.data["interface-global"]), prefix: text(&raw.data["cidr-global"]) }
    }
}
