//! Asking the other nodes, for `/cluster-app` and for what they say of their drain: each once, some at a time, none for
//! long.
//!
//! Whoever asks how often, one round at a time goes out and one a second at most; who asks the same meanwhile gets its
//! answer. So nobody can make this node a loud one. Source: spec/agents.md 4.7, without D-K22 and D-K26.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubeapi::nodes::ReachableNode;
use step::Mono;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use topics::{Headline, cut_text};
use tracing::debug;
use uuid::Uuid;

use super::frame::{PeerBytes, frame, object};
use super::node_list::{NodeList, NodeWord};

/// Peers that are asked at once.
const AT_ONCE: usize = 8;
/// No more are asked.
const MOST: usize = 64;
/// A round goes out so long after the end of the one before it, and so long its answer counts.
const GAP: Duration = Duration::from_secs(1);
/// An answer of a peer is not longer. A report of one node has some thousand bytes.
const ANSWER_BYTES: usize = 256 << 10;
/// What a node says of its drain is not longer.
const HEADLINE_BYTES: usize = 4 << 10;
/// No more of its sentence is shown.
const SENTENCE_BYTES: usize = 200;
/// Nor is its head.
const HEAD_BYTES: usize = 16 << 10;
/// Longest wait for the list of nodes.
const LIST_LIMIT: Duration = Duration::from_secs(3);

/// What is asked, and as whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerQuestion {
    /// One application, or none.
    pub(super) app: Option<Uuid>,
    /// Where this node is asked: peers are at the same port.
    pub(super) own: SocketAddr,
}

/// The last round.
struct Last {
    question: PeerQuestion,
    at: Mono,
    answer: Bytes,
}

/// Asks the peers.
pub(crate) struct Peers {
    node_list: Arc<NodeList>,
    clock: Clock,
    limit: Duration,
    turn: Semaphore,
    last: Mutex<Option<Last>>,
}

impl Peers {
    /// Nothing asked yet. Each peer has so long to answer, twice that all together; a question waits for its turn one
    /// and a half times that.
    pub(crate) fn new(node_list: Arc<NodeList>, clock: Clock, limit: Duration) -> Self {
        Self { node_list, clock, limit, turn: Semaphore::new(1), last: Mutex::default() }
    }

    /// The whole answer; `own` makes the object of this node. `None` when too many others ask something else.
    /// Dropping it gives up a round under way.
    pub(super) async fn answer<F: Future<Output = String>>(
        &self,
        question: PeerQuestion,
        own: F,
    ) -> Option<Bytes> {
        let _turn = tokio::time::timeout(self.limit * 3 / 2, self.turn.acquire()).await.ok()?.ok()?;
        if let Some(answer) = self.recent(question) {
            return Some(answer);
        }
        self.pause().await;
        let peers = self.peers(question.own.ip()).await;
        let heard = self.round(question, peers).await;
        let answer = Bytes::from(frame(&own.await, &heard));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Last { question, at: self.clock.now(), answer: answer.clone() });
        Some(answer)
    }

    /// The answer of the last round, if it was asked the same and is young.
    fn recent(&self, question: PeerQuestion) -> Option<Bytes> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().filter(|it| it.question == question)?;
        (self.clock.now().since(last.at) < GAP).then(|| last.answer.clone())
    }

    /// Waits until a round may go out.
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

    /// Asks all; their answers come in the order of the peers.
    async fn round(&self, question: PeerQuestion, peers: Vec<IpAddr>) -> Vec<PeerBytes> {
        let limit = self.limit;
        let mut heard: Vec<PeerBytes> = peers.iter().map(|peer| PeerBytes::Silent(*peer, limit)).collect();
        let mut next = peers.into_iter().enumerate();
        let mut asked = JoinSet::new();
        let all = async {
            loop {
                while asked.len() < AT_ONCE
                    && let Some((nth, peer)) = next.next()
                {
                    asked.spawn(async move { (nth, ask(question, peer, limit).await) });
                }
                match asked.join_next().await {
                    Some(Ok((nth, one))) => {
                        if let Some(place) = heard.get_mut(nth) {
                            *place = one;
                        }
                    }
                    Some(Err(_cancelled)) => {}
                    None => return,
                }
            }
        };
        if tokio::time::timeout(limit * 2, all).await.is_err() {
            debug!("not all nodes could be asked in time");
        }
        heard
    }
}

