//! Asks our own etcd: metrics and health on port 2381, members, alarms and leadership on port 2382.
//!
//! Not here: the rule (`rule`), other members' ports. Every call has a deadline, and every error names what
//! was read, where, and the setting for another address. No call is repeated.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join3;
use kubeapi::Error;
use kubeapi::connect::endpoint::{CertificateLogin, Endpoint};
use serde::Deserialize;
use serde_json::json;

use super::facts::Paths;
use super::facts::{self, Metrics};
use super::facts::{Data, ListedMemberFacts, MemberList, OwnEtcd, Readyz};

/// Limit of one call: the whole reading must be fresh (10 s old at most).
pub const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The time for a change of leader: etcd's own limit for a request, 5 s and two elections of 5 s (5.5).
pub const HAND_OVER_LIMIT: Duration = Duration::from_secs(15);
/// Lists of members and alarms are far shorter.
const LARGEST_ANSWER_BYTES: usize = 1 << 20;
const LIST: &str = "list the members of etcd";

/// Of our own etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Metrics and health, without a login.
    pub metrics: String,
    /// JSON calls, with a client certificate.
    pub gateway: String,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { metrics: "http://127.0.0.1:2381".to_owned(), gateway: "https://127.0.0.1:2382".to_owned() }
    }
}

/// A person's settings for other places, as `--etcd-metrics`; named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdSettings {
    /// For [`Addresses::metrics`].
    pub metrics: &'static str,
    /// For [`Addresses::gateway`].
    pub gateway: &'static str,
    /// For the data directory.
    pub data: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAccess {
    pub addresses: Addresses,
    pub paths: Paths,
    pub settings: EtcdSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    member_id: String,
}

