//! What the objects of KubeVirt are read as, version by version.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::forecast::Asks;
use super::super::{facts, forecast};
use super::*;
use crate::plan::placement::{PeerNode, SchedulingNeeds};

fn guest(condition: &Value) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "db", "uid": "u-db" },
        "spec": { "domain": { "memory": { "guest": "1500Mi" },
            "devices": { "hostDevices": [{ "name": "card" }], "gpus": [{ "name": "gpu1", "deviceName": "nvidia.com/GRID_T4" }] } } },
        "status": { "nodeName": "n1", "conditions": [condition] },
    })
}

#[test]
fn a_reason_of_kubevirt_comes_through_with_its_words_and_its_device() {
    let said = |reason: &str, message: &str| {
        facts::migratable(&guest(&json!({ "type": "LiveMigratable", "status": "False", "reason": reason,
            "message": message })))
    };
    let disks = "cannot migrate VMI: PVC data is not shared";
    assert_eq!(
        said("DisksNotLiveMigratable", disks),
        Migratable::No(
            "DisksNotLiveMigratable".into(),
            format!("{disks} (it has card, gpu1 nvidia.com/GRID_T4)")
        )
    );
    let device = "VMI specifies non-migratable generic PCI host device";
    assert_eq!(
        said("HostDeviceNotLiveMigratable", device),
        Migratable::No(
            "HostDeviceNotLiveMigratable".into(),
            format!("{device} (it has card, gpu1 nvidia.com/GRID_T4)")
        )
    );
    let yes = json!({ "type": "LiveMigratable", "status": "True" });
    assert_eq!(facts::migratable(&guest(&yes)), Migratable::Yes);
    assert_eq!(facts::migratable(&guest(&Value::Null)), Migratable::Unknown);
    let paused = json!({ "type": "Paused", "status": "True", "reason": "PausedIOError" });
    assert!(
        matches!(facts::migratable(&guest(&paused)), Migratable::No(reason, _) if reason == "PausedIOError")
    );
}

#[test]
fn limits_come_from_the_settings_and_where_they_are_silent_from_the_version() {
    let of = |version: &str, said: Value| {
        facts::settings(&json!({ "status": { "observedKubeVirtVersion": version },
            "spec": { "configuration": { "migrations": said, "evictionStrategy": "LiveMigrate" } } }))
        .0
    };
    let secs = |secs| Some(Duration::from_secs(secs));
    for (version, per_gib, cancels) in
        [("v1.1.0", 800, false), ("v1.3.0", 800, false), ("v1.5.0", 150, false), ("v1.7.3", 150, true)]
    {
        let found = of(version, Value::Null);
        assert_eq!((found.limits.completion_per_gib, found.cancels()), (secs(per_gib), cancels), "{version}");
        assert_eq!((found.at_once, found.from_node, found.limits.progress), (5, 2, secs(150)), "{version}");
    }
    let said = json!({ "parallelMigrationsPerCluster": 20, "parallelOutboundMigrationsPerNode": 5,
        "completionTimeoutPerGiB": 0, "progressTimeout": 7, "allowPostCopy": true });
    let found = of("v1.7.3", said);
    assert_eq!((found.at_once, found.from_node, found.limits.disrupts), (20, 5, true));
    assert_eq!((found.limits.completion_per_gib, found.limits.progress), (None, secs(7)));
    // 1.0 writes no strategy into the instance.
    let bare = guest(&Value::Null);
    assert_eq!(facts::strategy(&bare, EvictionStrategy::LiveMigrate), EvictionStrategy::LiveMigrate);
    assert_eq!(facts::settings(&Value::Null).1, EvictionStrategy::None);
}

