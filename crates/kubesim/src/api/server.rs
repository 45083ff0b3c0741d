//! The API as a service in the process, and over HTTP on the loopback address.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

use crate::SimShared;
use crate::api;
use crate::failure::Failure;
use crate::faults::ScriptedFault;
use crate::kubelets;
use crate::node_state::{ANSWERS, REQUESTS};
use crate::request::{SimRequest, SimResponse};

pub type SimBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The API; cloneable, to be given to `kube::Client::new`.
#[derive(Clone)]
pub struct SimService {
    shared: Arc<SimShared>,
    /// The client's node; empty for other clients.
    from: String,
}

impl SimService {
    pub(crate) fn new(shared: Arc<SimShared>, from: &str) -> Self {
        Self { shared, from: from.to_owned() }
    }

    fn is_lost(&self, what: &str) -> bool {
        kubelets::is_lost(&self.shared.store(), &self.from, what)
    }

    /// Returns once this node hears nothing of the API.
    async fn deaf(self) {
        while !self.from.is_empty() {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_lost(ANSWERS) {
                return;
            }
            changed.await;
        }
        std::future::pending::<()>().await;
    }

    async fn serve<B>(self, request: Request<B>) -> Result<Response<SimBody>, std::io::Error>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes().to_vec();
        let uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        if self.is_lost(REQUESTS) {
            std::future::pending::<()>().await;
        }
        let mut late = None;
        match self.shared.faults.meet(parts.method.as_str(), &uri, &body) {
            None => {}
            Some(ScriptedFault::LateReply(wait)) => late = Some(wait),
            Some(ScriptedFault::Delay(wait)) => tokio::time::sleep(wait).await,
            Some(ScriptedFault::Hang) => std::future::pending().await,
            Some(ScriptedFault::Cut) => return Err(std::io::Error::other("scripted cut")),
            Some(ScriptedFault::Status { code, reason, message, retry_after }) => {
                return failed(code, &Failure::new(code, &reason, message).status(), retry_after);
            }
            Some(ScriptedFault::Recorded { code, status, retry_after }) => {
                return failed(code, &status, retry_after);
            }
        }
        let is_health = ["/readyz", "/healthz", "/livez"].contains(&parts.uri.path());
        if !self.shared.has_quorum() && (parts.method != http::Method::GET || is_health) {
            let why = "etcdserver: request timed out";
            return json(500, &Failure::new(500, "InternalError", why).status());
        }
        let header =
            |name| parts.headers.get(name).and_then(|it: &HeaderValue| it.to_str().ok()).unwrap_or_default();
        let asked = SimRequest {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: query(parts.uri.query().unwrap_or_default()),
            content_type: header(http::header::CONTENT_TYPE).to_owned(),
            accept: header(http::header::ACCEPT).to_owned(),
            body,
        };
        let said = api::answer(&self.shared, &asked);
        if let Some(wait) = late {
            tokio::time::sleep(wait).await;
        }
        if self.is_lost(ANSWERS) {
            std::future::pending::<()>().await;
        }
        match said {
            SimResponse::Json(code, value) => json(code, &value),
            SimResponse::Text(code, text) => respond(code, "text/plain", whole(text)),
            SimResponse::Watch(watch) => {
                let both = (Box::pin(watch.lines()), Box::pin(self.deaf()));
                let lines = futures::stream::unfold(both, |(mut lines, mut cut)| async move {
                    tokio::select! {
                        // A watch of a cut-off node stays open and silent.
                        biased;
                        () = &mut cut => std::future::pending().await,
                        line = lines.next() => Some((line?, (lines, cut))),
                    }
                });
                let frames = StreamBody::new(lines.map(|line| line.map(Frame::data)));
                respond(200, "application/json", frames.boxed_unsync())
            }
        }
    }
}

fn failed(
    code: u16,
    status: &serde_json::Value,
    retry_after: Option<u64>,
) -> Result<Response<SimBody>, std::io::Error> {
    let mut response = json(code, status)?;
    if let Some(secs) = retry_after {
        response.headers_mut().insert(http::header::RETRY_AFTER, secs.into());
    }
    Ok(response)
}

fn json(code: u16, value: &serde_json::Value) -> Result<Response<SimBody>, std::io::Error> {
    respond(code, "application/json", whole(value.to_string()))
}

fn whole(text: String) -> SimBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn respond(code: u16, kind: &str, body: SimBody) -> Result<Response<SimBody>, std::io::Error> {
    Response::builder().status(code).header("content-type", kind).body(body).map_err(std::io::Error::other)
}

/// `a=b&c=d`, with percent signs decoded.
fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (plain(name), plain(value))
        })
        .collect()
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: Vec<u8> = left.by_ref().take(2).collect();
                let number = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.push(number.unwrap_or(b'%'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl<B> tower::Service<Request<B>> for SimService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<SimBody>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<SimBody>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.clone().serve(request))
    }
}

/// Ends when it is dropped.
pub struct SimServer {
    address: SocketAddr,
    #[cfg(feature = "tls")]
    tls: Option<Arc<super::tls::Tls>>,
    _tasks: JoinSet<()>,
}

impl SimServer {
    pub(crate) async fn start(service: SimService) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, service, |stream| std::future::ready(Ok(stream))));
        Ok(Self {
            address,
            #[cfg(feature = "tls")]
            tls: None,
            _tasks: tasks,
        })
    }

    #[cfg(feature = "tls")]
    pub(crate) async fn start_tls(service: SimService, tls: super::tls::Tls) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (mut tasks, tls) = (JoinSet::new(), Arc::new(tls));
        let acceptor = tls.acceptor();
        tasks.spawn(accept(listener, service, move |stream| acceptor.accept(stream)));
        Ok(Self { address, tls: Some(tls), _tasks: tasks })
    }

    /// New connections get a certificate with these dates, as after its renewal.
    ///
    /// # Panics
    /// It has none.
    #[cfg(feature = "tls")]
    pub fn renew(&self, dates: std::ops::Range<std::time::SystemTime>) {
        let tls = self.tls.as_ref();
        #[expect(clippy::expect_used, reason = "for tests: a panic is their way to fail")]
        tls.expect("a server over TLS").renew(dates);
    }

    pub fn url(&self) -> String {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return format!("https://{}", self.address);
        }
        format!("http://{}", self.address)
    }

    /// A kubeconfig that leads here. It holds no secret: the token is any, as `kubectl` asks for one over TLS.
    pub fn kubeconfig(&self) -> String {
        #[cfg(feature = "tls")]
        let authority = self.tls.as_ref().map(|it| it.authority()).unwrap_or_default();
        #[cfg(not(feature = "tls"))]
        let authority = "";
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: kubesim\nclusters:\n- name: kubesim\n  cluster:\n    \
             server: {}\n{authority}contexts:\n- name: kubesim\n  context:\n    cluster: kubesim\n    user: kubesim\n\
             users:\n- name: kubesim\n  user:\n    token: any\n",
            self.url()
        )
    }
}

/// Serves each connection; `open` wraps it, for example with TLS.
async fn accept<O, F, S>(listener: TcpListener, service: SimService, open: O)
where
    O: Fn(TcpStream) -> F,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (service, opened) = (service.clone(), open(stream));
        connections.spawn(async move {
            let serve = hyper::service::service_fn(move |request| service.clone().serve(request));
            let stream = match opened.await {
                Ok(stream) => TokioIo::new(stream),
                Err(error) => return debug!(%error, "a connection was not opened"),
            };
            if let Err(error) =
                hyper::server::conn::http1::Builder::new().serve_connection(stream, serve).await
            {
                debug!(%error, "a connection ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
