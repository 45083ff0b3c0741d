//! The one door to the API server: a deadline for every call, answers as values.
//!
//! Not here: what to call, what an answer means (`reply`), retries, address and credentials (`kubeconfig`). The raw
//! response is read because kube drops the `Retry-After` header.
//!
//! An answer of the API server as values: body, date, refusal.
//!
//! Answers shared by several callers: lists that are read once in a look, and the server's clock.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use kube::core::{Status, request};
use serde::de::DeserializeOwned;
use served::{ReadAdvice, ServedGroups};
use step::LiteMap;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, timeout};
use tower::BoxError;
use tracing::debug;

use crate::connect::ClusterEndpoint;
use crate::connect::credential::Credential;
use crate::error::{CausedBody, Error, cause};
use crate::kubeconfig::KubeconfigFile;
use crate::nodes::MachineIds;
use crate::reply::ApiAnswer;
use crate::settling::{Settling, now};

mod served;

/// Limit of one call (the reference waits as long).
pub const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Limit of a reachability probe. Generous, as a long silence leads to a skip.
pub const PROBE_LIMIT: Duration = Duration::from_secs(15);
/// Largest answer: a list of three thousand pods of 20 kB. Lists are read in pages.
const ANSWER_LIMIT_BYTES: usize = 64 << 20;

pub type BuiltRequest = Result<Request<Vec<u8>>, request::Error>;

/// Clones share the connection.
#[derive(Clone)]
pub struct ApiClient {
    source: Arc<ClientSource>,
    settling: Arc<Settling>,
    served: Arc<ServedGroups>,
    under_way: CallsUnderWay,
    call_limit: Duration,
    answer_limit_bytes: usize,
    machine: Arc<MachineIds>,
    dates: ServerDates,
    shared: Option<Arc<SharedReads>>,
}

enum ClientSource {
    File(Arc<KubeconfigFile>),
    Given { client: Client, via: String },
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("ApiClient").field(&self.via()).finish()
    }
}

