//! The server over real sockets on loopback addresses: what it answers, where it listens, who cannot hold it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent::Clock;
use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubesim::{ScriptedFault, Sim, SimConfig};
use pubsub::{TopicRoot, store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use topics::GoUuid;

use super::super::answer::Router;
use super::super::on_demand::Make;
use super::{ServerLimits, serve};
use crate::cluster_status::NodeAddress;
use crate::identity::ClusterIdentity;
use crate::server::exchange::cluster_of;
use crate::server::metrics::Totals;
use kubeapi::OwnNode;

pub(in crate::server) const DEVICE: &str = "11111111-1111-4111-8111-111111111111";
pub(in crate::server) const CLUSTER: &str = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
/// Texts that stand in the config of this device and may stand in no answer.
const SECRETS: [&str; 3] = ["AAECA/r7/P3+/w==", "s3cr3t-token", "MDEyMzQ1Njc4OWFiY2RlZg=="];

pub(in crate::server) struct Site {
    pub(in crate::server) root: TempDir,
    pub(in crate::server) sim: Sim,
    /// How often the statement for peers was made; the first one hangs.
    made: Arc<AtomicUsize>,
    places: watch::Sender<Option<NodeAddress>>,
    bound: watch::Receiver<Option<SocketAddr>>,
    _tasks: JoinSet<()>,
}

fn place(address: &str) -> NodeAddress {
    NodeAddress { address: address.parse().unwrap(), cluster: GoUuid(CLUSTER.parse().unwrap()) }
}

pub(in crate::server) fn ground() -> ServerLimits {
    ServerLimits {
        port: 0,
        further: Vec::new(),
        request: Duration::from_secs(30),
        cluster: Duration::from_secs(60),
        peer: Duration::from_millis(400),
        most: 6,
        most_of_one: 4,
        retry: Duration::from_millis(20),
    }
}

/// A statement that counts how often it was made; the first one never comes.
fn site_outage(made: &Arc<AtomicUsize>) -> Make {
    let made = Arc::clone(made);
    Arc::new(move || {
        let nth = made.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if nth == 0 {
                std::future::pending::<()>().await;
            }
            format!("{{\"Node\":\"{nth}\"}}")
        })
    })
}

impl Site {
    pub(in crate::server) fn new(ground: ServerLimits) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        let clock = Clock::new();
        let sim = Sim::new(SimConfig::default());
        sim.add_node("n1", DEVICE);
        let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
        let own_node = OwnNode::default();
        own_node.set(NodeName::parse("n1").unwrap(), DEVICE.to_owned());
        let made = Arc::new(AtomicUsize::new(0));
        let (places, place) = watch::channel(None);
        let (to_bound, bound) = watch::channel(None);
        let limit = Duration::from_millis(100);
        let totals = watch::Sender::<Totals>::default();
        totals.send_modify(|it| it.codes = &["budget"]);
        let (files, said) = ((topic_root, clock), (site_outage(&made), totals.subscribe()));
        let limits = (limit, ground.peer);
        let router = Arc::new(Router::new(files, (cluster, own_node), limits, bound.clone(), said));
        let asked = Arc::clone(&router);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { asked.node_list.keep().await });
        tasks.spawn(serve(ground, router, place, to_bound));
        Self { root, sim, made, places, bound, _tasks: tasks }
    }

    pub(in crate::server) async fn open(ground: ServerLimits) -> (Self, SocketAddr) {
        let mut site = Self::new(ground);
        let address = site.at("127.0.0.1").await;
        (site, address)
    }

    /// Gives the server this place; returns where it listens then.
    pub(in crate::server) async fn at(&mut self, address: &str) -> SocketAddr {
        let wanted: IpAddr = address.parse().unwrap();
        self.places.send_replace(Some(place(address)));
        let there = |it: &Option<SocketAddr>| it.is_some_and(|it| it.ip() == wanted);
        soon(self.bound.wait_for(there)).await.unwrap().unwrap()
    }

    pub(in crate::server) fn write(&self, file: &str, value: &Value) {
        let file = self.root.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        store::replace(&file, value.to_string().as_bytes()).unwrap();
    }

    /// A drain that a budget holds; the config has its secrets beside it.
    fn a_held_drain(&self) {
        let token = json!({
            "IsCipher": true, "pubsub-large-CipherData": SECRETS[0], "InitialValue": SECRETS[2],
        });
        let config = json!({ "Initialized": true, "Valid": true, "CipherToken": token });
        self.write("run/zedagent/EdgeNodeClusterConfig/global.json", &config);
        let status = json!({ "ClusterName": "c", "EncryptedClusterToken": SECRETS[1] });
        self.write("run/zedkube/EdgeNodeClusterStatus/global.json", &status);
        self.write("run/zedagent/EdgeNodeInfo/global.json", &json!({ "DeviceName": "N_1" }));
        let leader = json!({ "LeaderIdentity": "n2" });
        self.write("run/zedkube/KubeLeaderElectInfo/global.json", &leader);
        let drains = json!({ "Drains": [{ "Status": 9, "Seconds": 61, "EndedAt": "2026-03-14T09:00:00Z" }] });
        self.write("persist/status/zedkube/DrainHistory/global.json", &drains);
        let progress = json!({
            "RequestedBy": 2, "Context": "reboot", "Phase": "draining", "Status": 5, "Attempt": 1,
            "MaxAttempts": 5, "Counts": { "Total": 3, "Gone": 2, "Blocked": 1 },
            "Blockers": [{ "Pod": "shop/web-0", "Code": "budget", "Reason": "budget shop/web <has> no room",
                "Since": "2026-03-14T09:30:00Z" }],
            "NextStep": "add a replica",
        });
        self.write("run/zedkube/NodeDrainProgress/global.json", &progress);
    }

    /// Gives our node these roles.
    fn roles(&self, roles: &[&str]) {
        assert!(self.sim.edit("nodes", "", "n1", |node| {
            for role in roles {
                node["metadata"]["labels"][format!("node-role.kubernetes.io/{role}")] = "true".into();
            }
        }));
    }
}

