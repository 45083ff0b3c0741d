//! A scripted API server in process, for the tests beside the calls.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "for tests: a panic is their way to fail"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use step::Mono;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::BoxError;

use crate::client::ApiClient;

#[expect(clippy::disallowed_methods, reason = "a test is its own door to the clock")]
pub fn clock() -> impl Fn() -> Mono {
    let start = Instant::now();
    move || Mono::from_start(start.elapsed())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    pub line: String,
    /// Empty without it.
    pub content_type: String,
    pub body: String,
}

pub enum MockReply {
    Full(u16, Vec<(&'static str, &'static str)>, String),
    /// Lines, then the end of the body, endless silence, or an error.
    Lines(Vec<String>, AfterLines),
    /// Lines as they come, until the sender is dropped; an error cuts the body.
    Live(mpsc::UnboundedReceiver<Result<String, &'static str>>),
    Refused(&'static str),
    Silence,
}

#[derive(Debug, Clone, Copy)]
pub enum AfterLines {
    End,
    Silence,
    Cut,
}

pub fn object(body: &Value) -> MockReply {
    MockReply::Full(200, vec![], body.to_string())
}

pub fn status(code: u16, message: &str) -> MockReply {
    let body =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
    MockReply::Full(code, vec![], body.to_string())
}

pub fn list(version: &str, items: &[Value]) -> MockReply {
    object(
        &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
    )
}

pub fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

#[derive(Clone, Default)]
pub struct RecordedCalls(Arc<Mutex<Vec<RecordedCall>>>);

impl RecordedCalls {
    pub fn all(&self) -> Vec<RecordedCall> {
        self.0.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.all().into_iter().map(|call| call.line).collect()
    }
}

/// Gives `answers` in this order, and then none.
pub fn cluster(answers: Vec<MockReply>) -> (ApiClient, RecordedCalls) {
    let mut script = VecDeque::from(answers);
    server(move |_| script.pop_front().unwrap_or(MockReply::Silence))
}

pub fn server(answer: impl FnMut(&RecordedCall) -> MockReply + Send + 'static) -> (ApiClient, RecordedCalls) {
    let calls = RecordedCalls::default();
    let script = Arc::new(Mutex::new(answer));
    let seen = calls.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (script, seen) = (Arc::clone(&script), seen.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let call = RecordedCall {
                line: format!("{} {}", parts.method, parts.uri),
                content_type: parts
                    .headers
                    .get("content-type")
                    .map(|value| value.to_str().unwrap().to_owned())
                    .unwrap_or_default(),
                body: String::from_utf8(body.to_vec()).unwrap(),
            };
            let answer = (*script.lock().unwrap())(&call);
            seen.0.lock().unwrap().push(call);
            respond(answer).await
        }
    });
    (ApiClient::from_client(Client::new(service, "default")), calls)
}

type Stream = stream::BoxStream<'static, Result<Frame<Bytes>, BoxError>>;

async fn respond(answer: MockReply) -> Result<Response<StreamBody<Stream>>, BoxError> {
    let data = |text: String| Ok::<_, BoxError>(Frame::data(Bytes::from(text)));
    let (code, headers, frames): (_, _, Stream) = match answer {
        MockReply::Full(code, headers, body) => (code, headers, stream::iter([data(body)]).boxed()),
        MockReply::Lines(lines, then) => {
            let frames = stream::iter(lines.into_iter().map(move |line| data(format!("{line}\n"))));
            let frames = match then {
                AfterLines::End => frames.boxed(),
                AfterLines::Silence => frames.chain(stream::pending()).boxed(),
                AfterLines::Cut => {
                    frames.chain(stream::iter([Err("connection reset by peer".into())])).boxed()
                }
            };
            (200, vec![], frames)
        }
        MockReply::Live(lines) => {
            let lines = stream::unfold(lines, |mut lines| async move { Some((lines.recv().await?, lines)) });
            let frame = move |line: Result<String, &'static str>| data(format!("{}\n", line?));
            (200, vec![], lines.map(frame).boxed())
        }
        MockReply::Refused(text) => return Err(text.into()),
        MockReply::Silence => std::future::pending().await,
    };
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(StreamBody::new(frames))?)
}
