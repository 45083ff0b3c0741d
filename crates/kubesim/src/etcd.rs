//! A stand-in of etcd: for each server node ports 2381 (metrics, health) and 2382 (JSON calls, here without
//! TLS) of its member, on free ports of the loopback address.
//!
//! Answers come from recordings of a real member of that version (`recorded`), except a check that fails by
//! [`EtcdFault::Sick`] and a change of leader, which were not recorded. Not here: keys, raft, a connection to this
//! cluster's objects. Leader, connections and readiness follow from the scripted faults. Source: `tests/golden/etcd`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::faults::lock;

pub use recorded::VERSIONS as ETCD_VERSIONS;
use recorded::{EtcdSituation, EtcdTable};

mod recorded;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdFault {
    /// Its readiness checks fail; it is connected and votes.
    Sick,
    /// It has raised this alarm, as `NOSPACE`.
    Alarm(String),
    /// It has no vote yet.
    Learner,
    /// It runs, and is connected to no other member.
    Isolated,
    /// It does not run: its ports cut every connection.
    Down,
    /// It runs, and port 2382 cuts every connection.
    NoGateway,
}

impl EtcdFault {
    fn alarm(&self) -> Option<&str> {
        if let Self::Alarm(name) = self { Some(name) } else { None }
    }
}

/// One member per node. Their tasks end with it.
pub struct Etcd {
    state: Arc<Mutex<EtcdState>>,
    /// Node → addresses for metrics and for JSON calls.
    ports: BTreeMap<String, (SocketAddr, SocketAddr)>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct EtcdState {
    table: EtcdTable,
    members: Vec<SimEtcdMember>,
    leader: Option<u64>,
}

#[derive(Debug, Clone)]
struct SimEtcdMember {
    id: u64,
    node: String,
    faults: Vec<EtcdFault>,
}

impl Etcd {
    /// Healthy members on these nodes, of the newest of [`ETCD_VERSIONS`]; the first leads. Must be called inside a tokio
    /// runtime.
    pub async fn start(nodes: &[&str]) -> std::io::Result<Self> {
        Self::start_of(ETCD_VERSIONS[ETCD_VERSIONS.len() - 1], nodes).await
    }

    /// The same of one of [`ETCD_VERSIONS`].
    /// Errors: no port can be had, or there is no table of that version.
    pub async fn start_of(version: &str, nodes: &[&str]) -> std::io::Result<Self> {
        let table = EtcdTable::of(version)?;
        let member =
            |(id, node): (u64, &&str)| SimEtcdMember { id, node: (*node).to_owned(), faults: Vec::new() };
        let members: Vec<SimEtcdMember> = (0xa1..).zip(nodes).map(member).collect();
        let state = Arc::new(Mutex::new(EtcdState { table, members: members.clone(), leader: None }));
        let (mut ports, mut tasks) = (BTreeMap::new(), JoinSet::new());
        for member in members {
            let listeners =
                [TcpListener::bind(("127.0.0.1", 0)).await?, TcpListener::bind(("127.0.0.1", 0)).await?];
            ports.insert(member.node, (listeners[0].local_addr()?, listeners[1].local_addr()?));
            for listener in listeners {
                tasks.spawn(accept(listener, Arc::clone(&state), member.id));
            }
        }
        Ok(Self { state, ports, _tasks: tasks })
    }

    /// Address for metrics and health; empty for an unknown node.
    pub fn metrics_url(&self, node: &str) -> String {
        self.ports.get(node).map(|(metrics, _)| format!("http://{metrics}")).unwrap_or_default()
    }

    /// Address for JSON calls; empty for an unknown node.
    pub fn gateway_url(&self, node: &str) -> String {
        self.ports.get(node).map(|(_, gateway)| format!("http://{gateway}")).unwrap_or_default()
    }

    /// For the annotation `etcd.k3s.cattle.io/node-name`.
    pub fn member_name(&self, node: &str) -> String {
        lock(&self.state)
            .members
            .iter()
            .find(|it| it.node == node)
            .map(SimEtcdMember::name)
            .unwrap_or_default()
    }