/// What does not come within half a minute does not come.
pub(in crate::server) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap()
}

/// Sends `text` and returns all that comes back until the other side closes.
pub(in crate::server) async fn say(address: SocketAddr, text: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    send(&stream, text.as_bytes()).await.unwrap();
    rest(&stream).await
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// All that comes until the other side closes; a connection that is reset has ended as well.
async fn rest(stream: &TcpStream) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut part) {
            Ok(0) => break,
            Ok(read) => all.extend_from_slice(&part[..read]),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(_reset) => break,
        }
    }
    String::from_utf8(all).unwrap()
}

/// The whole answer, with its head.
async fn whole(address: SocketAddr, method: &str, path: &str) -> String {
    say(address, &format!("{method} {path} HTTP/1.1\r\nHost: n1\r\n\r\n")).await
}

/// A connection from another address.
async fn from(own: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(own.parse().unwrap(), 0)).unwrap();
    socket.connect(address).await.unwrap()
}

/// What comes back on it; empty where it was closed.
async fn is_well(stream: &TcpStream) -> String {
    drop(send(stream, b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n").await);
    rest(stream).await
}

pub(in crate::server) async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let text = whole(address, method, path).await;
    let code = text.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    (code, text.split_once("\r\n\r\n").unwrap_or_default().1.to_owned())
}

pub(in crate::server) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, "GET", path).await
}

/// What is answered in TLS to these lines after the first; `None` where the handshake fails.
async fn in_tls(address: SocketAddr, identity: &ClusterIdentity, lines: &str) -> Option<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = soon(identity.connect(stream)).await.ok()?;
    let request = format!("GET /status HTTP/1.1\r\nHost: n1\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut all = String::new();
    soon(stream.read_to_string(&mut all)).await.ok()?;
    Some(all)
}

#[tokio::test]
async fn d_k22_nodes_of_the_cluster_are_answered_in_tls_on_the_same_port_and_nobody_else_is() {
    let (site, address) = Site::open(ground()).await;
    site.roles(&["control-plane", "etcd"]);
    let [ours, other] = [SECRETS[1], "another"].map(|it| ClusterIdentity::of(it).unwrap());
    let bearer =
        |of: &ClusterIdentity| format!("Authorization: {}\r\n", of.header().unwrap().to_str().unwrap());
    assert_eq!(in_tls(address, &ours, &bearer(&ours)).await, None, "no join token is known");
    site.a_held_drain();
    assert_eq!(in_tls(address, &other, &bearer(&other)).await, None, "of another cluster");
    for lines in [String::new(), bearer(&other), bearer(&ours).to_lowercase().replace("bearer", "basic")] {
        let answer = in_tls(address, &ours, &lines).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("\r\n\r\nUnauthorized\n"),
            "{answer}"
        );
        assert!(answer.contains("www-authenticate: Bearer realm=\"zedkube\"\r\n"), "{answer}");
    }
    let body = format!("cluster:{CLUSTER}");
    let answer = in_tls(address, &ours, &bearer(&ours)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    assert_eq!(get(address, "/status").await, (200, body));
}

