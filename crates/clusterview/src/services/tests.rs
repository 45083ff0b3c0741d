//! The table of services and ingresses, and the reference's bytes.

use serde_json::{Value, json};
use topics::go_json;

use super::*;
use crate::collections::{FactItem, ObjectFact};

fn table<T: ObjectFact>(objects: &[Value]) -> ObjectTable<T> {
    let one = |it: &Value| {
        let item: FactItem<T> = serde_json::from_value(it.clone()).unwrap();
        (item.key, item.fact)
    };
    objects.iter().map(one).collect()
}

fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec })
}

struct Bench {
    services: Vec<Value>,
    ingresses: Vec<Value>,
    pool: Option<Pool>,
    config_error: ErrorDescription,
}

impl Bench {
    fn new() -> Self {
        let (services, ingresses) = (Vec::new(), Vec::new());
        Self { services, ingresses, pool: None, config_error: ErrorDescription::default() }
    }

    fn pooled(prefix: &str) -> Self {
        let pool = Pool { interface: "eth1".to_owned(), prefix: prefix.to_owned() };
        Self { pool: Some(pool), ..Self::new() }
    }

    fn fold(&self, at: &str, before: Option<&KubeUserServices>) -> KubeUserServices {
        let own = ["192.168.86.10", "fd00::10"].map(|it| it.parse().unwrap()).into();
        let pools = self.pool.iter().map(|it| (Default::default(), it.clone())).collect();
        let view = ServicesView {
            services: &table(&self.services),
            ingresses: &table(&self.ingresses),
            pools: Some(&pools),
            own: &own,
            config_error: &self.config_error,
            now: at.parse().unwrap(),
        };
        fold(&view, before)
    }
}

const NOW: &str = "2026-03-14T09:26:53.589793238Z";

