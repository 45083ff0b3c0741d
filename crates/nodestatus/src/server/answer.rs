//! Which path answers what. Every answer is whole, is not to be kept, and fits the request's time.
//!
//! Source: for `/status`, `/app` and `/cluster-app`; the other paths are ours. A path is taken apart here and nothing
//! of it goes further but a UUID.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::Clock;
use bytes::Bytes;
use core::net::SocketAddr;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use kubeapi::{ApiClient, OwnNode};
use pubsub::TopicRoot;
use serde::Serialize;
use sheet::Row;
use tokio::sync::{Semaphore, watch};
use topics::{GoTime, NodeStatus, go_json};
use tracing::warn;
use uuid::Uuid;

use super::metrics::Totals;
use super::node_list::NodeList;
use super::on_demand::{Make, OnDemand, is_server};
use super::peers::{PeerQuestion, Peers};
use super::view::NodeView;
use super::{app, metrics, page};
use crate::cluster_status::NodeAddress;
use crate::identity::ClusterIdentity;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
/// The form that Prometheus reads.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Nothing from elsewhere, no script, no form, no frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
const BUSY: &str = "busy: ask again in some seconds\n";
/// Requests that read files at the same time.
const READERS: usize = 2;
/// Characters of a UUID as it is written in a path.
const UUID_LENGTH: usize = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Status,
    /// With what is folded open.
    Page {
        open: bool,
    },
    Facts,
    Drain,
    Metrics,
    Alive,
    Ready,
    Outage,
    App(Option<Uuid>),
    ClusterApp(Option<Uuid>),
    /// `/app` or `/cluster-app` with something that is no UUID.
    NoApp,
    Nothing,
}

impl Leaf {
    fn at(asked: &str) -> Self {
        let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
        match path {
            "/status" => Self::Status,
            "/" => Self::Page { open: query == "open" },
            "/status.json" => Self::Facts,
            "/drain" => Self::Drain,
            "/metrics" => Self::Metrics,
            "/healthz" => Self::Alive,
            "/readyz" => Self::Ready,
            "/outage" => Self::Outage,
            _ => below(path, "/app", Self::App)
                .or_else(|| below(path, "/cluster-app", Self::ClusterApp))
                .unwrap_or(Self::Nothing),
        }
    }

    /// The methods that it has. Nodes of the reference ask each other for `/app` by POST.
    const fn methods(self) -> &'static str {
        match self {
            Self::App(_) => "GET, HEAD, POST",
            Self::Status
            | Self::Page { .. }
            | Self::Facts
            | Self::Drain
            | Self::Metrics
            | Self::Alive
            | Self::Ready
            | Self::Outage
            | Self::ClusterApp(_) => "GET, HEAD",
            Self::NoApp | Self::Nothing => "",
        }
    }
}

/// What `start` serves with nothing, `/` or `/<uuid>` behind it; `None` for a path that does not begin so.
fn below(path: &str, start: &str, leaf: fn(Option<Uuid>) -> Leaf) -> Option<Leaf> {
    let rest = path.strip_prefix(start)?;
    if rest.is_empty() || rest == "/" {
        return Some(leaf(None));
    }
    let name = rest.strip_prefix('/')?;
    let uuid = Uuid::try_parse(name).ok().filter(|_| name.len() == UUID_LENGTH);
    Some(uuid.map_or(Leaf::NoApp, |uuid| leaf(Some(uuid))))
}

/// Whether an answer waits for other nodes: then it has more time.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerPatience(Arc<AtomicBool>);

