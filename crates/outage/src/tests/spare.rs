//! What the agents of peers say, asked over real sockets: for the margin with and without the API, and for idle holders.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::Client;
use kubeapi::{ApiClient, NodeName};
use kubesim::{Etcd, EtcdFault, Sim, SimConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::{Answer, http, serve};
use crate::Ours;
use crate::calls::NodeListing;
use crate::findings::lead;
use crate::keeper::{ask_idle, spare};
use crate::margin::calls::{Addresses, EtcdAccess, EtcdSettings};
use crate::margin::facts::Paths;
use crate::margin::facts::{Kubernetes, ServerNode};
use crate::margin::words;
use crate::turn::rule::TurnNode;

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const SETTINGS: EtcdSettings = EtcdSettings { metrics: "m", gateway: "g", data: "d" };
const SOON: Duration = Duration::from_secs(20);

/// Agents at these addresses, all at one port.
struct Agents {
    port: u16,
    _tasks: JoinSet<()>,
}

impl Agents {
    async fn open(agents: &[(IpAddr, Answer)]) -> Self {
        loop {
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = first.local_addr().unwrap().port();
            let mut listeners = Vec::new();
            for (address, agent) in agents {
                // Another process may have that port at this address.
                let Ok(listener) = TcpListener::bind(SocketAddr::new(*address, port)).await else { break };
                listeners.push((listener, agent.clone()));
            }
            if listeners.len() < agents.len() {
                continue;
            }
            let mut tasks = JoinSet::new();
            for (listener, agent) in listeners {
                tasks.spawn(serve(listener, move |head, _| {
                    assert!(head.starts_with("GET /outage "), "{head}");
                    agent.clone()
                }));
            }
            return Self { port, _tasks: tasks };
        }
    }
}

fn says(node: &str, etcd: &Value, idle: bool) -> Answer {
    http(200, &json!({ "Node": node, "Etcd": etcd, "Turn": { "Idle": idle } }).to_string())
}

fn healthy(node: &str, id: &str) -> Answer {
    says(node, &json!({ "Member": id, "Healthy": true }), true)
}

fn sick(node: &str, id: &str) -> Answer {
    says(node, &json!({ "Member": id, "Why": "its disk is full" }), true)
}

fn healthy_node(name: &str) -> TurnNode {
    TurnNode {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        boot_id: "b".to_owned(),
        ready: true,
        server: true,
        etcd: true,
        ..TurnNode::default()
    }
}

/// Three servers whose etcd is healthy as far as n1 and Kubernetes see.
struct Site {
    etcd: Etcd,
    root: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("server/db/etcd")).unwrap();
        Self { etcd: Etcd::start(&NODES).await.unwrap(), root }
    }

    fn ours(&self, port: u16) -> Ours {
        let addresses =
            Addresses { metrics: self.etcd.metrics_url("n1"), gateway: self.etcd.gateway_url("n1") };
        let etcd = EtcdAccess { addresses, paths: Paths::at(self.root.path()), settings: SETTINGS };
        let node = NodeName::parse("n1").unwrap();
        Ours { node, device_uuid: String::new(), boot_id: String::new(), etcd, port }
    }

    fn nodes(&self) -> Vec<ServerNode> {
        let server = |name: &str| ServerNode {
            address: self.etcd.address(name),
            ..ServerNode::healthy(name, self.etcd.member_name(name))
        };
        NODES.map(server).to_vec()
    }

    /// The margin with these agents of n2 and n3, with the API or without it.
    async fn margin(&self, agents: [Option<Answer>; 2], api: bool) -> Result<String, String> {
        let at = ["n2", "n3"].map(|it| self.etcd.address(it).unwrap());
        let agents: Vec<(IpAddr, Answer)> =
            at.into_iter().zip(agents).filter_map(|(at, agent)| Some((at, agent?))).collect();
        let agents = Agents::open(&agents).await;
        let kubernetes = if api {
            Kubernetes::Read(self.nodes())
        } else {
            Kubernetes::Unreachable("no route to host".to_owned())
        };
        timeout(SOON, spare(&self.ours(agents.port), kubernetes)).await.unwrap().margin
    }
}

#[tokio::test]
async fn u3_a_peer_whose_agent_says_it_is_sick_or_says_nothing_does_not_count_and_one_without_agent_is_judged_as_before()
 {
    let site = Site::new().await;
    let good = || (Some(healthy("n2", "a2")), Some(healthy("n3", "a3")));
    let (two, three) = good();
    for (agents, expected) in [
        ([two, three], Ok(())),
        ([None, None], Ok(())),
        // As a zedkube of the reference, which does not know the question.
        ([good().0, Some(http(404, ""))], Ok(())),
        (
            [good().0, Some(sick("n3", "a3"))],
            Err("n3 (its agent says that its etcd is not healthy: its disk is full"),
        ),
        ([good().0, Some(Answer::Silence)], Err("n3 (no word from its agent: ask http://127.0.0.163:")),
        ([good().0, Some(http(503, "busy"))], Err("n3 (no word from its agent")),
        ([good().0, Some(http(200, "<html>"))], Err("its answer is not understood")),
        ([good().0, Some(healthy("n9", "a3"))], Err("node n9 answers at 127.0.0.163")),
        ([good().0, Some(healthy("n3", "a9"))], Err("speaks of etcd member a9, the member list names a3")),
        ([good().0, Some(says("n3", &Value::Null, true))], Err("its agent says that it has no etcd")),
    ] {
        let words = format!("{agents:?}");
        match (site.margin(agents, true).await, expected) {
            (Ok(_), Ok(())) => {}
            (Err(why), Err(part)) => assert!(why.contains(part), "{words}: {why}"),
            (margin, _) => panic!("{words}: {margin:?}"),
        }
    }
}

