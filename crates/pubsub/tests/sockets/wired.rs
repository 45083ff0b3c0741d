//! What the tests of sockets share: a topic of texts, and a peer that speaks the protocol by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pubsub::record::Record;
use pubsub::{BoxError, Bus, Change, Codec, Fetch, Name, Publication, SocketSubscription, Store};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use tokio::net::UnixDatagram;

/// A record that takes longer than this does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Texts; one that begins with `large:` is a large member named `Text` on the wire.
pub(crate) fn codec() -> Codec<String> {
    Codec {
        encode: |text| Ok(text.clone().into_bytes()),
        decode: |bytes| Ok(String::from_utf8(bytes.to_vec())?),
    }
}

pub(crate) fn to_wire(disk: &[u8], store: &mut Store<'_>) -> Result<Vec<u8>, BoxError> {
    if disk.starts_with(b"large:") {
        return Ok(format!("file:{}", store("Text", disk)?).into_bytes());
    }
    Ok(disk.to_vec())
}

pub(crate) fn from_wire(wire: &[u8], fetch: &mut Fetch<'_>) -> Result<String, BoxError> {
    let text = std::str::from_utf8(wire)?;
    match text.strip_prefix("file:") {
        Some(path) => Ok(String::from_utf8(fetch("Text", path)?.unwrap_or_default())?),
        None if text.contains("nonsense") => Err("it is nonsense".into()),
        None => Ok(text.to_owned()),
    }
}

pub(crate) struct Place {
    pub(crate) root: tempfile::TempDir,
    pub(crate) bus: Bus,
    pub(crate) name: Name,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::of(Name::volatile("tester", "Topic"))
    }

    pub(crate) fn of(name: Name) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bus = Bus::open(root.path()).unwrap();
        Self { root, bus, name }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.name.socket(self.root.path()).unwrap()
    }

    pub(crate) fn large(&self) -> PathBuf {
        self.bus.path("persist/pubsub-large/tester/Topic")
    }

    /// How many files of large members there are.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.large()).map_or(0, Iterator::count)
    }

    pub(crate) fn publication(&self) -> Publication<String> {
        let mut publication = self.bus.publication(self.name.clone(), codec()).unwrap();
        self.bus.serve(&mut publication, to_wire).unwrap();
        publication
    }

    pub(crate) fn subscription(&self) -> SocketSubscription<String> {
        self.bus.socket_subscription(&self.name, from_wire).unwrap()
    }

    /// A subscriber that has sent its request.
    pub(crate) async fn peer(&self) -> Peer {
        let peer = Peer::connect(&self.socket()).unwrap();
        peer.say(b"request Topic").await;
        peer
    }

    /// A publisher that is not one of ours.
    pub(crate) fn foreign(&self) -> Foreign {
        std::fs::create_dir_all(self.socket().parent().unwrap()).unwrap();
        let socket = socket();
        bind(&socket, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
        listen(&socket, 8).unwrap();
        Foreign(UnixDatagram::from_std(socket.into()).unwrap())
    }
}

/// One end of a connection.
pub(crate) struct Peer(UnixDatagram);

impl Peer {
    pub(crate) fn connect(path: &Path) -> rustix::io::Result<Self> {
        let socket = socket();
        connect(&socket, &SocketAddrUnix::new(path).unwrap())?;
        Ok(Self(UnixDatagram::from_std(socket.into()).unwrap()))
    }

    pub(crate) async fn say(&self, message: &[u8]) {
        let io = tokio::io::Interest::WRITABLE;
        let flags = rustix::net::SendFlags::NOSIGNAL;
        self.0.async_io(io, || Ok(rustix::net::send(&self.0, message, flags)?)).await.unwrap();
    }

    /// The next message, `None` at the end.
    pub(crate) async fn message(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 70_000];
        let bytes = tokio::time::timeout(PATIENCE, self.0.recv(&mut buffer)).await.unwrap().unwrap_or(0);
        buffer.truncate(bytes);
        (bytes > 0).then_some(buffer)
    }

    pub(crate) async fn hear(&self) -> Record {
        Record::parse_reply(&self.message().await.unwrap()).unwrap()
    }

    /// Hears everything up to `complete`; the values of it.
    pub(crate) async fn dump(&self) -> Vec<(String, String)> {
        assert!(matches!(self.hear().await, Record::Hello { .. }));
        let mut values = Vec::new();
        loop {
            let record = self.hear().await;
            if matches!(record, Record::Complete { .. }) {
                return values;
            }
            let Record::Update { key, value, .. } = record else { panic!("no update: {record:?}") };
            values.push((key, String::from_utf8(value).unwrap()));
        }
    }
}

/// A listening socket that is served by hand.
pub(crate) struct Foreign(UnixDatagram);

impl Foreign {
    pub(crate) async fn accept(&self) -> Peer {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || Ok(rustix::net::accept_with(&self.0, flags)?);
        let socket = self.0.async_io(tokio::io::Interest::READABLE, accept).await.unwrap();
        Peer(UnixDatagram::from_std(socket.into()).unwrap())
    }
}

fn socket() -> std::os::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

pub(crate) fn update(key: &str, value: &str) -> Record {
    Record::Update { topic: "Topic".into(), key: key.into(), value: value.into() }
}

pub(crate) fn delete(key: &str) -> Record {
    Record::Delete { topic: "Topic".into(), key: key.into() }
}

pub(crate) fn restarted(count: u32) -> Record {
    Record::Restarted { topic: "Topic".into(), count }
}

pub(crate) fn text(value: &str) -> String {
    value.to_owned()
}

pub(crate) fn put(key: &str, value: &str, old: Option<&str>) -> Change<String> {
    Change::Put { key: key.into(), value: value.into(), old: old.map(str::to_owned) }
}

pub(crate) async fn next(subscription: &mut SocketSubscription<String>) -> Change<String> {
    tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the paused clock of a test")]
pub(crate) fn clock() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