impl AnswerPatience {
    /// Whether there is more time.
    pub(super) fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Router {
    topic_root: TopicRoot,
    clock: Clock,
    /// Whether this node is a server of the cluster.
    joined: OnDemand<bool>,
    pub(super) node_list: Arc<NodeList>,
    peers: Peers,
    outage: OnDemand<String>,
    totals: watch::Receiver<Totals>,
    readers: Arc<Semaphore>,
}

impl Router {
    /// `limit` is for each wait for the API, and `peer` for the answer of another node.
    pub(crate) fn new(
        (topic_root, clock): (TopicRoot, Clock),
        (cluster, own_node): (ApiClient, OwnNode),
        (limit, peer): (Duration, Duration),
        bound: watch::Receiver<Option<SocketAddr>>,
        (outage, totals): (Make, watch::Receiver<Totals>),
    ) -> Self {
        let joined = OnDemand::new(is_server(cluster.clone(), own_node), clock, limit);
        let node_list = Arc::new(NodeList::new(cluster, clock, limit, bound));
        let peers = Peers::new(Arc::clone(&node_list), clock, peer);
        let outage = OnDemand::new(outage, clock, limit);
        let readers = Arc::new(Semaphore::new(READERS));
        Self { topic_root, clock, joined, node_list, peers, outage, totals, readers }
    }

    /// The answer to one request; `place` is this node's in its cluster, if it has one, and `own` where its server
    /// listens there. It waits for the API at most as long as
    /// `joined` and `node_list` do, and for other nodes only after it has asked for `patience`.
    pub(super) async fn answer(
        &self,
        place: Option<NodeAddress>,
        own: SocketAddr,
        patience: &AnswerPatience,
        method: &Method,
        path: &str,
    ) -> Response<Full<Bytes>> {
        let leaf = Leaf::at(path);
        match leaf {
            Leaf::Nothing => respond(StatusCode::NOT_FOUND, TEXT, "404 - Not Found\n"),
            Leaf::NoApp => respond(StatusCode::NOT_FOUND, TEXT, "App not found\n"),
            _ if leaf.methods().split(", ").all(|it| it != method.as_str()) => {
                let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "405 - Method Not Allowed");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(leaf.methods()));
                response
            }
            Leaf::Status => {
                let joined = self.joined.read().await.unwrap_or(false);
                let place = place.filter(|_| joined);
                let body = place.map_or_else(String::new, |place| format!("cluster:{}", place.cluster));
                respond(StatusCode::OK, TEXT, body)
            }
            Leaf::Page { open } => self.facts(HTML, move |facts| page::page(&facts, open)).await,
            Leaf::Facts => self.facts(JSON, |facts| indented(&facts.0)).await,
            Leaf::Drain => self.read(JSON, |view, now| indented(&view.drain.judge(now).headline)).await,
            Leaf::Metrics => {
                let totals = self.totals.borrow().clone();
                self.read(METRICS, move |view, now| metrics::metrics(&view, &totals, now)).await
            }
            Leaf::Alive => respond(StatusCode::OK, TEXT, "ok\n"),
            Leaf::Ready => match self.view(|view, _| waits_for(&view)).await.flatten() {
                None => respond(StatusCode::OK, TEXT, "ok\n"),
                Some(what) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {what}\n")),
            },
            Leaf::Outage => match self.outage.read().await {
                Some(statement) => respond(StatusCode::OK, JSON, statement),
                None => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, BUSY),
            },
            Leaf::App(app) => {
                made(JSON, self.look(move |topic_root, now| report(topic_root, app, now)).await)
            }
            Leaf::ClusterApp(app) => {
                patience.give();
                let own_report = async {
                    let report = self.look(move |topic_root, now| report(topic_root, app, now)).await;
                    report.unwrap_or_else(|| "{}".to_owned())
                };
                match self.peers.answer(PeerQuestion { app, own }, own_report, self.identity()).await {
                    Some(answer) => respond(StatusCode::OK, JSON, answer),
                    None => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, BUSY),
                }
            }
        }
    }

    /// What the nodes of this cluster show each other; `None` while its join token is not known.
    pub(super) async fn identity(&self) -> Option<ClusterIdentity> {
        self.look(|topic_root, _| ClusterIdentity::read(topic_root)).await.flatten()
    }

    /// An answer out of all that is known of this node and the others.
    async fn facts(
        &self,
        kind: &'static str,
        make: impl FnOnce((NodeStatus, Vec<Row>)) -> String + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let known = self.node_list.with_words(page::WAIT).await;
        self.read(kind, move |view, now| make(page::report(view, known.as_ref(), now))).await
    }

    /// An answer that is made out of files.
    async fn read(
        &self,
        kind: &'static str,
        make: impl FnOnce(NodeView, GoTime) -> String + Send + 'static,
    ) -> Response<Full<Bytes>> {
        made(kind, self.view(make).await)
    }

    async fn view<T: Send + 'static>(
        &self,
        make: impl FnOnce(NodeView, GoTime) -> T + Send + 'static,
    ) -> Option<T> {
        let clock = self.clock;
        self.look(move |topic_root, now| make(NodeView::read(topic_root, clock), now)).await
    }

    /// Reads files where it holds nobody up, few at a time. Dropping it leaves a reading under way to its end.
    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TopicRoot, GoTime) -> T + Send + 'static,
    ) -> Option<T> {
        let seat = Arc::clone(&self.readers).acquire_owned().await.ok()?;
        let (topic_root, now) = (self.topic_root.clone(), self.clock.wall());
        let work = tokio::task::spawn_blocking(move || {
            let told = work(&topic_root, now);
            drop(seat);
            told
        });
        work.await.ok()
    }
}

