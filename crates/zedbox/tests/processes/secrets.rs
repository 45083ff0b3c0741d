//! Secrets are planted in the kubeconfig, the device config, the key file and the cluster's token; then real
//! processes go through a whole reboot and log everything. No line of any log, no file, no output of a
//! command and no answer of the status server contains one of them, except intended files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use scenarios::{Agent, Story, World, reboot_config};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use topics::{
    Base64, ControllerCert, DrainStatus, EdgeNodeCert, EdgeNodeClusterConfig, Topic, ZedAgentStatus, go_json,
};

/// A test that waits so long has failed.
const TOO_LONG: Duration = Duration::from_secs(60);
const KUBECONFIG: &str = "kubeconfig";
const KEY_FILE: &str = "persist/certs/ecdh.key.pem";
const CONFIG_FILES: [&str; 2] = ["persist/config/edge-dev-config.json", "persist/checkpoint/lastconfig.json"];
const TOKEN_FILE: &str = "run/zedkube/EdgeNodeClusterStatus/global.json";

const KUBE_TOKEN: &str = scenarios::PLANTED_TOKEN;
/// An invalid client key: errors must not quote it.
const CLIENT_KEY: &str = "planted-client-key-4471";
const IN_CONFIG: &str = "planted-config-secret-3095";
/// Prefix of the cluster's token; the rest is escaped.
const TOKEN: &str = "s3cr3t";

/// Keys and certificates of the device and the controller: made with OpenSSL, never in use.
const DEVICE_KEY: &str = include_str!("../../../nodestatus/tests/token/device-key.pem");
const DEVICE_CERT: &str = include_str!("../../../nodestatus/tests/token/device.pem");
const CONTROLLER_CERT: &str = include_str!("../../../nodestatus/tests/token/controller.pem");
/// First half of the SHA-256 of each.
const DEVICE_HASH: &str = "a64745084c4d7cf119424746bdee6290";
const CONTROLLER_HASH: &str = "72c7dadcfec645a464359947e9ac0f6b";
/// The token encrypted for that key, and the SHA-256 of its clear text.
const SEALED: &str = include_str!("../../../nodestatus/tests/token/sealed.hex");
const SEALED_HASH: &str = "32da88ca1244aba9842265414d9af621ee83060b7f39dfd9a243714c10731557";

fn bytes(hex: &str) -> Base64 {
    Base64((0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect())
}

/// Scanned contents, by place.
#[derive(Default)]
struct Found(Vec<(String, Vec<u8>)>);

impl Found {
    fn files(&mut self, root: &Path, dir: &Path) {
        for path in scenarios::files_below(dir).into_iter().filter(|it| it.is_file()) {
            // One that has gone was temporary.
            let Ok(content) = fs::read(&path) else { continue };
            self.0.push((path.strip_prefix(root).unwrap().display().to_string(), content));
        }
    }

    async fn command(&mut self, world: &World, words: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        let root = world.topic_root.root().display().to_string();
        let words = words.replace("ROOT", &root);
        command.args(words.split_whitespace()).env_clear().stdin(Stdio::null());
        let said = spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(!said.stdout.is_empty() || !said.stderr.is_empty(), "{words} says nothing");
        self.0.push((format!("stdout of {words}"), said.stdout));
        self.0.push((format!("stderr of {words}"), said.stderr));
    }

    fn archive(&mut self, root: &Path) {
        let said = self.0.last().map(|it| String::from_utf8_lossy(&it.1).into_owned());
        let file =
            fs::File::open(root.join("bundle.tar.gz")).map_err(|cause| format!("{cause}: {said:?}")).unwrap();
        let before = self.0.len();
        for entry in tar::Archive::new(flate2::read::GzDecoder::new(file)).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            self.0.push((path, content));
        }
        for wanted in ["run/zedkube/NodeDrainProgress/global.json", "commands/drain-status", "about.json"] {
            assert!(
                self.0[before..].iter().any(|it| it.0.ends_with(wanted)),
                "{wanted} is not in the archive"
            );
        }
    }

    async fn answer(&mut self, port: u16, path: &'static str) {
        let asked = spawn_blocking(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(TOO_LONG)).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer
        });
        let answer = asked.await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 "), "GET {path}");
        self.0.push((format!("GET {path}"), answer));
    }

    /// Scans everything now.
    async fn look(&mut self, world: &World, port: u16) {
        self.files(world.topic_root.root(), world.topic_root.root());
        for words in [
            "drain --root ROOT status",
            "drain --root ROOT -o json status",
            "drain --root ROOT history",
            "drain --root ROOT -o json history",
            "drain --root ROOT plan --kubeconfig ROOT/kubeconfig",
            "--log trace drain --root ROOT -o json plan --kubeconfig ROOT/kubeconfig",
            "check ROOT",
            "bundle --root ROOT --kubeconfig ROOT/kubeconfig --to ROOT/bundle.tar.gz",
        ] {
            self.command(world, words).await;
        }
        self.archive(world.topic_root.root());
        fs::remove_file(world.topic_root.path("bundle.tar.gz")).unwrap();
        for path in
            ["/", "/status", "/metrics", "/healthz", "/readyz", "/outage", "/app", "/cluster-app", "/nothing"]
        {
            self.answer(port, path).await;
        }
    }

    /// Fails with fewer logs than `least`, or without a loud one.
    fn holds_loud_logs(&self, least: usize) {
        let log = |it: &&(String, Vec<u8>)| it.0.starts_with("log/") && !it.1.is_empty();
        assert!(self.0.iter().filter(log).count() >= least, "the logs are not scanned");
        let traced = self.0.iter().filter(log).any(|it| String::from_utf8_lossy(&it.1).contains("TRACE"));
        assert!(traced, "the log is not at its loudest");
    }

    /// Fails where `secret` is in anything but `meant`.
    fn tells_nowhere(&self, secret: &str, meant: &[&str]) {
        let holds = |content: &[u8]| content.windows(secret.len()).any(|it| it == secret.as_bytes());
        let told: Vec<&str> =
            self.0.iter().filter(|(_, content)| holds(content)).map(|(place, _)| place.as_str()).collect();
        assert!(!told.is_empty(), "{secret} was never there: the scan proves nothing");
        let beyond: Vec<&&str> = told.iter().filter(|place| !meant.contains(*place)).collect();
        assert!(beyond.is_empty(), "{secret} is told by {beyond:#?}");
    }
}

