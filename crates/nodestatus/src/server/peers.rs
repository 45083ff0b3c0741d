//! Asks the other nodes for `/cluster-app`: each once, some at a time, with a limit.
//!
//! For any number of requests, one round at a time goes out and one a second at most; equal requests
//! meanwhile get its answer. So no client can make this node send many requests. It has neither D-K22 nor D-K26.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use http::Method;
use step::Mono;
use tokio::sync::Mutex;
use tracing::debug;
use uuid::Uuid;

use super::exchange::{addresses, exchange, within};
use super::frame::{PeerBytes, frame, object};
use super::node_list::NodeList;
use crate::identity::ClusterIdentity;

/// Pause between rounds, and how long an answer is used.
const GAP: Duration = Duration::from_secs(1);
/// Limit of a peer's answer. A report of one node has some thousand bytes.
const ANSWER_BYTES: usize = 256 << 10;
/// Longest wait for the list of nodes.
const LIST_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerQuestion {
    /// `None` for the node only.
    pub(super) app: Option<Uuid>,
    /// This node's address: peers use the same port.
    pub(super) own: SocketAddr,
}

struct Last {
    question: PeerQuestion,
    at: Mono,
    answer: Bytes,
}

pub(crate) struct Peers {
    node_list: Arc<NodeList>,
    clock: Clock,
    limit: Duration,
    /// Locked by the one who makes a round.
    last: Mutex<Option<Last>>,
}

impl Peers {
    /// `limit` is for each peer's answer, twice that for all; a question waits one and a half times that for
    /// its turn.
    pub(crate) fn new(node_list: Arc<NodeList>, clock: Clock, limit: Duration) -> Self {
        Self { node_list, clock, limit, last: Mutex::default() }
    }

    /// The whole answer; `own` makes this node's object, and `identity` is read where a round is made. `None` when too many other questions wait. Dropping
    /// it gives up a round under way.
    pub(super) async fn answer(
        &self,
        question: PeerQuestion,
        own: impl Future<Output = String>,
        identity: impl Future<Output = Option<ClusterIdentity>>,
    ) -> Option<Bytes> {
        let mut last = tokio::time::timeout(self.limit * 3 / 2, self.last.lock()).await.ok()?;
        if let Some(last) = &*last {
            let age = self.clock.now().since(last.at);
            if last.question == question && age < GAP {
                return Some(last.answer.clone());
            }
            tokio::time::sleep(GAP.saturating_sub(age)).await;
        }
        let peers = self.peers(question.own.ip()).await;
        let heard = self.round(question, peers, identity.await.as_ref()).await;
        let answer = Bytes::from(frame(&own.await, &heard));
        *last = Some(Last { question, at: self.clock.now(), answer: answer.clone() });
        Some(answer)
    }

    async fn peers(&self, own: IpAddr) -> Vec<IpAddr> {
        let known = self.node_list.within(LIST_LIMIT).await;
        known.map_or_else(Vec::new, |known| addresses(&known.members, own))
    }

    /// Answers are in the order of the peers.
    async fn round(
        &self,
        question: PeerQuestion,
        peers: Vec<IpAddr>,
        identity: Option<&ClusterIdentity>,
    ) -> Vec<PeerBytes> {
        let limit = self.limit;
        let mut heard: Vec<PeerBytes> = peers.iter().map(|peer| PeerBytes::Silent(*peer, limit)).collect();
        let ask = |(nth, peer)| async move { (nth, ask(question, peer, limit, identity).await) };
        for (nth, one) in within(limit * 2, peers.into_iter().enumerate().map(ask)).await {
            if let Some(place) = heard.get_mut(nth) {
                *place = one;
            }
        }
        heard
    }
}

/// One peer's answer within `limit`.
async fn ask(
    question: PeerQuestion,
    peer: IpAddr,
    limit: Duration,
    identity: Option<&ClusterIdentity>,
) -> PeerBytes {
    let to = SocketAddr::new(peer, question.own.port());
    let path = question.app.map_or_else(|| "/app/".to_owned(), |app| format!("/app/{app}"));
    match tokio::time::timeout(limit, exchange(Method::POST, &path, to, ANSWER_BYTES, identity)).await {
        Ok(Ok(body)) => object(&body).map_or_else(
            || {
                debug!(%to, "a node's answer is no object, it is left out");
                PeerBytes::Nothing
            },
            PeerBytes::Object,
        ),
        Ok(Err(error)) => {
            debug!(%to, %error, "a node is left out");
            PeerBytes::Nothing
        }
        Err(_elapsed) => PeerBytes::Silent(peer, limit),
    }
}