/// As nodes of the reference's newer versions answer.
#[tokio::test]
async fn a_server_that_answers_nodes_of_its_cluster_alone_is_asked_in_tls() {
    let ours = ClusterIdentity::of("token").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, acceptor) = (listener.local_addr().unwrap().to_string(), ours.acceptor().unwrap());
    let serve = async {
        loop {
            let Ok(mut stream) = acceptor.accept(listener.accept().await.unwrap().0).await else { continue };
            let mut head = vec![];
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            assert!(
                head.starts_with("GET /status HTTP/1.1\r\n") && head.contains("authorization: Bearer "),
                "{head}"
            );
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncluster:x").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    };
    let ask = async {
        let limit = Duration::from_secs(30);
        assert_eq!(cluster_of(&address, Some(&ours), limit).await.unwrap(), "cluster:x");
        let other = ClusterIdentity::of("another").unwrap();
        for it in [None, Some(&other)] {
            cluster_of(&address, it, limit).await.unwrap_err();
        }
    };
    tokio::select! {
        () = serve => {}
        () = ask => {}
    }
}

fn hang(site: &Site) {
    site.sim.faults().script("GET", "/api/v1/nodes/n1", u32::MAX, ScriptedFault::Hang);
}

#[tokio::test]
async fn status_names_the_cluster_on_a_server_and_is_empty_elsewhere_and_on_any_trouble() {
    for (roles, body) in [
        (&[][..], String::new()),
        (&["control-plane"], String::new()),
        (&["control-plane", "etcd"], format!("cluster:{CLUSTER}")),
    ] {
        let (site, address) = Site::open(ground()).await;
        site.roles(roles);
        assert_eq!(get(address, "/status").await, (200, body));
        let refused = (405, "405 - Method Not Allowed".to_owned());
        assert_eq!(ask(address, "POST", "/status").await, refused);
    }
    let (site, address) = Site::open(ground()).await;
    site.sim.faults().script("GET", "/api/v1/nodes/n1", 1, ScriptedFault::status(500, "InternalError"));
    assert_eq!(get(address, "/status").await, (200, String::new()));
}

#[tokio::test]
async fn d_k26_an_api_that_hangs_empties_status_in_time_and_delays_nobody_else() {
    // A server that waited for the API would be cut before it answers.
    let (site, address) = Site::open(ServerLimits { request: Duration::from_secs(8), ..ground() }).await;
    site.a_held_drain();
    hang(&site);
    let (status, again, page) =
        tokio::join!(get(address, "/status"), get(address, "/status"), get(address, "/"));
    assert_eq!((status, again), ((200, String::new()), (200, String::new())));
    assert_eq!(page.0, 200);
}

#[tokio::test]
async fn d_k22_only_documented_paths_and_methods_are_answered() {
    let (_site, address) = Site::open(ground()).await;
    for path in ["/status", "/", "/status.json", "/drain", "/metrics", "/healthz", "/readyz", "/outage"] {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
            assert_eq!(ask(address, method, path).await.0, 405, "{method} {path}");
        }
    }
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        for path in ["/app", "/app/", "/cluster-app"] {
            assert_eq!(ask(address, method, path).await.0, 405, "{method} {path}");
        }
    }
    assert_eq!(ask(address, "POST", "/cluster-app").await.0, 405);
    assert_eq!((get(address, "/app").await.0, ask(address, "POST", "/app/").await.0), (200, 200));
    for path in ["/app/1", "/cluster-app/1"] {
        assert_eq!(get(address, path).await, (404, "App not found\n".to_owned()), "{path}");
    }
    for path in ["/apps", "/status/", "//", "/metrics/../status", "/STATUS", "/%2e"] {
        assert_eq!(get(address, path).await.0, 404, "{path}");
        assert_eq!(ask(address, "POST", path).await.0, 404, "{path}");
    }
    assert_eq!(get(address, "/healthz?x=1").await, (200, "ok\n".to_owned()));
}

