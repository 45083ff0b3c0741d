//! A container runtime that answers as a test wants, over real gRPC on a Unix socket.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::cri::{ContainerList, CriContainer, POD_UID, Sandbox, Sandboxes};

/// One pod: UID, states of its sandbox and of its container by the interface's numbers, `None` without one.
pub type PodStates = (String, Option<i32>, Option<i32>);

#[derive(Debug, Clone)]
pub enum RuntimeReply {
    Pods(Vec<PodStates>),
    /// This body, properly ended.
    Body(Vec<u8>),
    /// This body, without its end.
    CutOff(Vec<u8>),
    Refused(&'static str),
    Page,
    Endless,
    Silence,
    HangUp,
}

/// A pod with sandbox and container, both alive or ended.
pub fn pod(uid: &str, lives: bool) -> PodStates {
    let (sandbox, container) = if lives { (0, 1) } else { (1, 2) };
    (uid.to_owned(), Some(sandbox), Some(container))
}

/// Serves at `socket` until the set is dropped. Needs a runtime.
pub fn serve(
    socket: &Path,
    answer: impl Fn() -> RuntimeReply + Send + Sync + 'static,
) -> io::Result<JoinSet<()>> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let (listener, answer) = (UnixListener::bind(socket)?, Arc::new(answer));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(stream, Arc::clone(&answer)));
        }
    });
    Ok(tasks)
}

async fn connection(stream: UnixStream, answer: Arc<impl Fn() -> RuntimeReply + Send + Sync + 'static>) {
    let Ok(own) = stream.as_fd().try_clone_to_owned().map(StdStream::from) else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let answer = answer();
        if matches!(answer, RuntimeReply::HangUp) {
            // A starting process of another test may hold a copy of the socket for a moment, so closing is
            // not enough.
            drop(own.shutdown(Shutdown::Both));
            return;
        }
        calls.spawn(async move { drop(call(request, respond, answer).await) });
    }
}

async fn call(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: RuntimeReply,
) -> Result<(), h2::Error> {
    let of_sandboxes = request.uri().path().ends_with("/ListPodSandbox");
    let mut body = request.into_body();
    while let Some(part) = body.data().await {
        body.flow_control().release_capacity(part?.len())?;
    }
    let head = |kind: &'static str| {
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static(kind));
        head
    };
    let (bytes, ended) = match answer {
        RuntimeReply::Pods(pods) => (frame(&list(&pods, of_sandboxes)), true),
        RuntimeReply::Body(bytes) => (bytes, true),
        RuntimeReply::CutOff(bytes) => (bytes, false),
        RuntimeReply::Refused(why) => {
            let mut head = head("application/grpc");
            head.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
            head.headers_mut().insert("grpc-message", HeaderValue::from_static(why));
            return respond.send_response(head, true).map(drop);
        }
        RuntimeReply::Page => return respond.send_response(head("text/html"), true).map(drop),
        RuntimeReply::Endless => {
            let mut stream = respond.send_response(head("application/grpc"), false)?;
            loop {
                stream.reserve_capacity(1 << 16);
                let Some(room) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                    return Ok(());
                };
                stream.send_data(Bytes::from(vec![0; room?]), false)?;
            }
        }
        RuntimeReply::Silence | RuntimeReply::HangUp => return std::future::pending().await,
    };
    let mut stream = respond.send_response(head("application/grpc"), false)?;
    stream.send_data(Bytes::from(bytes), !ended)?;
    if ended {
        let status = HeaderValue::from_static("0");
        stream
            .send_trailers(HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), status)]))?;
    }
    Ok(())
}

fn list(pods: &[PodStates], of_sandboxes: bool) -> Vec<u8> {
    let labels = |uid: &String| [(POD_UID.to_owned(), uid.clone())].into();
    if of_sandboxes {
        let sandbox = |(uid, state, _): &PodStates| state.map(|state| Sandbox { state, labels: labels(uid) });
        Sandboxes { items: pods.iter().filter_map(sandbox).collect() }.encode_to_vec()
    } else {
        let container =
            |(uid, _, state): &PodStates| state.map(|state| CriContainer { state, labels: labels(uid) });
        ContainerList { containers: pods.iter().filter_map(container).collect() }.encode_to_vec()
    }
}

pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}