fn golden(sample: &str) -> String {
    let path = format!("{}/../../tests/golden/KubeUserServices/{sample}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn bytes(value: &KubeUserServices) -> String {
    String::from_utf8(go_json::to_vec(value).unwrap()).unwrap()
}

#[test]
fn the_golden_samples_come_out_of_their_objects_byte_for_byte() {
    let mut bench = Bench::new();
    bench.pool = Some(Pool { interface: "eth1".to_owned(), prefix: String::new() });
    assert_eq!(bytes(&bench.fold(NOW, None)), golden("zero"), "a pool without a prefix is none");
    bench.pool = None;
    assert_eq!(bytes(&bench.fold(NOW, None)), golden("zero"));
    let mut bench = Bench::pooled("192.168.86.200/29");
    bench.services = vec![
        service(
            "user-ns",
            "web-lb",
            &json!({ "type": "LoadBalancer", "loadBalancerIP": "192.168.86.201",
                "ports": [{ "protocol": "TCP", "port": 80, "nodePort": 31080 }] }),
        ),
        service(
            "cattle-system",
            "cattle-cluster-agent",
            &json!({ "type": "ClusterIP", "ports": [{ "protocol": "TCP", "port": 443 }] }),
        ),
    ];
    bench.ingresses = vec![json!({
        "metadata": { "namespace": "user-ns", "name": "web-ing" },
        "spec": {
            "tls": [{ "hosts": ["web.example.com"] }],
            "rules": [{ "host": "web.example.com", "http": { "paths": [{ "path": "/", "pathType": "Prefix",
                "backend": { "service": { "name": "web-lb", "port": { "number": 80 } } } }] } }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.86.10" }, { "ip": "192.168.86.11" }] } },
    })];
    let mut found = bench.fold(NOW, None);
    // The sample was made by hand: a server lists cattle-system first, and its address is within the prefix.
    found.user_service.as_mut().unwrap().reverse();
    assert_eq!(found.service_error, ErrorDescription::default());
    bench.pool = Some(Pool { interface: "eth1".to_owned(), prefix: "192.168.86.0/25".to_owned() });
    found.service_error = bench.fold(NOW, None).service_error;
    assert_eq!(bytes(&found), golden("full"));
}

#[test]
fn each_service_is_listed_port_by_port_as_the_reference_lists_it() {
    let ports =
        json!([{ "protocol": "TCP", "port": 80, "nodePort": 31080 }, { "protocol": "UDP", "port": 53 }]);
    let balanced = |more: Value| {
        let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "protocol": "TCP", "port": 80 }] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service("shop", "web", &spec)
    };
    let annotated = |text: &str| {
        let mut object = balanced(json!({}));
        object["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] = text.into();
        object
    };
    let mut served = balanced(json!({}));
    served["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.168.86.206" }]);
    let shop = |spec: Value| service("shop", "web", &spec);
    let agent = json!({ "type": "ClusterIP", "ports": [{ "port": 80 }, { "port": 443, "nodePort": 7 }] });
    let both = json!({ "loadBalancerIP": "192.168.86.201", "externalIPs": ["192.168.86.202"] });
    let external = json!({ "externalIPs": ["192.168.86.202", "192.168.86.203"] });
    let headless = json!({ "type": "ClusterIP", "clusterIP": "None", "ports": [{ "port": 80 }] });
    let named = json!({ "type": "ExternalName", "externalName": "x", "ports": [{ "port": 1 }] });
    // Type, port, node port, address, and whether it is the cluster's API, of each port.
    let mut rows = vec![
        (shop(json!({ "type": "NodePort", "ports": ports })), "NodePort 80 31080; NodePort 53 0"),
        (shop(headless), "ClusterIP 80 0"),
        (shop(named), "ExternalName 1 0"),
        (shop(json!({ "type": "ExternalName", "externalName": "x" })), ""),
        (balanced(both), "LoadBalancer 80 0 192.168.86.201"),
        (balanced(external), "LoadBalancer 80 0 192.168.86.202"),
        (annotated("192.168.86.204,192.168.86.205"), "LoadBalancer 80 0 192.168.86.204,192.168.86.205"),
        (annotated(""), ""),
        (balanced(json!({})), ""),
        // What the load balancer gave it does not count.
        (served, ""),
        (balanced(json!({ "loadBalancerIP": "10.43.7.7" })), ""),
        (balanced(json!({ "loadBalancerIP": "10.44.0.1" })), "LoadBalancer 80 0 10.44.0.1"),
        (service("cattle-system", "agent", &agent), "ClusterIP 80 0; NodePort 6443 7 API"),
        (shop(json!({ "type": "ClusterIP", "ports": [{ "port": 443 }] })), "ClusterIP 443 0"),
    ];
    for (namespace, name) in [
        ("default", "kubernetes"),
        ("cattle-system", "zks-cluster-agent"),
        ("kube-system", "a"),
        ("kubevirt", "a"),
        ("longhorn-system", "a"),
        ("cdi", "a"),
        ("eve-kube-app", "a"),
    ] {
        rows.push((service(namespace, name, &json!({ "type": "NodePort", "ports": ports })), ""));
    }
    for (object, expected) in rows {
        let bench = Bench { services: vec![object.clone()], ..Bench::new() };
        let listed = bench.fold(NOW, None).user_service.unwrap_or_default();
        let words = |it: &KubeServiceInfo| {
            let api = if it.ace_enabled { "API" } else { "" };
            let all = format!("{} {} {} {}{api}", it.r#type, it.port, it.node_port, it.load_balancer_ip);
            all.trim_end().to_owned()
        };
        assert_eq!(listed.iter().map(words).collect::<Vec<_>>().join("; "), expected, "{object}");
    }
}

#[test]
fn each_ingress_is_listed_path_by_path_as_the_reference_lists_it() {
    let path = |service: &str, port: Value| json!({ "path": "/a", "backend": { "service": { "name": service, "port": port } } });
    let to = |host: &str, service: &str, port: Value, tls: &[&str]| {
        let rule = json!({ "host": host, "http": { "paths": [path(service, port)] } });
        json!({ "rules": [rule], "tls": [{ "hosts": tls }] })
    };
    let ingress = |namespace: &str, spec: &Value, addresses: &Value| {
        json!({ "metadata": { "namespace": namespace, "name": "i" }, "spec": spec,
            "status": { "loadBalancer": { "ingress": addresses } } })
    };
    let rule = |host: &str, paths: Value| json!({ "host": host, "http": { "paths": paths } });
    let mut bench = Bench::new();
    bench.services = vec![
        service("shop", "node", &json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 31080 }] })),
        // Without an address, so it is in no entry.
        service("shop", "balanced", &json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] })),
        service("other", "gone", &json!({ "type": "NodePort", "ports": [{ "port": 80 }] })),
    ];
    // Protocol, service type, port, addresses.
    let addresses = json!([{ "ip": "192.168.86.11" }, { "ip": "x" }, { "hostname": "z.example" }, { "ip": "fd00::10" }, {}]);
    let elsewhere = json!([{ "path": "/", "backend": { "resource": { "kind": "Bucket" } } }]);
    let number = || json!({ "number": 80 });
    let ours = json!([{ "ip": "192.168.86.10" }]);
    let rows = [
        (to("h", "node", number(), &[]), ours, "http NodePort 80 [\"192.168.86.10\"]"),
        // Of another node, and no address at all; a host name stays, and all are sorted.
        (
            to("h", "balanced", json!({ "name": "web" }), &["other", "h"]),
            addresses,
            "https LoadBalancer 0 [\"fd00::10\", \"z.example\"]",
        ),
        (to("h", "gone", number(), &["o"]), json!(null), "http ClusterIP 80 []"),
        (to("h", "node", number(), &[""]), json!([]), "https NodePort 80 []"),
        // Hosts without paths, and paths that lead elsewhere.
        (json!({ "rules": [{ "host": "h" }, rule("h", elsewhere)] }), json!([]), ""),
    ];
    for (spec, addresses, expected) in rows {
        bench.ingresses = vec![ingress("shop", &spec, &addresses)];
        let found: Vec<String> = bench
            .fold(NOW, None)
            .user_ingress
            .unwrap_or_default()
            .iter()
            .map(|it| {
                assert_eq!((it.path.as_str(), it.path_type.as_str()), ("/a", ""));
                let served = it.ingress_ip.clone().unwrap_or_default();
                format!("{} {} {} {served:?}", it.protocol, it.service_type, it.service_port)
            })
            .collect();
        assert_eq!(found.join("; "), expected, "{spec}");
    }
    let own =
        ingress("kube-system", &json!({ "rules": [rule("h", json!([path("a", json!({}))]))] }), &json!([]));
    bench.ingresses = vec![own];
    assert_eq!(bench.fold(NOW, None).user_ingress, None);
}

