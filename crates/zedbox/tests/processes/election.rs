//! Three zedkube processes on one cluster: one leads; when it is stopped with SIGSTOP another takes over, and
//! after SIGCONT the first does not lead. And a leader with a replaced kubeconfig keeps leading.
//!
//! The times are short, and no assertion depends on them: a slow machine only takes longer.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kubesim::{Sim, SimConfig, SimServer};
use pubsub::{FileRule, FileState, TopicRoot, store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use topics::{GoTime, KubeLeaderElectInfo, go_json};

use crate::KilledChild;

const LEASES: &str = "coordination/leases";
const INFO: &str = "run/zedkube/KubeLeaderElectInfo/global.json";
/// The leader's report of the cluster.
const REPORT: &str = "run/zedkube/KubeClusterInfo/global.json";
const PATIENCE: Duration = Duration::from_secs(120);

struct Node {
    process: KilledChild,
    root: TempDir,
}

impl Node {
    fn start(number: u8, server: &SimServer) -> Self {
        let root = tempfile::tempdir().unwrap();
        let put =
            |path: &str, text: String| store::replace(&root.path().join(path), text.as_bytes()).unwrap();
        let info = json!({ "DeviceName": format!("n{number}"), "DeviceID": uuid(number) });
        put("run/zedagent/EdgeNodeInfo/global.json", info.to_string());
        put(
            "run/zedagent/EdgeNodeClusterConfig/global.json",
            r#"{"Initialized":true,"Valid":true}"#.to_owned(),
        );
        put("run/zedagent/ZedAgentStatus/zedagent.json", r#"{"ConfigGetStatus":1}"#.to_owned());
        for requests in ["run/zedagent/NodeDrainRequest", "run/baseosmgr/NodeDrainRequest"] {
            std::fs::create_dir_all(root.path().join(requests)).unwrap();
        }
        put("kubeconfig", server.kubeconfig());
        let limits = json!({ "zedkube": {
            "lease_ms": 6_000, "lease_renew_ms": 3_000, "lease_retry_ms": 300, "uncordon_poll_ms": 300,
        } });
        put("limits.json", limits.to_string());
        let at = |name: &str| root.path().join(name);
        let log = std::fs::File::create(at("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_zedbox"))
            .args(["zedkube", "--root"])
            .arg(root.path())
            .arg("--kubeconfig")
            .arg(at("kubeconfig"))
            .arg("--limits")
            .arg(at("limits.json"))
            .env("ZEDBOX_SHORT_WAITS", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { root, process: KilledChild(process) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("log")).unwrap()
    }
}

fn uuid(number: u8) -> String {
    format!("{number}1111111-1111-4111-8111-111111111111")
}

async fn cluster() -> (Sim, SimServer) {
    let sim = Sim::new(SimConfig::default());
    for number in 1..=3 {
        sim.add_node(&format!("n{number}"), &uuid(number));
    }
    let server = sim.serve().await.unwrap();
    (sim, server)
}

fn now() -> GoTime {
    agent::Clock::new().wall()
}

/// The nodes' publications, as they come.
struct Press {
    heard: mpsc::UnboundedReceiver<(usize, KubeLeaderElectInfo)>,
    _watches: JoinSet<()>,
    newest: Vec<KubeLeaderElectInfo>,
    claims: Vec<Option<GoTime>>,
    /// Past claims: node, start, end.
    over: Vec<(usize, GoTime, GoTime)>,
}

impl Press {
    fn follow(nodes: &[Node]) -> Self {
        let (sender, heard) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        for (who, node) in nodes.iter().enumerate() {
            let topic_root = TopicRoot::open(node.root.path()).unwrap();
            let sender = sender.clone();
            watches.spawn(async move {
                let mut watch =
                    topic_root.file(topic_root.path(INFO), FileRule { limit_bytes: 1 << 16, order: false });
                loop {
                    if let FileState::Present(bytes) = watch.next().await {
                        let info = go_json::from_slice(&bytes).unwrap();
                        if sender.send((who, info)).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        let newest = vec![KubeLeaderElectInfo::default(); nodes.len()];
        Self { heard, _watches: watches, newest, claims: vec![None; nodes.len()], over: Vec::new() }
    }

    fn take(&mut self, who: usize, info: KubeLeaderElectInfo) {
        match (self.claims[who], info.is_stats_leader) {
            (None, true) => self.claims[who] = Some(info.latest_change),
            (Some(_), false) => self.end(who, info.latest_change),
            (None, false) | (Some(_), true) => {}
        }
        self.newest[who] = info;
    }

    /// A claim ends: it is withdrawn, or its publisher is stopped and it is no longer fresh.
    fn end(&mut self, who: usize, at: GoTime) {
        if let Some(since) = self.claims[who].take() {
            self.over.push((who, since, at));
        }
    }

    async fn until(&mut self, what: &str, nodes: &[Node], wanted: impl Fn(&Self) -> bool) {
        let late = tokio::time::sleep(PATIENCE);
        tokio::pin!(late);
        while !wanted(self) {
            tokio::select! {
                Some((who, info)) = self.heard.recv() => self.take(who, info),
                () = &mut late => {
                    let logs: Vec<String> = nodes.iter().map(Node::log).collect();
                    panic!("waited for {what}: {:#?}\n{}", self.newest, logs.join("\n== next\n"));
                }
            }
        }
    }

    fn is_settled(&self) -> bool {
        let one = self.claims.iter().filter(|it| it.is_some()).count() == 1;
        one && self.newest.iter().all(|it| it.leader_identity == self.newest[0].leader_identity)
    }

    fn judge(&mut self) {
        let end = now();
        for who in 0..self.claims.len() {
            self.end(who, end);
        }
        for (number, one) in self.over.iter().enumerate() {
            for other in &self.over[number + 1..] {
                assert!(
                    one.2 <= other.1 || other.2 <= one.1,
                    "{one:?} and {other:?} at once: {:#?}",
                    self.over
                );
            }
        }
    }
}

/// Waits until this node reports the cluster, or no longer does.
async fn reports(node: &Node, wanted: bool) {
    let topic_root = TopicRoot::open(node.root.path()).unwrap();
    let mut watch = topic_root.file(topic_root.path(REPORT), FileRule { limit_bytes: 1 << 20, order: false });
    let seen = async { while matches!(watch.next().await, FileState::Present(_)) != wanted {} };
    assert!(tokio::time::timeout(PATIENCE, seen).await.is_ok(), "a report, {wanted}: {}", node.log());
}

fn is_reported(node: &Node) -> bool {
    node.root.path().join(REPORT).exists()
}

fn lease(sim: &Sim) -> Value {
    sim.get(LEASES, "eve-kube-app", "eve-kube-stats-leader").unwrap()["spec"].clone()
}

#[tokio::test]
async fn l1_l2_a_leader_that_is_held_and_let_go_never_leads_beside_the_next_one() {
    let (sim, first) = cluster().await;
    let mut servers = vec![Some(first)];
    for _ in 1..3 {
        servers.push(Some(sim.serve().await.unwrap()));
    }
    let server = |number: u8| servers[usize::from(number) - 1].as_ref().unwrap();
    let nodes: Vec<Node> = (1..=3).map(|number| Node::start(number, server(number))).collect();
    let mut press = Press::follow(&nodes);
    for round in 1..=2 {
        press.until("a leader that all see", &nodes, Press::is_settled).await;
        let held = press.claims.iter().position(Option::is_some).unwrap();
        let name = format!("n{}", held + 1);
        assert_eq!(lease(&sim)["holderIdentity"], name);
        reports(&nodes[held], true).await;
        assert_eq!(nodes.iter().filter(|it| is_reported(it)).count(), 1, "round {round}");
        nodes[held].signal(Signal::STOP);
        press.end(held, now());
        press.until("another leader", &nodes, |press| press.claims.iter().any(Option::is_some)).await;
        let next = press.claims.iter().position(Option::is_some).unwrap();
        assert_ne!(next, held, "round {round}: it stands still");
        reports(&nodes[next], true).await;
        // Its file still has its last belief; the time in it shows its age.
        assert!(press.newest[held].is_stats_leader);
        let stale = press.newest[held].latest_change;
        if round == 2 {
            // It gets no message: it has to check the clock.
            servers[held] = None;
        }
        nodes[held].signal(Signal::CONT);
        press
            .until("the one let go to say something", &nodes, |it| it.newest[held].latest_change != stale)
            .await;
        assert!(!press.newest[held].is_stats_leader, "round {round}: it led on what it believed");
        reports(&nodes[held], false).await;
        assert!(is_reported(&nodes[next]), "round {round}");
        assert_eq!(lease(&sim)["holderIdentity"], format!("n{}", next + 1));
        assert_eq!(lease(&sim)["leaseTransitions"], round);
    }
    press.judge();
}

#[tokio::test]
async fn l4_d_k18_a_kubeconfig_that_is_replaced_is_used_by_leader_and_follower_without_a_restart() {
    let (sim, first) = cluster().await;
    let nodes = [Node::start(1, &first), Node::start(2, &first)];
    let mut press = Press::follow(&nodes);
    press.until("a leader that both see", &nodes, Press::is_settled).await;
    let leader = press.claims.iter().position(Option::is_some).unwrap();
    let second = sim.serve().await.unwrap();
    for node in &nodes {
        store::replace(&node.root.path().join("kubeconfig"), second.kubeconfig().as_bytes()).unwrap();
    }
    drop(first);
    // Renewals continue, by the new address.
    for _ in 0..3 {
        let before = lease(&sim)["renewTime"].clone();
        let renewed = sim.until(LEASES, |leases| leases.iter().any(|it| it["spec"]["renewTime"] != before));
        assert!(tokio::time::timeout(PATIENCE, renewed).await.is_ok(), "{}", nodes[0].log());
    }
    assert_eq!(lease(&sim)["leaseTransitions"], 0);
    reports(&nodes[leader], true).await;
    // A follower takes over by it; its report comes when the other one's is gone.
    nodes[leader].signal(Signal::TERM);
    press.until("the other one to lead", &nodes, |press| press.claims[1 - leader].is_some()).await;
    reports(&nodes[1 - leader], true).await;
    assert!(!is_reported(&nodes[leader]));
    press.judge();
}

/// A stopped process releases the lease before it ends.
#[tokio::test]
async fn l5_a_process_that_is_told_to_end_gives_the_lease_back() {
    let (sim, server) = cluster().await;
    let mut nodes = [Node::start(1, &server)];
    let mut press = Press::follow(&nodes);
    press.until("a leader", &nodes, |press| press.claims[0].is_some()).await;
    nodes[0].signal(Signal::TERM);
    let given_back = sim.until(LEASES, |leases| leases.iter().any(|it| it["spec"]["holderIdentity"] == ""));
    assert!(tokio::time::timeout(PATIENCE, given_back).await.is_ok(), "{}", nodes[0].log());
    assert!(nodes[0].process.wait().unwrap().success());
    assert!(Path::new(&nodes[0].root.path().join(INFO)).exists());
}
