//! What nodes say of themselves to each other: `GET /outage` of the status server of each.
//!
//! Not here: who serves it, and what follows from an answer (`rule`, `turn::rule`). A node without a usable answer in
//! time is not counted on; where nothing listens, or the question is unknown, there is no agent.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use kubeapi::Error;
use kubeapi::connect::endpoint::Endpoint;
use step::{Inserted as _, LiteMap};
use tokio::time::timeout;
use topics::{EtcdMember, NodeOutage};

use super::calls::{self, EtcdAccess};
use super::facts::{Data, PeerReport};

/// The time for reading our own etcd when a peer asks: less than the peer waits.
const OWN_LIMIT: Duration = Duration::from_millis(1_500);
/// The time that a peer has to answer.
const PEER_LIMIT: Duration = Duration::from_secs(2);
/// An answer has some hundred bytes.
const LARGEST_ANSWER_BYTES: usize = 64 << 10;
/// No reason is longer.
const LONGEST_WHY: usize = 1_000;
/// Where it is served.
pub const PATH: &str = "/outage";

/// What this node says of its own etcd, read now; `None` on a node without one.
pub async fn own(source: &EtcdAccess) -> Option<EtcdMember> {
    if let Ok(Data::Absent { .. }) = source.paths.data(source.settings.data) {
        return None;
    }
    let Ok(own) = timeout(OWN_LIMIT, calls::read(source)).await else {
        let why = format!("etcd has not answered within {} ms", OWN_LIMIT.as_millis());
        return Some(EtcdMember { why, ..EtcdMember::default() });
    };
    let (metrics, why) = (own.metrics.as_ref().ok(), own.health().err());
    Some(EtcdMember {
        member: metrics.map(|it| format!("{:x}", it.id)).unwrap_or_default(),
        healthy: why.is_none(),
        why: why.unwrap_or_default().chars().take(LONGEST_WHY).collect(),
        leads: metrics.is_some_and(|it| it.is_leader),
    })
}

/// Asks the agents of these nodes, all at once: by node what each says, or why that is no answer. A node without an
/// agent is left out. Dropping it loses nothing.
pub async fn ask(
    nodes: impl IntoIterator<Item = (String, IpAddr)>,
    port: u16,
) -> LiteMap<String, Result<NodeOutage, String>> {
    let asked = nodes.into_iter().map(|(node, address)| async move {
        let answer = ask_one(&node, SocketAddr::new(address, port)).await;
        answer.map(|it| (node, it))
    });
    join_all(asked).await.into_iter().flatten().into_lite()
}

async fn ask_one(node: &str, address: SocketAddr) -> Option<Result<NodeOutage, String>> {
    let silent = |why: String| {
        let port = address.port();
        Some(Err(format!(
            "no word from its agent: {why}; check port {port} between the two, and zedkube there"
        )))
    };
    let door = match Endpoint::new(&format!("http://{address}"), None, PEER_LIMIT, LARGEST_ANSWER_BYTES) {
        Ok(door) => door,
        Err(why) => return silent(why),
    };
    let answer = match door.get(&format!("ask http://{address}{PATH}"), PATH).await {
        Ok(answer) => answer,
        Err(error) if error.is_connection_refused() => return None,
        Err(Error::Refused { answer, .. }) if answer.code == 404 => return None,
        Err(error) => return silent(error.line()),
    };
    match serde_json::from_slice::<NodeOutage>(&answer) {
        Ok(word) if word.node == node => Some(Ok(word)),
        Ok(word) => silent(format!("node {} answers at {address}", word.node)),
        Err(why) => silent(format!("its answer is not understood: {why}")),
    }
}

/// What an answer means for the margin.
pub fn word(node: String, answer: Result<NodeOutage, String>) -> PeerReport {
    let etcd = match answer {
        Ok(answer) => answer.etcd,
        Err(why) => return PeerReport { node, member: None, health: Err(why) },
    };
    let Some(EtcdMember { member, healthy, why, .. }) = etcd else {
        let health = Err("its agent says that it has no etcd".to_owned());
        return PeerReport { node, member: None, health };
    };
    let health =
        if healthy { Ok(()) } else { Err(format!("its agent says that its etcd is not healthy: {why}")) };
    PeerReport { node, member: u64::from_str_radix(&member, 16).ok(), health }
}
