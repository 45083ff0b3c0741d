//! What is done with a kubeconfig: late, changed, wrong, with files of its own.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::{TlsAcceptor, rustls};

use super::*;
use crate::client::ApiClient;
use crate::nodes::probe;
use crate::reply::Reach;

#[tokio::test]
async fn s2_a_file_that_cannot_be_read_is_reported_by_its_place_and_not_by_its_content() {
    const SECRET: &str = "tok3n-that-nobody-may-see";
    for text in [
        format!("apiVersion: v1\nusers:\n- name: a\n  user:\n    token: [{SECRET}\n"),
        format!("apiVersion: v1\nusers: {SECRET}\n"),
        format!("users:\n- name: a\n  user: {{ token: {{ a: {SECRET} }} }}\n"),
        format!("{SECRET}\n"),
        format!("users:\n\t- token: \"{SECRET}\n"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("kubeconfig");
        fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        let Err(error) = KubeconfigFile::new(path).client() else { panic!("{text} is a kubeconfig") };
        let told = format!("{} {error:?}", error.line());
        assert!(!told.contains(SECRET) && !told.contains("tok3n"), "{told}");
        assert!(told.contains("it is not the YAML of a kubeconfig"), "{told}");
    }
}

#[tokio::test]
async fn t7_a_pipe_in_the_place_of_a_kubeconfig_is_refused_and_holds_nobody() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("kubeconfig");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let file = KubeconfigFile::new(path);
    let Err(error) = file.client() else { panic!("a pipe is a kubeconfig") };
    assert!(error.line().contains("it is no regular file"), "{}", error.line());
    assert!(file.credential().is_err() && file.place().is_err());
}

#[tokio::test(start_paused = true)]
async fn t7_a_kubeconfig_whose_disk_does_not_answer_is_an_error_and_is_looked_at_by_one_only() {
    let file = Arc::new(KubeconfigFile::new("/nowhere".into()));
    let looks = Arc::clone(&file.looks).lock_owned().await;
    for _ in 0..100 {
        let Err(error) = file.client_within_limit().await else { panic!("read behind the one who looks") };
        assert!(error.line().contains("its disk does not answer"), "{}", error.line());
    }
    drop(looks);
    let Err(error) = file.client_within_limit().await else { panic!("read what is not there") };
    assert!(error.line().contains("No such file"), "{}", error.line());
}

/// Answers one request on `socket`; refuses an old token, and a request without a user agent.
async fn answer(mut socket: impl AsyncRead + AsyncWrite + Unpin, code: u16, body: &str) {
    let mut request = vec![];
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).await.unwrap() == 0 {
            break;
        }
        request.extend(byte);
    }
    let request = String::from_utf8_lossy(&request);
    let code = if request.contains("Bearer old") {
        401
    } else if request.contains("user-agent: zedbox/") {
        code
    } else {
        400
    };
    let head = format!("HTTP/1.1 {code} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
}

/// A server on a free port that gives every client the same answer, and counts.
async fn server(owner: &mut JoinSet<()>, code: u16, body: &'static str) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    owner.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            answer(socket, code, body).await;
        }
    });
    (address, count)
}

/// The same with TLS and this certificate of testdata/; `clients` requires client certificates.
async fn tls_server(owner: &mut JoinSet<()>, certificate: &'static [u8], clients: bool) -> String {
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../testdata/server.key")).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = if clients {
        let mut roots = rustls::RootCertStore::empty();
        let authority = include_bytes!("../../testdata/clients.pem");
        roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        config.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        config.with_no_client_auth()
    };
    let config = config.with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    owner.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            if let Ok(socket) = acceptor.accept(socket).await {
                answer(socket, 200, LIST).await;
            }
        }
    });
    address
}

fn kubeconfig(server: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: '{server}'{more}}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
    )
}

fn write(path: &Path, text: &str) {
    fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

const LIST: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}"#;