impl ApiClient {
    /// The cluster of the kubeconfig at `path`, which may appear later: it is read at the next call, and
    /// again after it has changed or a call found its address or credentials invalid.
    pub fn from_kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self::from_source(ClientSource::File(Arc::new(KubeconfigFile::new(path.into()))))
    }

    /// The client's retry policy must be off.
    pub fn from_client(client: Client) -> Self {
        Self::from_client_at(client, "the client given")
    }

    /// The same, with the origin that errors name.
    pub(crate) fn from_client_at(client: Client, via: &str) -> Self {
        Self::from_source(ClientSource::Given { client, via: via.to_owned() })
    }

    fn from_source(source: ClientSource) -> Self {
        Self {
            source: Arc::new(source),
            settling: Arc::default(),
            served: Arc::default(),
            under_way: CallsUnderWay::default(),
            call_limit: CALL_LIMIT,
            answer_limit_bytes: ANSWER_LIMIT_BYTES,
            machine: Arc::default(),
            dates: ServerDates::default(),
            shared: None,
        }
    }

    /// The same for this machine: a Node that another machine has reported is not its own.
    #[must_use]
    pub fn on_machine(mut self, machine: MachineIds) -> Self {
        self.machine = Arc::new(machine);
        self
    }

    /// The same for one look: each list of the collection at `path` is read once, for all callers.
    #[must_use]
    pub fn reading_once(mut self, path: String) -> Self {
        self.shared = Some(Arc::new(SharedReads::of(path)));
        self
    }

    pub fn machine(&self) -> &MachineIds {
        &self.machine
    }

    #[must_use]
    pub(crate) fn with_answer_limit(mut self, bytes: usize) -> Self {
        self.answer_limit_bytes = bytes;
        self
    }

    #[must_use]
    pub fn with_call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Where address and credentials come from, for a person.
    pub fn via(&self) -> String {
        match &*self.source {
            ClientSource::File(file) => format!("kubeconfig {}", file.path().display()),
            ClientSource::Given { via, .. } => via.clone(),
        }
    }

    /// For a person; its source where the address is not known yet.
    pub fn address(&self) -> String {
        let address = self.file().map(|it| it.address()).unwrap_or_default();
        if address.is_empty() { self.via() } else { address.trim_end_matches('/').to_owned() }
    }

    /// Sends `request` and decodes the answer. After dropping the future it is unknown whether the server has
    /// carried out the call.
    pub async fn ask<T: DeserializeOwned>(&self, what: &str, request: BuiltRequest) -> Result<T, Error> {
        self.ask_within(self.call_limit, what, request).await
    }

    /// [`ApiClient::ask`] for what a server says of itself at `path`.
    pub async fn ask_path<T: DeserializeOwned>(&self, what: &str, path: &str) -> Result<T, Error> {
        self.ask(what, of_path(path)).await
    }

    /// [`ApiClient::ask`] with its own limit.
    pub async fn ask_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        what: &str,
        request: BuiltRequest,
    ) -> Result<T, Error> {
        let (body, _) = self.send(limit, what, request).await?;
        decode(what, &body)
    }

    /// [`ApiClient::ask`], with the time of the answer by the server's clock, or by ours where it gives none.
    pub async fn ask_dated<T: DeserializeOwned>(
        &self,
        what: &str,
        request: BuiltRequest,
    ) -> Result<(T, Timestamp), Error> {
        let (answer, date) = self.ask_with_date(what, request).await?;
        Ok((answer, date.unwrap_or_else(Timestamp::now)))
    }

    /// The same; `None` where the server gives no time.
    pub async fn ask_with_date<T: DeserializeOwned>(
        &self,
        what: &str,
        request: BuiltRequest,
    ) -> Result<(T, Option<Timestamp>), Error> {
        let (body, date) = self.send(self.call_limit, what, request).await?;
        Ok((decode(what, &body)?, date))
    }

    /// The server's clock, from an answer of the last minute.
    pub fn server_time(&self) -> Option<ServerDate> {
        self.dates.now()
    }

    /// `None` for a given client.
    fn file(&self) -> Option<&Arc<KubeconfigFile>> {
        match &*self.source {
            ClientSource::Given { .. } => None,
            ClientSource::File(file) => Some(file),
        }
    }

    /// What we show the server, where it has an end; `None` for a given client.
    pub fn credential(&self) -> Result<Option<Credential>, String> {
        self.file().map_or(Ok(None), |it| it.credential())
    }

    /// `None` for a given client.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.file().map(|it| it.path())
    }

    /// Content of the kubeconfig, and the token that is written in it; both are secrets.
    pub(crate) fn inline_token(&self) -> Result<Option<(String, String)>, Error> {
        self.file().map_or(Ok(None), |it| it.inline_token())
    }

    /// `None` for a given client.
    pub fn place(&self) -> Result<Option<ClusterEndpoint>, Error> {
        self.file().map(|it| it.place()).transpose()
    }

    pub(crate) async fn read(&self, what: &str, request: BuiltRequest) -> Result<Vec<u8>, Error> {
        self.send(self.call_limit, what, request).await.map(|(body, _)| body)
    }

    /// Sends `request` for its effect: any 2xx is success, with any body.
    pub async fn order(&self, what: &str, request: BuiltRequest) -> Result<(), Error> {
        self.send(self.call_limit, what, request).await.map(drop)
    }

    /// Starts `call` now and completes it even when the future is dropped: for calls whose effect the server
    /// counts before it answers.
    pub fn to_its_end<T, F>(&self, call: F) -> impl Future<Output = T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.under_way.to_its_end(call)
    }

    /// Waits up to `limit` until no such call is under way; returns whether none is. Dropping it loses
    /// nothing.
    pub async fn ended(&self, limit: Duration) -> bool {
        self.under_way.ended(limit).await
    }

    async fn send(&self, limit: Duration, what: &str, request: BuiltRequest) -> Result<DatedBody, Error> {
        let shared = self.shared.as_ref().zip(request.as_ref().ok());
        match shared.and_then(|(all, request)| all.of_request(request)) {
            Some(one) => {
                let answer = one.get_or_try_init(|| self.send_alone(limit, what, request)).await;
                answer.cloned()
            }
            None => self.send_alone(limit, what, request).await,
        }
    }

    async fn send_alone(
        &self,
        limit: Duration,
        what: &str,
        request: BuiltRequest,
    ) -> Result<DatedBody, Error> {
        let answer = match timeout(limit, Box::pin(self.exchange(what, request))).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Error::Silent { what: what.to_owned(), limit }),
        };
        answer.map_err(|error| self.failed(what, error))
    }

    /// Checks again which kinds are not installed: for callers that are about to act on that.
    pub fn doubt_absent(&self) {
        self.served.doubt();
    }

    /// Refuses a read of a kind that is known not to be installed.
    async fn is_there(&self, what: &str, request: &Request<Vec<u8>>) -> Result<(), Error> {
        match served::group(request.uri().path()).filter(|_| request.method() == Method::GET) {
            Some(group) if self.lacks(group).await => Err(refused(what, ApiAnswer::unknown_kind())),
            Some(_) | None => Ok(()),
        }
    }

    pub async fn lacks(&self, group: &str) -> bool {
        if self.served.advice(group) == ReadAdvice::Look {
            // Boxed: it is rare, and each call would carry its size.
            Box::pin(self.look_at_groups(|| self.served.advice(group) == ReadAdvice::Look)).await;
        }
        self.served.advice(group) == ReadAdvice::Absent
    }

    /// Notes that a server does not know the kind of a path.
    async fn note_absent(&self, path: &str, error: &Error) {
        let unknown = matches!(error, Error::Refused { answer, .. } if answer.is_unknown_kind());
        if let Some(group) = served::group(path).filter(|_| unknown) {
            Box::pin(self.look_at_groups(|| self.served.wants_look(group))).await;
        }
    }

    /// Reads the API groups, one task at a time, if still `wanted` then.
    async fn look_at_groups(&self, wanted: impl Fn() -> bool) {
        let _one_at_a_time = self.served.looking.lock().await;
        if wanted() {
            let what = "read the API groups";
            let list = match of_path("/apis") {
                Ok(request) => {
                    self.exchange_raw(what, request).await.and_then(|(body, _)| decode(what, &body))
                }
                Err(source) => Err(unaskable(what, source)),
            };
            // Without an answer each kind is asked for.
            self.served.looked(list.inspect_err(|error| debug!(error = error.line(), "no API groups")).ok());
        }
    }

    async fn exchange(&self, what: &str, request: BuiltRequest) -> Result<DatedBody, Error> {
        let request = request.map_err(|source| unaskable(what, source))?;
        self.is_there(what, &request).await?;
        let path = request.uri().path().to_owned();
        let answer = self.exchange_raw(what, request).await;
        if let Err(error) = &answer {
            self.note_absent(&path, error).await;
        }
        answer
    }

    async fn exchange_raw(&self, what: &str, request: Request<Vec<u8>>) -> Result<DatedBody, Error> {
        debug!(call = what, method = %request.method(), uri = %request.uri(), "call");
        let client = self.client().await?;
        let response =
            client.send(request.map(Body::from)).await.map_err(|source| self.unsent(what, cause(source)))?;
        let (parts, body) = response.into_parts();
        let body =
            read_body(body, self.answer_limit_bytes).await.map_err(|source| self.unsent(what, source))?;
        if parts.status.is_success() {
            let date = date(&parts.headers);
            self.dates.take(date);
            return Ok((body, date));
        }
        let answer = read_answer(parts.status.as_u16(), &parts.headers, &body);
        Err(refused(what, answer))
    }

    /// Opens a watch. The limit is for the opening only; the caller limits the silence between events.
    pub(crate) async fn watch(&self, what: &str, request: BuiltRequest) -> Result<CausedBody, Error> {
        let plain = HeaderValue::from_static("identity");
        let request = request.map(|mut request| {
            // Servers from 1.37 on compress each event on its own, and only the first would be read.
            request.headers_mut().entry(ACCEPT_ENCODING).or_insert(plain);
            request
        });
        self.open(what, request).await.map(|(body, _)| body)
    }

    /// Sends `request` and opens its answer for reading in pieces. The limit, which is returned, is for the
    /// opening; the caller limits the pieces.
    pub async fn open(&self, what: &str, request: BuiltRequest) -> Result<(CausedBody, Duration), Error> {
        let request = request.map_err(|source| unaskable(what, source))?;
        let opening = async {
            self.is_there(what, &request).await?;
            debug!(call = what, uri = %request.uri(), "open");
            let client = self.client().await?;
            let response =
                client.send(request.map(Body::from)).await.map_err(|it| self.unsent(what, cause(it)))?;
            let (parts, body) = response.into_parts();
            if parts.status.is_success() {
                return Ok(body.map_err(cause as _));
            }
            let body =
                read_body(body, self.answer_limit_bytes).await.map_err(|source| self.unsent(what, source))?;
            Err(refused(what, read_answer(parts.status.as_u16(), &parts.headers, &body)))
        };
        let opened = match timeout(self.call_limit, opening).await {
            Ok(opened) => opened,
            Err(_elapsed) => Err(Error::Silent { what: what.to_owned(), limit: self.call_limit }),
        };
        opened.map(|body| (body, self.call_limit)).map_err(|error| self.failed(what, error))
    }

    fn failed(&self, what: &str, error: Error) -> Error {
        let error = settled(&self.settling, &self.via(), error);
        debug!(call = what, error = error.line(), "call failed");
        self.forget_after(&error);
        error
    }

    /// Returns when the kubeconfig changes or appears; never for a given client.
    pub async fn renewed(&self) {
        match self.file() {
            None => std::future::pending().await,
            Some(file) => file.renewed().await,
        }
    }

    async fn client(&self) -> Result<Client, Error> {
        match &*self.source {
            ClientSource::Given { client, .. } => Ok(client.clone()),
            ClientSource::File(file) => Box::pin(file.client_within_limit()).await,
        }
    }

    /// The kubeconfig may name certificate files, which change without it: after a failure that may come from
    /// them the next call reads everything again.
    fn forget_after(&self, error: &Error) {
        let refused = matches!(error, Error::Refused { answer, .. } if answer.code == 401);
        let credentials = refused || matches!(error, Error::Connection { .. });
        if let Some(file) = self.file().filter(|_| credentials) {
            file.forget();
        }
    }

    fn unsent(&self, what: &str, source: BoxError) -> Error {
        Error::Connection { what: what.to_owned(), via: self.via(), source }
    }

    /// The error of an answer that was cut.
    pub(crate) fn cut(&self, what: &str, source: BoxError) -> Error {
        settled(&self.settling, &self.via(), self.unsent(what, source))
    }
}

