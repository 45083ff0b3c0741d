//! Each finding before a drain: true, false, and what cannot be read.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use checks::certificates::{Dated, Dates, dated};
use checks::cluster::{Source, drain};
use checks::local::{Machine, look};
use checks::node::{DiskRoom, clock, disks};
use checks::{DRAIN_CODES, Finding, Severity, settled};
use jiff::{SignedDuration, Timestamp};
use kubeapi::mock::{self, Answer};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};

/// It ends at [`ENDS`].
const PEM: &str = include_str!("certificate.pem");
const KEY: &str = include_str!("key-of-no-use.pem");
const ENDS: &str = "2036-11-20T16:32:36Z";
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
            false if path == "/version" => Answer::Full(200, vec![], "{}".to_owned()),
            false => mock::list("9", &[]),
        }
    });
    drain(&cluster, "n1", &Source::ALL.into(), || at(NOW)).await.into_values().flatten().collect()
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

fn write(path: &Path, text: &str) {
    File::create(path).and_then(|mut it| it.write_all(text.as_bytes())).unwrap();
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
            "volumes warns",
            "single replica: pvc-1",
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

#[tokio::test(start_paused = true)]
async fn u6_what_cannot_be_read_is_a_finding_that_warns_and_names_the_role() {
    let (cluster, _) = mock::server(|_| mock::status(403, "is forbidden"));
    let all = drain(&cluster, "n1", &Source::ALL.into(), || at(NOW)).await;
    assert_eq!(all.len(), Source::ALL.len());
    for (source, found) in all {
        assert!(!found.is_empty(), "{source:?}");
        for it in found {
            assert!(it.text.starts_with("cannot be checked: ") && it.is_unread(), "{it:?}");
            assert!(it.next.contains("role.yaml") && it.severity == Severity::Warns, "{it:?}");
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
    assert!(drain(&cluster, "n1", &Source::ALL.into(), || at(NOW)).await.values().all(Vec::is_empty));
}

#[test]
fn u6_a_certificate_warns_under_seven_days_and_blocks_under_one() {
    let now = at(NOW);
    let lasts = |starts: i64, hours: i64| Dated {
        place: format!("/tls/{hours}.crt"),
        dates: Dates {
            starts: now + SignedDuration::from_secs(starts),
            ends: now + SignedDuration::from_hours(hours),
        },
        next: "restart k3s".to_owned(),
    };
    let ends = |hours| lasts(0, hours);
    for (hours, severity, words) in [
        (24 * 7, None, ""),
        (24 * 7 - 1, Some(Severity::Warns), "/tls/167.crt (in 6 days)"),
        (24, Some(Severity::Warns), "/tls/24.crt (in 24 h)"),
        (23, Some(Severity::Blocks), "/tls/23.crt (in 23 h)"),
        (-5, Some(Severity::Blocks), "/tls/-5.crt (ended 5 h ago)"),
    ] {
        let found = dated(&[ends(hours), ends(24 * 300)], now);
        assert_eq!(found.first().map(|it| it.severity), severity, "{hours}");
        assert!(found.iter().all(|it| it.text.contains(words)), "{found:?}");
    }
    assert_eq!(dated(&[ends(1), ends(30), ends(2)], now).len(), 2);
    let early = dated(&[lasts(1, 240), lasts(0, 250)], now);
    assert_eq!((early.len(), early[0].severity), (1, Severity::Warns), "{early:?}");
    assert!(early[0].text.ends_with("do not count yet, which servers refuse: /tls/240.crt"), "{early:?}");
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
            Answer::Full(200, headers, "{}".to_owned())
        });
        let all = drain(&cluster, "n1", &[Source::Clock].into(), || at(NOW)).await;
        assert_eq!(all[&Source::Clock].len(), found, "{date}");
    }
}

/// A server that shows the certificate once, and then closes the connection.
fn server() -> String {
    let certificate = CertificateDer::from_pem_slice(PEM.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        drop(tls.complete_io(&mut stream));
        drop(stream.flush());
    });
    address
}