/// From the last zedkube's log.
async fn port(world: &World) -> u16 {
    let seen = async {
        loop {
            let logs = fs::read_dir(world.topic_root.path("log")).unwrap().map(|it| it.unwrap().path());
            let last = logs.filter(|it| it.to_string_lossy().ends_with("zedkube")).max().unwrap();
            let log = String::from_utf8_lossy(&fs::read(last).unwrap()).into_owned();
            let line = log.lines().rev().find(|it| it.contains("status server listens"));
            if let Some(rest) = line.and_then(|it| it.split("127.0.0.1:").nth(1)) {
                return rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TOO_LONG, seen).await.unwrap()
}

fn publish<T: Topic>(world: &World, agent: &str, key: &str, value: &T) {
    agent::publication::<T>(&world.topic_root, agent).unwrap().publish(key, value).unwrap();
}

fn config(counter: u32) -> Value {
    let mut config = reboot_config(counter);
    config["cluster"]["clusterIpPrefix"] = "127.0.0.1/8".into();
    config
}

/// The network is up: the status server has an address. The file goes with each boot.
fn network(world: &World) {
    let port = json!({ "IfName": "lo", "Logicallabel": "eth1", "ClusterIPAddr": "127.0.0.1" });
    world.put("run/nim/DeviceNetworkStatus/global.json", &json!({ "Ports": [port] }).to_string());
}

#[tokio::test]
async fn s2_a_whole_reboot_at_the_loudest_log_tells_no_secret_but_where_it_belongs() {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.filter = Some("trace,kube_client=trace");
    world.limits["zedkube"]["server_port"] = 0.into();
    let kubeconfig = world.text(KUBECONFIG).unwrap();
    let planted = format!("token: {KUBE_TOKEN}");
    assert!(kubeconfig.contains(&planted));
    let with = |user: &str| kubeconfig.replace(&planted, user);
    world.put(KEY_FILE, DEVICE_KEY);
    world.config(&config(6));
    let mut found = Found::default();

    // A blocked drain, a reboot, the boot after it.
    world.cluster.block().await;
    network(&world);
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    world.config(&config(7));
    world.status(DrainStatus::Cordoned).await;
    found.look(&world, port(&world).await).await;
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    found.look(&world, port(&world).await).await;
    world.reboot().await;
    network(&world);
    world.start_all();
    world.executed(7).await;
    world.cluster.until_schedulable().await;

    // A secret in an invalid config, so that the fault is reported.
    let mut wrong = config(7);
    wrong["cluster"]["encryptedClusterToken"] = IN_CONFIG.into();
    wrong["configItems"] = json!([{ "key": "timer.config.interval", "value": "7" }]);
    world.config(&wrong);
    let items = "run/zedagent/ConfigItemValueMap/global.json";
    world
        .until_file(items, "the wrong config", |it| it.is_some_and(|it| it.contains("\"IntValue\":7,")))
        .await;
    wrong["cluster"]["encryptedClusterToken"] = json!({ "cipherData": format!("!{IN_CONFIG}") });
    wrong["configItems"] = json!([{ "key": "timer.config.interval", "value": "8" }]);
    world.config(&wrong);
    world
        .until_file(items, "the wrong config", |it| it.is_some_and(|it| it.contains("\"IntValue\":8,")))
        .await;
    // A password as a text, and one as a property's number.
    wrong["configItems"] = json!([{ "key": "k3s.config.override", "value": { "token": IN_CONFIG } }]);
    world.config(&wrong);
    let faults = "run/zedagent/AgentTrouble/global.json";
    let named = |it: Option<&str>| it.is_some_and(|it| it.contains("configItems[0].value"));
    world.until_file(faults, "the wrong property", named).await;
    wrong["configItems"] = json!([
        { "key": "timer.config.interval", "value": IN_CONFIG },
        { "key": "timer.config.interval", "value": "9" },
    ]);
    world.config(&wrong);
    world
        .until_file(items, "the wrong config", |it| it.is_some_and(|it| it.contains("\"IntValue\":9,")))
        .await;

    // The token, as from a zedagent of the reference.
    let mut member: EdgeNodeClusterConfig =
        world.read("run/zedagent/EdgeNodeClusterConfig/global.json").unwrap();
    let status: ZedAgentStatus = world.read("run/zedagent/ZedAgentStatus/zedagent.json").unwrap();
    world.kill(Agent::Zedagent).await;
    publish(&world, "zedagent", "zedagent", &status);
    let block = json!({
        "CipherBlockID": "block", "CipherContextID": "ctx", "IsCipher": true,
        "InitialValue": bytes("000102030405060708090a0b0c0d0e0f"), "pubsub-large-CipherData": bytes(SEALED),
        "ClearTextHash": bytes(SEALED_HASH),
        "CipherContext": {
            "ContextID": "ctx", "HashScheme": 1, "KeyExchangeScheme": 1, "EncryptionScheme": 1,
            "ControllerCertHash": bytes(CONTROLLER_HASH), "DeviceCertHash": bytes(DEVICE_HASH),
        },
    });
    member.cipher_token = go_json::from_slice(block.to_string().as_bytes()).unwrap();
    let cert = ControllerCert { cert: Some(Base64(CONTROLLER_CERT.into())) };
    publish(&world, "zedagent", CONTROLLER_HASH, &cert);
    let cert = EdgeNodeCert { cert: Some(Base64(DEVICE_CERT.into())), is_tpm: false };
    publish(&world, "tpmmgr", DEVICE_HASH, &cert);
    publish(&world, "zedagent", "global", &member);
    world.until_file(TOKEN_FILE, "the token", |it| it.is_some_and(|it| it.contains(TOKEN))).await;
    found.look(&world, port(&world).await).await;

    // A kubeconfig with an invalid key, and one that is no kubeconfig.
    for broken in [
        with(&format!("client-certificate-data: {CLIENT_KEY}, client-key-data: {CLIENT_KEY}")),
        format!("users: [{{name: u, user: {{token: {KUBE_TOKEN}, client-key-data: [{CLIENT_KEY}]}}}}]"),
        format!("token {KUBE_TOKEN}: [{CLIENT_KEY}"),
    ] {
        world.put(KUBECONFIG, &broken);
        world.kill(Agent::Zedkube).await;
        world.start(Agent::Zedkube);
        found.look(&world, port(&world).await).await;
    }
    world.kill_all().await;
    found.files(world.topic_root.root(), world.topic_root.root());

    found.holds_loud_logs(21);
    found.tells_nowhere(KUBE_TOKEN, &[KUBECONFIG]);
    found.tells_nowhere(CLIENT_KEY, &[KUBECONFIG]);
    found.tells_nowhere(IN_CONFIG, &CONFIG_FILES);
    found.tells_nowhere(TOKEN, &[TOKEN_FILE]);
    found.tells_nowhere(DEVICE_KEY.lines().nth(1).unwrap(), &[KEY_FILE]);
}

#[tokio::test]
async fn s2_an_update_of_the_os_at_the_loudest_log_tells_no_secret_but_where_it_belongs() {
    let mut world = World::of_processes(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.filter = Some("trace,kube_client=trace");
    world.put(KEY_FILE, DEVICE_KEY);
    Story::Update.play(&mut world).await;
    let mut found = Found::default();
    for words in ["drain --root ROOT status", "drain --root ROOT -o json history", "check ROOT"] {
        found.command(&world, words).await;
    }
    world.kill_all().await;
    found.files(world.topic_root.root(), world.topic_root.root());
    // Of each agent before the boot and after it.
    found.holds_loud_logs(8);
    found.tells_nowhere(KUBE_TOKEN, &[KUBECONFIG]);
    found.tells_nowhere(DEVICE_KEY.lines().nth(1).unwrap(), &[KEY_FILE]);
}
