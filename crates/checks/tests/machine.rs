//! What is found of this machine: its certificates, its disks, its token, and volume groups of guests.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use checks::certificates::{Dated, Dates, dated};
use checks::local::{Host, look};
use checks::{Finding, Severity};
use jiff::{SignedDuration, Timestamp};
use kubeapi::connect::credential::{Credential, TokenLife};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
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

fn write(path: &Path, text: &str) {
    File::create(path).and_then(|mut it| it.write_all(text.as_bytes())).unwrap();
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
        (-5, Some(Severity::Blocks), "/tls/-5.crt (expired 5 h ago)"),
    ] {
        let found = dated(&[ends(hours), ends(24 * 300)], now);
        assert_eq!(found.first().map(|it| it.severity), severity, "{hours}");
        assert!(found.iter().all(|it| it.text.contains(words)), "{found:?}");
    }
    assert_eq!(dated(&[ends(1), ends(30), ends(2)], now).len(), 2);
    let early = dated(&[lasts(1, 240), lasts(0, 250)], now);
    assert_eq!((early.len(), early[0].severity), (1, Severity::Warns), "{early:?}");
    assert!(early[0].text.ends_with("so that servers refuse them: /tls/240.crt"), "{early:?}");
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
    let own = |pem: Result<Vec<u8>, String>| {
        Some(("kubeconfig /etc/k".to_owned(), pem.map(Credential::Certificate)))
    };
    let machine = |own| Host {
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
    assert_eq!(look(&Host { root: root.path().join("none"), ..Host::default() }, late), []);
    write(&agent.join("torn.crt"), "-----BEGIN CERT");
    let torn = certificates(look(&machine(own(Err("no such file".to_owned()))), early));
    let texts: Vec<&str> = torn.iter().map(|it| it.text.as_str()).collect();
    assert!(texts.iter().any(|it| it.contains("torn.crt: it holds no X.509 certificate")), "{texts:?}");
    assert!(texts.iter().any(|it| it.contains("kubeconfig /etc/k: no such file")), "{texts:?}");
    assert!(torn.iter().all(|it| it.severity == Severity::Warns && it.unread), "{torn:?}");
}

#[test]
fn seed_2_31_the_token_of_the_kubeconfig_warns_under_thirty_days_and_blocks_under_one() {
    let root = tempfile::tempdir().unwrap();
    let found = |days: i64, left: SignedDuration| {
        let ends = at(NOW) + left;
        let account = "edge/agents".parse().unwrap();
        let life = TokenLife { account, starts: ends - SignedDuration::from_hours(days * 24), ends };
        let own = Some(("kubeconfig /etc/k".to_owned(), Ok(Credential::Token(life))));
        look(&Host { root: root.path().to_owned(), own, ..Host::default() }, at(NOW))
    };
    let hours = SignedDuration::from_hours;
    for (days, left, severity, words) in [
        (365, hours(24 * 30), None, ""),
        (365, hours(24 * 30 - 1), Some(Severity::Warns), "kubeconfig /etc/k expires in 29 days"),
        (365, hours(23), Some(Severity::Blocks), "expires in 23 h"),
        (365, hours(-5), Some(Severity::Blocks), "has expired 5 h ago"),
        // A short one, of which the agents have a third for the next.
        (1, hours(4), None, ""),
        (1, hours(3), Some(Severity::Warns), "in 3 h"),
        (1, hours(1), Some(Severity::Blocks), "in 1 h"),
    ] {
        let found = found(days, left);
        assert_eq!(found.first().map(|it| it.severity), severity, "{days} {left}");
        assert!(found.iter().all(|it| it.code == "certificates" && it.text.contains(words)), "{found:?}");
        assert!(found.iter().all(|it| it.next.contains("--service-account edge/agents |")), "{found:?}");
    }
}

#[test]
fn u6_a_server_that_does_not_run_is_no_finding_and_one_that_speaks_no_tls_cannot_be_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let machine = Host { servers: vec![("etcd".to_owned(), address)], ..Host::default() };
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 16];
        drop(stream.read(&mut hello));
        drop(stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n"));
    });
    let root = tempfile::tempdir().unwrap();
    let machine = Host { root: root.path().to_owned(), ..machine };
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
fn u6_a_disk_whose_room_cannot_be_read_is_named_and_a_folder_that_is_not_there_is_not() {
    let root = tempfile::tempdir().unwrap();
    File::create(root.path().join("persist")).unwrap();
    let disks = |all: &[&str]| {
        let disks = all.iter().map(|it| (*it).to_owned()).collect();
        let machine = Host { root: root.path().to_owned(), disks, ..Host::default() };
        look(&machine, Timestamp::UNIX_EPOCH).into_iter().filter(|it| it.code == "disk").collect::<Vec<_>>()
    };
    assert_eq!(disks(&["nowhere", "no/where"]), []);
    let found = disks(&["persist/vault", "nowhere"]);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert!(one.unread && one.severity == Severity::Warns && !one.next.is_empty(), "{one:?}");
    assert!(one.text.contains("persist/vault: Not a directory"), "{one:?}");
}

/// Row 0-07.
#[test]
fn u6_an_address_in_the_cluster_that_is_leased_is_found_unless_the_config_gives_another_one() {
    let port = |dhcp: u32, own: &str| {
        json!({ "Ports": [{ "IfName": "eth0", "Logicallabel": "mgmt", "Dhcp": 4 },
            { "IfName": "eth1", "Logicallabel": "lan", "Dhcp": dhcp, "ClusterIPAddr": own }] })
        .to_string()
    };
    let (leased, fixed, own) = (port(4, ""), port(1, ""), port(4, "10.244.244.2"));
    let of_config =
        r#"{"ClusterInterface":"eth1","ClusterIPPrefix":{"IP":"10.244.244.2","Mask":"////8A=="}}"#;
    for (status, ports, found) in [
        (r#"{"ClusterInterface":"lan"}"#, leased.as_str(), true),
        (r#"{"ClusterInterface":"eth1"}"#, &leased, true),
        (r#"{"ClusterInterface":"lan"}"#, &fixed, false),
        (r#"{"ClusterInterface":"lan"}"#, &own, false),
        (of_config, &leased, false),
        ("{}", &leased, false),
        (r#"{"ClusterInterface":"gone"}"#, &leased, false),
        ("{", &leased, false),
        (r#"{"ClusterInterface":"lan"}"#, "{", false),
    ] {
        let files = [
            ("run/zedkube/EdgeNodeClusterStatus/global.json", status),
            ("run/nim/DeviceNetworkStatus/global.json", ports),
        ];
        let all = of_code("address", &files);
        assert_eq!(all.len(), usize::from(found), "{status} {ports}: {all:?}");
        assert!(
            all.iter().all(|it| it.text.contains("port eth1 (label lan)") && it.severity == Severity::Warns),
            "{all:?}"
        );
    }
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
    let machine = Host { root: root.path().to_owned(), ..Host::default() };
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
    assert!(unread.len() == 1 && unread[0].unread, "{unread:?}");
}
