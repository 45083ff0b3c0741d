//! Nodes, and pods of applications, in any number.

use kubesim::Sim;
use serde_json::json;

const AT: &str = "2026-03-14T09:30:00Z";
pub(crate) const APPS: &str = "eve-kube-app";

fn node(sim: &Sim, name: &str, ip: &str, device: &str) {
    let node = json!({
        "metadata": {
            "name": name, "creationTimestamp": AT,
            "labels": { "node-uuid": device, "node-role.kubernetes.io/etcd": "true" },
        },
        "spec": {},
        "status": {
            "addresses": [{ "type": "InternalIP", "address": ip }, { "type": "Hostname", "address": name }],
            "conditions": [
                { "type": "MemoryPressure", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Ready", "status": "True", "lastTransitionTime": AT },
            ],
            "nodeInfo": { "kubeletVersion": "v1.32.1+k3s1" },
        },
    });
    sim.apply("nodes", node);
}

fn app_pod(sim: &Sim, name: &str) {
    let ended = json!({ "terminated": { "exitCode": 1, "finishedAt": AT } });
    sim.apply(
        "pods",
        json!({
            "metadata": { "name": name, "namespace": APPS, "creationTimestamp": AT },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] },
            "status": {
                "phase": "Running", "podIP": "10.42.0.15",
                "containerStatuses": [
                    { "name": "a", "restartCount": 1, "lastState": ended },
                    { "name": "b", "restartCount": 1, "lastState": {} },
                ],
            },
        }),
    );
}

/// Pods of applications, and nodes that they are on.
pub(crate) fn crowd(sim: &Sim, nodes: usize, pods: usize) {
    for at in 0..nodes {
        let device = format!("11111111-1111-4111-8111-{at:012}");
        let (name, ip) = (format!("edge-node-{at:04}"), format!("10.244.{}.{}", at / 250, at % 250));
        node(sim, &name, &ip, &device);
    }
    for at in 0..pods {
        app_pod(sim, &format!("application-{at:05}-0-abcde"));
    }
}
