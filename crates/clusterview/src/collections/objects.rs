//! Objects of Kubernetes, KubeVirt and Longhorn turned into facts.
//!
//! Members of a wrong type count as missing: one odd object must not break its collection. Sources: the
//! Kubernetes API reference, the API types kubevirt.io/v1 and longhorn.io/v1beta2. Pure: no clock, no I/O, no task.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubeapi::names::{APP_NAMESPACE, STORAGE_NAMESPACE};
use kubeapi::objects::{RawObject, condition, items, text, time};
use serde_json::Value;
use step::Inserted as _;

use super::facts::{
    ClaimFact, DaemonSet, Detail, EngineFact, PodFact, Replica, Snapshot, StorageNode, Vm, Volume,
};

/// Time since when Ready is true; `None` while it is not.
pub(super) fn ready_since(status: &Value) -> Option<Timestamp> {
    let ready = condition(status, "Ready");
    time(&ready["lastTransitionTime"]).filter(|_| ready["status"] == "True")
}

pub(super) fn pod(raw: &RawObject) -> PodFact {
    let detail = match raw.metadata.namespace.as_deref() {
        Some(APP_NAMESPACE) => {
            let containers = items(&raw.status["containerStatuses"]);
            let restarts =
                containers.iter().filter_map(|it| i32::try_from(it["restartCount"].as_i64()?).ok());
            let ended = |it: &Value| time(&it["lastState"]["terminated"]["finishedAt"]);
            Detail::App {
                restarts: restarts.fold(0, i32::saturating_add),
                restarted: containers.iter().filter_map(ended).max(),
                created: raw.created(),
                ip: text(&raw.status["podIP"]),
                node: text(&raw.spec["nodeName"]),
            }
        }
        Some(STORAGE_NAMESPACE) => {
            Detail::Storage { app: raw.label("app"), ready_since: ready_since(&raw.status) }
        }
        Some(_) | None => Detail::Counted,
    };
    PodFact { phase: text(&raw.status["phase"]), detail }
}

pub(super) fn claim(raw: &RawObject) -> ClaimFact {
    let requested = &raw.spec["resources"]["requests"]["storage"];
    ClaimFact {
        volume: text(&raw.spec["volumeName"]),
        phase: text(&raw.status["phase"]),
        created: raw.created(),
        requested_bytes: requested.as_u64().unwrap_or_else(|| whole(&text(requested))),
    }
}

pub(super) fn daemon_set(raw: &RawObject) -> DaemonSet {
    DaemonSet {
        app: text(&raw.spec["selector"]["matchLabels"]["app"]),
        desired: raw.status["desiredNumberScheduled"].as_u64().unwrap_or_default(),
        ready: raw.status["numberReady"].as_u64().unwrap_or_default(),
    }
}

/// 0 for none, a negative one, and an invalid text.
pub(super) fn whole(text: &str) -> u64 {
    parse(text.trim()).unwrap_or_default()
}

fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (units, parts) = number.split_once('.').unwrap_or((number, ""));
    let parts = parts.get(..parts.len().min(12))?;
    let digits: u128 = format!("{units}{parts}").parse().ok()?;
    let places = i32::try_from(parts.len()).ok()?;
    let (factor, power) = scale(suffix)?;
    let power = power - places;
    let tens = 10_u128.checked_pow(power.unsigned_abs())?;
    let scaled = digits.checked_mul(factor)?;
    let whole = if power < 0 { scaled.div_ceil(tens) } else { scaled.checked_mul(tens)? };
    u64::try_from(whole).ok()
}

/// Factor and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let nth = |words: &[&str]| words.iter().position(|it| *it == suffix);
    if let Some(nth) = nth(&["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) {
        return Some((1 << (10 * nth), 0));
    }
    let thousands = nth(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]);
    let power = match thousands.and_then(|nth| i32::try_from(nth).ok()) {
        Some(nth) => 3 * nth - 9,
        None => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    (-18..=18).contains(&power).then_some((1, power))
}

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
    fn restarts_are_summed_over_containers_and_the_last_end_counts() {
        let ended = |at: &str| json!({ "terminated": { "finishedAt": at } });
        let object = json!({
            "metadata": { "namespace": APP_NAMESPACE, "name": "a", "creationTimestamp": "2026-03-14T09:00:00Z" },
            "spec": { "nodeName": "n1" },
            "status": { "phase": "Running", "podIP": "10.42.0.15", "containerStatuses": [
                { "restartCount": 2, "lastState": ended("2026-03-14T09:30:00Z") },
                { "restartCount": 1, "lastState": ended("2026-03-14T09:10:00Z") },
                { "restartCount": 4, "lastState": {} },
            ] },
        });
        let Detail::App { restarts, restarted, created, ip, node } = read(object, pod).detail else {
            unreachable!("not an application's")
        };
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        assert_eq!((restarts, restarted), (7, at("2026-03-14T09:30:00Z")));
        assert_eq!(created, at("2026-03-14T09:00:00Z"));
        assert_eq!((ip.as_str(), node.as_str()), ("10.42.0.15", "n1"));
    }

    #[test]
    fn of_other_pods_nothing_but_the_phase_is_kept() {
        let mut object = json!({
            "metadata": { "namespace": "shop", "name": "a", "labels": { "app": "x" } },
            "status": { "phase": "Pending", "conditions": [
                { "type": "Ready", "status": "True", "lastTransitionTime": "2026-03-14T09:30:00Z" },
            ] },
        });
        assert_eq!(
            read(object.clone(), pod),
            PodFact { phase: "Pending".to_owned(), detail: Detail::Counted }
        );
        object["metadata"]["namespace"] = STORAGE_NAMESPACE.into();
        let ready_since = Some("2026-03-14T09:30:00Z".parse().unwrap());
        assert_eq!(read(object, pod).detail, Detail::Storage { app: "x".to_owned(), ready_since });
    }

    #[test]
    fn a_claims_request_may_be_a_number() {
        for (storage, bytes) in [(json!("10Gi"), 10 << 30), (json!(5), 5), (json!(null), 0)] {
            let object = json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
            assert_eq!(read(object, claim).requested_bytes, bytes);
        }
    }

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        for (text, number) in [
            ("10Gi", 10 << 30),
            ("10737418240", 10 << 30),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("1.5k", 1500),
            ("12e6", 12_000_000),
            ("12E-3", 1),
            ("100m", 1),
            ("+5", 5),
            ("7Ei", 7 << 60),
            ("0", 0),
            ("", 0),
            ("-5Gi", 0),
            ("five", 0),
            ("5 Gi", 0),
            ("1e99", 0),
            ("99Ei", 0),
            (".", 0),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
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
