//! Objects that lead to the golden sample of `KubeClusterInfo`.

use kubesim::Sim;
use serde_json::{Value, json};

/// Kinds and objects: a node that has been away for a while, twenty pods of Longhorn of which two are of a DaemonSet
/// and one waits, a volume with two replicas of which one is filled.
const OBJECTS: &str = include_str!("golden.json");

/// A cluster that is what the golden sample reports.
pub(crate) fn golden(sim: &Sim) {
    for (kind, object) in serde_json::from_str::<Vec<(String, Value)>>(OBJECTS).unwrap() {
        sim.apply(&kind, object);
    }
    disk(sim, "True");
}

/// A disk of Longhorn that takes replicas, or does not.
pub(crate) fn disk(sim: &Sim, schedulable: &str) {
    let conditions = json!([{ "type": "Schedulable", "status": schedulable, "reason": "" }]);
    sim.apply(
        "longhorn/nodes",
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Longhorn",
            "metadata": { "name": "node-1", "namespace": "longhorn-system" }, "spec": {},
            "status": { "diskStatus": { "default": { "conditions": conditions } } },
        }),
    );
}
