//! Plays instance managers over real gRPC: processes of engines and replicas are entries of a table.
//!
//! Calls with answers that the manager does not need get an empty one. A rebuild stays at 42 % until the test
//! lets it end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::wire::{
    Address, Health, Instance, Instances, Named, READ_WRITE, Rebuild, Rebuilds, ReplicaMode, Replicas, Spec,
    State, ToEngine, ToReplica, Versions, VolumeInfo, WRITE_ONLY, Wrapped,
};

/// For processes, for engines, and for both in the newer form.
const PORTS: [u16; 3] = [8500, 8501, 8503];
/// gRPC codes: done, unknown, not found. The manager reads the last one's text.
const DONE: &str = "0";
const FAILED: &str = "2";
const NOT_THERE: &str = "5";

/// The answer, or an error code.
type Answer = Result<Vec<u8>, &'static str>;

/// Of all nodes. Copies are the same ones.
#[derive(Clone)]
pub(super) struct Engines(Arc<Played>);

struct Played {
    table: Mutex<Table>,
    changed: watch::Sender<()>,
    may_end: watch::Sender<bool>,
}

#[derive(Default)]
struct Table {
    processes: BTreeMap<(IpAddr, String), Instance>,
    /// Modes of a running engine's replicas, by address.
    engines: BTreeMap<String, BTreeMap<String, i32>>,
    last_port: i32,
}

impl Engines {
    pub(super) fn new() -> Self {
        let table = Mutex::new(Table { last_port: 10_000, ..Table::default() });
        Self(Arc::new(Played { table, changed: watch::Sender::new(()), may_end: watch::Sender::new(true) }))
    }

    /// Ends rebuilds, or holds those that begin from now on.
    pub(super) fn let_rebuilds_end(&self, may: bool) {
        self.0.may_end.send_replace(may);
    }