#[tokio::test]
async fn u3_without_the_api_the_word_of_each_peer_is_needed_and_asked_for_where_etcd_says_it_is() {
    let site = Site::new().await;
    let all = [Some(healthy("n2", "a2")), Some(healthy("n3", "a3"))];
    let margin = site.margin(all.clone(), false).await;
    assert_eq!(margin, Ok("3 of 3 etcd voters are healthy, 2 are required".to_owned()));
    for agents in [[all[0].clone(), None], [all[0].clone(), Some(sick("n3", "a3"))], [None, None]] {
        let why = site.margin(agents, false).await.unwrap_err();
        assert!(why.contains("of 3 etcd voters are healthy; without node n1"), "{why}");
    }
    site.etcd.script("n1", &[EtcdFault::Isolated]);
    let why = site.margin(all, false).await.unwrap_err();
    assert!(why.contains("has no leader"), "{why}");
}

#[tokio::test]
async fn u4_a_witness_that_leads_etcd_is_named_with_what_to_type() {
    let site = Site::new().await;
    let sim = Sim::new(SimConfig::default());
    for (name, label) in
        NODES.into_iter().zip([None, Some("tie-breaker-node"), Some("node-role.harvesterhci.io/witness")])
    {
        sim.add_node(name, name);
        sim.edit("nodes", "", name, |it| {
            it["metadata"]["labels"]["node-role.kubernetes.io/etcd"] = json!("true");
            if let Some(label) = label {
                it["metadata"]["labels"][label] = json!("true");
            }
            it["status"]["addresses"] =
                json!([{ "type": "InternalIP", "address": site.etcd.address(name).unwrap() }]);
        });
    }
    let cluster = ApiClient::from_client(Client::new(sim.service(), "default"));
    let says = |name: &str, leads| {
        (
            site.etcd.address(name).unwrap(),
            says(name, &json!({ "Member": "a1", "Healthy": true, "Leads": leads }), true),
        )
    };
    for (leader, expected) in [("n1", None), ("n2", Some("n2")), ("n3", Some("n3"))] {
        let agents = Agents::open(&NODES.map(|it| says(it, it == leader))).await;
        let found = timeout(SOON, lead(&cluster, agents.port)).await.unwrap();
        let named: Vec<(&str, String)> = found.iter().map(|it| (it.code.as_str(), it.next.clone())).collect();
        let next = |node| {
            (
                "etcd",
                format!("on node {node}: systemctl restart k3s (rke2-server): another member is elected"),
            )
        };
        assert_eq!(named, expected.map(next).into_iter().collect::<Vec<_>>(), "{found:?}");
    }
}

#[tokio::test]
async fn what_a_node_says_of_its_etcd_follows_its_etcd() {
    let site = Site::new().await;
    let source = site.ours(0).etcd;
    let word = words::own(&source).await.unwrap();
    assert_eq!((word.member.as_str(), word.healthy, word.leads), ("a1", true, true));
    site.etcd.script("n1", &[EtcdFault::Sick]);
    let word = words::own(&source).await.unwrap();
    assert!(!word.healthy && word.why.contains("etcd is not ready"), "{word:?}");
    site.etcd.script("n1", &[EtcdFault::Down]);
    let word = words::own(&source).await.unwrap();
    assert!(!word.healthy && !word.leads && word.why.contains("read the metrics of etcd"), "{word:?}");
    let none = EtcdAccess { paths: Paths::at(&site.root.path().join("elsewhere")), ..source };
    assert_eq!(words::own(&none).await, None);
}

#[tokio::test]
async fn u2_of_the_holders_those_are_idle_whose_agent_says_so_and_others_are_not_asked() {
    let site = Site::new().await;
    let idle = |name: &str, idle| (site.etcd.address(name).unwrap(), says(name, &Value::Null, idle));
    let agents = Agents::open(&[idle("n1", true), idle("n2", true), idle("n3", false)]).await;
    let nodes = NODES.map(healthy_node).to_vec();
    let mut looked = NodeListing { nodes, servers: site.nodes(), ..NodeListing::default() };
    let holders = ["n2", "n3", "gone"].map(str::to_owned);
    timeout(SOON, ask_idle(&mut looked, &holders, agents.port)).await.unwrap();
    assert_eq!(looked.nodes.iter().map(|it| it.idle).collect::<Vec<_>>(), [false, true, false]);
}