#[test]
fn the_pool_and_its_errors_follow_the_settings_of_the_load_balancer() {
    let balanced = |address: &str| {
        vec![service(
            "shop",
            "web",
            &json!({ "type": "LoadBalancer", "loadBalancerIP": address,
            "ports": [{ "port": 80 }, { "port": 81 }] }),
        )]
    };
    let wrong = ErrorDescription { error: "no such interface".to_owned(), ..ErrorDescription::default() };
    let error = |bench: &Bench| bench.fold(NOW, None).service_error.error;
    let mut bench = Bench::new();
    bench.services = balanced("192.168.86.201");
    assert_eq!((bench.fold(NOW, None).lb_pool_status, error(&bench).as_str()), (None, ORPHANS));
    bench.config_error = wrong.clone();
    let pool = bench.fold(NOW, None).lb_pool_status.unwrap();
    assert_eq!(pool, KubeLbPoolStatus { error: wrong.clone(), ..KubeLbPoolStatus::default() });
    assert_eq!(error(&bench), ORPHANS);
    bench.pool = Some(Pool { interface: "eth1".to_owned(), prefix: "192.168.86.200/29".to_owned() });
    let pool = bench.fold(NOW, None).lb_pool_status.unwrap();
    assert_eq!((pool.allocated_ips.unwrap(), pool.error), (vec!["192.168.86.201".to_owned()], wrong));
    assert_eq!(error(&bench), "");
    bench.services = balanced("192.168.86.208");
    assert_eq!(error(&bench), OUT_OF_RANGE);
    // An error that stays keeps its time; another one, and one that comes back, has a new one.
    let first = bench.fold(NOW, None);
    let later = "2026-03-14T10:00:00Z";
    assert_eq!(bench.fold(later, Some(&first)), first);
    assert_eq!(first.service_error.error_severity, ErrorSeverity::Warning);
    bench.pool = None;
    assert_eq!(bench.fold(later, Some(&first)).service_error.error_time, later.parse().unwrap());
    bench.services.clear();
    assert_eq!(error(&bench), "");
}