    /// Peer address of a node's member, where its agent can listen: on the loopback network.
    pub fn address(&self, node: &str) -> Option<IpAddr> {
        lock(&self.state).members.iter().find(|it| it.node == node).map(SimEtcdMember::address)
    }

    /// Replaces the faults of this node's member.
    pub fn script(&self, node: &str, faults: &[EtcdFault]) {
        let mut state = lock(&self.state);
        for member in state.members.iter_mut().filter(|it| it.node == node) {
            member.faults = faults.to_vec();
        }
    }

    /// `None` without a quorum.
    pub fn leader(&self) -> Option<String> {
        let mut state = lock(&self.state);
        let leader = state.elect()?;
        state.members.iter().find(|it| it.id == leader).map(|it| it.node.clone())
    }
}

impl SimEtcdMember {
    fn name(&self) -> String {
        format!("{}-{:08x}", self.node, self.id)
    }

    fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, self.id.to_le_bytes()[0]))
    }

    fn has(&self, fault: &EtcdFault) -> bool {
        self.faults.contains(fault)
    }

    /// Connected to the others, by its own faults.
    fn connected(&self) -> bool {
        !self.has(&EtcdFault::Down) && !self.has(&EtcdFault::Isolated)
    }

    fn votes(&self) -> bool {
        !self.has(&EtcdFault::Learner)
    }

    /// Its entry in the list of members.
    fn listed(&self) -> Value {
        let [peers, clients] = [2380, 2379].map(|port| [format!("https://{}:{port}", self.address())]);
        let mut member = json!({ "ID": self.id.to_string(), "name": self.name(), "peerURLs": peers, "clientURLs": clients });
        if !self.votes() {
            member["isLearner"] = true.into();
        }
        member
    }

    fn alarms(&self) -> impl Iterator<Item = &str> {
        self.faults.iter().filter_map(EtcdFault::alarm)
    }
}

impl EtcdState {
    /// The present leader while it can lead, else the first that can.
    fn elect(&mut self) -> Option<u64> {
        let able: Vec<u64> =
            self.members.iter().filter(|it| it.connected() && it.votes()).map(|it| it.id).collect();
        let voters = self.members.iter().filter(|it| it.votes()).count();
        let stays = self.leader.filter(|it| able.contains(it)).or_else(|| able.first().copied());
        self.leader = stays.filter(|_| able.len() > voters / 2);
        self.leader
    }

    /// Status and body; `None` cuts the connection, also where a real member would not answer in time.
    fn answer(&mut self, id: u64, path: &str, asked: &Value) -> Option<(u16, String)> {
        let own = self.members.iter().find(|it| it.id == id)?.clone();
        if own.has(&EtcdFault::Down) || (path.starts_with("/v3/") && own.has(&EtcdFault::NoGateway)) {
            return None;
        }
        let leader = self.elect().filter(|_| own.connected());
        let alarm = self.members.iter().find_map(|it| it.alarms().next());
        let now = match leader {
            None => EtcdSituation::NoQuorum,
            Some(_) if !own.votes() => EtcdSituation::LearnerOwn,
            Some(_) if alarm.is_some() => EtcdSituation::Alarm,
            Some(leader) if leader == id => EtcdSituation::Leader,
            Some(_) => EtcdSituation::Follower,
        };
        let question = if asked.is_null() { path.to_owned() } else { format!("{path} {asked}") };
        let (code, mut body) = match path {
            "/metrics" => return Some((200, self.metrics(&own, leader))),
            "/readyz" | "/health" if own.has(&EtcdFault::Sick) => return Some(self.table.sick(path)),
            "/readyz" => self.table.answer(now, "/readyz?verbose")?,
            "/v3/maintenance/transfer-leadership" => return self.transfer(id, leader, asked),
            _ if path.starts_with("/v3/") || matches!(path, "/health" | "/version") => {
                self.table.answer(now, &question)?
            }
            _ => return Some((404, "404 page not found".to_owned())),
        };
        if let Some(name) = alarm {
            body = body.replace("NOSPACE", name);
        }
        let Ok(mut said) = serde_json::from_str::<Value>(&body) else { return Some((code, body)) };
        if said["header"].is_object() {
            said["header"]["member_id"] = id.to_string().into();
        }
        if said["members"].is_array() {
            said["members"] = self.members.iter().map(SimEtcdMember::listed).collect();
        }
        if said["alarms"].is_array() {
            let of = |it: &SimEtcdMember| -> Vec<Value> {
                it.alarms().map(|name| json!({ "memberID": it.id.to_string(), "alarm": name })).collect()
            };
            said["alarms"] = self.members.iter().flat_map(of).collect();
        }
        if let Some(leader) = leader.filter(|_| said["leader"].is_string()) {
            said["leader"] = leader.to_string().into();
        }
        Some((code, said.to_string()))
    }

