//! The calls to etcd: against the stand-in of kubesim, and against servers that are slow, odd or careful.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubesim::{ETCD_VERSIONS, Etcd, EtcdFault};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::{TlsAcceptor, rustls};

use super::super::calls::{
    Addresses, CALL_LIMIT, EtcdAccess, EtcdSettings, HAND_OVER_LIMIT, hand_over, read, waits,
};
use super::super::facts::{Data, EtcdFacts, Kubernetes, ListedMemberFacts, Readyz, ServerNode};
use super::super::rule::{Margin, judge, successor};
use crate::margin::facts::LARGEST_BYTES;
use crate::margin::facts::Paths;
use crate::tests::http::{self, Answer, http, respond};

const SETTINGS: EtcdSettings = EtcdSettings { metrics: "--metrics", gateway: "--gateway", data: "--data" };
const MEMBERS: &str = r#"{"header":{"cluster_id":"17495100640981928781","member_id":"10276657743932975437"},"members":[
    {"ID":"10276657743932975437","name":"n1-0000000a","peerURLs":[],"clientURLs":["https://127.0.0.1:2379"]},
    {"ID":"18249187646912138824","name":"","isLearner":true}]}"#;

/// A root with the data directory of k3s in it, and its etcd.
fn k3s() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("var/lib/rancher/k3s/server");
    fs::create_dir_all(place.join("db/etcd")).unwrap();
    let files = place.join("tls/etcd");
    fs::create_dir_all(&files).unwrap();
    (root, files)
}

pub(super) fn source(root: &Path, metrics: String, gateway: String) -> EtcdAccess {
    EtcdAccess { addresses: Addresses { metrics, gateway }, paths: Paths::usual(root), settings: SETTINGS }
}

/// What node `node` knows of this etcd, with its own reading; no peer has an agent.
async fn facts(etcd: &Etcd, root: &Path, node: &str) -> EtcdFacts {
    let source = source(root, etcd.metrics_url(node), etcd.gateway_url(node));
    let server = |name: &str| ServerNode::healthy(name, etcd.member_name(name));
    let kubernetes = Kubernetes::Read(["n1", "n2", "n3"].map(server).to_vec());
    EtcdFacts { node: node.to_owned(), own: read(&source).await, kubernetes, words: vec![] }
}

#[tokio::test]
async fn an_etcd_that_has_no_leader_says_how_many_of_its_members_are_here() {
    let (root, _files) = k3s();
    let empty = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&["n1", "n2", "n3"]).await.unwrap();
    let at = |root: &Path| source(root, etcd.metrics_url("n1"), etcd.gateway_url("n1"));
    for (down, expected) in [
        (vec![], None),
        (vec!["n3"], None),
        (vec!["n2", "n3"], Some("1 of 3 members of etcd are here, 2 are required")),
        (vec!["n1"], None),
    ] {
        for node in ["n1", "n2", "n3"] {
            let fault = down.contains(&node).then_some(EtcdFault::Down);
            etcd.script(node, fault.as_slice());
        }
        assert_eq!(waits(&at(root.path())).await.as_deref(), expected, "{down:?}");
        assert_eq!(waits(&at(empty.path())).await, None, "no etcd here");
    }
}

#[tokio::test]
async fn u3_the_margin_of_a_running_cluster_follows_what_happens_to_its_members() {
    for version in ETCD_VERSIONS {
        margin_of(version).await;
    }
}

