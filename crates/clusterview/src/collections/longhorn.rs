//! Objects of KubeVirt and Longhorn turned into facts.
//!
//! Sources: the API types kubevirt.io/v1 and longhorn.io/v1beta2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use serde_json::Value;

use super::facts::{EngineFact, Replica, Snapshot, StorageNode, Vm, Volume};
use super::objects::ready_since;
use kubeapi::objects::{RawObject, condition, text};
use step::Inserted as _;

/// The live data of a volume is listed among its snapshots under this name.
const HEAD: &str = "volume-head";

pub(super) fn vm(raw: &RawObject) -> Vm {
    Vm {
        phase: text(&raw.status["phase"]),
        created: raw.created(),
        ready: condition(&raw.status, "Ready")["status"] == "True",
        ready_since: ready_since(&raw.status),
        node: text(&raw.status["nodeName"]),
    }
}

pub(super) fn volume(raw: &RawObject) -> Volume {
    Volume {
        state: text(&raw.status["state"]),
        robustness: text(&raw.status["robustness"]),
        actual_bytes: number(&raw.status["actualSize"]),
    }
}

pub(super) fn replica(raw: &RawObject) -> Replica {
    let said = |member: &str| !text(&raw.status[member]).is_empty();
    Replica {
        volume: text(&raw.spec["volumeName"]),
        engine: text(&raw.spec["engineName"]),
        state: text(&raw.status["currentState"]),
        owner: text(&raw.status["ownerID"]),
        address: address(&text(&raw.status["ip"]), number(&raw.status["port"])),
        placed: ["ownerID", "instanceManagerName", "currentImage"].into_iter().any(said),
    }
}

fn address(ip: &str, port: u64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

pub(super) fn engine(raw: &RawObject) -> EngineFact {
    let words = |member: &str| each(&raw.status[member], text);
    let percent = |it: &Value| u8::try_from(number(&it["progress"])).unwrap_or(100).min(100);
    EngineFact {
        modes: words("replicaModeMap"),
        addresses: words("currentReplicaAddressMap"),
        rebuilt: each(&raw.status["rebuildStatus"], percent),
    }
}

fn each<T>(map: &Value, read: impl Fn(&Value) -> T) -> BTreeMap<String, T> {
    let members = map.as_object().into_iter().flatten();
    members.map(|(name, value)| (name.clone(), read(value))).into_map()
}

pub(super) fn snapshot(raw: &RawObject) -> Snapshot {
    let name = raw.metadata.name.as_deref().unwrap_or_default();
    let bytes = if name.ends_with(HEAD) { 0 } else { number(&raw.status["size"]) };
    Snapshot { volume: text(&raw.spec["volume"]), bytes }
}

pub(super) fn storage_node(raw: &RawObject) -> StorageNode {
    let mut disks = raw.status["diskStatus"].as_object().into_iter().flatten();
    StorageNode {
        disk_unschedulable: disks.any(|(_, disk)| condition(disk, "Schedulable")["status"] == "False"),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T>(object: Value, read: impl Fn(&RawObject) -> T) -> T {
        read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_machine_is_ready_since_its_condition_is_true_and_else_at_no_time() {
        for (status, ready) in [("True", true), ("False", false)] {
            let object = json!({ "status": { "phase": "Running", "nodeName": "n1", "conditions": [
                { "type": "LiveMigratable", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Ready", "status": status, "lastTransitionTime": "2026-03-14T09:30:00Z" },
            ] } });
            let seen = read(object, vm);
            assert_eq!((seen.ready, seen.ready_since.is_some()), (ready, ready), "{status}");
        }
    }

    #[test]
    fn a_replica_that_was_never_on_a_node_is_told_from_one_that_stopped() {
        let placed = |status: Value| read(json!({ "status": status }), replica).placed;
        assert!(!placed(json!({ "currentState": "stopped", "ownerID": "" })));
        assert!(!placed(json!({})));
        assert!(placed(json!({ "currentState": "stopped", "ownerID": "n1" })));
        assert!(placed(json!({ "instanceManagerName": "m" })));
        assert!(placed(json!({ "currentImage": "i" })));
    }

    #[test]
    fn addresses_of_both_families_are_written_as_engines_write_them() {
        let at = |ip: &str| read(json!({ "status": { "ip": ip, "port": 10000 } }), replica).address;
        assert_eq!(at("10.42.0.7"), "10.42.0.7:10000");
        assert_eq!(at("fd00::7"), "[fd00::7]:10000");
    }

    #[test]
    fn an_engines_maps_are_read_and_percents_stay_below_a_hundred() {
        let seen = read(
            json!({ "status": {
                "replicaModeMap": { "r-1": "RW", "r-2": "WO" },
                "currentReplicaAddressMap": { "r-2": "10.42.1.9:10000" },
                "rebuildStatus": { "tcp://10.42.1.9:10000": { "progress": 42 }, "tcp://x": { "progress": 400 } },
            } }),
            engine,
        );
        assert_eq!(seen.modes["r-2"], "WO");
        assert_eq!(seen.addresses["r-2"], "10.42.1.9:10000");
        assert_eq!((seen.rebuilt["tcp://10.42.1.9:10000"], seen.rebuilt["tcp://x"]), (42, 100));
        assert_eq!(read(json!({ "status": { "replicaModeMap": null } }), engine), EngineFact::default());
    }

    #[test]
    fn the_live_data_of_a_volume_is_no_snapshot() {
        let bytes = |name: &str, size: Value| {
            let object = json!({ "metadata": { "name": name }, "spec": { "volume": "v" }, "status": { "size": size } });
            read(object, snapshot).bytes
        };
        assert_eq!(bytes("s-1", json!(7)), 7);
        assert_eq!(bytes("s-1", json!("7")), 7);
        assert_eq!(bytes("v-e-0-volume-head", json!(7)), 0);
    }

    #[test]
    fn one_disk_that_takes_no_replica_is_enough() {
        let disk = |schedulable: &str| {
            json!({ "conditions": [
                { "type": "Ready", "status": "False" }, { "type": "Schedulable", "status": schedulable },
            ] })
        };
        let node = |disks: Value| {
            read(json!({ "status": { "diskStatus": disks } }), storage_node).disk_unschedulable
        };
        assert!(node(json!({ "a": disk("True"), "b": disk("False") })));
        assert!(!node(json!({ "a": disk("True"), "b": disk("Unknown"), "c": null })));
        assert!(!node(Value::Null));
    }
}
