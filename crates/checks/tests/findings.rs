//! Each finding before a drain: true, false, and what cannot be read.

use checks::cluster::{ClusterSource, drain};
use checks::nodes::{DiskRoom, clock, disks};
use checks::{DRAIN_CODES, DRAIN_STOPS, Finding, Severity, settled};
use jiff::{SignedDuration, Timestamp};
use kubeapi::mock::{self, MockReply};
use serde_json::{Value, json};

const NOW: &str = "2026-03-14T09:30:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What a drain of n1 finds where one collection has these objects, and all others are empty, but that snapshots of etcd are
/// those of a node with etcd.
async fn found(collection: &'static str, items: Vec<Value>) -> Vec<Finding> {
    let (cluster, _) = mock::server(move |call| {
        let path = call.line.split(['?', ' ']).nth(1).unwrap_or_default();
        match path.ends_with(collection) {
            true => mock::list("9", &items),
            false if path.ends_with("/nodes") && collection == "/etcdsnapshotfiles" => {
                let labels = json!({ "node-role.kubernetes.io/etcd": "true" });
                let status = json!({ "conditions": of("DiskPressure", "False") });
                mock::list(
                    "9",
                    &[json!({ "metadata": { "name": "n1", "labels": labels }, "status": status })],
                )
            }
            false if path == "/version" => MockReply::Full(200, vec![], "{}".to_owned()),
            false => mock::list("9", &[]),
        }
    });
    drain(&cluster, "n1", &ClusterSource::ALL.into(), || at(NOW)).await.into_values().flatten().collect()
}

fn node(name: &str, spec: &Value, conditions: &Value, annotations: &Value) -> Value {
    json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec,
        "status": { "conditions": conditions } })
}

fn of(kind: &str, status: &str) -> Value {
    json!([{ "type": "Ready", "status": "True" }, { "type": kind, "status": status, "reason": "R" }])
}

fn longhorn(name: &str, spec: &Value, status: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec, "status": status })
}