fn decode<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|source| Error::Garbled { what: what.to_owned(), source })
}

/// Adds what is known of the server: whether it has just come back, and where its address comes from.
fn settled(settling: &Settling, via: &str, mut error: Error) -> Error {
    if let Error::Refused { answer, .. } = &mut error {
        answer.just_back = settling.lasts();
        via.clone_into(&mut answer.via);
    } else if matches!(error, Error::Connection { .. } | Error::Silent { .. }) {
        settling.away();
    }
    error
}

fn refused(what: &str, answer: ApiAnswer) -> Error {
    Error::Refused { what: what.to_owned(), answer: Box::new(answer) }
}

fn of_path(path: &str) -> BuiltRequest {
    Request::get(path).body(Vec::new()).map_err(request::Error::BuildRequest)
}

fn unaskable(what: &str, source: request::Error) -> Error {
    Error::Unaskable { what: what.to_owned(), source: source.into() }
}

/// The error of a `Status` within a watch.
pub(crate) fn failure(what: &str, status: &str) -> Error {
    match serde_json::from_slice::<Status>(status.as_bytes()) {
        Ok(status) => refused(what, from_status(&status)),
        Err(source) => Error::Garbled { what: what.to_owned(), source },
    }
}

/// Shown of an answer that is no `Status`.
const SHOWN_BYTES: usize = 300;

