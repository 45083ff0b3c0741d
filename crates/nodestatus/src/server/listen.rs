//! Listening at the place of this node in its cluster for as long as there is one, at addresses that are set, and
//! nowhere else.
//!
//! Plain, and in TLS with the identity that nodes of the cluster have (`identity`): the first byte of a connection says which.
//! A listen that fails is said and tried again (D-K21). A connection carries one request and ends within its limit,
//! whatever the other side does or leaves undone. Dropping the server closes everything.
//!
//! Limits of connections: of all, and of one address, so that one peer cannot block others. The last places are
//! reserved for nodes of the cluster, which ask each other before one of them goes down.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::answer::{AnswerPatience, Router, TEXT, respond};
use crate::cluster_status::NodeAddress;
use crate::identity::ClusterIdentity;

/// No head of a request is longer.
const HEAD_BYTES: usize = 8 << 10;
/// No head has more lines.
const HEAD_LINES: usize = 48;
/// After a connection that could not be taken, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The first byte of a connection in TLS, and of no request.
const HANDSHAKE: u8 = 0x16;

#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// TCP port; 0 for any that is free.
    pub port: u16,
    /// Addresses besides the one in the cluster, as loopback.
    pub further: Vec<IpAddr>,
    /// From the start of a connection to its end.
    pub request: Duration,
    /// The same for an answer that waits for other nodes.
    pub cluster: Duration,
    /// How long one of these may take to answer.
    pub peer: Duration,
    pub most: usize,
    /// Connections at once from one address.
    pub most_of_one: usize,
    /// Between two tries to listen.
    pub retry: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            port: 12346,
            further: Vec::new(),
            request: Duration::from_secs(5),
            cluster: Duration::from_secs(20),
            peer: Duration::from_secs(5),
            most: 64,
            most_of_one: 16,
            retry: Duration::from_secs(5),
        }
    }
}

/// Serves at each place in turn, and at the further addresses all along. `bound` says where in the cluster it listens.
pub(crate) async fn serve(
    limits: ServerLimits,
    router: Arc<Router>,
    places: watch::Receiver<Option<NodeAddress>>,
    bound: watch::Sender<Option<SocketAddr>>,
) {
    let counts = Arc::new(Mutex::new(ConnectionCounts::new(limits.most, limits.most_of_one)));
    let connections = || Connections {
        counts: Arc::clone(&counts),
        tasks: JoinSet::new(),
        limits: limits.clone(),
        router: Arc::clone(&router),
        places: places.clone(),
        bound: bound.subscribe(),
    };
    let mut further = JoinSet::new();
    for address in &limits.further {
        let (mut here, address) = (connections(), SocketAddr::new(*address, limits.port));
        further.spawn(async move { here.serve_at(address, |_| {}).await });
    }
    let (mut hall, mut places) = (connections(), places.clone());
    loop {
        let place = *places.borrow_and_update();
        let changed = async {
            if places.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let Some(place) = place else {
            changed.await;
            continue;
        };
        let address = SocketAddr::new(place.address, limits.port);
        let listens = |at| {
            bound.send_replace(Some(at));
        };
        tokio::select! {
            () = changed => {}
            () = hall.serve_at(address, listens) => {}
        }
        if let Some(address) = bound.send_replace(None) {
            info!(%address, "status server has stopped listening");
        }
    }
}

/// The connections of all places so far; those of a former one end within their limit.
struct Connections {
    counts: Arc<Mutex<ConnectionCounts>>,
    tasks: JoinSet<()>,
    limits: ServerLimits,
    router: Arc<Router>,
    places: watch::Receiver<Option<NodeAddress>>,
    /// Where this node is asked in its cluster.
    bound: watch::Receiver<Option<SocketAddr>>,
}

/// Leave to serve one connection; returned when it is dropped.
struct ConnectionPermit(Arc<Mutex<ConnectionCounts>>, IpAddr);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).leave(self.1);
    }
}

impl Connections {
    /// Listens at `address` for good, and says where that is; a listen that fails is tried again. Dropping it stops
    /// listening.
    async fn serve_at(&mut self, address: SocketAddr, listens: impl Fn(SocketAddr)) {
        let mut said = String::new();
        loop {
            let listening = TcpListener::bind(address).await;
            match listening.and_then(|it| Ok((it.local_addr()?, it))) {
                Ok((address, listener)) => {
                    info!(%address, "status server listens");
                    listens(address);
                    self.accept(&listener, address).await;
                }
                Err(cause) => {
                    let cause = format!("listen at {address}: {cause}");
                    if cause != said {
                        let secs = self.limits.retry.as_secs();
                        warn!(error = cause, "no status server; tried again every {secs} s, free the port");
                        said = cause;
                    }
                    tokio::time::sleep(self.limits.retry).await;
                }
            }
        }
    }

