//! Asks the other nodes for `/cluster-app`: each once, some at a time, with a limit.
//!
//! For any number of requests, one round at a time goes out and one a second at most; equal requests
//! meanwhile get its answer. So no client can make this node send many requests. It has neither D-K22 nor D-K26.

use core::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use http::Method;
use step::Mono;
use tokio::sync::Semaphore;
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
    turn: Semaphore,
    last: Mutex<Option<Last>>,
}

impl Peers {
    /// `limit` is for each peer's answer, twice that for all; a question waits one and a half times that for
    /// its turn.
    pub(crate) fn new(node_list: Arc<NodeList>, clock: Clock, limit: Duration) -> Self {
        Self { node_list, clock, limit, turn: Semaphore::new(1), last: Mutex::default() }
    }

    /// The whole answer; `own` makes this node's object, and `identity` is read where a round is made. `None` when too many other questions wait. Dropping
    /// it gives up a round under way.
    pub(super) async fn answer(
        &self,
        question: PeerQuestion,
        own: impl Future<Output = String>,
        identity: impl Future<Output = Option<ClusterIdentity>>,
    ) -> Option<Bytes> {
        let _turn = tokio::time::timeout(self.limit * 3 / 2, self.turn.acquire()).await.ok()?.ok()?;
        if let Some(answer) = self.recent(question) {
            return Some(answer);
        }
        self.pause().await;
        let peers = self.peers(question.own.ip()).await;
        let heard = self.round(question, peers, identity.await.as_ref()).await;
        let answer = Bytes::from(frame(&own.await, &heard));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Last { question, at: self.clock.now(), answer: answer.clone() });
        Some(answer)
    }

    /// The last round's answer, if recent and for the same question.
    fn recent(&self, question: PeerQuestion) -> Option<Bytes> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().filter(|it| it.question == question)?;
        (self.clock.now().since(last.at) < GAP).then(|| last.answer.clone())
    }

    /// Waits until a round may start.
    async fn pause(&self) {
        let ended = self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|it| it.at);
        if let Some(at) = ended {
            tokio::time::sleep(GAP.saturating_sub(self.clock.now().since(at))).await;
        }
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