/// One address of each other node: the first of the family of `own`, else the first. Addresses that lead to no node
/// are left out, and so are those of this machine alone unless `own` is one of them.
fn addresses(members: &[ReachableNode], own: IpAddr) -> Vec<IpAddr> {
    others(members, own).map(|(_, address)| address).collect()
}

/// The same with the name of each.
fn others(members: &[ReachableNode], own: IpAddr) -> impl Iterator<Item = (&str, IpAddr)> {
    let fit = move |it: &&IpAddr| {
        !it.is_unspecified() && !it.is_multicast() && (!it.is_loopback() || own.is_loopback())
    };
    let others = members.iter().filter(move |it| !it.addresses.contains(&own));
    let one = move |member: &ReachableNode| {
        let mut all = member.addresses.iter().filter(fit);
        let first = all.clone().next();
        all.find(|it| it.is_ipv4() == own.is_ipv4()).or(first).copied()
    };
    others.filter_map(move |member| Some((member.name.as_str(), one(member)?))).take(MOST)
}

/// What the other nodes say of their drain, of those that answer within `limit`; this node is `own`.
pub(super) async fn headlines(
    own: SocketAddr,
    members: &[ReachableNode],
    limit: Duration,
) -> BTreeMap<String, NodeWord> {
    let mut next = others(members, own.ip()).map(|(name, ip)| (name.to_owned(), ip));
    let (mut asked, mut heard) = (JoinSet::new(), BTreeMap::new());
    let all = async {
        loop {
            while asked.len() < AT_ONCE
                && let Some((name, ip)) = next.next()
            {
                let at = SocketAddr::new(ip, own.port());
                asked.spawn(
                    async move { Some((name, NodeWord { headline: headline(at, limit).await?, at })) },
                );
            }
            match asked.join_next().await {
                Some(word) => heard.extend(word.ok().flatten()),
                None => return,
            }
        }
    };
    if tokio::time::timeout(limit, all).await.is_err() {
        debug!("not all nodes could be asked in time how far they are drained");
    }
    heard
}

async fn headline(to: SocketAddr, limit: Duration) -> Option<Headline> {
    let asked = exchange(Method::GET, "/drain".to_owned(), to, HEADLINE_BYTES);
    let body = tokio::time::timeout(limit, asked).await.ok()?.ok()?;
    let mut headline: Headline = serde_json::from_slice(&body).ok()?;
    headline.text = cut_text(&headline.text, SENTENCE_BYTES);
    Some(headline)
}

/// What one peer says within `limit`.
async fn ask(question: PeerQuestion, peer: IpAddr, limit: Duration) -> PeerBytes {
    let to = SocketAddr::new(peer, question.own.port());
    let path = question.app.map_or_else(|| "/app/".to_owned(), |app| format!("/app/{app}"));
    match tokio::time::timeout(limit, exchange(Method::POST, path, to, ANSWER_BYTES)).await {
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

type PeerError = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request and reads the body of a 200, of `most` bytes at most.
async fn exchange(method: Method, path: String, to: SocketAddr, most: usize) -> Result<Bytes, PeerError> {
    let request = Request::builder().method(method).uri(path).header(HOST, to.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    let mut exchange = Box::pin(async move {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answers {}", response.status()).into());
        }
        Limited::new(response.into_body(), most).collect().await.map(http_body_util::Collected::to_bytes)
    });
    tokio::select! {
        biased;
        done = &mut exchange => done,
        // The other side has closed; what it sent is still to be read.
        _ = connection => exchange.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_node_is_asked_at_one_address_that_leads_to_it() {
        let member = |all: &[&str]| ReachableNode {
            addresses: all.iter().map(|it| it.parse().unwrap()).collect(),
            ..ReachableNode::default()
        };
        let members = [
            member(&["10.0.0.1", "fd00::1"]),
            member(&["fd00::2", "10.0.0.2"]),
            member(&["fd00::3"]),
            member(&["127.0.0.1", "0.0.0.0", "224.0.0.1"]),
            member(&[]),
        ];
        let told = |own: &str| {
            let all = addresses(&members, own.parse().unwrap());
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told("10.0.0.1"), "10.0.0.2 fd00::3");
        assert_eq!(told("fd00::1"), "fd00::2 fd00::3");
        assert_eq!(told("127.0.0.9"), "10.0.0.1 10.0.0.2 fd00::3 127.0.0.1");
        let crowd: Vec<ReachableNode> = (1..=200).map(|nth| member(&[&format!("10.0.1.{nth}")])).collect();
        assert_eq!(addresses(&crowd, "10.0.0.1".parse().unwrap()).len(), MOST);
    }
}