#[expect(clippy::too_many_lines, reason = "one table")]
#[tokio::test(start_paused = true)]
async fn u6_each_finding_of_the_cluster_is_found_when_it_is_so_and_not_when_it_is_not() {
    let (open, none) = (json!({}), json!({}));
    let owner = json!({ "pillar-rs/cordon-owner": "{}" });
    let closed = json!({ "unschedulable": true });
    let ready = of("DiskPressure", "False");
    let unready = json!([{ "type": "Ready", "status": "Unknown" }]);
    let disk = json!({ "diskStatus": { "d": { "storageAvailable": 1, "storageMaximum": 200,
        "scheduledReplica": { "pvc-1-r-0a": 1 } } } });
    let two = json!({ "numberOfReplicas": 2 });
    let guest = |state: &str, node: &str| {
        json!({ "metadata": { "namespace": "shop", "name": "db" }, "status": { "nodeName": node, "phase": "Running",
            "conditions": [{ "type": "LiveMigratable", "status": state, "reason": "DisksNotLiveMigratable" }] } })
    };
    let event = |reason: &str| {
        json!({ "metadata": { "name": "e" }, "reason": reason, "involvedObject": { "name": "n2" },
            "lastTimestamp": NOW, "message": "certificate expires" })
    };
    let etcd_snapshot = |made: &str| json!({ "metadata": { "name": "s" }, "status": { "readyToUse": true, "creationTime": made } });
    let rebuild = |runs: bool| {
        longhorn(
            "e",
            &json!({ "volumeName": "pvc-1" }),
            &json!({ "rebuildStatus": { "tcp://r": { "isRebuilding": runs, "progress": 40 } } }),
        )
    };
    let written = |state: &str, made: &str, changed: Option<&str>| {
        json!({ "metadata": { "name": "b1", "creationTimestamp": made, "managedFields": changed.map(|it| json!([
            { "time": "2026-03-11T08:30:00Z" }, { "time": it }])) }, "status": { "state": state } })
    };
    let old = |status: Value| json!({ "metadata": { "name": "x", "creationTimestamp": "2026-03-11T08:30:00Z" }, "status": status });
    // Collection, object, code with severity, a word of its text; no code where there is nothing to be found.
    let table: Vec<(&'static str, Value, &str, &str)> = vec![
        ("/nodes", node("n2", &open, &ready, &none), "", ""),
        ("/nodes", node("n2", &open, &unready, &none), "nodes warns", "not Ready: n2"),
        ("/nodes", node("n2", &closed, &ready, &none), "cordons warns", "somebody else has cordoned or"),
        ("/nodes", node("n1", &closed, &ready, &none), "cordons warns", "n1"),
        ("/nodes", node("n2", &closed, &ready, &owner), "cordons hint", "pillar-rs has cordoned: n2"),
        ("/nodes", node("n1", &closed, &ready, &owner), "", ""),
        ("/nodes", node("n2", &open, &of("DiskPressure", "True"), &none), "disk warns", "n2"),
        (
            "/nodes",
            node("n2", &open, &ready, &json!({ "harvesterhci.io/maintain-status": "completed" })),
            "cordons warns",
            "in maintenance: n2",
        ),
        (
            "/nodes",
            node(
                "n2",
                &json!({ "taints": [{ "key": "medik8s.io/drain", "effect": "NoSchedule" }] }),
                &ready,
                &owner,
            ),
            "cordons warns",
            "n2",
        ),
        ("/etcdsnapshotfiles", etcd_snapshot("2026-03-14T01:00:00Z"), "snapshot hint", "is 8 h old"),
        (
            "/etcdsnapshotfiles",
            json!({ "status": { "readyToUse": false } }),
            "snapshot warns",
            "no snapshot of etcd",
        ),
        ("/etcdsnapshotfiles", etcd_snapshot("2026-03-12T01:00:00Z"), "snapshot warns", "56 h old"),
        ("/events", event("CertificateExpirationOK"), "", ""),
        ("/events", event("CertificateExpirationWarning"), "certificates warns", "node n2"),
        (
            "/volumes",
            longhorn("pvc-1", &two, &json!({ "robustness": "healthy", "state": "attached" })),
            "",
            "",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &two, &json!({ "robustness": "degraded" })),
            "volumes warns",
            "pvc-1: degraded",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &json!({ "numberOfReplicas": 1 }), &json!({ "state": "attached" })),
            "volumes hint",
            "single replica: pvc-1",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &json!({ "numberOfReplicas": 1, "dataLayout": { "type": "sharded" } }), &open),
            "",
            "",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &json!({ "numberOfReplicas": 1, "dataLocality": "strict-local" }), &open),
            "volumes hint",
            "strict-local volumes, whose only replica cannot leave the node of their pod: pvc-1",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &json!({ "numberOfReplicas": 2, "dataLocality": "best-effort" }), &open),
            "",
            "",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &json!({ "numberOfReplicas": 1 }), &json!({ "state": "detached" })),
            "",
            "",
        ),
        (
            "/volumes",
            longhorn("pvc-1", &two, &json!({ "restoreRequired": true })),
            "backups blocks",
            "restored",
        ),
        (
            "/volumes",
            longhorn(
                "pvc-1",
                &json!({ "numberOfReplicas": 2, "standby": true }),
                &json!({ "restoreRequired": true }),
            ),
            "",
            "",
        ),
        ("/engines", rebuild(false), "", ""),
        ("/engines", rebuild(true), "rebuilds warns", "pvc-1 (40 %)"),
        ("longhorn-system/nodes", longhorn("n1", &open, &disk), "volumes warns", "full: node n1: pvc-1"),
        ("/backups", longhorn("b1", &open, &json!({ "state": "Completed" })), "", ""),
        ("/backups", longhorn("b1", &open, &json!({ "state": "InProgress" })), "backups blocks", "b1"),
        ("/backups", written("InProgress", "2026-03-13T09:30:00Z", None), "backups blocks", "b1"),
        ("/backups", written("InProgress", "2026-03-11T08:30:00Z", None), "backups warns", "24 h: b1 (73 h)"),
        ("/backups", written("InProgress", "2026-03-11T08:30:00Z", Some(NOW)), "backups blocks", "b1"),
        (
            "/backups",
            written("InProgress", "soon", Some("2026-03-12T09:30:00Z")),
            "backups warns",
            "b1 (48 h)",
        ),
        ("/backups", written("Completed", "2026-03-11T08:30:00Z", None), "", ""),
        ("/volumesnapshots", longhorn("s", &open, &Value::Null), "", ""),
        ("/volumesnapshots", longhorn("s", &open, &json!({ "readyToUse": true })), "", ""),
        ("/volumesnapshots", longhorn("s", &open, &json!({ "error": { "message": "no" } })), "", ""),
        ("/volumesnapshots", longhorn("s", &open, &json!({ "readyToUse": false })), "backups blocks", "s"),
        ("/virtualmachines", longhorn("vm", &open, &open), "", ""),
        (
            "/virtualmachines",
            longhorn("vm", &open, &json!({ "snapshotInProgress": "s" })),
            "backups blocks",
            "vm",
        ),
        (
            "/volumes",
            old(json!({ "restoreRequired": true })),
            "backups warns",
            "restored, by their times for more than 24 h",
        ),
        ("/volumesnapshots", old(json!({ "readyToUse": false })), "backups warns", "x (73 h)"),
        ("/virtualmachines", old(json!({ "restoreInProgress": "r" })), "backups warns", "x (73 h)"),
        ("/virtualmachineinstances", guest("True", "n1"), "", ""),
        ("/virtualmachineinstances", guest("False", "n2"), "", ""),
        (
            "/virtualmachineinstances",
            guest("False", "n1"),
            "machines warns",
            "shop/db (DisksNotLiveMigratable)",
        ),
    ];
    for (collection, object, code, words) in table {
        let found: Vec<Finding> = found(collection, vec![object.clone()]).await;
        let said: Vec<String> =
            found.iter().map(|it| format!("{} {}", it.code, it.severity.text())).collect();
        let expected: Vec<&str> = if code.is_empty() { vec![] } else { vec![code] };
        assert_eq!(said, expected, "{collection} {object}: {found:?}");
        assert!(found.iter().all(|it| it.text.contains(words) && !it.next.is_empty()), "{found:?}");
        assert!(found.iter().all(|it| DRAIN_CODES.contains(&it.code.as_str())), "{found:?}");
    }
}

