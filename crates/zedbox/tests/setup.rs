//! `zedbox setup` as typed: what it writes, what it refuses to overwrite, and what it says is open.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use agent::Clock;
use scenarios::{Cluster, World};
use serde_json::{Value, json};

use crate::drain_cmd::node::{Ended, Node, has, holds};
use crate::drain_cmd::terminal::Terminal;
use crate::is_here;

const CLUSTER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const CONFIG: &str = "persist/config/edge-dev-config.json";
const SETTINGS: &str = "etc/zedbox/zedbox.toml";

/// With the settings of the package.
fn machine() -> Node {
    let machine = Node::empty();
    machine.put(SETTINGS, include_str!("../../xtask/package/zedbox.toml"));
    machine
}

impl Node {
    fn config(&self) -> Value {
        serde_json::from_str(&self.text(CONFIG)).unwrap()
    }

    fn setup_command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.args(["setup", "--root", "."]).args(words.split_whitespace()).current_dir(self.root());
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        command
    }

    async fn setup(&self, words: &str) -> Ended {
        let mut command = self.setup_command(words);
        tokio::task::spawn_blocking(move || Ended::of(&mut command)).await.unwrap()
    }
}

#[tokio::test]
async fn x4_setup_makes_a_node_of_a_machine_with_the_package_and_done_again_changes_nothing() {
    let machine = machine();
    let cluster = Cluster::embedded().await;
    let api = cluster.sim().serve_to(cluster.device_name()).await.unwrap();
    machine.put("etc/zedbox/kubeconfig", &api.kubeconfig());
    let words = format!("--cluster-id {CLUSTER} --address 127.0.0.1/8 --device record --node edge-node-1");
    let end = format!(
        "edge-node-1 is set up in cluster {CLUSTER}, and a reboot is only written down: `systemctl enable --now zedbox` starts it.\n"
    );
    assert_eq!(machine.setup(&words).await.done().out, end);
    let config = machine.config();
    let ours = json!({
        "clusterId": CLUSTER, "clusterIpPrefix": "127.0.0.1/8", "joinServerIp": "127.0.0.1", "clusterType": "CLUSTER_TYPE_HA",
    });
    assert_eq!((&config["cluster"], &config["deviceName"]), (&ours, &json!("edge-node-1")));
    // The Node has its device already.
    assert_eq!(config["id"]["uuid"], scenarios::UUID);
    let settings = machine.text(SETTINGS);
    // An agent starts in another folder.
    let at = machine.path("etc/zedbox/kubeconfig");
    has(&settings, &[&format!("\nkubeconfig = \"{}\"\n", at.display())]);
    assert_eq!([CONFIG, SETTINGS].map(|path| machine.mode(path)), [0o600; 2]);
    // Nothing has to be named again.
    assert_eq!(machine.setup("").await.done().out, end);
    assert_eq!((machine.config(), machine.text(SETTINGS)), (config, settings.clone()));
    // A kubeconfig that is named already stays where it is.
    let moved = settings.replace("etc/zedbox/kubeconfig", "moved");
    machine.put(SETTINGS, &moved);
    std::fs::rename(at, machine.path("moved")).unwrap();
    assert_eq!((machine.setup("").await.done().out, machine.text(SETTINGS)), (end, moved));
    // A label that is no identity is nobody's.
    let relabel = |it: &mut Value| it["metadata"]["labels"]["node-uuid"] = json!("seven");
    cluster.sim().edit("nodes", "", "edge-node-1", relabel);
    let other = self::machine();
    other.put("etc/zedbox/kubeconfig", &api.kubeconfig());
    other.setup(&words).await.ends(1).warns(&["correct the label node-uuid of the node"]);
    assert_ne!(other.config()["id"]["uuid"], "seven");
    drop(World::on(cluster));
}

/// Roles and kubeconfig by an administrator's, which is named last.
#[tokio::test]
async fn x4_setup_asks_a_person_for_what_it_was_not_told_and_makes_the_access_of_the_agents() {
    if !is_here("kubectl") {
        return;
    }
    let machine = machine();
    let cluster = Cluster::embedded().await;
    let (now, day) = (SystemTime::from(Clock::new().wall().to_timestamp()), Duration::from_hours(24));
    let server = cluster.sim().serve_tls(now - day..now + day).await.unwrap();
    machine.put("admin", &server.kubeconfig());
    let mut terminal = Terminal::asking(machine.setup_command(""));
    let admin = machine.path("admin").display().to_string();
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
    holds(&config["cluster"], &json!({ "isWorkerNode": true, "joinServerIp": "127.0.0.2" }));
    assert!(machine.text("etc/zedbox/kubeconfig").contains("kube-system:pillar-rs"));
    assert!(cluster.sim().list("rbac/clusterroles").len() > 10);
    drop(World::on(cluster));
}

#[tokio::test]
async fn x4_setup_keeps_what_differs_unless_it_is_told_and_names_what_is_open() {
    let machine = machine();
    machine.setup("").await.ends(1).warns(&["name --cluster-id: UUID of the cluster"]);
    assert!(!machine.path(CONFIG).exists());
    // No kubeconfig, and no interface with an address for documents.
    let open = format!("--cluster-id {CLUSTER} --address 192.0.2.1/24 --device record");
    let open = machine.setup(&open).await.ends(1).says(&["but for 2 things"]);
    open.warns(&["zedbox role --create-namespace", "no interface of this machine has 192.0.2.1"]);
    // A controller's other members stay.
    machine.edit(CONFIG, |config| config["reboot"] = json!({ "counter": 7 }));
    let before = (machine.config(), machine.text(SETTINGS));
    let other = "--address 127.0.0.1/8 --device systemd";
    machine.setup(other).await.ends(1).warns(&[
        "clusterIpPrefix is \"192.0.2.1/24\", not \"127.0.0.1/8\"",
        "device is \"record\", not \"systemd\"",
        "--replace",
    ]);
    assert_eq!((machine.config(), machine.text(SETTINGS)), before);
    let told = machine.setup(&format!("{other} --join-server 127.0.0.1 --replace")).await;
    told.says(&["but for what standard error names; a reboot is real"]);
    let id = &before.0["id"];
    let kept = json!({ "/reboot/counter": 7, "/cluster/clusterIpPrefix": "127.0.0.1/8", "id": id });
    holds(&machine.config(), &kept);
    machine.setup("--cluster-id seven --replace").await.ends(1).warns(&["cluster.clusterId"]);
}
