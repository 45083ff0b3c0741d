//! The nodes of the cluster and their headlines, from one bounded call and one round of requests now and
//! then, and only on demand.
//!
//! Not here: the leader's report (`stats`). The API server and each node get one call in ten seconds at most,
//! and a page never waits long (D-K26).

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::Clock;
use kubeapi::ApiClient;
use kubeapi::nodes::{ReachableNode, members};
use step::{LiteMap, Mono};
use tokio::sync::{Notify, watch};
use topics::GoTime;
use tracing::debug;

use super::exchange::{NodeWord, headlines};

/// Least time between two calls.
const GAP: Duration = Duration::from_secs(10);
/// Older nodes are not shown.
const OLD: Duration = Duration::from_secs(300);

/// Headlines are used for so long: a person may be about to pull a plug.
const WORD: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub(super) struct NodesSnapshot {
    pub(super) members: Arc<[ReachableNode]>,
    /// Headlines by node name.
    pub(super) words: Arc<LiteMap<String, NodeWord>>,
    /// Time of the round.
    asked: Mono,
    pub(super) at: GoTime,
    since: Mono,
}

#[cfg(test)]
impl NodesSnapshot {
    pub(super) fn at(at: GoTime, members: impl Into<Arc<[ReachableNode]>>) -> Self {
        Self {
            members: members.into(),
            words: Arc::default(),
            asked: Mono::default(),
            at,
            since: Mono::default(),
        }
    }
}

/// Results so far.
#[derive(Debug, Clone, Default)]
struct NodeCalls {
    ended: Option<Mono>,
    good: Option<NodesSnapshot>,
}

/// Reads nodes on demand.
#[derive(Debug)]
pub(crate) struct NodeList {
    cluster: ApiClient,
    clock: Clock,
    limit: Duration,
    /// Address of this server: peers use the same port.
    bound: watch::Receiver<Option<SocketAddr>>,
    wanted: Notify,
    /// A request wants headlines.
    words_wanted: AtomicBool,
    calls: watch::Sender<NodeCalls>,
}

impl NodeList {
    /// Empty. `limit` is for a call and for a round.
    pub(crate) fn new(
        cluster: ApiClient,
        clock: Clock,
        limit: Duration,
        bound: watch::Receiver<Option<SocketAddr>>,
    ) -> Self {
        let (wanted, words_wanted) = (Notify::new(), AtomicBool::new(false));
        Self { cluster, clock, limit, bound, wanted, words_wanted, calls: watch::Sender::default() }
    }

    /// Calls whenever a request wants news and the last call is old enough. Dropping it gives up a call under
    /// way.
    pub(super) async fn keep(&self) {
        loop {
            self.wanted.notified().await;
            if self.is_fresh() {
                continue;
            }
            let read = members(&self.cluster, self.limit).await;
            let (since, at) = (self.clock.now(), self.clock.wall());
            self.calls.send_modify(|calls| {
                calls.ended = Some(since);
                match read {
                    Ok(members) => {
                        let (words, asked) =
                            calls.good.take().map(|it| (it.words, it.asked)).unwrap_or_default();
                        calls.good = Some(NodesSnapshot { members: members.into(), words, asked, at, since });
                    }
                    Err(error) => debug!(error = error.line(), "the nodes of the cluster cannot be read"),
                }
            });
            let (own, good) = (*self.bound.borrow(), self.calls.borrow().good.clone());
            if let (Some(own), Some(good)) = (own, good)
                && self.words_wanted.swap(false, Ordering::Relaxed)
            {
                let asked = self.clock.now();
                let words = Arc::new(headlines(own, &good.members, self.limit).await);
                self.calls.send_modify(|calls| calls.good = Some(NodesSnapshot { words, asked, ..good }));
            }
        }
    }

    /// Whether a known node has this address. The nodes are read again for the next request.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        if !self.is_fresh() {
            self.wanted.notify_one();
        }
        let is_of =
            |it: &ReachableNode| it.addresses.iter().any(|it| it.to_canonical() == address.to_canonical());
        self.calls.borrow().good.as_ref().is_some_and(|it| it.members.iter().any(is_of))
    }

    /// The nodes, at most ten seconds old if the API answers, at most five minutes old if not. Waits at most
    /// `patience`. Dropping it loses nothing.
    pub(super) async fn within(&self, patience: Duration) -> Option<NodesSnapshot> {
        let mut calls = self.calls.subscribe();
        if !self.is_fresh() {
            self.wanted.notify_one();
            // On timeout the former nodes are used.
            drop(tokio::time::timeout(patience, calls.changed()).await);
        }
        let good = calls.borrow().good.clone();
        good.filter(|it| self.clock.now().since(it.since) < OLD)
    }

    /// The same with headlines, requested once the nodes have been read again; none where the round takes longer.
    pub(super) async fn with_words(&self, patience: Duration) -> Option<NodesSnapshot> {
        self.words_wanted.store(true, Ordering::Relaxed);
        let mut calls = self.calls.subscribe();
        let is_new = |it: &NodesSnapshot| self.clock.now().since(it.asked) < WORD;
        if !self.is_fresh() {
            self.wanted.notify_one();
            let ready = |it: &NodeCalls| self.is_recent(it) && it.good.as_ref().is_none_or(is_new);
            drop(tokio::time::timeout(patience, calls.wait_for(ready)).await);
        }
        let known = calls.borrow().good.clone().filter(|it| self.clock.now().since(it.since) < OLD)?;
        Some(if is_new(&known) { known } else { NodesSnapshot { words: Arc::default(), ..known } })
    }

    fn is_fresh(&self) -> bool {
        self.is_recent(&self.calls.borrow())
    }

    fn is_recent(&self, calls: &NodeCalls) -> bool {
        calls.ended.is_some_and(|at| self.clock.now().since(at) < GAP)
    }
}

#[cfg(test)]
mod tests {
    use topics::Headline;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn k7_what_another_node_said_is_not_shown_for_longer_than_15_s() {
        let clock = Clock::new();
        let cluster = ApiClient::from_kubeconfig("/nonexistent");
        let list = NodeList::new(cluster, clock, Duration::from_secs(1), watch::channel(None).1);
        let word = NodeWord { headline: Some(Headline::default()), at: "127.0.0.2:1".parse().unwrap() };
        let words = Arc::new(LiteMap::from_iter([("n2".to_owned(), word)]));
        let (asked, since) = (clock.now(), clock.now());
        let known = NodesSnapshot { words, asked, since, ..NodesSnapshot::at(clock.wall(), []) };
        list.calls.send_modify(|calls| calls.good = Some(known));
        let told = async || list.with_words(Duration::ZERO).await.unwrap().words.len();
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(told().await, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(told().await, 0);
    }
}