#[tokio::test]
async fn the_page_and_the_figures_tell_the_drain_and_no_answer_holds_a_secret() {
    let (site, address) = Site::open(ground()).await;
    assert_eq!(get(address, "/readyz").await.0, 503);
    site.a_held_drain();
    assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
    let (_, page) = get(address, "/").await;
    for text in
        ["<h1>BLOCKED</h1>", "CORDONED (5)", "shop/web-0", "budget shop/web &lt;has&gt; no room", "n2"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    let (_, metrics) = get(address, "/metrics").await;
    for line in ["pillar_drain_blocked_pods{code=\"budget\"} 1", "pillar_drain_last_seconds 61"] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    site.roles(&["master", "etcd"]);
    let (_, facts) = get(address, "/status.json").await;
    let facts: topics::NodeStatus = serde_json::from_str(&facts).unwrap();
    assert_eq!((facts.node.as_str(), facts.leader.as_str()), ("n-1", "n2"));
    assert_eq!(facts.headline.text, "BLOCKED: reboot waits, 1 of 3 pods cannot leave");
    let (_, drain) = get(address, "/drain").await;
    assert_eq!(serde_json::from_str::<topics::Headline>(&drain).unwrap(), facts.headline);
    let served =
        ["/status", "/", "/status.json", "/drain", "/metrics", "/healthz", "/readyz", "/outage", "/app"];
    for path in served.into_iter().chain(["/cluster-app", "/nothing"]) {
        let whole = whole(address, "GET", path).await;
        assert!(whole.contains("cache-control: no-store"), "{whole}");
        assert!(SECRETS.iter().all(|it| !whole.contains(it)), "{whole}");
    }
}

#[tokio::test]
async fn what_a_node_says_to_its_peers_is_made_once_a_second_at_most_and_is_late_for_nobody() {
    let (site, address) = Site::open(ground()).await;
    let busy = (503, "busy: ask again in some seconds\n".to_owned());
    assert_eq!(soon(get(address, "/outage")).await, busy);
    let clock = Clock::new();
    let begun = clock.now();
    for _ in 0..30 {
        let (code, body) = soon(get(address, "/outage")).await;
        assert!(code == 200 && body.starts_with("{\"Node\":"), "{code} {body}");
    }
    let seconds = usize::try_from(clock.now().since(begun).as_secs()).unwrap();
    let made = site.made.load(Ordering::SeqCst);
    assert!(made <= 2 + seconds, "{made} times in {seconds} s");
}

#[tokio::test]
async fn it_listens_at_its_place_alone_moves_with_it_and_stops_with_it() {
    let mut site = Site::new(ground());
    let first = site.at("127.0.0.1").await;
    assert_eq!(get(first, "/healthz").await.0, 200);
    assert!(TcpStream::connect(("127.0.0.2", first.port())).await.is_err());
    let second = site.at("127.0.0.2").await;
    assert_eq!(get(second, "/healthz").await.0, 200);
    assert!(TcpStream::connect(first).await.is_err());
    site.places.send_replace(None);
    site.bound.wait_for(Option::is_none).await.unwrap();
    assert!(TcpStream::connect(second).await.is_err());
}

#[tokio::test]
async fn d_k21_a_listen_that_fails_is_tried_again() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = other.local_addr().unwrap();
    let mut site = Site::new(ServerLimits { port: taken.port(), ..ground() });
    site.places.send_replace(Some(place("127.0.0.1")));
    assert_eq!(site.at("127.0.0.2").await.port(), taken.port());
    site.places.send_replace(Some(place("127.0.0.1")));
    site.bound.wait_for(Option::is_none).await.unwrap();
    // In the same turn it has tried and failed. From here on nothing but time passes.
    drop(other);
    let bound = soon(site.bound.wait_for(Option::is_some)).await.unwrap().unwrap();
    assert_eq!((bound, get(bound, "/healthz").await.0), (taken, 200));
}

#[tokio::test]
async fn slow_heads_and_idle_connections_end_in_time_and_keep_nobody_of_another_address_out() {
    let (_site, address) = Site::open(ServerLimits { request: Duration::from_millis(300), ..ground() }).await;
    let mut held = Vec::new();
    for nth in 0..4 {
        let stream = TcpStream::connect(address).await.unwrap();
        if nth % 2 == 0 {
            send(&stream, b"GET / HTTP/1.1\r\nHost: n1\r\nX-Slow: ").await.unwrap();
        }
        held.push(stream);
    }
    // A fifth of that address finds no room; another address does.
    assert_eq!(whole(address, "GET", "/healthz").await, "");
    assert!(is_well(&from("127.0.0.9", address).await).await.starts_with("HTTP/1.1 200"));
    for stream in &held {
        assert!(!rest(stream).await.contains(" 200 "));
    }
    // Their seats are given back before a next connection is looked at, or soon after.
    while get(address, "/healthz").await.0 != 200 {}
}