/// Row 0-11: no update of Kubernetes is kept from going on by what it makes.
#[tokio::test(start_paused = true)]
async fn u6_kubelets_of_different_versions_are_a_hint_that_stops_nothing() {
    let of = |nodes: &[(&str, &str)]| {
        let node = |(name, version): &(&str, &str)| {
            json!({ "metadata": { "name": name }, "status": { "conditions": of("DiskPressure", "False"),
                "nodeInfo": { "kubeletVersion": version } } })
        };
        found("/nodes", nodes.iter().map(node).collect())
    };
    assert_eq!(of(&[("n1", "v1.34.1"), ("n2", "v1.34.1"), ("n3", "")]).await, []);
    let mixed = of(&[("n1", "v1.34.1"), ("n2", "v1.33.5"), ("n3", "v1.34.1")]).await;
    assert_eq!(mixed[0].text, "kubelets of different versions: v1.33.5 on n2; v1.34.1 on n1, n3");
    assert_eq!(settled(mixed, &["nodes".to_owned()])[0].severity, Severity::Hint);
}

#[tokio::test(start_paused = true)]
async fn u6_what_cannot_be_read_is_a_finding_that_warns_and_names_the_role() {
    let (cluster, _) = mock::server(|_| mock::status(403, "is forbidden"));
    let all = drain(&cluster, "n1", &ClusterSource::ALL.into(), || at(NOW)).await;
    assert_eq!(all.len(), ClusterSource::ALL.len());
    for (source, found) in all {
        assert!(!found.is_empty(), "{source:?}");
        for it in found {
            assert!(it.text.starts_with("cannot be checked: ") && it.unread, "{it:?}");
            assert!(it.next.contains("zedbox role") && it.severity == Severity::Warns, "{it:?}");
        }
    }
    // What is not installed is none.
    let (cluster, _) = mock::server(|call| {
        if call.line.contains("/api/v1/") || call.line.contains("/version") {
            mock::list("9", &[])
        } else {
            mock::status(404, "the server could not find the requested resource")
        }
    });
    assert!(drain(&cluster, "n1", &ClusterSource::ALL.into(), || at(NOW)).await.values().all(Vec::is_empty));
}

#[test]
fn u6_clocks_and_disks_have_their_limits() {
    let now = at(NOW);
    let secs = |it: i64| clock(now, now + SignedDuration::from_secs(it)).first().map(|it| it.severity);
    assert_eq!((secs(5), secs(6), secs(-6)), (None, Some(Severity::Warns), Some(Severity::Warns)));
    assert_eq!(
        (secs(60), secs(61), secs(-61)),
        (Some(Severity::Warns), Some(Severity::Blocks), Some(Severity::Blocks))
    );
    assert!(clock(now, now - SignedDuration::from_secs(70))[0].text.contains("70 s behind"));
    let room =
        |free: u64| disks(&[DiskRoom { path: "/persist".to_owned(), free: free << 20, total: 1000 << 20 }]);
    assert!(room(50).is_empty() && room(49)[0].text == "/persist has 49 MiB of 1000 MiB free");
}

#[tokio::test(start_paused = true)]
async fn u6_the_clock_is_compared_with_the_date_that_the_api_server_says() {
    for (date, found) in [("Sat, 14 Mar 2026 09:30:01 GMT", 0), ("Sat, 14 Mar 2026 09:32:00 GMT", 1), ("", 0)]
    {
        let (cluster, _) = mock::server(move |_| {
            let headers = if date.is_empty() { vec![] } else { vec![("date", date)] };
            MockReply::Full(200, headers, "{}".to_owned())
        });
        let all = drain(&cluster, "n1", &[ClusterSource::Clock].into(), || at(NOW)).await;
        assert_eq!(all[&ClusterSource::Clock].len(), found, "{date}");
    }
}

