//! Publishers and their subscribers over real sockets.
//!
//! Large members that travel in files of their own: written, read, removed and refused.
//!
//! What the tests of sockets share: a topic of texts, and a peer that speaks the protocol by hand.
//!
//! Whatever a publisher does and whenever it dies: in the end its subscribers hold what it holds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use pubsub::record::{SocketRecord, parse_record};
use pubsub::{Codec, CodecError, Publication, StoreLarge, store};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use tokio::net::UnixDatagram;

use crate::files::{Place, text};

mod publisher;

/// The path in the update of a large text.
fn large_path(record: SocketRecord) -> PathBuf {
    let SocketRecord::Update { value, .. } = record else { panic!("no update: {record:?}") };
    String::from_utf8(value).unwrap().strip_prefix("file:").unwrap().into()
}

#[tokio::test]
async fn each_peer_gets_its_own_files_and_they_go_with_it() {
    let place = Place::volatile();
    let mut publication = place.served();
    let (one, two) = (place.peer().await, place.peer().await);
    assert_eq!((one.dump().await.len(), two.dump().await.len()), (0, 0));
    publication.publish("a", &text("large:1")).unwrap();
    let (first, second) = (large_path(one.hear().await), large_path(two.hear().await));
    assert!(first != second && first.parent() == Some(place.large().as_path()), "{}", first.display());
    assert_eq!(fs::read(&first).unwrap(), b"large:1");
    assert_eq!(place.files(), 2);
    // The reader removes what it read; what the other did not read goes with it.
    fs::remove_file(first).unwrap();
    drop(two);
    let third = place.peer().await;
    assert!(matches!(third.hear().await, SocketRecord::Hello { .. }));
    large_path(third.hear().await);
    let removed = async {
        while second.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, removed).await.unwrap();
    assert_eq!(place.files(), 1);
    // Nothing changed, so no new files (the reference makes them at every wake-up, D-P3).
    publication.signal_restarted().unwrap();
    assert_eq!(one.hear().await, restarted(1));
    assert_eq!(place.files(), 1);
    // A topic that ends leaves what its peers may still read.
    drop(publication);
    assert_eq!(one.message().await, None);
    assert_eq!(place.files(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_left_is_removed_once_nobody_can_read_it_however_the_clock_was_set() {
    let place = Place::volatile();
    let (old, new, foreign) = ("pubsub-file-Text1234567890", "pubsub-file-Text1234567891", "other");
    for file in [old, new, foreign] {
        store::replace(&place.large().join(file), b"x").unwrap();
    }
    #[expect(clippy::disallowed_methods, reason = "the age of a file is by the wall clock")]
    let now = SystemTime::now();
    let years = Duration::from_hours(10 * 8766);
    for (file, time) in [(old, now - years), (new, now + years), (foreign, now - years)] {
        fs::File::open(place.large().join(file)).unwrap().set_modified(time).unwrap();
    }
    let _publication = place.served();
    let left = || [old, new, foreign].map(|file| place.large().join(file).exists());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(left(), [true; 3], "a peer may still read them");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(left(), [false, false, true]);
}

#[tokio::test]
async fn unread_files_of_one_peer_are_bounded() {
    let place = Place::volatile();
    let mut publication = place.served();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await, []);
    let mut paths = Vec::new();
    for number in 0..40 {
        publication.publish("a", &format!("large:{number} {}", "x".repeat(1_000_000))).unwrap();
        paths.push(large_path(peer.hear().await));
    }
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left.iter().filter(|left| **left).count(), 16);
    assert!(left.iter().rev().take(16).all(|left| *left), "the newest stay");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_costs_its_key_only_and_is_tried_again() {
    let place = Place::volatile();
    let mut publication = place.served();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await, []);
    let elsewhere = place.root.path().join("elsewhere");
    fs::create_dir_all(place.large().parent().unwrap()).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, place.large()).unwrap();
    publication.publish("a", &text("large:1")).unwrap();
    publication.publish("b", &text("2")).unwrap();
    assert_eq!(peer.hear().await, update("b", "2"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "a link was followed");
    fs::remove_file(place.large()).unwrap();
    publication.publish("b", &text("3")).unwrap();
    assert_eq!(fs::read(large_path(peer.hear().await)).unwrap(), b"large:1");
    assert_eq!(peer.hear().await, update("b", "3"));
}

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

impl Place {
    pub(crate) fn socket(&self) -> PathBuf {
        self.name.socket(self.root.path()).unwrap()
    }

    pub(crate) fn large(&self) -> PathBuf {
        self.topic_root.path("persist/pubsub-large/tester/Topic")
    }

    pub(crate) fn files(&self) -> usize {
        fs::read_dir(self.large()).map_or(0, Iterator::count)
    }

    pub(crate) fn served(&self) -> Publication<String> {
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
        fs::create_dir_all(self.socket().parent().unwrap()).unwrap();
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
        let message = self.message().await.unwrap();
        assert!(message.len() <= pubsub::record::MESSAGE_LIMIT_BYTES);
        parse_record(&message).unwrap()
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

pub(crate) fn update(key: &str, value: &str) -> SocketRecord {
    SocketRecord::Update { topic: "Topic".into(), key: key.into(), value: value.into() }
}

pub(crate) fn delete(key: &str) -> SocketRecord {
    SocketRecord::Delete { topic: "Topic".into(), key: key.into() }
}

pub(crate) fn restarted(count: u32) -> SocketRecord {
    SocketRecord::Restarted { topic: "Topic".into(), count }
}

#[derive(Debug, Clone)]
enum Step {
    /// The publisher publishes a value, a large one where asked.
    Publish(u8, u8, bool),
    /// It takes a key back, when it is there.
    Unpublish(u8),
    Signal,
    Restart,
    /// It dies, somebody removes the file of a key meanwhile, and it is started again.
    Crash(Option<u8>),
    Turns(u8),
    Listen(usize, u8),
    Join(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u8, 0..3_u8, prop::bool::weighted(0.2)).prop_map(|(key, value, large)| Step::Publish(key, value, large)),
        3 => (0..4_u8).prop_map(Step::Unpublish),
        1 => Just(Step::Signal),
        1 => Just(Step::Restart),
        2 => prop::option::of(0..4_u8).prop_map(Step::Crash),
        3 => (1..20_u8).prop_map(Step::Turns),
        3 => (0..2_usize, 1..4_u8).prop_map(|(who, records)| Step::Listen(who, records)),
        1 => (0..2_usize).prop_map(Step::Join),
    ]
}

#[derive(Default)]
struct Listener {
    peer: Option<Peer>,
    told: BTreeMap<String, String>,
    /// It was told of all that there was when it connected.
    complete: bool,
}

impl Listener {
    async fn listen(&mut self, place: &Place) {
        let Some(peer) = &self.peer else {
            *self = Self { peer: Some(place.peer().await), ..Self::default() };
            return;
        };
        // By the paused clock, so it is over as soon as nothing can happen any more.
        let Some(message) = peer.message().await else {
            self.peer = None;
            return;
        };
        match parse_record(&message).unwrap() {
            SocketRecord::Update { key, value, .. } => {
                let mut value = String::from_utf8(value).unwrap();
                if let Some(path) = value.strip_prefix("file:").map(str::to_owned) {
                    value = fs::read_to_string(&path).unwrap();
                    fs::remove_file(path).unwrap();
                }
                self.told.insert(key, value);
            }
            SocketRecord::Delete { key, .. } => {
                assert!(self.told.remove(&key).is_some() || !self.complete, "{key} was not there");
            }
            SocketRecord::Complete { .. } => self.complete = true,
            SocketRecord::Hello { .. } | SocketRecord::Restarted { .. } => {}
        }
    }
}

async fn run(steps: Vec<Step>) {
    let place = Place::volatile();
    let mut publication = place.served();
    let mut listeners = [Listener::default(), Listener::default()];
    for step in steps {
        match step {
            Step::Publish(key, value, large) => {
                let value = format!("{}{value}", if large { "large:" } else { "" });
                publication.publish(&key.to_string(), &value).unwrap();
            }
            Step::Unpublish(key) => {
                let known = publication.get(&key.to_string()).is_some();
                assert_eq!(publication.unpublish(&key.to_string()).is_ok(), known);
            }
            Step::Signal => publication.signal_restarted().unwrap(),
            Step::Restart => {
                publication.close().unwrap();
                publication = place.served();
            }
            Step::Crash(removed) => {
                drop(publication);
                if let Some(key) = removed {
                    drop(fs::remove_file(place.topic_root.path(&format!("run/tester/Topic/{key}.json"))));
                }
                publication = place.served();
            }
            Step::Turns(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Step::Listen(who, records) => {
                for _ in 0..records {
                    // Given up at any point: nothing is lost by that.
                    tokio::select! {
                        biased;
                        () = listeners[who].listen(&place) => {}
                        () = tokio::task::yield_now() => {}
                    }
                }
            }
            Step::Join(who) => listeners[who] = Listener::default(),
        }
    }
    let last: BTreeMap<String, String> =
        publication.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    for listener in &mut listeners {
        // A last key tells that all before it was heard.
        publication.publish("end", &String::from("0")).unwrap();
        while !listener.told.contains_key("end") {
            listener.listen(&place).await;
        }
        publication.unpublish("end").unwrap();
        while listener.told.contains_key("end") {
            listener.listen(&place).await;
        }
        assert_eq!(listener.told, last);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn subscribers_end_with_what_the_publisher_has(steps in prop::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}