#[test]
fn of_the_migrations_only_those_count_that_failed_since_one_succeeded() {
    let migration = |nth: u32, phase: &str, vmi: &str| {
        json!({ "metadata": { "namespace": "shop", "name": format!("m{nth}"), "uid": format!("m{nth}"),
                "creationTimestamp": format!("2026-01-01T00:00:0{nth}Z") },
            "spec": { "vmiName": vmi }, "status": { "phase": phase } })
    };
    let all = [
        migration(1, "Failed", "db"),
        migration(2, "Succeeded", "db"),
        migration(3, "Failed", "db"),
        migration(4, "Failed", "other"),
        migration(5, "Failed", "db"),
        migration(6, "Running", "db"),
    ];
    let mut guest = guest(&Value::Null);
    guest["status"]["migrationState"] =
        json!({ "migrationUid": "m6", "mode": "PostCopy", "targetNode": "n2" });
    let (open, failed) = facts::migrations(&all, &guest);
    let open = open.unwrap();
    assert_eq!((open.phase.as_str(), open.target.as_str(), open.post_copy), ("Running", "n2", true));
    assert_eq!(failed.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), ["m5", "m3"]);
    // The state of an earlier migration stays on the instance.
    guest["status"]["migrationState"]["migrationUid"] = "m5".into();
    assert!(!facts::migrations(&all, &guest).0.unwrap().post_copy);
}

#[test]
fn the_nearest_policy_holds_and_a_word_that_nobody_knows_holds_the_machine() {
    let with = |word: &str| json!({ "metadata": { "annotations": { "pillar-rs/drain-policy": word } } });
    let of = |vm: Option<&Value>, own: Option<&Value>, space: Option<&Value>| {
        let objects = [("VirtualMachine", vm), ("instance", own), ("namespace", space)];
        facts::policy(objects, MachinePolicy::Fail)
    };
    let (hold, shutdown, odd) = (with("migrate-or-hold"), with("shutdown"), with("kill"));
    assert_eq!(of(None, None, None).0, MachinePolicy::Fail);
    assert_eq!(of(None, None, Some(&hold)).0, MachinePolicy::MigrateOrHold);
    assert_eq!(of(None, Some(&shutdown), Some(&hold)).0, MachinePolicy::Shutdown);
    assert_eq!(of(Some(&hold), Some(&shutdown), None).0, MachinePolicy::MigrateOrHold);
    let (policy, from) = of(Some(&odd), None, None);
    assert!(policy == MachinePolicy::MigrateOrHold && from.contains("\"kill\""), "{from}");
}

#[test]
fn a_target_needs_selector_room_a_schedulable_node_and_the_cpu_model() {
    let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let own = labels(&[
        ("kubevirt.io/schedulable", "true"),
        ("host-model-cpu.node.kubevirt.io/Skylake", "true"),
        ("host-model-required-features.node.kubevirt.io/vmx", "true"),
    ]);
    let good = labels(&[
        ("kubevirt.io/schedulable", "true"),
        ("cpu-model-migration.node.kubevirt.io/Skylake", "true"),
        ("cpu-feature.node.kubevirt.io/vmx", "true"),
        ("disk", "ssd"),
    ]);
    let peer = |labels: &BTreeMap<String, String>| PeerNode {
        name: "n2".into(),
        ready: true,
        labels: labels.clone(),
        memory_bytes: Some(8 << 30),
        ..PeerNode::default()
    };
    let needs = SchedulingNeeds {
        labels: labels(&[("disk", "ssd")]),
        memory_bytes: 4 << 30,
        ..SchedulingNeeds::default()
    };
    let asks = |host_model| Asks { needs: needs.clone(), host_model, ..Asks::default() };
    let of = |peer: PeerNode| forecast::target(&asks(true), &own, &[peer], None);
    assert_eq!(of(peer(&good)), Ok("n2".into()));
    let without = |key: &str| {
        let mut all = good.clone();
        all.remove(key);
        of(peer(&all)).unwrap_err()
    };
    for (key, said) in [
        ("disk", "has no label disk=ssd"),
        ("kubevirt.io/schedulable", "virt-handler is not well"),
        ("cpu-model-migration.node.kubevirt.io/Skylake", "CPU model Skylake"),
        ("cpu-feature.node.kubevirt.io/vmx", "CPU feature vmx"),
    ] {
        assert!(without(key).contains(said), "{key}: {}", without(key));
    }
    // Where the selector alone keeps it from every other node, the text says where to change it.
    let pinned = "its node selector or affinity is changed on its VirtualMachine, not on the instance";
    assert!(without("disk").ends_with(pinned), "{}", without("disk"));
    assert!(!without("kubevirt.io/schedulable").contains("changed on"));
    assert!(of(PeerNode { unschedulable: true, ..peer(&good) }).unwrap_err().contains("cordoned"));
    assert!(of(PeerNode { memory_bytes: Some(1 << 30), ..peer(&good) }).unwrap_err().contains("memory"));
    assert_eq!(forecast::target(&asks(true), &own, &[], None), Err("there is no other node".into()));
    // A guest with a CPU model of its own does not need that of its node.
    let mut other = good.clone();
    other.remove("cpu-model-migration.node.kubevirt.io/Skylake");
    assert!(forecast::target(&asks(false), &own, &[peer(&other)], None).is_ok());
}

