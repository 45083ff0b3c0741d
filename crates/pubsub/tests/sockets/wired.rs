//! What the tests of sockets share: a topic of texts, and a peer that speaks the protocol by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pubsub::record::SocketRecord;
use pubsub::{Codec, CodecError, Name, Publication, StoreLarge, TopicRoot};
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

pub(crate) fn to_wire(disk: &[u8], store: &mut StoreLarge<'_>) -> Result<Vec<u8>, CodecError> {
    if disk.starts_with(b"large:") {
        return Ok(format!("file:{}", store("Text", disk)?).into_bytes());
    }
    Ok(disk.to_vec())
}

pub(crate) struct Place {
    pub(crate) root: tempfile::TempDir,
    pub(crate) topic_root: TopicRoot,
    pub(crate) name: Name,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::of(Name::volatile("tester", "Topic"))
    }

    pub(crate) fn of(name: Name) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root, name }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.name.socket(self.root.path()).unwrap()
    }

    pub(crate) fn large(&self) -> PathBuf {
        self.topic_root.path("persist/pubsub-large/tester/Topic")
    }

    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.large()).map_or(0, Iterator::count)
    }

    pub(crate) fn publication(&self) -> Publication<String> {
        let mut publication = self.topic_root.publication(self.name.clone(), codec()).unwrap();
        self.topic_root.serve(&mut publication, to_wire).unwrap();
        publication
    }

    pub(crate) async fn peer(&self) -> Peer {
        let peer = Peer::connect(&self.socket()).unwrap();
        peer.say(b"request Topic").await;
        peer
    }

    /// A publisher that is not one of ours and lets nobody in.
    pub(crate) fn foreign(&self) -> std::os::fd::OwnedFd {
        std::fs::create_dir_all(self.socket().parent().unwrap()).unwrap();
        let socket = socket();
        bind(&socket, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
        listen(&socket, 8).unwrap();
        socket
    }
}

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

    pub(crate) async fn hear(&self) -> SocketRecord {
        let message = String::from_utf8(self.message().await.unwrap()).unwrap();
        assert!(message.len() <= pubsub::record::MESSAGE_LIMIT_BYTES);
        record(&message).unwrap()
    }

    /// Hears everything up to `complete`; the values of it.
    pub(crate) async fn dump(&self) -> Vec<(String, String)> {
        assert!(matches!(self.hear().await, SocketRecord::Hello { .. }));
        let mut values = Vec::new();
        loop {
            let record = self.hear().await;
            if matches!(record, SocketRecord::Complete { .. }) {
                return values;
            }
            let SocketRecord::Update { key, value, .. } = record else { panic!("no update: {record:?}") };
            values.push((key, String::from_utf8(value).unwrap()));
        }
    }
}

fn socket() -> std::os::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// What a message says, read as the reference's subscriber reads it.
pub(crate) fn record(message: &str) -> Option<SocketRecord> {
    let bytes = |word: &str| STANDARD.decode(word).ok();
    let key = |word: &str| String::from_utf8(bytes(word)?).ok();
    Some(match message.split(' ').collect::<Vec<_>>()[..] {
        ["hello", topic, persistent] => {
            SocketRecord::Hello { topic: topic.into(), persistent: persistent.parse().ok()? }
        }
        ["update", topic, name, value] => {
            SocketRecord::Update { topic: topic.into(), key: key(name)?, value: bytes(value)? }
        }
        ["delete", topic, name] => SocketRecord::Delete { topic: topic.into(), key: key(name)? },
        ["complete", topic] => SocketRecord::Complete { topic: topic.into() },
        ["restarted", topic, count] => {
            SocketRecord::Restarted { topic: topic.into(), count: count.parse().ok()? }
        }
        _ => return None,
    })
}

pub(crate) fn update(key: &str, value: &str) -> SocketRecord {
    SocketRecord::Update { topic: "Topic".into(), key: key.into(), value: value.into() }
}

pub(crate) fn delete(key: &str) -> SocketRecord {
    SocketRecord::Delete { topic: "Topic".into(), key: key.into() }
}

pub(crate) fn restarted(count: u32) -> SocketRecord {
    SocketRecord::Restarted { topic: "Topic".into(), count }
}

pub(crate) fn text(value: &str) -> String {
    value.to_owned()
}
