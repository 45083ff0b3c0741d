//! Plays the reference's recorded socket conversations with our publishers, record by record.
//!
//! `tests/golden/socket-transcript.txt` is followed line by line. What the reference sends again although nothing
//! changed (D-P2) and what it makes of large whole numbers (D-P3) is counted and must not come from us.

#![expect(clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pubsub::{Publication, TopicRoot};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use tokio::net::UnixDatagram;
use topics::{EdgeNodeInfo, KubeClusterInfo, KubeConfig, NodeDrainStatus, Topic, ZbootStatus, go_json};

/// A record that takes longer than this does not come.
const PATIENCE: Duration = Duration::from_secs(60);

struct Peer {
    socket: UnixDatagram,
    last: BTreeMap<String, String>,
}

impl Peer {
    fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self { socket: UnixDatagram::from_std(socket.into()).unwrap(), last: BTreeMap::new() }
    }

    async fn hear(&self) -> Option<String> {
        let mut buffer = vec![0; 65536];
        let bytes = tokio::time::timeout(PATIENCE, self.socket.recv(&mut buffer)).await.unwrap().unwrap_or(0);
        buffer.truncate(bytes);
        (bytes > 0).then(|| String::from_utf8(buffer).unwrap())
    }
}

struct Script {
    lines: VecDeque<String>,
    /// Records that the reference sends again with nothing changed.
    repeats: usize,
}

impl Script {
    fn section(number: u8) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/socket-transcript.txt");
        let text = fs::read_to_string(path).unwrap();
        let start = text.find(&format!("\n## {number}. ")).unwrap();
        let section = text[start + 1..].split("\n## ").next().unwrap();
        let lines = section.lines().skip(1).filter(|line| {
            let shown = line.trim_start();
            !shown.is_empty() && !shown.starts_with("decoded:") && !line.contains("(nothing more within")
        });
        Self { lines: lines.map(str::to_owned).collect(), repeats: 0 }
    }

    fn note(&mut self, words: &str) -> String {
        let line = self.lines.pop_front().unwrap();
        assert!(line.contains(words), "{line:?} does not tell of {words:?}");
        line
    }

    fn quoted(line: &str) -> String {
        let (start, end) = (line.find('"').unwrap(), line.rfind('"').unwrap());
        let text = line[start + 1..end].to_owned();
        let bytes: usize = line[4..start].trim().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(text.len(), bytes, "{line}");
        text
    }

    async fn ask(&mut self, peer: &Peer) {
        let line = self.note("C->S");
        peer.socket.send(Self::quoted(&line).as_bytes()).await.unwrap();
    }

    /// Everything that the peer receives until the next step of the script.
    async fn hear(&mut self, peer: &mut Peer) {
        while self.lines.front().is_some_and(|line| line.starts_with("S->C")) {
            let line = self.note("S->C");
            if line.contains("connection closed") {
                assert_eq!(peer.hear().await, None, "{line}");
                continue;
            }
            let told = Self::quoted(&line);
            let words: Vec<&str> = told.split(' ').collect();
            if let ["update" | "delete", _, key, ..] = words[..] {
                if peer.last.get(key) == Some(&told) {
                    self.repeats += 1;
                    continue;
                }
                peer.last.insert(key.to_owned(), told.clone());
            }
            assert_eq!(peer.hear().await.as_deref(), Some(told.as_str()));
        }
    }
}

struct Place {
    root: tempfile::TempDir,
    topic_root: TopicRoot,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root }
    }

    fn publication<T: Topic>(&self, agent: &str) -> Publication<T> {
        agent::publication(&self.topic_root, agent).unwrap()
    }

    fn socket<T: Topic>(&self, agent: &str) -> PathBuf {
        agent::wire::name::<T>(agent).socket(self.root.path()).unwrap()
    }

    fn peer<T: Topic>(&self, agent: &str) -> Peer {
        Peer::connect(&self.socket::<T>(agent))
    }
}