#[test]
fn a_pause_counts_unless_its_migration_made_it_and_the_nearest_annotation_on_rebuilds_holds() {
    let paused = |reason: &str| {
        facts::paused(&guest(
            &json!({ "type": "Paused", "status": "True", "reason": reason, "lastTransitionTime": "t1" }),
        ))
    };
    assert_eq!((paused("PausedByUser"), paused("PausedIOError")), (Some("t1".into()), Some("t1".into())));
    assert_eq!(paused("PausedByMigrationMonitor"), None);
    assert_eq!(facts::paused(&guest(&json!({ "type": "Paused", "status": "False" }))), None);
    let with = |word: &str| json!({ "metadata": { "annotations": { "pillar-rs/drain-rebuilding": word } } });
    let (yes, wait) = (with("migrate"), with("wait"));
    let of = |vm, space| {
        facts::although_rebuilding([("VirtualMachine", vm), ("instance", None), ("namespace", space)])
    };
    assert!(of(Some(&yes), None) && of(None, Some(&yes)) && of(Some(&yes), Some(&wait)));
    assert!(!of(None, None) && !of(Some(&wait), Some(&yes)));
}

#[test]
fn d12_what_is_not_as_kubevirt_writes_it_is_named_and_what_it_leaves_out_is_not() {
    let well = guest(&json!({ "type": "Ready", "status": "True" }));
    let machine = json!({ "spec": { "runStrategy": "Always" } });
    let job = |spec: Value| json!({ "metadata": { "namespace": "shop", "name": "m1" }, "spec": spec });
    let jobs = [job(json!({ "vmiName": "db" }))];
    assert_eq!(facts::unread(&well, Some(&machine), &jobs), None);
    assert_eq!(facts::unread(&guest(&json!({ "type": "Ready", "status": "True" })), None, &[]), None);
    for (pointer, value) in [
        ("/spec/evictionStrategy", json!("Teleport")),
        ("/status/phase", json!(1)),
        ("/status/nodeName", json!(["n1"])),
        ("/status/evacuationNodeName", json!(true)),
        ("/status/conditions", json!({ "Ready": true })),
        ("/status/conditions", json!([{ "type": "Ready", "status": true }])),
        ("/status/migrationState", json!([])),
        ("/status/migrationState", json!({ "mode": 2 })),
    ] {
        let mut odd = well.clone();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        odd.pointer_mut(parent).unwrap()[member] = value;
        let said = facts::unread(&odd, Some(&machine), &jobs).unwrap();
        assert!(said.contains(&pointer[1..].replace('/', ".")), "{said}");
    }
    assert!(facts::unread(&well, Some(&json!({ "spec": { "running": "yes" } })), &jobs).is_some());
    let lost = facts::unread(&well, Some(&machine), &[job(json!({}))]).unwrap();
    assert!(lost.contains("migration shop/m1"), "{lost}");
    // One of another namespace is none of its own.
    let mut far = job(json!({}));
    far["metadata"]["namespace"] = "tools".into();
    assert_eq!(facts::unread(&well, Some(&machine), &[far]), None);
}
