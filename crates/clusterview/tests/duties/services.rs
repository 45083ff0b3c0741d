//! `KubeUserServices` as a file.

use std::time::Duration;

use clusterview::services;
use kubesim::ScriptedFault;
use serde_json::json;
use topics::{KubeUserServices, go_json};

use super::stage::{Stage, beside};

const FILE: &str = "run/zedkube/KubeUserServices/global.json";
const PATHS: [&str; 3] = ["/api/v1/services", "/ingresses", "/configmaps"];

fn stage() -> Stage {
    let stage = Stage::new();
    stage.sim.apply(
        "services",
        json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "type": "NodePort", "ports": [{ "protocol": "TCP", "port": 80, "nodePort": 31080 }] },
        }),
    );
    stage.sim.apply(
        "networking/ingresses",
        json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "rules": [{ "host": "h", "http": { "paths": [{ "path": "/", "pathType": "Prefix",
                "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] } }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.86.10" }] } },
        }),
    );
    stage
}

fn with_ports(stage: &Stage, address: &str) {
    let ports = json!({ "Ports": [{ "IfName": "eth0", "AddrInfoList": [{ "Addr": address }] }] });
    stage.write("run/nim/DeviceNetworkStatus/global.json", &ports);
}

fn published(stage: &Stage) -> Option<KubeUserServices> {
    stage.text(FILE).map(|text| go_json::from_slice(text.as_bytes()).unwrap())
}

/// Ports, and the addresses of each path.
fn counts(stage: &Stage) -> Option<(usize, Vec<Vec<String>>)> {
    let found = published(stage)?;
    let paths = found.user_ingress.unwrap_or_default().into_iter();
    let paths = paths.map(|it| it.ingress_ip.unwrap_or_default()).collect();
    Some((found.user_service.unwrap_or_default().len(), paths))
}

#[tokio::test(start_paused = true)]
async fn what_users_serve_follows_services_ingresses_and_addresses_by_watches_alone() {
    let stage = stage();
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.pass(Duration::from_mins(10)).await;
        assert_eq!((stage.requests("/"), published(&stage)), ((0, 0), None), "nobody opens ports");
        with_ports(&stage, "192.168.86.10");
        let served = |ip: &str| vec![vec![ip.to_owned()]];
        stage.until("all", |it| counts(it) == Some((1, served("192.168.86.10")))).await;
        let inode = stage.inode(FILE);
        stage.pass(Duration::from_mins(10)).await;
        assert_eq!(stage.inode(FILE), inode, "no change, no publication");
        for path in PATHS {
            assert_eq!(stage.requests(path).0, 1, "{path}: one list, then watches");
        }
        // An annotation that nobody reads.
        stage.sim.edit("services", "shop", "web", |it| it["metadata"]["labels"]["a"] = "b".into());
        stage.pass(Duration::from_mins(1)).await;
        assert_eq!(stage.inode(FILE), inode);
        let port = json!({ "protocol": "TCP", "port": 81 });
        stage.sim.edit("services", "shop", "web", |it| {
            it["spec"]["ports"].as_array_mut().unwrap().push(port.clone());
        });
        let late = stage.until("a port", |it| counts(it).unwrap().0 == 2).await;
        assert!(late <= Duration::from_secs(1), "{late:?}");
        with_ports(&stage, "192.168.86.99");
        stage.until("another address", |it| counts(it) == Some((2, vec![vec![]]))).await;
        stage.sim.apply(
            "configmaps",
            json!({ "metadata": { "namespace": "kube-system", "name": "kubevip" },
                "data": { "interface-global": "eth1", "cidr-global": "192.168.86.200/29" } }),
        );
        stage.until("a pool", |it| published(it).unwrap().lb_pool_status.is_some()).await;
        stage.sim.apply(
            "configmaps",
            json!({ "metadata": { "namespace": "kube-system", "name": "other" }, "data": {} }),
        );
        assert!(stage.sim.remove("networking/ingresses", "shop", "web"));
        stage.until("no path", |it| counts(it) == Some((2, vec![]))).await;
        // What is wrong with our own config.
        stage.write(
            "run/zedkube/EdgeNodeClusterStatus/global.json",
            &json!({ "LBConfigError": { "Error": "no" } }),
        );
        let error = |it: &Stage| published(it).unwrap().lb_pool_status.unwrap().error.error;
        stage.until("an error of our config", |it| error(it) == "no").await;
    })
    .await;
    let inode = stage.inode(FILE);
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.pass(Duration::from_mins(1)).await;
        assert_eq!(stage.inode(FILE), inode, "a restart publishes nothing");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_the_load_balancer_that_cannot_be_read_leave_what_was_published_of_them() {
    let stage = stage();
    with_ports(&stage, "192.168.86.10");
    let balanced = json!({ "metadata": { "namespace": "shop", "name": "lb" },
        "spec": { "type": "LoadBalancer", "loadBalancerIP": "192.168.86.201",
            "ports": [{ "protocol": "TCP", "port": 80 }] } });
    stage.sim.apply("services", balanced);
    let pool = json!({ "metadata": { "namespace": "kube-system", "name": "kubevip" },
        "data": { "interface-global": "eth1", "cidr-global": "192.168.86.200/29" } });
    stage.sim.apply("configmaps", pool);
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.until("a pool", |it| published(it).is_some_and(|it| it.lb_pool_status.is_some())).await;
    })
    .await;
    let before = published(&stage).unwrap();
    // A restart, with a service less.
    stage.sim.faults().script("GET", "/configmaps", u32::MAX, ScriptedFault::status(403, "Forbidden"));
    assert!(stage.sim.remove("services", "shop", "web"));
    beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
        stage.until("a service less", |it| counts(it).is_some_and(|it| it.0 == 1)).await;
        let now = published(&stage).unwrap();
        assert_eq!((now.lb_pool_status, now.service_error), (before.lb_pool_status, before.service_error));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn d_v10_d_v11_a_list_that_fails_publishes_nothing_and_one_that_fails_later_takes_nothing_away() {
    for path in PATHS {
        for fault in
            [ScriptedFault::status(503, "ServiceUnavailable"), ScriptedFault::Cut, ScriptedFault::Hang]
        {
            let stage = stage();
            with_ports(&stage, "192.168.86.10");
            stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
            beside(services::run(&stage.context, &stage.troubles, stage.cluster()), async {
                stage.pass(Duration::from_mins(10)).await;
                // Without kube-vip's settings ports are open all the same.
                let open = (path == "/configmaps").then(|| (1, vec![vec!["192.168.86.10".to_owned()]]));
                assert_eq!(counts(&stage), open, "{path} {fault:?}");
                stage.sim.faults().clear();
                stage.until("all", |it| counts(it).is_some()).await;
                let before = stage.inode(FILE);
                stage.sim.faults().script("GET", path, u32::MAX, fault.clone());
                stage.sim.expire_watches();
                stage.pass(Duration::from_mins(10)).await;
                assert_eq!(stage.inode(FILE), before, "{path} {fault:?}");
                let log = stage.lines.text();
                assert!(log.matches("cannot follow").count() <= 2, "{log}");
            })
            .await;
        }
    }
}