/// The body in one piece, each byte copied once.
async fn read_body(body: Body, most_bytes: usize) -> Result<Vec<u8>, BoxError> {
    let mut body = Limited::new(body.map_err(cause), most_bytes);
    let expected = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut whole = Vec::with_capacity(expected.unwrap_or_default().min(most_bytes));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole)
}

/// The server's time of the answer.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    // An HTTP date is one of RFC 2822.
    jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

/// Reads an answer that is not 2xx. A body that is no `Status` is shown, cut.
fn read_answer(code: u16, headers: &HeaderMap, body: &[u8]) -> ApiAnswer {
    // Dates are allowed by HTTP; the API server and its proxies send seconds.
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let mut answer = match serde_json::from_slice::<Status>(body) {
        Ok(status) => from_status(&status),
        Err(_not_a_status) => ApiAnswer {
            message: String::from_utf8_lossy(body.get(..SHOWN_BYTES).unwrap_or(body)).trim().to_owned(),
            ..ApiAnswer::default()
        },
    };
    answer.code = code;
    if let Some(secs) = header {
        answer.retry_after = Some(Duration::from_secs(secs));
    }
    answer
}

fn from_status(status: &Status) -> ApiAnswer {
    let details = status.details.as_ref();
    let secs = details.map_or(0, |details| details.retry_after_seconds);
    ApiAnswer {
        code: status.code,
        reason: status.reason.clone(),
        message: status.message.clone(),
        causes: details
            .map(|details| details.causes.iter().map(|it| (it.reason.clone(), it.message.clone())).collect())
            .unwrap_or_default(),
        just_back: false,
        via: String::new(),
        kind: details.map(|it| it.kind.clone()).unwrap_or_default(),
        retry_after: (secs > 0).then(|| Duration::from_secs(secs.into())),
    }
}