/// 64-bit numbers are decimal texts; default values are left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MemberListReply {
    header: Header,
    members: Vec<ListedMember>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedMember {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    #[serde(rename = "isLearner")]
    is_learner: bool,
    #[serde(rename = "peerURLs")]
    peer_urls: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Alarms {
    alarms: Vec<Alarm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Alarm {
    #[serde(rename = "memberID")]
    member: String,
    alarm: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EtcdStatus {
    header: Header,
    leader: String,
}

/// Reads everything of our own etcd in parallel. Dropping it loses nothing.
pub async fn read(source: &EtcdAccess) -> OwnEtcd {
    let (metrics, readyz, (members, alarms)) =
        join3(read_metrics(source), read_readyz(source), read_gateway(source)).await;
    let alarms = match alarms {
        Ok(alarms) => Ok(alarms),
        Err(why) => alarms_of_health(source, why).await,
    };
    OwnEtcd { data: source.paths.data(source.settings.data), metrics, readyz, members, alarms }
}

/// What our own etcd waits for while it knows no leader: "1 of 3 members of etcd are here, 2 are required".
/// `None` where there is no etcd, it does not answer, or knows one.
pub async fn waits(source: &EtcdAccess) -> Option<String> {
    let keeps = source.paths.data(source.settings.data);
    keeps.ok().filter(|it| *it == Data::Present)?;
    let metrics = read_metrics(source).await.ok().filter(|it| !it.has_leader)?;
    // Without a quorum a member answers only from its own state.
    let list = read_members(source, &gateway(source, CALL_LIMIT).ok()?, false).await.ok()?;
    let voters = || list.members.iter().filter(|it| !it.learner);
    let is_here = |id: u64| id == metrics.id || metrics.streams.get(&id).copied().unwrap_or_default();
    let (all, here) = (voters().count(), voters().filter(|it| is_here(it.id)).count());
    Some(format!("{here} of {all} members of etcd are here, {} are required", all / 2 + 1))
}

async fn read_metrics(source: &EtcdAccess) -> Result<Metrics, String> {
    let what = "read the metrics of etcd";
    let text = local(source, facts::LARGEST_BYTES)?.get(what, "/metrics").await;
    let text = text.map_err(|error| elsewhere(source, &error))?;
    facts::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
        format!(
            "{what} at {}: {error}; if they are elsewhere, set {}",
            source.addresses.metrics, source.settings.metrics
        )
    })
}

async fn read_readyz(source: &EtcdAccess) -> Result<Readyz, String> {
    let answer =
        local(source, LARGEST_ANSWER_BYTES)?.get("ask etcd whether it is ready", "/readyz?verbose").await;
    match answer {
        Ok(_checks) => Ok(Readyz::Ready),
        Err(Error::Refused { answer, .. }) if answer.code == 503 => {
            Ok(Readyz::NotReady(failed(&answer.message)))
        }
        // etcd before 3.4.29 and 3.5.11 lacks this page. Its health is a read through a majority as well.
        Err(Error::Refused { answer, .. }) if answer.code == 404 => Ok(match read_health(source).await? {
            Health::Good => Readyz::Ready,
            Health::Alarm(name) => Readyz::NotReady(format!("/health: ALARM {name}")),
            Health::Bad(why) => Readyz::NotReady(format!("/health: {why}")),
        }),
        Err(error) => Err(elsewhere(source, &error)),
    }
}

fn failed(checks: &str) -> String {
    let failed: Vec<&str> = checks.lines().filter(|it| it.starts_with("[-]")).map(str::trim).collect();
    if failed.is_empty() { checks.trim().to_owned() } else { failed.join("; ") }
}

/// The answer of `/health`, which checks for alarms first.
enum Health {
    Good,
    /// The first alarm by name, from etcd 3.5 on.
    Alarm(String),
    /// Its own words; etcd 3.4 has none, and its reason may be an alarm.
    Bad(String),
}

async fn read_health(source: &EtcdAccess) -> Result<Health, String> {
    match local(source, LARGEST_ANSWER_BYTES)?.get("ask etcd for its health", "/health").await {
        Ok(_healthy) => Ok(Health::Good),
        Err(Error::Refused { answer, .. }) if answer.code == 503 => {
            let line = answer.line();
            let name = line.split_once("ALARM ").map(|(_, rest)| rest);
            let name = name.and_then(|it| it.split(|letter: char| !letter.is_ascii_uppercase()).next());
            Ok(name.map_or_else(|| Health::Bad(line.clone()), |name| Health::Alarm(name.to_owned())))
        }
        Err(error) => Err(elsewhere(source, &error)),
    }
}

/// Alarms from `/health`, without port 2382.
async fn alarms_of_health(source: &EtcdAccess, why: String) -> Result<Vec<String>, String> {
    match read_health(source).await? {
        Health::Good => Ok(Vec::new()),
        Health::Alarm(name) => Ok(vec![name]),
        Health::Bad(health) => Err(format!("{why}; and its /health says {health}")),
    }
}

async fn read_gateway(source: &EtcdAccess) -> (Result<MemberList, String>, Result<Vec<String>, String>) {
    let gateway = match gateway(source, CALL_LIMIT) {
        Ok(gateway) => gateway,
        Err(why) => return (Err(why.clone()), Err(why)),
    };
    futures::future::join(read_members(source, &gateway, true), read_alarms(source, &gateway)).await
}

/// `agreed`: by a majority; etcd 3.4 answers from its own state in any case.
async fn read_members(source: &EtcdAccess, gateway: &Endpoint, agreed: bool) -> Result<MemberList, String> {
    let list = gateway
        .post(LIST, "/v3/cluster/member/list", &json!({ "linearizable": agreed }))
        .await
        .map_err(|error| elsewhere_gateway(source, &error))?;
    members(list)
}

pub(crate) fn members(list: MemberListReply) -> Result<MemberList, String> {
    let member = |it: ListedMember| {
        let address = it.peer_urls.iter().find_map(|url| host(url));
        Ok(ListedMemberFacts { id: number(LIST, &it.id)?, name: it.name, learner: it.is_learner, address })
    };
    Ok(MemberList {
        by: number(LIST, &list.header.member_id)?,
        members: list.members.into_iter().map(member).collect::<Result<_, String>>()?,
    })
}

async fn read_alarms(source: &EtcdAccess, gateway: &Endpoint) -> Result<Vec<String>, String> {
    let (what, body) = ("list the alarms of etcd", json!({ "action": "GET" }));
    let list: Alarms = gateway
        .post(what, "/v3/maintenance/alarm", &body)
        .await
        .map_err(|error| elsewhere_gateway(source, &error))?;
    let name = |it: Alarm| match it.member.as_str() {
        "" | "0" => Ok(it.alarm),
        id => Ok(format!("{} of member {:x}", it.alarm, number(what, id)?)),
    };
    list.alarms.into_iter().map(name).collect()
}

/// Moves leadership from our own member to the member `to`, and waits until it has moved. For a member that
/// leads by its metrics; a failure should only be a warning.
///
/// Errors: why our member still leads, or why that is unknown.
pub async fn hand_over(source: &EtcdAccess, to: u64) -> Result<(), String> {
    let slow = gateway(source, HAND_OVER_LIMIT)?;
    let what = format!("move the leadership of etcd to member {to:x}");
    let body = json!({ "targetID": to.to_string() });
    let path = "/v3/maintenance/transfer-leadership";
    let Err(error) = slow.post::<serde_json::Value>(&what, path, &body).await else { return Ok(()) };
    // "not leader" is success, and so is a move with a lost answer.
    let what = "ask etcd who leads";
    let status: EtcdStatus = gateway(source, CALL_LIMIT)?
        .post(what, "/v3/maintenance/status", &json!({}))
        .await
        .map_err(|second| format!("{}; then {}", error.line(), second.line()))?;
    let moved = !matches!(status.leader.as_str(), "" | "0") && status.leader != status.header.member_id;
    if moved { Ok(()) } else { Err(error.line()) }
}

/// In a URL, as `https://10.0.0.2:2380`.
fn host(url: &str) -> Option<IpAddr> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next()?.parse::<SocketAddr>().ok().map(|it| it.ip())
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_no_number| format!("{what}: {text:.40?} is not the id of a member"))
}

fn local(source: &EtcdAccess, largest_bytes: usize) -> Result<Endpoint, String> {
    endpoint(&source.addresses.metrics, None, CALL_LIMIT, largest_bytes, source.settings.metrics)
}

fn gateway(source: &EtcdAccess, limit: Duration) -> Result<Endpoint, String> {
    // Without TLS there is no login.
    let login = source.addresses.gateway.starts_with("https:").then(|| source.paths.login());
    endpoint(&source.addresses.gateway, login.as_ref(), limit, LARGEST_ANSWER_BYTES, source.settings.gateway)
}

fn endpoint(
    address: &str,
    login: Option<&CertificateLogin>,
    limit: Duration,
    largest_bytes: usize,
    setting: &str,
) -> Result<Endpoint, String> {
    Endpoint::new(address, login, limit, largest_bytes)
        .map_err(|why| format!("use etcd at {why}; where it is elsewhere, set {setting}"))
}

fn elsewhere(source: &EtcdAccess, error: &Error) -> String {
    let (at, setting) = (&source.addresses.metrics, source.settings.metrics);
    format!("{}; if etcd's metrics are not at {at}, set {setting}", error.line())
}

fn elsewhere_gateway(source: &EtcdAccess, error: &Error) -> String {
    let (at, setting) = (&source.addresses.gateway, source.settings.gateway);
    format!("{}; if etcd's JSON calls are not at {at}, set {setting}", error.line())
}