    /// Serves the instance manager of this node.
    pub(super) async fn serve(&self, node: IpAddr, tasks: &mut JoinSet<()>) {
        for port in PORTS {
            let listener = TcpListener::bind(SocketAddr::new(node, port)).await.unwrap();
            let engines = self.clone();
            tasks.spawn(async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(engines.clone().connection(node, stream));
                }
            });
        }
    }

    async fn connection(self, node: IpAddr, stream: TcpStream) {
        // It tries TLS first.
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        let mut calls = JoinSet::new();
        while let Some(Ok((request, respond))) = connection.accept().await {
            let engines = self.clone();
            calls.spawn(async move { drop(engines.call(node, request, respond).await) });
        }
    }

    async fn call(
        &self,
        node: IpAddr,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Result<(), h2::Error> {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let mut body = request.into_body();
        let mut asked = Vec::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            asked.extend_from_slice(&part);
        }
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let mut stream = respond.send_response(head, false)?;
        if name == "InstanceWatch" {
            let mut changes = self.0.changed.subscribe();
            while changes.changed().await.is_ok() {
                send(&mut stream, &[])?;
            }
        }
        let answer = match name.as_str() {
            "ReplicaAdd" => self.rebuild(&decoded(&asked)).await,
            _ => self.answer(node, &name, &asked),
        };
        let code = match answer {
            Ok(message) => send(&mut stream, &message).map(|()| DONE)?,
            Err(code) => code,
        };
        let said =
            [("grpc-status", code), ("grpc-message", if code == NOT_THERE { "cannot find it" } else { "" })];
        let header = |(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
        stream.send_trailers(said.into_iter().map(header).collect::<HeaderMap>())
    }

    fn answer(&self, node: IpAddr, call: &str, asked: &[u8]) -> Answer {
        let mut table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = |it: &str| table.engines.get(it).cloned().ok_or(NOT_THERE);
        let message = match call {
            "Check" => Health { status: 1 }.encode_to_vec(),
            "VersionGet" => Versions { api: 6, api_min: 1, proxy: 7, proxy_min: 1 }.encode_to_vec(),
            "InstanceCreate" => {
                let spec = decoded::<Wrapped<Spec>>(asked).inner.ok_or(FAILED)?;
                let made = table.start(node, spec);
                self.0.changed.send_replace(());
                made.encode_to_vec()
            }
            "InstanceDelete" => {
                let name = decoded::<Named>(asked).name;
                table.engines.remove(&name);
                let mut gone = table.processes.remove(&(node, name)).ok_or(NOT_THERE)?;
                gone.state.get_or_insert_default().phase = String::from("stopped");
                self.0.changed.send_replace(());
                gone.encode_to_vec()
            }
            "InstanceGet" => {
                table.processes.get(&(node, decoded::<Named>(asked).name)).ok_or(NOT_THERE)?.encode_to_vec()
            }
            "InstanceList" => {
                let here = table.processes.iter().filter(|((at, _), _)| *at == node);
                Instances { all: here.map(|((_, name), it)| (name.clone(), it.clone())).collect() }
                    .encode_to_vec()
            }
            "VolumeGet" => {
                let name = decoded::<ToEngine>(asked).engine;
                let spec =
                    table.processes.get(&(node, name)).and_then(|it| it.spec.as_ref()).ok_or(NOT_THERE)?;
                let endpoint = format!("/dev/longhorn/{}", spec.volume);
                let frontend = "tgt-blockdev".to_owned();
                let (name, size) = (spec.volume.clone(), size(spec));
                let volume = VolumeInfo { name, size, endpoint, frontend, frontend_state: "up".to_owned() };
                Wrapped { inner: Some(volume) }.encode_to_vec()
            }
            "ReplicaList" => {
                let mode =
                    |(address, mode): (String, i32)| ReplicaMode { address: Some(Address { address }), mode };
                let all = engine(&decoded::<ToEngine>(asked).engine)?.into_iter().map(mode).collect();
                Wrapped { inner: Some(Replicas { all }) }.encode_to_vec()
            }
            "ReplicaRebuildingStatus" => {
                let all = engine(&decoded::<ToEngine>(asked).engine)?;
                let building = all.into_iter().filter(|(_, mode)| *mode == WRITE_ONLY);
                let goes_on = |_| Rebuild { goes_on: true, percent: 42, state: "in_progress".to_owned() };
                Rebuilds { all: building.map(|(address, mode)| (address, goes_on(mode))).collect() }
                    .encode_to_vec()
            }
            "ReplicaRemove" => {
                let of = decoded::<ToReplica>(asked);
                let engine = of.to.unwrap_or_default().engine;
                table.engines.get_mut(&engine).ok_or(NOT_THERE)?.remove(&of.address);
                Vec::new()
            }
            _ => Vec::new(),
        };
        Ok(message)
    }

    /// Adds a replica to an engine, until it is healthy.
    async fn rebuild(&self, of: &ToReplica) -> Answer {
        let engine = of.to.clone().unwrap_or_default().engine;
        let set = |mode| -> Result<(), &'static str> {
            let mut table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
            let replicas = table.engines.get_mut(&engine).ok_or(FAILED)?;
            replicas.insert(of.address.clone(), mode);
            Ok(())
        };
        set(WRITE_ONLY)?;
        let mut may_end = self.0.may_end.subscribe();
        may_end.wait_for(|may| *may).await.map_err(|_closed| FAILED)?;
        set(READ_WRITE)?;
        Ok(Vec::new())
    }
}

impl Table {
    /// Idempotent.
    fn start(&mut self, node: IpAddr, spec: Spec) -> Instance {
        let at = (node, spec.name.clone());
        if let Some(runs) = self.processes.get(&at) {
            return runs.clone();
        }
        if spec.kind == "engine" {
            let words = spec.process.iter().flat_map(|it| &it.words);
            let named = words.clone().zip(words.skip(1)).filter(|(word, _)| *word == "--replica");
            let replicas = named.map(|(_, address)| (address.clone(), READ_WRITE)).collect();
            self.engines.insert(spec.name.clone(), replicas);
        }
        let first = self.last_port + 1;
        self.last_port += spec.port_count.max(1);
        let state = State {
            phase: "running".to_owned(),
            port_start: first,
            port_end: self.last_port,
            uuid: uuid::Uuid::new_v4().to_string(),
        };
        let instance = Instance { spec: Some(spec), state: Some(state) };
        self.processes.insert(at, instance.clone());
        instance
    }
}

/// The volume size of an engine's process.
fn size(spec: &Spec) -> i64 {
    let words = spec.process.iter().flat_map(|it| &it.words);
    let mut named = words.clone().zip(words.skip(1)).filter(|(word, _)| *word == "--size");
    named.next().and_then(|(_, size)| size.parse().ok()).unwrap_or_default()
}

fn decoded<T: Message + Default>(body: &[u8]) -> T {
    T::decode(body.get(5..).unwrap_or_default()).unwrap()
}

fn send(stream: &mut SendStream<Bytes>, message: &[u8]) -> Result<(), h2::Error> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    stream.send_data(Bytes::from([&[0], length.as_slice(), message].concat()), false)
}
