//! Facts for the margin: this node's etcd, Kubernetes, the peers.
//!
//! Not here: reading them (`calls`, the caller) and the rule (`rule`).
//!
//! Where k3s and rke2 keep etcd's data and the files of its login.
//!
//! etcd's metrics of port 2381 that the margin needs. Only metrics of etcd 3.4, 3.5 and 3.6 alike. The members are not
//! among them (a metric with their ids came with 3.6), but in the list of port 2382. Sources: the text format of
//! Prometheus; answers of real members in `tests/golden/etcd`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use core::net::IpAddr;
use kubeapi::connect::endpoint::CertificateLogin;
use kubeapi::names::{CONTROL_PLANE, ETCD, WITNESS_LABELS};
use kubeapi::objects::{condition, is_ready, items, text};
use serde_json::Value;
use step::{Inserted as _, LiteMap};

/// Annotations of k3s and rke2 with the name of a node's member of etcd.
const MEMBER_NAMES: [&str; 2] = ["etcd.k3s.cattle.io/node-name", "etcd.rke2.cattle.io/node-name"];
/// Annotation of EVE on the node that shares its machine with a witness: address and state of the witness, as JSON. It votes in
/// etcd and has no Node object.
const WITNESS_STATUS: &str = "witness-status";
/// States of a witness: it runs no etcd, and it votes.
const IDLE: u64 = 1;
const JOINED: u64 = 3;

/// All facts of one judgement, read within a few seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFacts {
    pub node: String,
    pub own: OwnEtcd,
    pub kubernetes: Kubernetes,
    /// Answers of peers' agents about their own etcd. A peer without an entry has no agent.
    pub words: Vec<PeerReport>,
}

/// Answers of our own etcd. An error names what could not be read, where, and the command to type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEtcd {
    /// Whether etcd keeps data on this node.
    pub data: Result<Data, String>,
    /// Port 2381, `/metrics`.
    pub metrics: Result<Metrics, String>,
    /// Port 2381, `/readyz`, or `/health` where this version of etcd has no such page.
    pub readyz: Result<Readyz, String>,
    /// Port 2382, the members.
    pub members: Result<MemberList, String>,
    /// Alarms by name, as `NOSPACE`: of all members by port 2382, or those that `/health` of port 2381 names.
    pub alarms: Result<Vec<String>, String>,
}

/// Whether etcd keeps data here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    Present,
    /// None: kine or no server.
    Absent {
        /// Where it was looked for, and what to type if that is the wrong place.
        looked: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readyz {
    Ready,
    /// A failed check, in its own words.
    NotReady(String),
}

/// The answer of `/v3/cluster/member/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    /// Of the member that answered.
    pub by: u64,
    pub members: Vec<ListedMemberFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMemberFacts {
    pub id: u64,
    /// `<node>-<8 hex digits>` with k3s and rke2; empty when it never started.
    pub name: String,
    /// Without a vote.
    pub learner: bool,
    /// For the other members, if that is an address.
    pub address: Option<IpAddr>,
}

/// Kubernetes' view of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubernetes {
    /// Workers too.
    Read(Vec<ServerNode>),
    /// The API answered without the nodes: why.
    Unreadable(String),
    /// No answer. At the last look before a reboot the answers of etcd and of the peers' agents then suffice;
    /// a caller that has not cordoned yet uses [`Kubernetes::Unreadable`].
    Unreachable(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerNode {
    pub name: String,
    /// Role label of etcd.
    pub etcd: bool,
    /// Role label of the control plane.
    pub control_plane: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// Its lease in `kube-node-lease` was renewed within 40 s of our own clock.
    pub lease_moving: bool,
    pub voter: Option<EtcdIsVoter>,
    /// Its annotation `etcd.k3s.cattle.io/node-name`, or rke2's.
    pub member: Option<String>,
    /// Its first address of the type `InternalIP`.
    pub address: Option<IpAddr>,
    /// A tie-breaker or a witness: it votes, and should not lead.
    pub witness: bool,
    /// Its machine runs a second voter, which has no node: where other members reach that, and whether it says that it votes.
    pub hosts: Option<(IpAddr, bool)>,
}

/// The condition `EtcdIsVoter` of a Node object. k3s and rke2 write it on the leader's node only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdIsVoter {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// `MemberNotLearner`, `MemberIsLearner`, `Unhealthy` or `NotAMember`.
    pub reason: String,
    /// The error for `Unhealthy`.
    pub message: String,
    /// How long its `lastHeartbeatTime` has not changed, by our own clock. Zero where unknown.
    pub unmoved: Duration,
}

/// A peer's agent's answer about its own etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    pub node: String,
    /// Its member's id, if given.
    pub member: Option<u64>,
    /// [`OwnEtcd::health`] there; without an answer in time its member does not count.
    pub health: Result<(), String>,
}

impl ServerNode {
    /// For tests.
    pub fn healthy(name: &str, member: String) -> Self {
        let voter = EtcdIsVoter {
            status: "True".to_owned(),
            reason: "MemberNotLearner".to_owned(),
            ..EtcdIsVoter::default()
        };
        Self {
            name: name.to_owned(),
            etcd: true,
            control_plane: true,
            ready: true,
            lease_moving: true,
            voter: Some(voter),
            member: Some(member),
            ..Self::default()
        }
    }