async fn margin_of(version: &str) {
    let (root, _files) = k3s();
    let etcd = Etcd::start_of(version, &["n1", "n2", "n3"]).await.unwrap();
    let alarm = EtcdFault::Alarm("NOSPACE".to_owned());
    for (faults, expected) in [
        (vec![], Ok((3, 3, 2))),
        (
            vec![("n3", EtcdFault::Down)],
            Err("2 of 3 etcd voters are healthy; without node n1 1 would be left"),
        ),
        (vec![("n3", EtcdFault::Isolated)], Err("n3 (no connection to it)")),
        (vec![("n3", EtcdFault::Learner)], Err("n3-000000a3 is a learner")),
        (vec![("n3", alarm.clone())], Err("alarm NOSPACE of member a3")),
        (vec![("n1", EtcdFault::NoGateway)], Err("on node n1 are not known: list the members of etcd")),
        (vec![("n1", EtcdFault::Sick)], Ok((3, 2, 2))),
        (vec![("n1", EtcdFault::Isolated)], Err("has no leader")),
        (vec![("n2", EtcdFault::Down), ("n3", EtcdFault::Down)], Err("has no leader")),
        (vec![("n1", EtcdFault::Learner)], Err("n1 is still a learner")),
        (vec![("n1", EtcdFault::Down)], Err("read the metrics of etcd")),
    ] {
        for node in ["n1", "n2", "n3"] {
            let of_node = faults.iter().filter(|(it, _)| *it == node).map(|(_, fault)| fault.clone());
            etcd.script(node, &of_node.collect::<Vec<_>>());
        }
        let margin = judge(&facts(&etcd, root.path(), "n1").await).margin;
        match (&margin, expected) {
            (Margin::Spare { voters, healthy, quorum }, Ok(row)) => {
                assert_eq!((*voters, *healthy, *quorum), row);
            }
            (Margin::None { why }, Err(words)) => assert!(why.contains(words), "{faults:?}: {why}"),
            (Margin::Spare { .. } | Margin::None { .. } | Margin::NotApplicable { .. }, _) => {
                panic!("{faults:?}: {margin:?}")
            }
        }
    }
    // Without 2382 nothing is granted, and the version and what to set are named.
    etcd.script("n1", &[EtcdFault::NoGateway]);
    let Margin::None { why } = judge(&facts(&etcd, root.path(), "n1").await).margin else {
        panic!("granted")
    };
    assert!(why.contains(&format!("of etcd {version} on")) && why.contains("set --gateway"), "{why}");
    // An alarm is named by /health then, but for etcd 3.4, whose /health names no reason.
    etcd.script("n1", &[EtcdFault::NoGateway, alarm]);
    let own = facts(&etcd, root.path(), "n1").await.own;
    match own.alarms {
        Ok(alarms) => assert_eq!((alarms, own.readyz), (vec!["NOSPACE".to_owned()], Ok(Readyz::Ready))),
        Err(why) => assert!(version.starts_with("3.4") && why.contains("/health says"), "{why}"),
    }
}

#[tokio::test]
async fn u4_leadership_is_moved_and_a_failure_is_in_words() {
    let (root, _files) = k3s();
    let etcd = Etcd::start(&["n1", "n2", "n3"]).await.unwrap();
    assert_eq!(etcd.leader().as_deref(), Some("n1"));
    let facts = facts(&etcd, root.path(), "n1").await;
    assert!(facts.own.metrics.as_ref().unwrap().is_leader);
    let verdict = judge(&facts);
    let (node, id) = successor(&verdict.may_lead, &["n2".to_owned()]).unwrap();
    let source = source(root.path(), etcd.metrics_url("n1"), etcd.gateway_url("n1"));
    etcd.script("n3", &[EtcdFault::Isolated]);
    let error = hand_over(&source, *id).await.unwrap_err();
    assert!(
        error.contains("move the leadership of etcd to member a3") && error.contains("took too long"),
        "{error}"
    );
    assert_eq!(etcd.leader().as_deref(), Some("n1"));
    etcd.script("n3", &[]);
    hand_over(&source, *id).await.unwrap();
    assert_eq!(etcd.leader().as_deref(), Some(node.as_str()));
    assert!(!read(&source).await.metrics.unwrap().is_leader);
    // It leads no longer, which is all that was wanted.
    hand_over(&source, *id).await.unwrap();
    etcd.script("n1", &[EtcdFault::Isolated]);
    let error = hand_over(&source, *id).await.unwrap_err();
    assert!(error.contains("not leader"), "nobody is known to lead: {error}");
    etcd.script("n1", &[EtcdFault::NoGateway]);
    let error = hand_over(&source, *id).await.unwrap_err();
    assert!(error.contains("; then ask etcd who leads"), "{error}");
}

