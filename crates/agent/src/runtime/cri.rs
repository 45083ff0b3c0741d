//! Two calls of the container runtime interface (CRI): gRPC, that is HTTP/2 over a Unix socket with one
//! Protocol Buffers frame each way.
//!
//! Not here: which socket. Sources: kubernetes/cri-api `pkg/apis/runtime/v1/api.proto`; the gRPC page "gRPC over HTTP2".

use std::collections::{BTreeMap, BTreeSet};
use std::future;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Both calls together, with the connection.
const DEADLINE: Duration = Duration::from_secs(5);
/// Of one answer; a pod takes some kilobytes.
const LONGEST: usize = 16 << 20;
/// A flag for compression, four bytes for the length.
const FRAME_HEAD: usize = 5;
/// The kubelet's label for the pod's UID, on sandboxes and containers; of a static pod the hash of its file.
pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";

#[derive(Debug, Error)]
pub(super) enum CriError {
    #[error("it does not answer within {} s", DEADLINE.as_secs())]
    Silent,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("HTTP/2: {0}")]
    Http(#[from] h2::Error),
    #[error("it is no container runtime: {0}")]
    Stranger(String),
    #[error("it refuses {call}: {why}")]
    Refused { call: &'static str, why: String },
    #[error("it does not know {call}: {why}")]
    Unknown { call: &'static str, why: String },
    #[error("its answer is longer than {} MiB", LONGEST >> 20)]
    Long,
    #[error("its answer cannot be read: {0}")]
    Garbled(String),
}

impl CriError {
    /// It speaks gRPC and lacks this interface: the kubelet's containers are in another runtime.
    pub(super) const fn serves_no_kubelet(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Only members that are read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sandbox {
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerList {
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<CriContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CriContainer {
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) labels: BTreeMap<String, String>,
}

/// gRPC's status for a missing service.
const UNIMPLEMENTED: &str = "12";
/// `SANDBOX_NOTREADY`.
const NOT_READY: i32 = 1;
/// `CONTAINER_EXITED`.
const EXITED: i32 = 2;

/// UIDs of pods with a live sandbox or container. Dropping it closes the connection.
pub(super) async fn live_pods(socket: &Path) -> Result<BTreeSet<String>, CriError> {
    timeout(DEADLINE, connected(socket)).await.map_err(|_elapsed| CriError::Silent)?
}

async fn connected(socket: &Path) -> Result<BTreeSet<String>, CriError> {
    let stream = UnixStream::connect(socket).await?;
    let (sender, connection) = h2::client::handshake(stream).await?;
    tokio::select! {
        biased;
        live = both(sender) => live,
        // Data received before the end is still read; missing data fails by itself.
        () = async { connection.await.map_or_else(drop, drop); future::pending().await } => Err(CriError::Silent),
    }
}

async fn both(sender: SendRequest<Bytes>) -> Result<BTreeSet<String>, CriError> {
    let sandboxes: Sandboxes = call(&sender, "ListPodSandbox").await?;
    let containers: ContainerList = call(&sender, "ListContainers").await?;
    let sandboxes = sandboxes.items.into_iter().filter(|it| it.state != NOT_READY).map(|it| it.labels);
    let containers = containers.containers.into_iter().filter(|it| it.state != EXITED).map(|it| it.labels);
    Ok(sandboxes.chain(containers).filter_map(|mut labels| labels.remove(POD_UID)).collect())
}

/// One call with an empty request, which lists all.
async fn call<M: Message + Default>(sender: &SendRequest<Bytes>, name: &'static str) -> Result<M, CriError> {
    let request = Request::post(format!("http://localhost/runtime.v1.RuntimeService/{name}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| CriError::Garbled(error.to_string()))?;
    let (answer, mut body) = sender.clone().ready().await?.send_request(request, false)?;
    body.send_data(Bytes::from_static(&[0; FRAME_HEAD]), true)?;
    let (head, body) = answer.await?.into_parts();
    let of_grpc = |it: &http::HeaderValue| it.as_bytes().starts_with(b"application/grpc");
    if head.status != StatusCode::OK || !head.headers.get("content-type").is_some_and(of_grpc) {
        return Err(CriError::Stranger(format!("status {}", head.status)));
    }
    // An answer that is only an error has no other trailers.
    refused(name, &head.headers)?;
    let (bytes, trailers) = read(body).await?;
    let Some(trailers) = trailers.filter(|it| it.contains_key("grpc-status")) else {
        return Err(CriError::Garbled("it is cut off".to_owned()));
    };
    refused(name, &trailers)?;
    message(bytes)
}

fn refused(call: &'static str, said: &HeaderMap) -> Result<(), CriError> {
    let text = |name| said.get(name).map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    match text("grpc-status").as_deref() {
        None | Some("0") => Ok(()),
        Some(code) => {
            let why = text("grpc-message").unwrap_or_default();
            let why = format!("{why} (gRPC status {code})").trim_start().to_owned();
            Err(if code == UNIMPLEMENTED {
                CriError::Unknown { call, why }
            } else {
                CriError::Refused { call, why }
            })
        }
    }
}

async fn read(mut body: RecvStream) -> Result<(BytesMut, Option<HeaderMap>), CriError> {
    let mut bytes = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part?;
        if bytes.len() + part.len() > FRAME_HEAD + LONGEST {
            return Err(CriError::Long);
        }
        bytes.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    Ok((bytes, body.trailers().await?))
}

pub(super) fn trial(bytes: &[u8]) -> [Result<usize, CriError>; 2] {
    let pods = message::<Sandboxes>(BytesMut::from(bytes)).map(|it| it.items.len());
    [pods, message::<ContainerList>(BytesMut::from(bytes)).map(|it| it.containers.len())]
}

fn message<M: Message + Default>(mut bytes: BytesMut) -> Result<M, CriError> {
    let garbled = |why: &str| CriError::Garbled(why.to_owned());
    let Some(head) = bytes.split_to(FRAME_HEAD.min(bytes.len())).first_chunk::<FRAME_HEAD>().copied() else {
        return Err(garbled("it is cut off"));
    };
    let [compressed, length @ ..] = head;
    if compressed != 0 {
        return Err(garbled("it is compressed"));
    }
    if usize::try_from(u32::from_be_bytes(length)).ok() != Some(bytes.len()) {
        return Err(garbled("it is not as long as it says"));
    }
    M::decode(bytes).map_err(|error| CriError::Garbled(error.to_string()))
}