#[tokio::test]
async fn a_kubeconfig_that_is_missing_or_unusable_is_named_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let table: [(Option<String>, &str); 7] = [
        (None, "No such file"),
        (Some(String::new()), "current context"),
        (Some("{torn".to_owned()), "not the YAML"),
        (Some(kubeconfig("https://h", "").replace("current-context: c", "current-context: x")), "context: x"),
        (Some(kubeconfig("https://h", ", certificate-authority-data: '%%%'")), "base64"),
        (Some(kubeconfig("ht tp://h", "")), "cluster url"),
        // A server with TLS is not believed without an authority.
        (Some(kubeconfig("https://127.0.0.1:1", "")), "certificate-authority"),
    ];
    for (number, (text, words)) in table.into_iter().enumerate() {
        let path = dir.path().join(format!("config-{number}"));
        if let Some(text) = text {
            write(&path, &text);
        }
        let cluster = ApiClient::from_kubeconfig(&path);
        let error = probe(&cluster).await.unwrap_err();
        let line = error.line();
        assert!(matches!(error, Error::Kubeconfig { .. }), "row {number}: {line}");
        assert!(line.contains(&path.display().to_string()) && line.contains(words), "row {number}: {line}");
        assert!(error.next_step().contains(&path.display().to_string()), "{}", error.next_step());
        assert_eq!(error.reach(), Reach::Unreachable);
        assert!(error.is_retryable(), "the file may come");
    }
}

#[tokio::test(start_paused = true)]
async fn d16_a_kubeconfig_that_is_renewed_replaced_or_there_again_is_noticed_within_a_second() {
    let now = Arc::new(crate::mock::clock());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let renewed = |path: &Path| {
        let cluster = ApiClient::from_kubeconfig(path);
        async move { tokio::time::timeout(Duration::from_secs(300), cluster.renewed()).await.is_ok() }
    };
    let change_after = |change: fn(&Path)| {
        let (path, now) = (path.clone(), Arc::clone(&now));
        async move {
            tokio::time::sleep(Duration::from_secs(100)).await;
            change(&path);
            now()
        }
    };
    assert!(!renewed(&path).await, "there is none");
    let table: [fn(&Path); 3] = [
        |path| write(path, "first"),
        |path| write(path, "longer"),
        |path| {
            let other = path.with_extension("new");
            write(&other, "longer");
            fs::rename(other, path).unwrap();
        },
    ];
    for (number, change) in table.into_iter().enumerate() {
        let end = async { (renewed(&path).await, now()) };
        let ((renewed, at), changed) = tokio::join!(end, change_after(change));
        assert!(renewed && at.since(changed) <= LOOKS_APART, "row {number}");
    }
    assert!(!renewed(&path).await, "the same file is no news");
    fs::remove_file(&path).unwrap();
    assert!(!renewed(&path).await);
}

#[tokio::test]
async fn the_library_does_not_repeat_a_call_by_itself() {
    let mut servers = JoinSet::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    for code in [429, 503, 504] {
        let (address, count) = server(&mut servers, code, "no").await;
        write(&path, &kubeconfig(&address, ""));
        let error = probe(&ApiClient::from_kubeconfig(&path)).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { answer, .. } if answer.code == code), "{error:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{code}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_comes_late_or_changes_is_read_again() {
    let mut servers = JoinSet::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let cluster = ApiClient::from_kubeconfig(&path);
    probe(&cluster).await.unwrap_err();
    let (first, first_count) = server(&mut servers, 200, LIST).await;
    let (second, second_count) = server(&mut servers, 200, LIST).await;
    for (address, counts) in [(&first, (1, 0)), (&second, (1, 1)), (&first, (2, 1))] {
        write(&path, &kubeconfig(address, ""));
        probe(&cluster).await.unwrap();
        assert_eq!((first_count.load(Ordering::SeqCst), second_count.load(Ordering::SeqCst)), counts);
    }
}