#[test]
fn u6_what_stops_is_a_setting_and_the_worst_comes_first() {
    let one = |code: &str, severity| Finding::new(code, "t", "n").with(severity);
    let all = vec![
        one("snapshot", Severity::Hint),
        one("clock", Severity::Blocks),
        one("backups", Severity::Blocks),
        one("nodes", Severity::Warns),
        Finding::unread("room", "x", "n").with(Severity::Warns),
        one("certificates", Severity::Warns),
    ];
    let words = |stops: &[&str]| -> Vec<String> {
        let stops: Vec<String> = stops.iter().map(|it| (*it).to_owned()).collect();
        settled(all.clone(), &stops).iter().map(|it| format!("{} {}", it.code, it.severity.text())).collect()
    };
    let warn = |all: &[&str]| all.iter().map(|it| format!("{it} warns")).collect::<Vec<_>>();
    let expected = |blocks: &[&str], warns: &[&str]| {
        let blocks = blocks.iter().map(|it| format!("{it} blocks"));
        blocks.chain(warn(warns)).chain(["snapshot hint".to_owned()]).collect::<Vec<_>>()
    };
    assert_eq!(words(&["backups"]), expected(&["backups"], &["clock", "nodes", "room", "certificates"]));
    assert_eq!(words(&["snapshot"]), expected(&[], &["clock", "backups", "nodes", "room", "certificates"]));
    // What is a warning by what it is stops where it is set to; what is one for it is not much, or not known, does not.
    assert_eq!(
        words(&["nodes", "room", "certificates"]),
        expected(&["nodes"], &["clock", "backups", "room", "certificates"])
    );
}

#[tokio::test(start_paused = true)]
async fn seed_3_03_a_machine_on_a_degraded_volume_with_its_only_good_copy_here_stops_a_drain_by_default() {
    let guest = |kind: &str, state: &str| {
        json!({ "robustness": "degraded", "kubernetesStatus": { "namespace": "shop", "pvcName": "data",
            "workloadsStatus": [{ "workloadType": kind, "workloadName": "db", "podStatus": state }] } })
    };
    let machine = guest("VirtualMachineInstance", "Running");
    let healthy = json!({ "robustness": "healthy", "kubernetesStatus": machine["kubernetesStatus"] });
    let (one, two) = (json!({ "r-1": "RW", "r-2": "WO" }), json!({ "r-1": "RW", "r-2": "RW" }));
    // The volume, the copies by its engine, the node of the good one; whether it stops the drain of n1.
    let table = [
        (&machine, &one, "n1", true),
        (&machine, &one, "n2", false),
        (&machine, &two, "n1", false),
        (&machine, &json!({ "r-1": "ERR" }), "n1", false),
        (&healthy, &one, "n1", false),
        (&guest("ReplicaSet", "Running"), &one, "n1", false),
        (&guest("VirtualMachineInstance", "Succeeded"), &one, "n1", false),
    ];
    for (status, modes, on, stops) in table {
        let volume = longhorn("pvc-1", &json!({ "numberOfReplicas": 2 }), status);
        let engine = longhorn(
            "e",
            &json!({ "volumeName": "pvc-1", "active": true }),
            &json!({ "replicaModeMap": modes }),
        );
        let copy = longhorn("r-1", &json!({ "volumeName": "pvc-1", "nodeID": on }), &json!({}));
        let (cluster, calls) = mock::server(move |call| {
            let path = call.line.split(['?', ' ']).nth(1).unwrap_or_default();
            match path.rsplit('/').next() {
                Some("volumes") => mock::list("9", std::slice::from_ref(&volume)),
                Some("engines") => mock::list("9", std::slice::from_ref(&engine)),
                Some("replicas") => mock::list("9", std::slice::from_ref(&copy)),
                _ => mock::list("9", &[]),
            }
        });
        let all = drain(&cluster, "n1", &[ClusterSource::Volumes].into(), || at(NOW)).await;
        let all = settled(all.into_values().flatten().collect(), &DRAIN_STOPS.map(str::to_owned));
        let found: Vec<&Finding> = all.iter().filter(|it| it.severity == Severity::Blocks).collect();
        assert_eq!(found.len(), usize::from(stops), "{status} {modes} {on}: {all:?}");
        assert!(
            found
                .iter()
                .all(|it| it.code == "last-copy" && it.text.ends_with("shop/db on shop/data (pvc-1)"))
        );
        let asked = calls.lines().iter().filter(|it| it.contains("/replicas")).count();
        assert!(asked <= usize::from(status == &machine && modes == &one), "asked for only where it matters");
    }
}
