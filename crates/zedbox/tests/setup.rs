//! `zedbox setup` as typed: what it writes, what it refuses to overwrite, and what it says is open.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use agent::Clock;
use scenarios::{Cluster, World};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::artifacts::{is_here, skipped};
use crate::drain_cmd::terminal::Terminal;

const CLUSTER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const CONFIG: &str = "persist/config/edge-dev-config.json";
const SETTINGS: &str = "etc/zedbox/zedbox.toml";

struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        machine.put(SETTINGS, include_str!("../../xtask/package/zedbox.toml"));
        machine
    }

    fn put(&self, path: &str, text: &str) {
        pubsub::store::replace(&self.root.path().join(path), text.as_bytes()).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap()
    }

    fn config(&self) -> Value {
        serde_json::from_str(&self.text(CONFIG)).unwrap()
    }

    fn command(&self, words: &str) -> Command {
        let words = format!("setup --root . --kubeconfig etc/zedbox/kubeconfig {words}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.args(words.split_whitespace()).current_dir(&self.root);
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        command
    }

    /// Its exit code, and what it says.
    async fn setup(&self, words: &str) -> (i32, String) {
        let mut command = self.command(words);
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        (ended.status.code().unwrap(), said)
    }
}

#[tokio::test]
async fn x4_setup_makes_a_node_of_a_machine_with_the_package_and_done_again_changes_nothing() {
    let machine = Machine::new();
    let cluster = Cluster::embedded().await;
    let api = cluster.sim().serve_to(cluster.device_name()).await.unwrap();
    machine.put("etc/zedbox/kubeconfig", &api.kubeconfig());
    let words = format!("--cluster-id {CLUSTER} --address 127.0.0.1/8 --device record --node edge-node-1");
    let (code, said) = machine.setup(&words).await;
    assert_eq!(code, 0, "{said}");
    let end = format!(
        "edge-node-1 is set up in cluster {CLUSTER}, and a reboot is only written down: `systemctl enable --now zedbox` starts it.\n"
    );
    assert_eq!(said, end);
    let config = machine.config();
    let ours = json!({
        "clusterId": CLUSTER, "clusterIpPrefix": "127.0.0.1/8", "joinServerIp": "127.0.0.1", "clusterType": "CLUSTER_TYPE_HA",
    });
    assert_eq!((&config["cluster"], &config["deviceName"]), (&ours, &json!("edge-node-1")));
    // The Node has its device already.
    assert_eq!(config["id"]["uuid"], scenarios::UUID);
    let settings = machine.text(SETTINGS);
    // An agent starts in another folder.
    let at = machine.root.path().display();
    assert!(settings.contains(&format!("\nkubeconfig = \"{at}/etc/zedbox/kubeconfig\"\n")), "{settings}");
    for path in [CONFIG, SETTINGS] {
        let mode = fs::metadata(machine.root.path().join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    // Nothing has to be named again.
    assert_eq!(machine.setup("").await, (0, end));
    assert_eq!((machine.config(), machine.text(SETTINGS)), (config, settings));
    // A label that is no identity is nobody's.
    cluster
        .sim()
        .edit("nodes", "", "edge-node-1", |it| it["metadata"]["labels"]["node-uuid"] = json!("seven"));
    let other = Machine::new();
    other.put("etc/zedbox/kubeconfig", &api.kubeconfig());
    let (code, said) = other.setup(&words).await;
    assert!(code == 1 && said.contains("correct the label node-uuid of the node"), "{said}");
    assert_ne!(other.config()["id"]["uuid"], "seven");
    drop(World::on(cluster));
}

/// Roles and kubeconfig by an administrator's, which is named last.
#[tokio::test]
async fn x4_setup_asks_a_person_for_what_it_was_not_told_and_makes_the_access_of_the_agents() {
    if !is_here("kubectl") {
        return skipped("there is no kubectl to apply the roles with");
    }
    let machine = Machine::new();
    let cluster = Cluster::embedded().await;
    let (now, day) = (SystemTime::from(Clock::new().wall().to_timestamp()), Duration::from_hours(24));
    let server = cluster.sim().serve_tls(now - day..now + day).await.unwrap();
    machine.put("admin", &server.kubeconfig());
    let mut terminal = Terminal::asking(machine.command(""));
    let admin = machine.root.path().join("admin").display().to_string();
    let asked = tokio::task::spawn_blocking(move || {
        for (question, typed) in [
            ("cluster-id: UUID of the cluster", CLUSTER),
            ("address: of this node", "127.0.0.1/8"),
            ("join-server: address of the first server of the cluster [127.0.0.1]: ", "127.0.0.2"),
            ("node: name of the Node [", "edge-node-1"),
            ("worker: is it a server or a worker [server]: ", "worker"),
            ("device: systemd (a reboot is real)", "record"),
            ("admin: kubeconfig of an administrator", &admin),
        ] {
            terminal.until(question);
            writeln!(terminal.screen, "{typed}").unwrap();
        }
        (terminal.end(), std::mem::take(&mut terminal.read))
    });
    let (code, said) = asked.await.unwrap();
    assert!(code == 0 && said.contains("edge-node-1 is set up in cluster 6ba7b810-"), "{said}");
    let config = machine.config();
    let member = |name: &str| config["cluster"][name].clone();
    assert_eq!((member("isWorkerNode"), member("joinServerIp")), (json!(true), json!("127.0.0.2")));
    assert!(machine.text("etc/zedbox/kubeconfig").contains("kube-system:pillar-rs"));
    assert!(cluster.sim().list("rbac/clusterroles").len() > 10);
    drop(World::on(cluster));
}

#[tokio::test]
async fn x4_setup_keeps_what_differs_unless_it_is_told_and_names_what_is_open() {
    let machine = Machine::new();
    let (code, said) = machine.setup("").await;
    assert!(code == 1 && said.contains("name --cluster-id: UUID of the cluster"), "{said}");
    assert!(!machine.root.path().join(CONFIG).exists());
    // No kubeconfig, and no interface with an address for documents.
    let open = format!("--cluster-id {CLUSTER} --address 192.0.2.1/24 --device record");
    let (code, said) = machine.setup(&open).await;
    assert_eq!(code, 1, "{said}");
    for words in
        ["zedbox role --create-namespace", "no interface of this machine has 192.0.2.1", "but for 2 things"]
    {
        assert!(said.contains(words), "{said}");
    }
    // A controller's other members stay.
    let mut config = machine.config();
    config["reboot"] = json!({ "counter": 7 });
    machine.put(CONFIG, &config.to_string());
    let before = (machine.config(), machine.text(SETTINGS));
    let other = "--address 127.0.0.1/8 --device systemd";
    let (code, said) = machine.setup(other).await;
    assert_eq!(code, 1, "{said}");
    for words in [
        "clusterIpPrefix is \"192.0.2.1/24\", not \"127.0.0.1/8\"",
        "device is \"record\", not \"systemd\"",
        "--replace",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!((machine.config(), machine.text(SETTINGS)), before);
    let (_, said) = machine.setup(&format!("{other} --join-server 127.0.0.1 --replace")).await;
    assert!(said.contains("but for what standard error names; a reboot is real"), "{said}");
    let config = machine.config();
    assert_eq!(
        (&config["reboot"]["counter"], &config["cluster"]["clusterIpPrefix"]),
        (&json!(7), &json!("127.0.0.1/8"))
    );
    assert_eq!(config["id"], before.0["id"]);
    let (code, said) = machine.setup("--cluster-id seven --replace").await;
    assert!(code == 1 && said.contains("cluster.clusterId"), "{said}");
}