    /// From a Node object. `lease_moving` and `unmoved` come from the caller, as they need a clock: see the
    /// members of this type and of [`EtcdIsVoter`]. Members of a wrong type count as missing.
    pub fn read(object: &Value, lease_moving: bool, unmoved: Duration) -> Self {
        let (meta, status) = (&object["metadata"], &object["status"]);
        let has = |label: &str| !meta["labels"][label].is_null();
        let voter = condition(status, "EtcdIsVoter");
        let internal = items(&status["addresses"]).iter().find(|it| it["type"] == "InternalIP");
        Self {
            name: text(&meta["name"]),
            etcd: has(ETCD),
            control_plane: CONTROL_PLANE.into_iter().any(has),
            ready: is_ready(object),
            lease_moving,
            voter: voter.is_object().then(|| EtcdIsVoter {
                status: text(&voter["status"]),
                reason: text(&voter["reason"]),
                message: text(&voter["message"]),
                unmoved,
            }),
            member: MEMBER_NAMES.iter().find_map(|it| meta["annotations"][*it].as_str()).map(str::to_owned),
            address: internal.and_then(|it| it["address"].as_str()?.parse().ok()),
            witness: WITNESS_LABELS.into_iter().any(|it| meta["labels"][it] == "true"),
            hosts: meta["annotations"][WITNESS_STATUS].as_str().and_then(|it| {
                let said: Value = serde_json::from_str(it).ok()?;
                let state = said["State"].as_u64().filter(|it| *it != IDLE)?;
                Some((said["WitnessIP"].as_str()?.parse().ok()?, state == JOINED))
            }),
        }
    }
}

impl OwnEtcd {
    /// For the peers.
    pub fn health(&self) -> Result<(), String> {
        let metrics = self.metrics.as_ref().map_err(Clone::clone)?;
        if let Readyz::NotReady(why) = self.readyz.as_ref().map_err(Clone::clone)? {
            return Err(format!("etcd is not ready: {why}"));
        }
        if metrics.is_learner {
            return Err("etcd is still a learner".to_owned());
        }
        if !metrics.has_leader {
            return Err("etcd has no leader".to_owned());
        }
        let alarms = self.alarms.as_ref().map_err(Clone::clone)?;
        if alarms.is_empty() { Ok(()) } else { Err(format!("etcd has the alarm {}", alarms.join(", "))) }
    }
}

/// Data directories of k3s and rke2, below the root: in the reference's image the first is `/var/lib/rancher/k3s` of the
/// container that k3s runs in.
const PLACES: [&str; 3] = ["persist/vault/kube/rancher/k3s", "var/lib/rancher/k3s", "var/lib/rancher/rke2"];
/// Below one of them: etcd's data.
const DATABASE: &str = "server/db/etcd";

/// The data directories that may be the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths(Vec<PathBuf>);

impl Paths {
    /// The usual places below `root`, which is `/` on a device.
    pub fn usual(root: &Path) -> Self {
        Self(PLACES.iter().map(|it| root.join(it)).collect())
    }

    /// This data directory only, as `/var/lib/rancher/k3s`.
    pub fn at(data: &Path) -> Self {
        Self(vec![data.to_owned()])
    }

    /// Whether etcd keeps data in one of them.
    /// Errors: one of them cannot be looked at. `setting` is named as what to set for another place.
    pub fn data(&self, setting: &str) -> Result<Data, String> {
        for place in &self.0 {
            let database = place.join(DATABASE);
            match database.try_exists() {
                Ok(true) => return Ok(Data::Present),
                Ok(false) => {}
                Err(error) => {
                    return Err(format!("cannot look at {}: {error}; run as root", database.display()));
                }
            }
        }
        let places: Vec<String> = self.0.iter().map(|it| it.join(DATABASE).display().to_string()).collect();
        Ok(Data::Absent {
            looked: format!(
                "no {}; if the data directory of k3s or rke2 is elsewhere, set {setting}",
                places.join(", no ")
            ),
        })
    }

    /// The login for port 2382: the files of the first place that has etcd's data, else of the first.
    pub fn login(&self) -> CertificateLogin {
        let with_data = self.0.iter().find(|it| it.join(DATABASE).exists());
        let place = with_data.or_else(|| self.0.first()).map_or_else(|| Path::new("/"), PathBuf::as_path);
        let file = |name: &str| place.join("server/tls/etcd").join(name);
        CertificateLogin {
            ca: file("server-ca.crt"),
            certificate: file("client.crt"),
            key: file("client.key"),
        }
    }
}

/// A longer text is refused. etcd's has about 170 kB.
pub const LARGEST_BYTES: usize = 16 << 20;