/// How long the date of an answer is used.
const FRESH: Duration = Duration::from_mins(1);

type DatedBody = (Vec<u8>, Option<Timestamp>);

/// The lists of one collection, each read once. A failed list is read again.
struct SharedReads {
    path: String,
    read: Mutex<LiteMap<String, Arc<OnceCell<DatedBody>>>>,
}

impl SharedReads {
    fn of(path: String) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// The cell for the answer to `request`, where others may use it too.
    fn of_request(&self, request: &Request<Vec<u8>>) -> Option<Arc<OnceCell<DatedBody>>> {
        if request.method() != Method::GET || request.uri().path() != self.path {
            return None;
        }
        // A panic of another reader leaves each entry whole.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(read.entry(request.uri().to_string()).or_default()))
    }
}

/// The server's clock; `None` where it is unknown.
#[derive(Clone, Copy)]
pub struct ServerDate(pub Option<Timestamp>);

#[derive(Clone, Default)]
struct ServerDates(Arc<Mutex<Option<(ServerDate, Instant)>>>);

impl ServerDates {
    fn take(&self, date: Option<Timestamp>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((ServerDate(date), now()));
    }

    fn now(&self) -> Option<ServerDate> {
        let (date, at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let age = now().duration_since(at);
        let since = SignedDuration::try_from(age).unwrap_or_default();
        (age <= FRESH).then(|| ServerDate(date.0.map(|it| it.saturating_add(since).unwrap_or(it))))
    }
}

/// Calls that are completed even when their caller is dropped: where a disruption budget has counted a cut-off
/// eviction, Kubernetes takes the pod for disrupted and allows no other one for two minutes. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct CallsUnderWay(watch::Sender<usize>);

impl Default for CallsUnderWay {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|it| *it = it.saturating_sub(1));
    }
}

impl CallsUnderWay {
    /// Starts `call` now; it ends by itself.
    pub(crate) fn to_its_end<T, F>(&self, call: F) -> impl Future<Output = T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.0.send_modify(|it| *it += 1);
        let counted = Counted(self.0.clone());
        #[expect(clippy::disallowed_methods, reason = "it outlives who asked; `ended` waits for it")]
        let task = tokio::spawn(async move {
            let _counted = counted;
            call.await
        });
        async move {
            match task.await {
                Ok(done) => done,
                Err(cause) if cause.is_panic() => std::panic::resume_unwind(cause.into_panic()),
                // The runtime is being shut down.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Waits up to `limit` until none is under way; returns whether none is. Dropping it loses nothing.
    pub(crate) async fn ended(&self, limit: Duration) -> bool {
        let mut count = self.0.subscribe();
        let none = timeout(limit, count.wait_for(|it| *it == 0)).await;
        matches!(none, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test(start_paused = true)]
    async fn t13_a_call_that_nobody_waits_for_comes_to_its_end_and_can_be_waited_for_so_long() {
        let calls = CallsUnderWay::default();
        let (sender, begun) = oneshot::channel();
        let (answer, answered) = oneshot::channel::<()>();
        let call = calls.to_its_end(async move {
            assert!(sender.send(()).is_ok());
            answered.await
        });
        begun.await.unwrap();
        drop(call);
        assert!(!calls.clone().ended(Duration::from_secs(5)).await);
        answer.send(()).unwrap();
        assert!(calls.ended(Duration::from_secs(5)).await);
        assert_eq!(calls.to_its_end(async { 7 }).await, 7);
    }
}