    /// Takes connections for good. Dropping it loses none that was taken.
    async fn accept(&mut self, listener: &TcpListener, reached: SocketAddr) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (place, own) = (*self.places.borrow(), *self.bound.borrow());
                    self.take(stream, peer.ip(), place, own.unwrap_or(reached));
                }
                Err(cause) => {
                    warn!(error = %cause, "status server cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Serves one connection in a task of its own, if there is room for it; else it is closed at once.
    fn take(&mut self, stream: TcpStream, from: IpAddr, place: Option<NodeAddress>, own: SocketAddr) {
        let is_node = || self.router.node_list.has(from);
        if !self.counts.lock().unwrap_or_else(PoisonError::into_inner).admit(from, is_node) {
            debug!(%from, "too many connections, one more is closed");
            return;
        }
        let seat = ConnectionPermit(Arc::clone(&self.counts), from);
        let (router, limits) = (Arc::clone(&self.router), self.limits.clone());
        self.tasks.spawn(async move {
            if !serve_one(opened(stream, Arc::clone(&router)), router, place, own, &limits).await {
                debug!(%from, "a request took too long, its connection is closed");
            }
            drop(seat);
        });
    }
}

pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// What is read and written, and who has to be shown with each request.
pub(super) type Opened = (Box<dyn Duplex>, Option<ClusterIdentity>);

/// The connection, with its TLS behind it. `None`: it was closed, or is in TLS while no join token is known.
async fn opened(stream: TcpStream, router: Arc<Router>) -> Option<Opened> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 || first != [HANDSHAKE] {
        return Some((Box::new(stream), None));
    }
    let identity = router.identity().await?;
    let accepted = identity.acceptor().ok()?.accept(stream).await;
    let stream = accepted.inspect_err(|cause| debug!(error = %cause, "a TLS handshake has failed")).ok()?;
    Some((Box::new(stream), Some(identity)))
}

/// Serves one connection, which `opened` opens, within its limits; false when it took too long.
pub(super) async fn serve_one(
    opened: impl Future<Output = Option<Opened>>,
    router: Arc<Router>,
    place: Option<NodeAddress>,
    own: SocketAddr,
    limits: &ServerLimits,
) -> bool {
    let patience = AnswerPatience::default();
    let mut talk = pin!(async {
        if let Some(opened) = opened.await {
            converse(opened, router, place, own, patience.clone(), limits.request).await;
        }
    });
    if timeout(limits.request, &mut talk).await.is_ok() {
        return true;
    }
    let more = limits.cluster.saturating_sub(limits.request);
    patience.is_given() && timeout(more, talk).await.is_ok()
}

/// One request and its answer. The body of a request is never read.
async fn converse(
    (stream, identity): Opened,
    router: Arc<Router>,
    place: Option<NodeAddress>,
    own: SocketAddr,
    patience: AnswerPatience,
    limit: Duration,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, patience) = (Arc::clone(&router), patience.clone());
        let shown = request.headers().get(AUTHORIZATION);
        let is_node = identity.as_ref().is_none_or(|it| it.is_shown(shown));
        async move {
            if !is_node {
                let mut refusal = respond(StatusCode::UNAUTHORIZED, TEXT, "Unauthorized\n");
                let asks = HeaderValue::from_static("Bearer realm=\"zedkube\"");
                refusal.headers_mut().insert(WWW_AUTHENTICATE, asks);
                return Ok(refusal);
            }
            let asked = request.uri().path_and_query().map_or("", |it| it.as_str());
            let answer = router.answer(place, own, &patience, request.method(), asked);
            Ok::<_, Infallible>(answer.await)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .keep_alive(false)
        // Who has said all may close that direction, and still gets the answer.
        .half_close(true)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(cause) = served {
        debug!(error = %cause, "a request was not served");
    }
}

#[cfg(test)]
pub(super) mod tests;

/// Share reserved for nodes of the cluster: 8 of 64.
const KEPT_PART: usize = 8;

#[derive(Debug)]
pub(super) struct ConnectionCounts {
    most: usize,
    most_of_one: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl ConnectionCounts {
    pub(super) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, by_address: HashMap::new() }
    }

    /// Counts a connection; false where there is no room. `is_node` is called only for the reserved places.
    pub(super) fn admit(&mut self, from: IpAddr, is_node: impl FnOnce() -> bool) -> bool {
        let of_one = self.by_address.get(&from).copied().unwrap_or_default();
        let all: usize = self.by_address.values().sum();
        let kept = self.most / KEPT_PART;
        if all >= self.most || of_one >= self.most_of_one || (all + kept >= self.most && !is_node()) {
            return false;
        }
        self.by_address.insert(from, of_one + 1);
        true
    }

    pub(super) fn leave(&mut self, from: IpAddr) {
        let left = self.by_address.get(&from).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            self.by_address.remove(&from);
        } else {
            self.by_address.insert(from, left);
        }
    }
}

#[cfg(test)]
mod count_tests {
    use super::*;

    #[test]
    fn one_address_fills_its_own_part_and_all_together_fill_the_whole() {
        let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse().unwrap());
        let mut counts = ConnectionCounts::new(3, 2);
        assert_eq!([a, a, a, b, c].map(|it| counts.admit(it, || false)), [true, true, false, true, false]);
        counts.leave(a);
        assert!(counts.admit(c, || false));
        for it in [a, b, c] {
            counts.leave(it);
        }
        // Old addresses are dropped.
        assert_eq!(counts.by_address.len(), 0);
    }

    #[test]
    fn the_last_places_are_for_nodes_of_the_cluster() {
        let mut counts = ConnectionCounts::new(64, 16);
        let others = (0..60).map(|it| IpAddr::from([10, 1, 0, it]));
        assert_eq!(others.filter(|it| counts.admit(*it, || false)).count(), 56);
        let nodes = (0..9).map(|it| IpAddr::from([10, 2, 0, it]));
        assert_eq!(nodes.filter(|it| counts.admit(*it, || true)).count(), 8);
        counts.leave([10, 1, 0, 1].into());
        assert!(
            !counts.admit([10, 1, 0, 1].into(), || false),
            "a place that is free again is a node's first"
        );
    }
}