fn value<T: DeserializeOwned>(text: &str) -> T {
    go_json::from_slice(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn d_p2_the_talk_of_a_volatile_topic_is_the_recorded_one_without_repeats() {
    let place = Place::new();
    let mut script = Script::section(1);
    let status = |status: u8, by: u8| -> NodeDrainStatus {
        value(&format!(r#"{{"Status":{status},"RequestedBy":{by}}}"#))
    };
    let mut topic = place.publication::<NodeDrainStatus>("zedkube");
    let path = place.socket::<NodeDrainStatus>("zedkube");
    script.note("socket: /var/run/zedkube/NodeDrainStatus.sock");
    assert_eq!(path, place.root.path().join("run/zedkube/NodeDrainStatus.sock"));
    script.note("Publish global {1,1}");
    topic.publish("global", &status(1, 1)).unwrap();
    let mut first = Peer::connect(&path);
    script.ask(&first).await;
    script.hear(&mut first).await;
    script.note("Publish global {2,1}");
    topic.publish("global", &status(2, 1)).unwrap();
    script.hear(&mut first).await;
    script.note("equal value");
    topic.publish("global", &status(2, 1)).unwrap();
    script.note("SignalRestarted");
    topic.signal_restarted().unwrap();
    script.hear(&mut first).await;
    script.note("restarted = \"1\"");
    script.note("Publish global {3,2} then SignalRestarted");
    topic.publish("global", &status(3, 2)).unwrap();
    topic.signal_restarted().unwrap();
    script.hear(&mut first).await;
    script.note("second subscriber");
    let mut second = Peer::connect(&path);
    script.ask(&second).await;
    script.hear(&mut second).await;
    script.note("Unpublish global");
    topic.unpublish("global").unwrap();
    script.hear(&mut first).await;
    script.note("ClearRestarted");
    topic.clear_restarted().unwrap();
    script.hear(&mut first).await;
    script.note("file restarted exists: false");
    script.note("an empty, not-restarted collection");
    let mut third = Peer::connect(&path);
    script.ask(&third).await;
    script.hear(&mut third).await;
    script.note("bad requests on fresh connections");
    for _ in 0..5 {
        let mut fresh = Peer::connect(&path);
        script.ask(&fresh).await;
        script.hear(&mut fresh).await;
    }
    script.note("Publish global {9,2}, then Close()");
    topic.publish("global", &status(9, 2)).unwrap();
    let update = Script::quoted(&script.note("update"));
    assert_eq!(first.hear().await, Some(update));
    first.last.clear();
    topic.close().unwrap();
    script.hear(&mut first).await;
    script.note("socket file exists after Close: false");
    assert!(!path.exists());
    assert_eq!(script.lines, [""; 0]);
    assert_eq!(script.repeats, 2, "what the reference sends again");
}

#[tokio::test]
async fn d_p2_only_the_key_that_changed_is_told() {
    let place = Place::new();
    let mut script = Script::section(2);
    let zboot = |label: &str, state: &str| -> ZbootStatus {
        let current = label == "IMGA";
        value(&format!(
            r#"{{"PartitionLabel":"{label}","PartitionState":"{state}","CurrentPartition":{current}}}"#
        ))
    };
    let mut topic = place.publication::<ZbootStatus>("baseosmgr");
    topic.publish("IMGA", &zboot("IMGA", "active")).unwrap();
    topic.publish("IMGB", &zboot("IMGB", "unused")).unwrap();
    let mut peer = place.peer::<ZbootStatus>("baseosmgr");
    script.ask(&peer).await;
    script.hear(&mut peer).await;
    script.note("on disk IMGA.json");
    script.note("Publish IMGB with PartitionState=updating");
    topic.publish("IMGB", &zboot("IMGB", "updating")).unwrap();
    script.hear(&mut peer).await;
    script.note("Unpublish IMGA");
    topic.unpublish("IMGA").unwrap();
    script.hear(&mut peer).await;
    assert_eq!(script.lines, [""; 0]);
    assert_eq!(script.repeats, 2, "what the reference sends again");
}

#[tokio::test]
async fn a_persistent_topic_says_so() {
    let place = Place::new();
    let mut script = Script::section(3);
    let mut topic = place.publication::<KubeConfig>("zedkube");
    let config = |version: &str| -> KubeConfig { value(&format!(r#"{{"K3sVersion":"{version}"}}"#)) };
    topic.publish("global", &config("")).unwrap();
    let mut peer = place.peer::<KubeConfig>("zedkube");
    script.note("/persist/status/zedkube/KubeConfig/global.json");
    script.note("/persist/status/zedkube/KubeConfig");
    script.ask(&peer).await;
    script.hear(&mut peer).await;
    script.note("K3sVersion set");
    topic.publish("global", &config("v1.32.1+k3s1")).unwrap();
    script.hear(&mut peer).await;
}

#[tokio::test]
async fn keys_and_texts_are_escaped_as_the_reference_escapes_them() {
    let place = Place::new();
    let mut script = Script::section(5);
    let disk = script.note("on disk \"key with space.json\"").split_once(" = ").unwrap().1.to_owned();
    let mut topic = place.publication::<EdgeNodeInfo>("zedagent");
    topic.publish("key with space", &value(&disk)).unwrap();
    let file = place.root.path().join("run/zedagent/EdgeNodeInfo/key with space.json");
    // The reference was given bytes that are no text; a value holds what it made of them.
    assert_eq!(fs::read_to_string(file).unwrap(), disk.replace(r"\ufffd", "\u{fffd}"));
    let mut peer = place.peer::<EdgeNodeInfo>("zedagent");
    script.ask(&peer).await;
    script.hear(&mut peer).await;
}

#[tokio::test]
async fn d_p3_large_members_travel_in_files_with_all_their_digits() {
    let place = Place::new();
    let mut script = Script::section(4);
    let disk = script.note("on disk global.json").split_once(" = ").unwrap().1.to_owned();
    let mut topic = place.publication::<KubeClusterInfo>("zedkube");
    topic.publish("global", &value(&disk)).unwrap();
    let peer = place.peer::<KubeClusterInfo>("zedkube");
    script.ask(&peer).await;
    let hello = script.note("hello");
    assert_eq!(peer.hear().await.unwrap(), Script::quoted(&hello));
    let update = Script::quoted(&script.note("update"));
    let told = peer.hear().await.unwrap();

    let (theirs, ours) = (decoded(&update), decoded(&told));
    let dir = "/persist/pubsub-large/zedkube/KubeClusterInfo/";
    assert_eq!(
        without_digits(&theirs),
        without_digits(&ours.replace(place.root.path().to_str().unwrap(), ""))
    );
    let complete = script.note("complete");
    assert_eq!(peer.hear().await.unwrap(), Script::quoted(&complete));
    for (member, damaged) in [("AppPods", false), ("AppVMIs", false), ("Storage", true)] {
        let line = script.note(&format!("pubsub-file-{member}"));
        let recorded = line.split_once(" = ").unwrap().1;
        let path = ours.split(&format!("{dir}pubsub-file-{member}")).nth(1).unwrap();
        let digits: String = path.chars().take_while(char::is_ascii_digit).collect();
        let path = place.topic_root.path(&format!("{dir}pubsub-file-{member}{digits}"));
        let written = fs::read_to_string(&path).unwrap();
        let repaired = recorded
            .replace("9007199254740992", "9007199254740993")
            .replace("18446744073709552000", "18446744073709551615");
        assert_eq!(written, repaired, "{member}");
        assert_eq!(repaired != recorded, damaged, "{member}");
        let mode = |path: &Path| {
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
        };
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o755));
    }
}

/// Section 6, the second publisher: what ours sends to a subscriber that comes back, and what the reference's holds in the end.
#[tokio::test]
async fn d_p1_a_key_that_went_while_the_publisher_was_away_is_gone() {
    let place = Place::new();
    let mut script = Script::section(6);
    let zboot = |label: &str| -> ZbootStatus { value(&format!(r#"{{"PartitionLabel":"{label}"}}"#)) };
    let mut topic = place.publication::<ZbootStatus>("baseosmgr");
    topic.publish("A", &zboot("A")).unwrap();
    topic.publish("B", &zboot("B")).unwrap();
    drop(topic);
    let mut topic = place.publication::<ZbootStatus>("baseosmgr");
    topic.unpublish("B").unwrap();
    topic.publish("C", &zboot("C")).unwrap();
    let peer = place.peer::<ZbootStatus>("baseosmgr");
    peer.socket.send(b"request ZbootStatus").await.unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        let record = peer.hear().await.unwrap();
        told.push(
            record.split(' ').filter(|word| *word != "ZbootStatus").take(2).collect::<Vec<_>>().join(" "),
        );
    }
    assert_eq!(told, ["hello false", "delete Qg==", "update QQ==", "update Qw==", "complete"]);
    while !script.note("").contains("subscriber holds keys [A B C] (B is stale") {}
}

#[tokio::test]
async fn under_a_root_too_deep_for_a_socket_files_go_on() {
    let root = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(root.path().join("x".repeat(100))).unwrap();
    let mut publication = agent::publication::<KubeClusterInfo>(&topic_root, "zedkube").unwrap();
    publication.publish("global", &KubeClusterInfo::default()).unwrap();
    assert!(topic_root.path("run/zedkube/KubeClusterInfo/global.json").exists());
    assert!(!topic_root.path("run/zedkube/KubeClusterInfo.sock").exists());
}

fn decoded(update: &str) -> String {
    let value = update.strip_prefix("update ").unwrap().rsplit(' ').next().unwrap();
    String::from_utf8(STANDARD.decode(value).unwrap()).unwrap()
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