#[test]
fn u6_certificates_are_read_from_files_servers_and_the_kubeconfig_and_what_cannot_be_is_named() {
    let ends = at(ENDS);
    assert_eq!(Dates::of_pem(PEM.as_bytes()).map(|it| it.ends), Some(ends));
    let root = tempfile::tempdir().unwrap();
    let agent = root.path().join("var/lib/rancher/k3s/agent");
    fs::create_dir_all(&agent).unwrap();
    write(&agent.join("client-kubelet.crt"), PEM);
    write(&agent.join("client-kubelet.key"), "a key is not read");
    let own = |pem: Result<Vec<u8>, String>| Some(("kubeconfig /etc/k".to_owned(), pem));
    let machine = |own| Machine {
        root: root.path().to_owned(),
        servers: vec![("kubelet".to_owned(), server())],
        own,
        disks: vec!["var/lib/rancher".to_owned(), "nowhere".to_owned()],
    };
    let certificates = |all: Vec<Finding>| -> Vec<Finding> {
        all.into_iter().filter(|it| it.code == "certificates").collect()
    };
    let late = ends - SignedDuration::from_hours(5);
    let found = certificates(look(&machine(own(Ok(PEM.as_bytes().to_vec()))), late));
    assert_eq!((found.len(), found[0].severity), (1, Severity::Blocks), "{found:?}");
    for place in ["client-kubelet.crt (in 5 h)", "kubelet at 127.0.0.1:", "kubeconfig /etc/k (in 5 h)"] {
        assert!(found[0].text.contains(place), "{found:?}");
    }
    let early = ends - SignedDuration::from_hours(24 * 30);
    assert_eq!(certificates(look(&machine(own(Ok(PEM.as_bytes().to_vec()))), early)), []);
    // Nothing there, and nothing to be read.
    assert_eq!(look(&Machine { root: root.path().join("none"), ..Machine::default() }, late), []);
    write(&agent.join("torn.crt"), "-----BEGIN CERT");
    let torn = certificates(look(&machine(own(Err("no such file".to_owned()))), early));
    let texts: Vec<&str> = torn.iter().map(|it| it.text.as_str()).collect();
    assert!(texts.iter().any(|it| it.contains("torn.crt: it holds no X.509 certificate")), "{texts:?}");
    assert!(texts.iter().any(|it| it.contains("kubeconfig /etc/k: no such file")), "{texts:?}");
    assert!(torn.iter().all(|it| it.severity == Severity::Warns && it.is_unread()), "{torn:?}");
}

#[test]
fn u6_a_server_that_does_not_run_is_no_finding_and_one_that_speaks_no_tls_cannot_be_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let machine = Machine { servers: vec![("etcd".to_owned(), address)], ..Machine::default() };
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 16];
        drop(stream.read(&mut hello));
        drop(stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n"));
    });
    let root = tempfile::tempdir().unwrap();
    let machine = Machine { root: root.path().to_owned(), ..machine };
    let found = look(&machine, at(NOW));
    talker.join().unwrap();
    assert!(
        found.len() == 1 && found[0].text.starts_with("cannot be checked: etcd at 127.0.0.1:"),
        "{found:?}"
    );
    // Nobody listens there any more.
    assert_eq!(look(&machine, at(NOW)), []);
}

