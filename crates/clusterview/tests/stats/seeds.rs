//! Objects that lead to the golden sample of `KubeClusterInfo`.

use kubesim::Sim;
use serde_json::{Value, json};

use super::crowd::{APPS, AT, app_pod, node};

const STORAGE: &str = "longhorn-system";

/// A cluster that is what the golden sample reports.
pub(crate) fn golden(sim: &Sim) {
    node(sim, "node-1", "10.244.244.2", "11111111-1111-4111-8111-111111111111", |it| {
        it["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "true".into();
    });
    // Its machine has been away for a while.
    node(sim, "node-2", "10.244.244.3", "22222222-2222-4222-8222-222222222222", |it| {
        it["metadata"]["annotations"] = json!({ "kubesim/power": "off" });
        it["status"]["conditions"][1]["status"] = "Unknown".into();
        it["spec"]["unschedulable"] = true.into();
    });
    app_pod(sim, "web-d4f3a-0-abcde");
    vm(sim, "ubuntu-b3e2f-0ab1cd");
    longhorn_pods(sim);
    volume(sim);
}

fn vm(sim: &Sim, name: &str) {
    sim.apply(
        "kubevirt/virtualmachineinstances",
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": name, "namespace": APPS, "creationTimestamp": AT },
            "spec": { "domain": {} },
            "status": {
                "phase": "Running", "nodeName": "node-1",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": AT }],
            },
        }),
    );
}

/// Twenty pods, two of them of a DaemonSet, one of them waiting.
fn longhorn_pods(sim: &Sim) {
    let set = "longhorn-manager";
    for number in 0..20 {
        let name = match number {
            0 => format!("{set}-node-1"),
            1 => format!("{set}-node-2"),
            other => format!("other-{other}"),
        };
        let mut pod = json!({
            "metadata": { "name": name, "namespace": STORAGE, "labels": { "app": "other" } },
            "spec": { "nodeName": "node-2", "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": if number == 19 { "Pending" } else { "Running" } },
        });
        if number < 2 {
            pod["metadata"]["labels"]["app"] = set.into();
            pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set, "uid": "set", "controller": true }]);
            pod["status"]["conditions"] =
                json!([{ "type": "Ready", "status": "True", "lastTransitionTime": AT }]);
        }
        sim.apply("pods", pod);
    }
    let labels = json!({ "app": set });
    sim.apply("apps/daemonsets", json!({
        "metadata": { "name": set, "namespace": STORAGE, "uid": "set" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    }));
}

/// A claim, its volume, two replicas of which one is filled, their engine, two snapshots, and a disk.
fn volume(sim: &Sim) {
    sim.apply(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "0c1d2e3f-pvc-0", "namespace": APPS, "creationTimestamp": AT },
            "spec": { "volumeName": "pvc-0c1d", "resources": { "requests": { "storage": "10Gi" } } },
            "status": { "phase": "Bound" },
        }),
    );
    longhorn(
        sim,
        "volumes",
        "pvc-0c1d",
        &json!({}),
        &json!({
            "state": "attached", "robustness": "healthy", "actualSize": 9_007_199_254_000_000_u64,
        }),
    );
    for (name, bytes) in [("snap-1", 740_000), ("snap-2", 993), ("pvc-0c1d-e-0-volume-head", 5_000)] {
        longhorn(sim, "snapshots", name, &json!({ "volume": "pvc-0c1d" }), &json!({ "size": bytes }));
    }
    for (at, node) in [(1, "node-1"), (2, "node-2")] {
        longhorn(
            sim,
            "replicas",
            &format!("pvc-0c1d-r-{at}"),
            &json!({ "volumeName": "pvc-0c1d", "engineName": "pvc-0c1d-e-0" }),
            &json!({ "currentState": "running", "ownerID": node, "ip": format!("10.42.{at}.9"), "port": 10000 }),
        );
    }
    longhorn(
        sim,
        "engines",
        "pvc-0c1d-e-0",
        &json!({ "volumeName": "pvc-0c1d" }),
        &json!({
            "replicaModeMap": { "pvc-0c1d-r-1": "RW", "pvc-0c1d-r-2": "WO" },
            "currentReplicaAddressMap": { "pvc-0c1d-r-2": "10.42.2.9:10000" },
            "rebuildStatus": { "tcp://10.42.2.9:10000": { "isRebuilding": true, "progress": 42, "state": "in_progress" } },
        }),
    );
    disk(sim, "True");
}

/// A disk of Longhorn that takes replicas, or does not.
pub(crate) fn disk(sim: &Sim, schedulable: &str) {
    let conditions = json!([{ "type": "Schedulable", "status": schedulable, "reason": "" }]);
    longhorn(
        sim,
        "nodes",
        "node-1",
        &json!({}),
        &json!({ "diskStatus": { "default": { "conditions": conditions } } }),
    );
}

fn longhorn(sim: &Sim, plural: &str, name: &str, spec: &Value, status: &Value) {
    sim.apply(
        &format!("longhorn/{plural}"),
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Longhorn",
            "metadata": { "name": name, "namespace": STORAGE }, "spec": spec, "status": status,
        }),
    );
}