/// What this node knows, as text.
fn report(topic_root: &TopicRoot, app: Option<Uuid>, now: GoTime) -> String {
    indented(&app::collect(topic_root, app, now))
}

fn indented(value: &impl Serialize) -> String {
    let text = go_json::to_vec_indented(value).map(String::from_utf8);
    if let Ok(Ok(text)) = text {
        return topics::harmless_json(&text);
    }
    warn!("an answer has no JSON form");
    "{}".to_owned()
}

/// An answer that was made; none when its task has gone.
fn made(kind: &'static str, body: Option<String>) -> Response<Full<Bytes>> {
    match body {
        Some(body) => respond(StatusCode::OK, kind, body),
        None => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "500 - no answer\n"),
    }
}

/// What has to be known before drains of this node can be told.
fn waits_for(view: &NodeView) -> Option<&'static str> {
    if view.node.is_empty() {
        return Some("the name of this node is not known yet");
    }
    view.drain.progress.is_none().then_some("nothing is known of this node's drain yet")
}

pub(super) fn respond(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_letter_of_a_text_acts_on_the_terminal_that_shows_an_answer() {
        let text = "BLOCKED: \u{1b}[2J\u{9b}\u{202e}";
        let answer = indented(&topics::Headline { text: text.to_owned(), ..topics::Headline::default() });
        assert!(!answer.chars().any(|it| it != '\n' && topics::acts(it)), "{answer:?}");
        assert_eq!(serde_json::from_str::<topics::Headline>(&answer).unwrap().text, text);
    }

    #[test]
    fn a_path_is_a_leaf_with_a_uuid_or_none_at_all() {
        let text = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
        let uuid = Some(Uuid::try_parse(text).unwrap());
        for (path, leaf) in [
            ("/app".to_owned(), Leaf::App(None)),
            ("/app/".to_owned(), Leaf::App(None)),
            (format!("/app/{text}"), Leaf::App(uuid)),
            (format!("/app/{}", text.to_uppercase()), Leaf::App(uuid)),
            ("/cluster-app".to_owned(), Leaf::ClusterApp(None)),
            (format!("/cluster-app/{text}"), Leaf::ClusterApp(uuid)),
            (format!("/app/{text}/"), Leaf::NoApp),
            (format!("/app//{text}"), Leaf::NoApp),
            (format!("/app/{}", text.replace('-', "")), Leaf::NoApp),
            (format!("/app/{{{text}}}"), Leaf::NoApp),
            (format!("/app/{}", &text[..8]), Leaf::NoApp),
            ("/app/../../../etc/passwd".to_owned(), Leaf::NoApp),
            ("/app/%2e%2e".to_owned(), Leaf::NoApp),
            ("/cluster-app/*".to_owned(), Leaf::NoApp),
            ("/?open".to_owned(), Leaf::Page { open: true }),
            ("/drain?open".to_owned(), Leaf::Drain),
            ("/apps".to_owned(), Leaf::Nothing),
            ("/application".to_owned(), Leaf::Nothing),
            ("/App".to_owned(), Leaf::Nothing),
            (String::new(), Leaf::Nothing),
        ] {
            assert_eq!(Leaf::at(&path), leaf, "{path}");
        }
    }
}