#[test]
fn u6_what_stops_is_a_setting_and_the_worst_comes_first() {
    let one = |code: &str, severity| Finding::new(code, "t", "n").with(severity);
    let all = vec![
        one("snapshot", Severity::Hint),
        one("clock", Severity::Blocks),
        one("backups", Severity::Blocks),
        one("nodes", Severity::Warns),
        Finding::new("room", "cannot be checked: x", "n").with(Severity::Warns),
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

/// What is found of this code on a machine with these files.
fn of_code(code: &str, files: &[(&str, &str)]) -> Vec<Finding> {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text.strip_prefix("-> ") {
            Some(to) => std::os::unix::fs::symlink(to, path).unwrap(),
            None => write(&path, text),
        }
    }
    let machine = Machine { root: root.path().to_owned(), ..Machine::default() };
    look(&machine, at(NOW)).into_iter().filter(|it| it.code == code).collect()
}

#[test]
fn u6_a_server_whose_token_is_missing_or_another_one_is_found_and_nothing_of_a_token_is_shown() {
    let (tls, file) = ("var/lib/rancher/k3s/server/tls/x.key", "var/lib/rancher/k3s/server/token");
    let config = "run/zedkube/EdgeNodeClusterStatus/global.json";
    let status = |token: &str| json!({ "EncryptedClusterToken": token }).to_string();
    let (same, other) = (status("s3cr3t"), status("K10ab::server:an0ther"));
    let full = "K10cafe::server:s3cr3t\n";
    // Files, and a word of what is found.
    let table: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (vec![], ""),
        (vec![(file, "s3cr3t")], ""),
        (vec![(tls, ""), (file, full)], ""),
        (vec![(tls, ""), (file, full), (config, &same)], ""),
        (vec![(tls, ""), (file, full), (config, "{")], ""),
        (vec![(tls, ""), (file, full), (config, "{}")], ""),
        (vec![(tls, "")], "missing or empty"),
        (vec![(tls, ""), (file, " ")], "missing or empty"),
        (vec![(tls, ""), (file, full), (config, &other)], "is not the one of this node's cluster config"),
        (vec![(tls, ""), ("var/lib/rancher/k3s/server/token/folder", "")], "cannot be checked: "),
    ];
    for (files, words) in table {
        let severity = if words.starts_with("is not the one") { Severity::Blocks } else { Severity::Warns };
        let found = of_code("token", &files);
        assert_eq!(found.len(), usize::from(!words.is_empty()), "{files:?} {found:?}");
        for it in found {
            assert!(it.text.contains(words) && it.severity == severity && !it.next.is_empty(), "{it:?}");
            let said = format!("{} {}", it.text, it.next);
            assert!(
                !said.contains("s3cr3t") && !said.contains("an0ther") && !said.contains("cafe"),
                "{said}"
            );
        }
    }
}

#[test]
fn u6_a_volume_group_on_a_disk_of_a_guest_is_found_and_one_on_a_disk_of_the_host_is_not() {
    let lvm = || {
        vec![
            ("sys/class/block/dm-0/dm/uuid", "LVM-abc\n"),
            ("sys/class/block/dm-0/dm/name", "guest--a-root\n"),
            ("sys/class/block/dm-0/slaves/x", ""),
            ("sys/block/sdb/device/model", "VIRTUAL-DISK    \n"),
            ("sys/block/sdb/sdb1/dev", "8:17"),
            ("sys/class/block/sdb", "-> ../../block/sdb"),
            ("sys/class/block/sdb1", "-> ../../block/sdb/sdb1"),
            ("sys/block/sda/device/model", "SSD 870"),
            ("sys/class/block/sda", "-> ../../block/sda"),
            ("sys/class/block/dm-1/dm/uuid", "CRYPT-abc"),
            ("sys/class/block/dm-1/slaves/sdb", ""),
        ]
    };
    // What the volume group lies on, and what is said of it.
    for (slave, words) in
        [("sdb", "on sdb"), ("sdb1", "on sdb1"), ("dm-1", "on sdb"), ("sda", ""), ("gone", "")]
    {
        let mut files = lvm();
        let path = format!("sys/class/block/dm-0/slaves/{slave}");
        files[2].0 = &path;
        let found = of_code("lvm", &files);
        assert_eq!(found.len(), usize::from(!words.is_empty()), "{slave} {found:?}");
        for it in found {
            assert!(it.text.ends_with(&format!("guest--a-root {words}")), "{it:?}");
            assert!(it.next.contains("vgchange -an guest-a,") && it.severity == Severity::Warns, "{it:?}");
        }
    }
    // Something else than LVM, and nothing to be read.
    let mut files = lvm();
    (files[0].1, files[2].0) = ("CRYPT-x", "sys/class/block/dm-0/slaves/sdb");
    assert_eq!(of_code("lvm", &files), []);
    assert_eq!(of_code("lvm", &[]), []);
    let unread = of_code("lvm", &[("sys/class/block", "a file")]);
    assert!(unread.len() == 1 && unread[0].is_unread(), "{unread:?}");
}