#[tokio::test]
async fn the_servers_certificate_must_be_of_the_given_authority_and_in_its_time() {
    let mut servers = JoinSet::new();
    let (server, expired) =
        (&include_bytes!("../../testdata/server.pem")[..], &include_bytes!("../../testdata/expired.pem")[..]);
    let dir = tempfile::tempdir().unwrap();
    for file in ["ca.pem", "other.pem"] {
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file), dir.path().join(file))
            .unwrap();
    }
    let path = dir.path().join("config");
    for (certificate, authority, words) in [
        (server, "ca.pem", None),
        (server, "other.pem", Some("UnknownIssuer")),
        (expired, "ca.pem", Some("xpired")),
    ] {
        let address = tls_server(&mut servers, certificate, false).await;
        let text = kubeconfig(&address, &format!(", certificate-authority: {authority}"));
        write(&path, &text);
        let error = probe(&ApiClient::from_kubeconfig(&path)).await.err();
        assert_eq!(error.is_some(), words.is_some(), "{error:?}");
        if let (Some(error), Some(words)) = (error, words) {
            assert_eq!(error.reach(), Reach::Unreachable);
            assert!(error.line().contains(words), "{}", error.line());
            assert!(error.next_step().contains("renew"), "{}", error.next_step());
        }
    }
}

#[tokio::test]
async fn a_certificate_of_ours_opens_the_server_from_a_file_or_from_the_kubeconfig_itself() {
    let mut servers = JoinSet::new();
    let dir = tempfile::tempdir().unwrap();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for file in ["ca.pem", "client.pem", "client.key"] {
        fs::copy(testdata.join(file), dir.path().join(file)).unwrap();
    }
    let address = tls_server(&mut servers, include_bytes!("../../testdata/server.pem"), true).await;
    let here = |file: &str| STANDARD.encode(fs::read(testdata.join(file)).unwrap());
    let data =
        format!("client-certificate-data: {}, client-key-data: {}", here("client.pem"), here("client.key"));
    for (user, opens) in
        [("", false), ("client-certificate: client.pem, client-key: client.key", true), (data.as_str(), true)]
    {
        let path = dir.path().join("config");
        let text = kubeconfig(&address, ", certificate-authority: ca.pem");
        write(&path, &text.replace("user: {}", &format!("user: {{{user}}}")));
        let error = probe(&ApiClient::from_kubeconfig(&path)).await.err();
        assert_eq!(error.is_none(), opens, "{user:?}: {error:?}");
    }
}

/// Certificates of version 1 have no extensions; `openssl x509 -req` makes them where it is given none.
#[tokio::test]
async fn what_kubectl_takes_makes_a_client_a_certificate_of_version_1_blocks_aliases_and_an_empty_document() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let block = |file: &str, indent: &str| {
        let text = STANDARD.encode(fs::read(testdata.join(file)).unwrap());
        let lines = text.as_bytes().chunks(64).map(|it| format!("{indent}{}\n", String::from_utf8_lossy(it)));
        format!("|\n{}", lines.collect::<String>())
    };
    let text = format!(
        "current-context: c\nclusters:\n- name: k\n  cluster:\n    server: 'https://h'\n    certificate-authority-data: &ca \
         {}- name: other\n  cluster:\n    certificate-authority-data: *ca\nusers:\n- name: u\n  user:\n    \
         client-certificate-data: {}    client-key-data: {}contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n---\n",
        block("ca.pem", "      "),
        block("v1.pem", "      "),
        block("v1.key", "      ")
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    write(&path, &text);
    assert!(KubeconfigFile::new(path.clone()).client().is_ok());
    // With another key it does not match.
    write(&path, &text.replace(&block("v1.pem", "      "), &block("client.pem", "      ")));
    let Err(error) = KubeconfigFile::new(path).client() else { panic!("a certificate without its key") };
    assert!(error.line().contains("client-certificate: "), "{}", error.line());
}