    fn transfer(&mut self, id: u64, leader: Option<u64>, asked: &Value) -> Option<(u16, String)> {
        let failed = |code, words: &str| Some((code, json!({ "message": words }).to_string()));
        let to = asked["targetID"].as_str().and_then(|it| it.parse::<u64>().ok());
        let able = |it: &&SimEtcdMember| Some(it.id) == to && it.connected() && it.votes();
        if leader != Some(id) {
            return failed(400, "etcdserver: not leader");
        }
        let Some(to) = self.members.iter().find(able).map(|it| it.id) else {
            return failed(503, "etcdserver: leader transfer took too long");
        };
        self.leader = Some(to);
        Some((200, json!({ "header": { "member_id": id.to_string() } }).to_string()))
    }

    fn metrics(&self, own: &SimEtcdMember, leader: Option<u64>) -> String {
        let flag = u8::from;
        let pair = |it: &SimEtcdMember| format!("{{Local=\"{:x}\",Remote=\"{:x}\"}}", own.id, it.id);
        let mut lines = Vec::new();
        for name in self.table.metrics() {
            match name {
                "etcd_server_has_leader" => lines.push(format!("{name} {}", flag(leader.is_some()))),
                "etcd_server_is_leader" => lines.push(format!("{name} {}", flag(leader == Some(own.id)))),
                "etcd_server_is_learner" => lines.push(format!("{name} {}", flag(!own.votes()))),
                "etcd_server_id" => lines.push(format!("{name}{{server_id=\"{:x}\"}} 1", own.id)),
                "etcd_network_known_peers" => {
                    lines.extend(self.members.iter().map(|it| format!("{name}{} 1", pair(it))));
                }
                "etcd_network_active_peers" => {
                    let others = self.members.iter().filter(|it| it.id != own.id);
                    let up = |it: &SimEtcdMember| flag(own.connected() && it.connected());
                    lines.extend(others.map(|it| format!("{name}{} {}", pair(it), up(it))));
                }
                _ => lines.extend(self.table.lines(name).map(str::to_owned)),
            }
        }
        lines.join("\n") + "\n"
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<EtcdState>>, id: u64) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = Arc::clone(&state);
        let serve = hyper::service::service_fn(move |request: Request<Incoming>| {
            let state = Arc::clone(&state);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
                let asked = serde_json::from_slice(&body).unwrap_or_default();
                let answer = lock(&state).answer(id, &path, &asked);
                let (code, text) = answer.ok_or_else(|| std::io::Error::other("scripted cut"))?;
                let response = Response::builder().status(code).body(Full::new(Bytes::from(text)));
                response.map_err(std::io::Error::other)
            }
        });
        connections.spawn(async move {
            // A cut is an error here, as intended.
            let http = hyper::server::conn::http1::Builder::new();
            drop(http.serve_connection(TokioIo::new(stream), serve).await);
        });
        while connections.try_join_next().is_some() {}
    }
}