#[tokio::test]
async fn sixty_addresses_with_slow_connections_keep_no_node_of_the_cluster_out() {
    let (site, address) = Site::open(ServerLimits { most: 64, ..ground() }).await;
    site.sim.edit("nodes", "", "n1", |it| {
        it["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "127.0.2.1" }]);
    });
    let mut held = Vec::new();
    for nth in 1..=60 {
        held.push(from(&format!("127.0.1.{nth}"), address).await);
    }
    // The nodes are read once it gets narrow.
    soon(async { while !is_well(&from("127.0.2.1", address).await).await.starts_with("HTTP/1.1 200") {} })
        .await;
    assert_eq!(is_well(&from("127.0.3.1", address).await).await, "", "of no node");
    drop(held);
}

#[tokio::test]
async fn a_head_that_is_too_long_and_a_body_without_end_are_cut() {
    let (_site, address) = Site::open(ground()).await;
    let line = "a".repeat(9 << 10);
    for head in [
        format!("GET /{line} HTTP/1.1\r\nHost: n1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: n1\r\nX: {line}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: n1\r\n{}\r\n", "X: y\r\n".repeat(60)),
    ] {
        let answer = say(address, &head).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    let stream = TcpStream::connect(address).await.unwrap();
    let head = b"GET /healthz HTTP/1.1\r\nHost: n1\r\nTransfer-Encoding: chunked\r\n\r\n";
    send(&stream, head).await.unwrap();
    let chunk = format!("1000\r\n{}\r\n", "b".repeat(0x1000));
    // It ends: the other side closes instead of reading on.
    while send(&stream, chunk.as_bytes()).await.is_ok() {}
    assert_eq!(get(address, "/healthz").await.0, 200);
}

#[tokio::test]
async fn s5_head_is_the_head_of_get_without_a_body_for_every_path() {
    let (site, address) = Site::open(ground()).await;
    site.a_held_drain();
    for path in
        ["/status", "/", "/drain", "/metrics", "/healthz", "/readyz", "/app", "/cluster-app", "/nothing"]
    {
        let (head, get) = (whole(address, "HEAD", path).await, whole(address, "GET", path).await);
        let without = |text: &str| {
            let (head, _) = text.split_once("\r\n\r\n").unwrap();
            // The time of the answer, and the length of a page that tells times.
            let same = |it: &&str| !it.starts_with("date") && !it.starts_with("content-length");
            head.lines().filter(same).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(without(&head), without(&get), "{path}");
        assert!(head.ends_with("\r\n\r\n"), "{path}: {head}");
        // The length is that of the answer to GET.
        assert!(head.contains("content-length: ") || get.contains("content-length: 0"), "{path}: {head}");
    }
}

#[tokio::test]
async fn s5_further_addresses_are_those_that_are_set_from_the_start_and_without_a_place() {
    let further = vec!["127.0.0.3".parse().unwrap(), "127.0.0.4".parse().unwrap()];
    let port = TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap().port();
    let mut site = Site::new(ServerLimits { port, further, ..ground() });
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
    for ip in ["127.0.0.3", "127.0.0.4"] {
        let listens = async {
            while TcpStream::connect(at(ip)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        soon(listens).await;
        assert_eq!(get(at(ip), "/healthz").await, (200, "ok\n".to_owned()));
        assert_eq!(get(at(ip), "/status").await, (200, String::new()));
    }
    for ip in ["127.0.0.1", "127.0.0.2", "127.0.0.5"] {
        assert!(TcpStream::connect(at(ip)).await.is_err(), "{ip}");
    }
    site.roles(&["master", "etcd"]);
    site.at("127.0.0.2").await;
    // What is asked about the cluster is answered as at its place, once a second.
    let named = (200, format!("cluster:{CLUSTER}"));
    soon(async { while get(at("127.0.0.3"), "/status").await != named {} }).await;
    site.places.send_replace(None);
    site.bound.wait_for(Option::is_none).await.unwrap();
    assert!(TcpStream::connect(at("127.0.0.2")).await.is_err());
    assert_eq!(get(at("127.0.0.3"), "/healthz").await.0, 200);
}