#[test]
fn what_a_device_has_no_use_for_is_refused_by_its_name() {
    let users = [
        ("exec: {command: sh}", "it says exec"),
        ("auth-provider: {name: gcp}", "it says auth-provider"),
        ("as: somebody", "it says as"),
        ("client-certificate: a.pem", "without client-key"),
        ("client-key: a.key", "without client-certificate"),
    ];
    let clusters = [
        (", proxy-url: 'http://p'", "it says proxy-url"),
        (", insecure-skip-tls-verify: true", "it says insecure-skip-tls-verify"),
    ];
    let users = users.map(|(user, words)| {
        (kubeconfig("https://h", "").replace("user: {}", &format!("user: {{{user}}}")), words)
    });
    let clusters = clusters.map(|(more, words)| (kubeconfig("https://h", more), words));
    for (text, words) in users.into_iter().chain(clusters) {
        let refused = crate::trial::kubeconfig(text.as_bytes()).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn who_we_are_and_the_path_in_front_are_in_the_request() {
    for (user, wanted) in [
        ("token: abc", Some("authorization: Bearer abc\r\n")),
        ("token: abc, tokenFile: token", Some("authorization: Bearer from-file\r\n")),
        ("username: u, password: 'p:w'", Some("authorization: Basic dTpwOnc=\r\n")),
        ("", None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("token"), "from-file\n");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/in/front", listener.local_addr().unwrap());
        let path = dir.path().join("config");
        write(&path, &kubeconfig(&address, "").replace("user: {}", &format!("user: {{{user}}}")));
        let cluster = ApiClient::from_kubeconfig(&path);
        let seen = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let bytes = socket.read(&mut request).await.unwrap();
            String::from_utf8_lossy(&request[..bytes]).into_owned()
        };
        let (_cut_off, request) = tokio::join!(probe(&cluster), seen);
        assert!(request.starts_with("GET /in/front/"), "{request}");
        assert_eq!(wanted.is_some(), request.contains("authorization"), "{request}");
        assert!(wanted.is_none_or(|it| request.contains(it)), "{request}");
    }
}

#[tokio::test]
async fn files_that_the_kubeconfig_names_are_read_again_after_they_were_of_no_use() {
    let mut servers = JoinSet::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let authority = dir.path().join("authority.pem");
    fs::copy(testdata.join("other.pem"), &authority).unwrap();
    let address = tls_server(&mut servers, include_bytes!("../../testdata/server.pem"), false).await;
    write(&path, &kubeconfig(&address, ", certificate-authority: authority.pem"));
    let cluster = ApiClient::from_kubeconfig(&path);
    probe(&cluster).await.unwrap_err();
    fs::copy(testdata.join("ca.pem"), &authority).unwrap();
    probe(&cluster).await.unwrap();

    let token = dir.path().join("token");
    write(&token, "old");
    let (address, _) = server(&mut servers, 200, LIST).await;
    write(&path, &kubeconfig(&address, "").replace("user: {}", "user: {tokenFile: token}"));
    let cluster = ApiClient::from_kubeconfig(&path);
    let error = probe(&cluster).await.unwrap_err();
    let path = path.display().to_string();
    assert!(error.next_step().starts_with("renew the credentials") && error.next_step().contains(&path));
    assert!(error.line().contains(&path), "{}", error.line());
    write(&token, "new");
    probe(&cluster).await.unwrap();
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    // Bound and dropped, so that no server listens there.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    write(&path, &kubeconfig(&address, ""));
    let error = probe(&ApiClient::from_kubeconfig(&path)).await.unwrap_err();
    assert_eq!(error.reach(), Reach::Unreachable);
    assert!(error.line().contains("refused"), "{}", error.line());
    assert!(error.next_step().contains(&path.display().to_string()), "{}", error.next_step());
}

/// Runs itself once more with variables that would lead every call astray.
#[tokio::test]
async fn the_environment_is_not_looked_at() {
    const INSIDE: &str = "KUBEOPS_TEST_INSIDE";
    if std::env::vars().any(|(name, _)| name == INSIDE) {
        let mut servers = JoinSet::new();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let (address, count) = server(&mut servers, 200, LIST).await;
        write(&path, &kubeconfig(&address, ""));
        probe(&ApiClient::from_kubeconfig(&path)).await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        return;
    }
    let name = "kubeconfig::tests::the_environment_is_not_looked_at";
    let inside = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(INSIDE, "1")
        .env("HTTPS_PROXY", "not even an address")
        .env("KUBECONFIG", "/nonexistent")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(inside.status.success() && said.contains("1 passed"), "{said}");
}
