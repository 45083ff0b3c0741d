//! Nodes and workloads to start with.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kubelets::LEASES;
use crate::store::{condition, uid};
use crate::{Sim, machines, node_state, volumes, workloads};

/// What a network that fails one way loses between a node and the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneWay {
    /// What the node sends: the server sees no request of it. Open watches go on.
    Requests,
    /// What it is sent: its requests are carried out, and it hears nothing of that.
    Answers,
}

impl Sim {
    /// Its device has this UUID. It is Ready after the start time.
    pub fn add_node(&self, name: &str, device_uuid: &str) {
        let node = json!({
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "node-uuid": device_uuid, "node-role.kubernetes.io/control-plane": "true",
            } },
            "spec": {},
            "status": { "conditions": [], "nodeInfo": {
                "kubeletVersion": "v1.34.0-kubesim", "operatingSystem": "linux", "systemUUID": device_uuid,
            } },
        });
        self.apply("nodes", node);
    }

    /// Switches a node off or on: its pods do not change meanwhile.
    pub fn power(&self, node: &str, on: bool) {
        if !on {
            self.shared.write(|store| {
                let here: Vec<_> = store.pods_on(node).cloned().collect();
                let ended = here.iter().filter_map(|it| store.get("pods", &it.0, &it.1)).map(uid).collect();
                store.ended.insert(node.to_owned(), ended);
            });
        }
        self.switch("nodes", "", node, "power", if on { "on" } else { "off" });
    }

    /// Switches a node on, in a boot that its kubelet reports once it reaches the API.
    pub fn boot(&self, node: &str, boot_id: &str) {
        self.switch("nodes", "", node, "boot", boot_id);
        self.power(node, true);
    }

    /// Parts a node from the API, or reconnects it: its kubelet and clients of [`Sim::service_of`]. Its pods
    /// keep running.
    pub fn cut_off(&self, node: &str, off: bool) {
        self.switch("nodes", "", node, "network", if off { "off" } else { "on" });
    }

    /// Stops the kubelet of a node, or starts it again: all else there goes on.
    pub fn run_kubelet(&self, node: &str, on: bool) {
        self.switch("nodes", "", node, "kubelet", if on { "on" } else { "off" });
    }

    /// [`Sim::cut_off`] one way, until [`Sim::cut_off`] reconnects it.
    pub fn cut_one_way(&self, node: &str, lost: OneWay) {
        let lost = if lost == OneWay::Requests { node_state::REQUESTS } else { node_state::ANSWERS };
        self.switch("nodes", "", node, "network", lost);
    }

    fn switch(&self, resource: &str, namespace: &str, name: &str, what: &str, to: &str) {
        self.edit(resource, namespace, name, |it| {
            it["metadata"]["annotations"][format!("kubesim/{what}")] = to.into();
        });
    }

    /// A virtual IP of kube-vip, as `plndr-cp-lock`, held by this node.
    pub fn add_virtual_ip(&self, lease: &str, holder: &str) {
        let held = json!({
            "metadata": { "name": lease, "namespace": "kube-system" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 },
        });
        self.apply(LEASES, held);
    }

    /// Switches kube-vip's service for this virtual IP on or off.
    pub fn serve_virtual_ip(&self, lease: &str, on: bool) {
        self.switch(LEASES, "kube-system", lease, "kube-vip", if on { "on" } else { "off" });
    }

    /// A pod as an unclean boot leaves it: long Terminating, or in phase Unknown, without running containers,
    /// and ignored by the kubelet of the next boot.
    pub fn leave_behind(&self, namespace: &str, name: &str, terminating: bool) {
        const LONG_AGO: &str = "2020-01-01T00:00:00Z";
        self.edit("pods", namespace, name, |it| {
            it["metadata"]["annotations"]["kubesim/left-behind"] = "yes".into();
            it["metadata"]["creationTimestamp"] = LONG_AGO.into();
            if terminating {
                it["metadata"]["deletionTimestamp"] = LONG_AGO.into();
                it["metadata"]["deletionGracePeriodSeconds"] = 30.into();
            } else {
                it["status"]["phase"] = "Unknown".into();
            }
        });
    }

    /// UIDs of pods with a running container on this node, as its container runtime lists them.
    pub fn live_pods(&self, node: &str) -> BTreeSet<String> {
        let store = self.shared.store();
        let all = store.get("nodes", "", node).map(|it| store.executing(it)).unwrap_or_default();
        all.into_iter().map(uid).collect()
    }

    /// With its replica set.
    pub fn add_deployment(&self, namespace: &str, name: &str, replicas: u64) {
        self.apply("apps/deployments", workload(namespace, name, name, replicas));
        let mut set = workload(namespace, &workloads::replica_set_name(name), name, replicas);
        if let Some(owner) = self.get("apps/deployments", namespace, name) {
            set["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": owner["metadata"]["uid"],
                "controller": true,
            }]);
        }
        self.apply("apps/replicasets", set);
    }

    pub fn add_machine(&self, namespace: &str, name: &str, strategy: &str) {
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "runStrategy": strategy, "template": { "spec": {} } },
        });
        self.apply(machines::MACHINES, machine);
    }

    pub fn add_machine_set(&self, namespace: &str, name: &str, replicas: u64) {
        let set = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "replicas": replicas, "template": { "spec": {} } },
        });
        self.apply(machines::SETS, set);
    }

    pub fn add_stateful_set(&self, namespace: &str, name: &str, replicas: u64) {
        self.apply("apps/statefulsets", workload(namespace, name, name, replicas));
    }

    pub fn add_daemon_set(&self, namespace: &str, name: &str) {
        self.apply("apps/daemonsets", workload(namespace, name, name, 0));
    }

    /// Without an owner, on this node.
    pub fn add_bare_pod(&self, namespace: &str, name: &str, node: &str) {
        self.apply("pods", bare_pod(namespace, name, node));
    }

    /// Starts or ends a crash loop of a running pod's container.
    pub fn crash_loop(&self, namespace: &str, name: &str, on: bool) {
        let waits = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let state = if on { waits } else { json!({ "running": {} }) };
        self.edit("pods", namespace, name, |pod| {
            pod["status"]["containerStatuses"] = json!([{
                "name": "c", "image": "i", "imageID": "", "ready": !on, "restartCount": 5, "state": state,
            }]);
            pod["status"]["conditions"] = json!([condition("Ready", !on)]);
        });
    }

    /// Bound to a volume of its own.
    pub fn add_claim(&self, namespace: &str, name: &str, volume: &str) {
        let (size, modes) = (json!({ "storage": "1Gi" }), json!(["ReadWriteOnce"]));
        let claim = json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "accessModes": modes, "resources": { "requests": size }, "storageClassName": "kubesim",
                "volumeMode": "Filesystem", "volumeName": volume,
            },
            "status": { "phase": "Bound", "accessModes": modes, "capacity": size },
        });
        self.apply("persistentvolumeclaims", claim);
        let held = self.get("persistentvolumeclaims", namespace, name).unwrap_or_default();
        self.apply("persistentvolumes", json!({
            "metadata": { "name": volume },
            "spec": {
                "accessModes": modes, "capacity": size, "storageClassName": "kubesim", "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": volumes::DRIVER, "volumeHandle": volume },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                    "uid": held["metadata"]["uid"],
                },
            },
            "status": { "phase": "Bound" },
        }));
    }

    /// As [`Sim::add_bare_pod`], with this claim.
    pub fn add_mounting_pod(&self, namespace: &str, name: &str, node: &str, claim: &str) {
        let mut pod = bare_pod(namespace, name, node);
        pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
        self.apply("pods", pod);
    }

    pub fn add_priority_class(&self, name: &str, value: i32) {
        let class = json!({ "metadata": { "name": name }, "value": value, "globalDefault": false });
        self.apply("scheduling/priorityclasses", class);
    }

    /// For one workload: `{"minAvailable": 2}` or `{"maxUnavailable": 1}`.
    pub fn add_budget(&self, namespace: &str, name: &str, app: &str, limit: &Value) {
        let mut spec = limit.clone();
        spec["selector"] = json!({ "matchLabels": { "app": app } });
        let budget =
            json!({ "metadata": { "name": name, "namespace": namespace }, "spec": spec, "status": {} });
        self.apply("policy/poddisruptionbudgets", budget);
    }
}

fn bare_pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": {
            "nodeName": node, "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 30,
        },
        "status": { "phase": "Pending" },
    })
}

fn workload(namespace: &str, name: &str, app: &str, replicas: u64) -> Value {
    json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": app } },
            "template": {
                "metadata": { "labels": { "app": app } },
                "spec": { "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 30 },
            },
        },
    })
}
