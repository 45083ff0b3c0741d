//! Longhorn and volumes to start with.

use serde_json::json;

use super::{DRIVER, ENGINES, NAMESPACE, REPLICAS, RUNS, SETTINGS, VOLUMES, engine_of, replicas};
use crate::Sim;
use crate::store::stamp;

impl Sim {
    /// Longhorn with this `node-drain-policy`, with objects for each node.
    pub fn add_longhorn(&self, policy: &str) {
        self.longhorn_setting("node-drain-policy", policy);
        self.edit(SETTINGS, NAMESPACE, "node-drain-policy", |it| {
            it["metadata"]["annotations"][RUNS] = "runs".into();
        });
    }

    /// A setting of Longhorn, changed or new.
    pub fn longhorn_setting(&self, name: &str, value: &str) {
        if !self.edit(SETTINGS, NAMESPACE, name, |it| it["value"] = value.into()) {
            let setting = json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "Setting",
                "metadata": { "name": name, "namespace": NAMESPACE }, "value": value, "status": { "applied": true },
            });
            self.apply(SETTINGS, setting);
        }
    }

    /// A claim like [`Sim::add_claim`] on a detached Longhorn volume, with a healthy replica on each of these
    /// nodes.
    pub fn add_longhorn_volume(&self, namespace: &str, claim: &str, volume: &str, nodes: &[&str]) {
        self.add_claim(namespace, claim, volume);
        self.edit("persistentvolumes", "", volume, |it| it["spec"]["csi"]["driver"] = DRIVER.into());
        let meta = json!({ "name": volume, "namespace": NAMESPACE });
        let held = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": meta,
            "spec": {
                "numberOfReplicas": nodes.len(), "dataLocality": "disabled", "accessMode": "rwo", "dataEngine": "v1",
                "migratable": false, "nodeID": "", "migrationNodeID": "", "size": "1073741824",
            },
            "status": {
                "state": "detached", "robustness": "unknown", "currentNodeID": "", "ownerID": nodes.first(),
                "conditions": [{ "type": "Scheduled", "status": "True", "reason": "", "message": "" }],
                "kubernetesStatus": {
                    "pvName": volume, "pvStatus": "Bound", "namespace": namespace, "pvcName": claim,
                    "workloadsStatus": [], "lastPodRefAt": "", "lastPVCRefAt": "",
                },
            },
        });
        self.shared.write(|store| {
            for (number, node) in nodes.iter().enumerate() {
                store.put(REPLICAS, replicas::new(&held, node, number, &stamp(0)));
            }
            let mut meta = meta.clone();
            meta["name"] = engine_of(volume).into();
            meta["labels"]["longhornvolume"] = volume.into();
            store.put(
                ENGINES,
                json!({
                    "apiVersion": "longhorn.io/v1beta2", "kind": "Engine", "metadata": meta,
                    "spec": { "volumeName": volume, "nodeID": "", "desireState": "stopped", "active": true },
                    "status": { "currentState": "stopped" },
                }),
            );
            store.put(VOLUMES, held);
        });
    }
}
