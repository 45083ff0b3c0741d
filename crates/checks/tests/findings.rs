//! Each finding before a drain: true, false, and what cannot be read.

use checks::cluster::{ClusterSource, drain};
use checks::nodes::{DiskRoom, clock, disks};
use checks::{DRAIN_CODES, DRAIN_STOPS, Finding, Severity, settled};
use jiff::{SignedDuration, Timestamp};
use kubeapi::ApiClient;
use kubeapi::mock::{self, MockReply};
use serde_json::{Value, json};

const NOW: &str = "2026-03-14T09:30:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A cluster where collections have these objects, and all others are empty, but that snapshots of etcd are those of a node
/// with etcd.
fn cluster(served: Vec<(&'static str, Vec<Value>)>) -> (ApiClient, mock::RecordedCalls) {
    mock::server(move |call| {
        let path = call.line.split(['?', ' ']).nth(1).unwrap_or_default();
        if let Some((_, items)) = served.iter().find(|(collection, _)| path.ends_with(collection)) {
            return mock::list("9", items);
        }
        if path == "/version" {
            return MockReply::Full(200, vec![], "{}".to_owned());
        }
        let has_etcd = path.ends_with("/nodes") && served[0].0 == "/etcdsnapshotfiles";
        let mut member = node("n1", &json!({}), &of("DiskPressure", "False"), &json!({}));
        member["metadata"]["labels"] = json!({ "node-role.kubernetes.io/etcd": "true" });
        mock::list("9", if has_etcd { std::slice::from_ref(&member) } else { &[] })
    })
}

/// What a drain of n1 finds where one collection has these objects.
async fn found(collection: &'static str, items: Vec<Value>) -> Vec<Finding> {
    let (cluster, _) = cluster(vec![(collection, items)]);
    drain(&cluster, "n1", &ClusterSource::ALL.into(), || at(NOW))
        .await
        .into_iter()
        .flat_map(|(_, found)| found)
        .collect()
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

/// `state=InProgress ready=true` as an object.
fn members(text: &str) -> Value {
    let member = |it: &str| {
        let (name, value) = it.split_once('=').unwrap();
        (name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into()))
    };
    Value::Object(text.split(' ').filter(|it| !it.is_empty()).map(member).collect())
}

#[expect(clippy::too_many_lines, reason = "one table")]
#[tokio::test(start_paused = true)]
async fn u6_each_finding_of_the_cluster_is_found_when_it_is_so_and_not_when_it_is_not() {
    let node = |name: &str, spec: &str, full: &str, annotations: &str| {
        node(name, &members(spec), &of("DiskPressure", full), &members(annotations))
    };
    let ours = "pillar-rs/cordon-owner=x";
    let closed = "unschedulable=true";
    let drained = r#"taints=[{"key":"medik8s.io/drain","effect":"NoSchedule"}]"#;
    let mut unready = node("n2", "", "False", "");
    unready["status"]["conditions"][0]["status"] = "Unknown".into();
    let disk = json!({ "diskStatus": { "d": { "storageAvailable": 1, "storageMaximum": 200,
        "scheduledReplica": { "pvc-1-r-0a": 1 } } } });
    let guest = |state: &str, node: &str| {
        json!({ "metadata": { "namespace": "shop", "name": "db" }, "status": { "nodeName": node, "phase": "Running",
            "conditions": [{ "type": "LiveMigratable", "status": state, "reason": "DisksNotLiveMigratable" }] } })
    };
    let event = |reason: &str| {
        json!({ "metadata": { "name": "e" }, "reason": reason, "involvedObject": { "name": "n2" },
            "lastTimestamp": NOW, "message": "certificate expires" })
    };
    let etcd = |ready: bool, made: &str| json!({ "status": { "readyToUse": ready, "creationTime": made } });
    let rebuild = |runs: bool| {
        let status = json!({ "rebuildStatus": { "tcp://r": { "isRebuilding": runs, "progress": 40 } } });
        longhorn("e", &members("volumeName=pvc-1"), &status)
    };
    let written = |state: &str, made: &str, changed: Option<&str>| {
        json!({ "metadata": { "name": "b1", "creationTimestamp": made, "managedFields": changed.map(|it| json!([
            { "time": "2026-03-11T08:30:00Z" }, { "time": it }])) }, "status": { "state": state } })
    };
    let old = |status: &str| json!({ "metadata": { "name": "x", "creationTimestamp": "2026-03-11T08:30:00Z" }, "status": members(status) });
    let volume = |copies: u32, spec: &str, status: &str| {
        longhorn("pvc-1", &members(&format!("numberOfReplicas={copies} {spec}")), &members(status))
    };
    let plain = |status: &str| longhorn("b1", &json!({}), &members(status));
    let runs = |made: &str, changed: Option<&str>| written("InProgress", made, changed);
    let (day, long) = ("2026-03-13T09:30:00Z", "2026-03-11T08:30:00Z");
    let strict = "volumes, whose only replica cannot leave the node of their pod: pvc-1";
    // Collection, object, code with severity, a word of its text; no code where there is nothing to be found.
    let table: Vec<(&'static str, Value, &str, &str)> = vec![
        ("/nodes", node("n2", "", "False", ""), "", ""),
        ("/nodes", unready, "nodes warns", "not Ready: n2"),
        ("/nodes", node("n2", closed, "False", ""), "cordons warns", "somebody else has cordoned or"),
        ("/nodes", node("n1", closed, "False", ""), "cordons warns", "n1"),
        ("/nodes", node("n2", closed, "False", ours), "cordons hint", "pillar-rs has cordoned: n2"),
        ("/nodes", node("n1", closed, "False", ours), "", ""),
        ("/nodes", node("n2", "", "True", ""), "disk warns", "n2"),
        (
            "/nodes",
            node("n2", "", "False", "harvesterhci.io/maintain-status=x"),
            "cordons warns",
            "in maintenance: n2",
        ),
        ("/nodes", node("n2", drained, "False", ours), "cordons warns", "n2"),
        ("/etcdsnapshotfiles", etcd(true, "2026-03-14T01:00:00Z"), "snapshot hint", "is 8 h old"),
        ("/etcdsnapshotfiles", etcd(false, ""), "snapshot warns", "no snapshot of etcd"),
        ("/etcdsnapshotfiles", etcd(true, "2026-03-12T01:00:00Z"), "snapshot warns", "56 h old"),
        ("/events", event("CertificateExpirationOK"), "", ""),
        ("/events", event("CertificateExpirationWarning"), "certificates warns", "node n2"),
        ("/volumes", volume(2, "", "robustness=healthy state=attached"), "", ""),
        ("/volumes", volume(2, "", "robustness=degraded"), "volumes warns", "pvc-1: degraded"),
        ("/volumes", volume(1, "", "state=attached"), "volumes hint", "single replica: pvc-1"),
        ("/volumes", volume(1, r#"dataLayout={"type":"sharded"}"#, ""), "", ""),
        ("/volumes", volume(1, "dataLocality=strict-local", ""), "volumes hint", strict),
        ("/volumes", volume(2, "dataLocality=best-effort", ""), "", ""),
        ("/volumes", volume(1, "", "state=detached"), "", ""),
        ("/volumes", volume(2, "", "restoreRequired=true"), "backups blocks", "restored"),
        ("/volumes", volume(2, "standby=true", "restoreRequired=true"), "", ""),
        (
            "/volumes",
            old("restoreRequired=true"),
            "backups warns",
            "restored, by their times for more than 24 h",
        ),
        ("/engines", rebuild(false), "", ""),
        ("/engines", rebuild(true), "rebuilds warns", "pvc-1 (40 %)"),
        ("longhorn-system/nodes", longhorn("n1", &json!({}), &disk), "volumes warns", "full: node n1: pvc-1"),
        ("/backups", plain("state=Completed"), "", ""),
        ("/backups", plain("state=InProgress"), "backups blocks", "b1"),
        ("/backups", runs(day, None), "backups blocks", "b1"),
        ("/backups", runs(long, None), "backups warns", "24 h: b1 (73 h)"),
        ("/backups", runs(long, Some(NOW)), "backups blocks", "b1"),
        ("/backups", runs("soon", Some("2026-03-12T09:30:00Z")), "backups warns", "b1 (48 h)"),
        ("/backups", written("Completed", long, None), "", ""),
        ("/volumesnapshots", longhorn("s", &json!({}), &Value::Null), "", ""),
        ("/volumesnapshots", plain("readyToUse=true"), "", ""),
        ("/volumesnapshots", plain(r#"error={"message":"no"}"#), "", ""),
        ("/volumesnapshots", plain("readyToUse=false"), "backups blocks", "b1"),
        ("/volumesnapshots", old("readyToUse=false"), "backups warns", "x (73 h)"),
        ("/virtualmachines", plain(""), "", ""),
        ("/virtualmachines", plain("snapshotInProgress=s"), "backups blocks", "b1"),
        ("/virtualmachines", old("restoreInProgress=r"), "backups warns", "x (73 h)"),
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
    // What is a warning by what it is stops where it is set to; what is one for it is not much, or not known, does not.
    for (stops, expected) in [
        ("backups", "backups blocks clock warns nodes warns room warns certificates warns snapshot hint"),
        ("snapshot", "clock warns backups warns nodes warns room warns certificates warns snapshot hint"),
        (
            "nodes room certificates",
            "nodes blocks clock warns backups warns room warns certificates warns snapshot hint",
        ),
    ] {
        let stops: Vec<String> = stops.split(' ').map(str::to_owned).collect();
        let all = settled(all.clone(), &stops);
        let words: Vec<String> = all.iter().map(|it| format!("{} {}", it.code, it.severity.text())).collect();
        assert_eq!(words.join(" "), expected, "{stops:?}");
    }
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
        let engine =
            longhorn("e", &members("volumeName=pvc-1 active=true"), &json!({ "replicaModeMap": modes }));
        let copy = longhorn("r-1", &json!({ "volumeName": "pvc-1", "nodeID": on }), &json!({}));
        let served = vec![("/volumes", vec![volume]), ("/engines", vec![engine]), ("/replicas", vec![copy])];
        let (cluster, calls) = cluster(served);
        let all = drain(&cluster, "n1", &[ClusterSource::Volumes].into(), || at(NOW)).await;
        let all =
            settled(all.into_iter().flat_map(|(_, found)| found).collect(), &DRAIN_STOPS.map(str::to_owned));
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