/// The address of a server with this one answer.
async fn server(owner: &mut JoinSet<()>, answer: Answer) -> String {
    let at = http::server(owner, ([127, 0, 0, 1], 0).into(), move |_, _| answer.clone()).await;
    format!("http://{at}")
}

#[tokio::test]
async fn an_answer_that_is_not_etcds_is_reported_with_what_where_and_what_to_set() {
    let (root, _files) = k3s();
    let mut servers = JoinSet::new();
    let long = "x".repeat(LARGEST_BYTES + 1);
    for (answer, metrics, readyz, members) in [
        (
            http(200, "<html>"),
            "the metric etcd_server_id is missing (etcd of unknown version); if they are elsewhere",
            "",
            "not what the API",
        ),
        (http(200, "{}"), "etcd_server_id is missing", "", "\"\" is not the id of a member"),
        (Answer::Text("SSH-2.0-x\r\n".to_owned()), "invalid HTTP", "invalid HTTP", "invalid HTTP"),
        (http(404, "no such page"), "404: no such page", "404: no such page", "404: no such page"),
        (http(503, "[+]a ok\n[-]b failed: c\n"), "503", "[-]b failed: c", "503"),
        (http(200, &long), "length limit exceeded", "length limit exceeded", "length limit exceeded"),
        (
            http(200, r#"{"header":{"member_id":"1"},"members":[{"ID":"-1"}]}"#),
            "is missing",
            "",
            "\"-1\" is not the id",
        ),
    ] {
        let at = server(&mut servers, answer).await;
        let own = read(&source(root.path(), at.clone(), at.clone())).await;
        let error = own.metrics.unwrap_err();
        assert!(error.contains(metrics) && error.contains(&at) && error.contains("set --metrics"), "{error}");
        match own.readyz {
            Ok(Readyz::Ready) => assert_eq!(readyz, ""),
            Ok(Readyz::NotReady(why)) => assert_eq!(why, readyz),
            Err(error) => assert!(error.contains(readyz) && !readyz.is_empty(), "{error}"),
        }
        let error = own.members.unwrap_err();
        assert!(error.contains(members) && error.starts_with("list the members of etcd"), "{error}");
    }
    // An alarm of all members has no member.
    let alarms = r#"{"alarms":[{"alarm":"NOSPACE"},{"memberID":"161","alarm":"CORRUPT"}]}"#;
    let at = server(&mut servers, http(200, alarms)).await;
    let own = read(&source(root.path(), at.clone(), at)).await;
    assert_eq!(own.alarms, Ok(vec!["NOSPACE".to_owned(), "CORRUPT of member a1".to_owned()]));
    let own = read(&source(root.path(), "no address".to_owned(), "http://127.0.0.1:1:2".to_owned())).await;
    let error = own.metrics.unwrap_err();
    assert!(error.starts_with("use etcd at no address") && error.ends_with("set --metrics"), "{error}");
    assert!(own.members.unwrap_err().ends_with("set --gateway"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up_after_the_limit() {
    let (root, _files) = k3s();
    let mut servers = JoinSet::new();
    let at = server(&mut servers, Answer::Silence).await;
    let source = source(root.path(), at.clone(), at);
    let now = kubeapi::mock::clock();
    let begun = now();
    let own = read(&source).await;
    for error in [own.metrics.unwrap_err(), own.readyz.unwrap_err(), own.members.unwrap_err()] {
        assert!(error.contains("no answer within 5 s"), "{error}");
    }
    assert!(own.alarms.unwrap_err().contains("no answer within 5 s"));
    // All at once, then /health for the alarms.
    assert_eq!(now().since(begun), CALL_LIMIT * 2);
    assert!(hand_over(&source, 1).await.unwrap_err().contains("no answer within 15 s"));
    assert_eq!(now().since(begun), CALL_LIMIT * 3 + HAND_OVER_LIMIT);
}

/// The server's authority, certificate and key are those of kubeapi; the client's are here, signed by themselves.
fn testdata(file: &str) -> PathBuf {
    let folder = if file.starts_with("client") { "testdata" } else { "../kubeapi/testdata" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(file)
}

/// A server with TLS that lists members for the client with the certificate `client.pem` only.
async fn careful_server(owner: &mut JoinSet<()>) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(testdata("client.pem")).unwrap()).unwrap();
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_file(testdata("server.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(testdata("server.key")).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    owner.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            if let Ok(socket) = acceptor.accept(socket).await {
                respond(socket, |_, _| http(200, MEMBERS)).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn s2_port_2382_is_asked_with_the_client_certificate_and_no_error_shows_a_file() {
    let (root, files) = k3s();
    let mut servers = JoinSet::new();
    let gateway = careful_server(&mut servers).await;
    let source = source(root.path(), server(&mut servers, http(404, "")).await, gateway);
    let put = |file: &str, name: &str| fs::copy(testdata(file), files.join(name)).unwrap();
    let fails = async |words: &[&str]| {
        let error = read(&source).await.members.unwrap_err();
        assert!(words.iter().all(|it| error.contains(it)), "{error}");
        // Also not as the bytes of s3cret.
        assert!(["BEGIN", "s3cret", "115, 51, 99"].iter().all(|it| !error.contains(it)), "{error}");
    };
    let path = |name: &str| files.join(name).display().to_string();
    fails(&[&path("server-ca.crt"), "No such file"]).await;
    put("ca.pem", "server-ca.crt");
    fails(&[&path("client.crt"), "No such file"]).await;
    put("client.pem", "client.crt");
    fails(&[&path("client.key"), "No such file"]).await;
    for torn in ["-----BEGIN s3cret\n", "s3cret", "-----BEGIN PRIVATE KEY-----\ns3cret=\n", ""] {
        let mut file = fs::File::create(files.join("client.key")).unwrap();
        std::io::Write::write_all(&mut file, torn.as_bytes()).unwrap();
        fails(&["server/tls/etcd/client."]).await;
    }
    put("client.key", "client.key");
    let list = read(&source).await.members.unwrap();
    let own = ListedMemberFacts {
        id: 0x8e9e_05c5_2164_694d,
        name: "n1-0000000a".to_owned(),
        learner: false,
        address: None,
    };
    let new =
        ListedMemberFacts { id: 0xfd42_2379_fda5_0e48, name: String::new(), learner: true, address: None };
    assert_eq!((list.by, list.members), (own.id, vec![own, new]));
    // Another authority than the server's, then a certificate that the server does not accept.
    put("other.pem", "server-ca.crt");
    fails(&["list the members of etcd with https://127.0.0.1", "invalid peer certificate", "set --gateway"])
        .await;
    put("ca.pem", "server-ca.crt");
    put("server.pem", "client.crt");
    put("server.key", "client.key");
    fails(&["list the members of etcd with https://127.0.0.1", "fatal alert", "set --gateway"]).await;
}

#[test]
fn files_are_found_in_the_directories_of_k3s_rke2_and_the_reference() {
    for place in ["persist/vault/kube/rancher/k3s", "var/lib/rancher/k3s", "var/lib/rancher/rke2"] {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::usual(root.path());
        let Ok(Data::Absent { looked }) = paths.data("--data") else { panic!("nothing is there") };
        let database = root.path().join(place).join("server/db/etcd");
        assert!(
            looked.contains(&database.display().to_string()) && looked.ends_with("set --data"),
            "{looked}"
        );
        fs::create_dir_all(&database).unwrap();
        assert_eq!(paths.data("--data"), Ok(Data::Present));
        let given = Paths::at(&root.path().join(place));
        for login in [paths.login(), given.login()] {
            assert_eq!(login.key, root.path().join(place).join("server/tls/etcd/client.key"));
            assert_eq!(login.ca.file_name().unwrap(), "server-ca.crt");
        }
    }
    // A file where a directory should be cannot be looked into.
    let root = tempfile::tempdir().unwrap();
    fs::File::create(root.path().join("var")).unwrap();
    assert!(
        Paths::usual(root.path()).data("--data").unwrap_err().contains("var/lib/rancher/k3s/server/db/etcd")
    );
}