const HAS_LEADER: &str = "etcd_server_has_leader";
const IS_LEADER: &str = "etcd_server_is_leader";
const IS_LEARNER: &str = "etcd_server_is_learner";
const SERVER_ID: &str = "etcd_server_id";
const VERSION: &str = "etcd_server_version";
const ACTIVE_PEERS: &str = "etcd_network_active_peers";
const READ: [&str; 6] = [HAS_LEADER, IS_LEADER, IS_LEARNER, SERVER_ID, VERSION, ACTIVE_PEERS];

/// A member's metrics of itself and of its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    pub id: u64,
    pub has_leader: bool,
    pub is_leader: bool,
    /// Without a vote.
    pub is_learner: bool,
    /// As `3.5.16`; "of unknown version" without one.
    pub version: String,
    /// Members to which a stream was up since this one started, and whether one is up now. It may only speak against a
    /// member. One that was never reached is missing, one that was removed stays as false, and one that hangs or lost
    /// its power is true for minutes with etcd 3.5 and 3.6.
    pub streams: LiteMap<u64, bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMetrics {
    #[error("the metric {metric} is missing (etcd {version})")]
    Missing { metric: &'static str, version: String },
    /// A value or a label that etcd does not write.
    #[error("the metric {metric} has an unexpected line: {line:.100}")]
    Odd { metric: &'static str, line: String },
    #[error("the metric {0} has two different values")]
    Twice(&'static str),
    /// Longer than [`LARGEST_BYTES`].
    #[error("the text has {0} bytes, more than {LARGEST_BYTES}")]
    TooLong(usize),
}

struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

/// Parses `/metrics`. Other metrics are skipped.
///
/// Errors: [`BadMetrics`]: one of the metrics is missing, odd, or there with two values.
pub fn parse(text: &str) -> Result<Metrics, BadMetrics> {
    if text.len() > LARGEST_BYTES {
        return Err(BadMetrics::TooLong(text.len()));
    }
    let mut flags: LiteMap<&'static str, bool> = LiteMap::new();
    let (mut ids, mut streams, mut version) = (LiteMap::new(), LiteMap::new(), None);
    for line in text.lines().map(str::trim) {
        let Some(metric) = name_of(line) else { continue };
        let odd = || BadMetrics::Odd { metric, line: line.chars().take(200).collect() };
        let sample = sample(&line[metric.len()..]).ok_or_else(odd)?;
        let up = match sample.value {
            0.0 => false,
            1.0 => true,
            // Others are flags.
            streams if metric == ACTIVE_PEERS && streams > 0.0 => true,
            _ => return Err(odd()),
        };
        let id = |label| sample.id(label).ok_or_else(odd);
        match metric {
            SERVER_ID => put(&mut ids, id("server_id")?, up, metric)?,
            VERSION => version = sample.label("server_version").map(str::to_owned).or(version),
            ACTIVE_PEERS => put(&mut streams, (id("Local")?, id("Remote")?), up, metric)?,
            _ => put(&mut flags, metric, up, metric)?,
        }
    }
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    let missing = |metric| BadMetrics::Missing { metric, version: version.clone() };
    let mut own = ids.iter().filter(|(_, now)| **now).map(|(id, _)| *id);
    let id = own.next().ok_or_else(|| missing(SERVER_ID))?;
    if own.next().is_some() {
        return Err(BadMetrics::Twice(SERVER_ID));
    }
    let flag = |name: &'static str| flags.get(name).copied().ok_or_else(|| missing(name));
    Ok(Metrics {
        id,
        has_leader: flag(HAS_LEADER)?,
        is_leader: flag(IS_LEADER)?,
        is_learner: flag(IS_LEARNER)?,
        // Metrics of another member in the same process are not ours.
        streams: streams
            .into_iter()
            .filter(|((of, _), _)| *of == id)
            .map(|((_, to), up)| (to, up))
            .into_lite(),
        version,
    })
}

fn put<K: Ord>(
    into: &mut LiteMap<K, bool>,
    key: K,
    value: bool,
    metric: &'static str,
) -> Result<(), BadMetrics> {
    match into.insert(key, value) {
        Some(other) if other != value => Err(BadMetrics::Twice(metric)),
        Some(_) | None => Ok(()),
    }
}

/// The wanted metric of this line, if any.
fn name_of(line: &str) -> Option<&'static str> {
    let is_end = |rest: &str| rest.starts_with(['{', ' ', '\t']) || rest.is_empty();
    READ.into_iter().find(|name| line.strip_prefix(name).is_some_and(is_end))
}

impl Sample {
    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }

    /// In hexadecimal digits.
    fn id(&self, label: &str) -> Option<u64> {
        u64::from_str_radix(self.label(label)?, 16).ok()
    }
}

/// A line after its name: labels, value, optional time.
fn sample(rest: &str) -> Option<Sample> {
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    words.next().is_none_or(|time| time.parse::<i64>().is_ok()).then_some(())?;
    words.next().is_none().then_some(Sample { labels, value })
}

/// Up to the closing brace, and the rest. In values `\\`, `\"` and `\n` are escapes.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((found, after));
        }
        let (name, quoted) = rest.split_once('=')?;
        let quoted = quoted.trim_start().strip_prefix('"')?;
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        found.push((name.trim().to_owned(), value));
        rest = &quoted[end + 1..];
    }
}
