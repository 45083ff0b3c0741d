//! Publishers and subscribers on real files: every order of start, every kind of bad file, nothing lost.
//!
//! Any bytes as the request of a subscriber: refused, or read as what is written back the same. `fuzz/` looks deeper.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use pubsub::record::parse_request;
use pubsub::{Change, FileRule, FileState, Name, Publication, Published, Subscription, TopicRoot, store};

use crate::quoted::codec;

/// A state that takes longer than this does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    pub(crate) root: tempfile::TempDir,
    pub(crate) topic_root: TopicRoot,
    pub(crate) name: Name,
}

impl Place {
    pub(crate) fn new(name: Name) -> Self {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root, name }
    }

    pub(crate) fn volatile() -> Self {
        Self::new(Name::volatile("tester", "Topic"))
    }

    pub(crate) fn persistent() -> Self {
        Self::new(Name::persistent("tester", "Topic"))
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.name.dir(self.root.path())
    }

    fn publication(&self) -> Publication<String> {
        self.topic_root.publication(self.name.clone(), codec()).unwrap()
    }

    fn subscription(&self) -> Subscription<String> {
        self.topic_root.subscription(&self.name, codec())
    }

    fn write(&self, file: &str, bytes: &[u8]) {
        store::replace(&self.dir().join(file), bytes).unwrap();
    }
}

async fn next(subscription: &mut Subscription<String>) -> Change<String> {
    tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap()
}

pub(crate) async fn until(subscription: &mut Subscription<String>, wanted: &[(&str, &str)]) {
    while subscription.iter().map(|(key, value)| (key, value.as_str())).ne(wanted.iter().copied()) {
        next(subscription).await;
    }
}

fn put(key: &str, value: &str, old: Option<&str>) -> Change<String> {
    Change::Put { key: key.into(), value: value.into(), old: old.map(str::to_owned) }
}

pub(crate) fn text(value: &str) -> String {
    value.to_owned()
}

#[tokio::test]
async fn a_subscriber_may_start_before_the_publisher_and_before_the_directory() {
    let place = Place::volatile();
    let mut subscription = place.subscription();
    assert_eq!(next(&mut subscription).await, Change::Synced);
    let mut publication = place.publication();
    publication.publish("a", &text("1")).unwrap();
    assert_eq!(next(&mut subscription).await, put("a", "1", None));
    publication.publish("a", &text("2")).unwrap();
    assert_eq!(next(&mut subscription).await, put("a", "2", Some("1")));
    publication.unpublish("a").unwrap();
    assert_eq!(next(&mut subscription).await, Change::Gone { key: "a".into(), old: text("2") });
}

#[tokio::test]
async fn a_subscriber_that_starts_late_gets_data_then_restarted_then_synced() {
    let place = Place::volatile();
    let mut publication = place.publication();
    publication.publish("a", &text("1")).unwrap();
    publication.signal_restarted().unwrap();
    let mut subscription = place.subscription();
    assert_eq!(next(&mut subscription).await, put("a", "1", None));
    assert_eq!(next(&mut subscription).await, Change::Restarted(1));
    assert_eq!(next(&mut subscription).await, Change::Synced);
    publication.clear_restarted().unwrap();
    assert_eq!(next(&mut subscription).await, Change::Restarted(0));
}

#[tokio::test]
async fn d_p4_a_counter_that_is_no_number_counts_as_one_start() {
    let place = Place::volatile();
    let mut subscription = place.subscription();
    assert_eq!(next(&mut subscription).await, Change::Synced);
    for text in ["x", "-1", "99999999999"] {
        place.write("restarted", text.as_bytes());
        assert_eq!(next(&mut subscription).await, Change::Restarted(1), "{text}");
        place.write("restarted", b"2");
        assert_eq!(next(&mut subscription).await, Change::Restarted(2));
    }
}

#[tokio::test]
async fn d_p1_a_key_removed_while_the_directory_was_away_is_told() {
    let place = Place::volatile();
    place.write("a.json", b"\"1\"");
    place.write("b.json", b"\"2\"");
    let mut subscription = place.subscription();
    until(&mut subscription, &[("a", "1"), ("b", "2")]).await;
    // Another directory takes the place of the first one.
    let other = place.root.path().join("other");
    store::replace(&other.join("b.json"), b"\"3\"").unwrap();
    fs::rename(place.dir(), place.root.path().join("away")).unwrap();
    fs::rename(&other, place.dir()).unwrap();
    until(&mut subscription, &[("b", "3")]).await;
    // And the new one is watched as the first one was.
    place.write("c.json", b"\"4\"");
    until(&mut subscription, &[("b", "3"), ("c", "4")]).await;
}

#[tokio::test]
async fn a_directory_that_goes_with_all_above_it_comes_back() {
    let place = Place::volatile();
    place.write("a.json", b"\"1\"");
    let mut subscription = place.subscription();
    until(&mut subscription, &[("a", "1")]).await;
    fs::remove_dir_all(place.root.path().join("run")).unwrap();
    until(&mut subscription, &[]).await;
    place.write("a.json", b"\"2\"");
    until(&mut subscription, &[("a", "2")]).await;
}

#[tokio::test]
async fn bad_files_are_told_once_and_the_last_good_value_stays() {
    let place = Place::volatile();
    // Without a publisher, who would write it again.
    place.write("a.json", b"\"good\"");
    let mut subscription = place.subscription();
    until(&mut subscription, &[("a", "good")]).await;
    assert_eq!(next(&mut subscription).await, Change::Synced);
    let long = vec![b' '; usize::try_from(pubsub::FILE_LIMIT_BYTES).unwrap() + 1];
    for (bytes, word) in [(&b""[..], "empty"), (b"\"go", "quotes"), (b"{}x", "quotes"), (&long, "longer")] {
        place.write("a.json", bytes);
        let Change::Bad(finding) = next(&mut subscription).await else { panic!("{word} was not told") };
        assert!(finding.reason.contains(word), "{finding}");
        assert_eq!(finding.path, place.dir().join("a.json"));
        assert_eq!(subscription.get("a"), Some(&text("good")));
    }
    // The same fault again is nothing new; the fixed file is.
    place.write("a.json", &long);
    place.write("a.json", b"\"mended\"");
    assert_eq!(next(&mut subscription).await, put("a", "mended", Some("good")));
}

#[tokio::test]
async fn a_link_in_place_of_a_topic_file_is_refused() {
    let place = Place::volatile();
    place.write("real", b"\"1\"");
    std::os::unix::fs::symlink(place.dir().join("real"), place.dir().join("a.json")).unwrap();
    let mut subscription = place.subscription();
    let Change::Bad(finding) = next(&mut subscription).await else { panic!("a link was read") };
    assert!(finding.reason.contains("link"), "{finding}");
}

#[tokio::test]
async fn an_equal_value_is_neither_written_nor_told() {
    let place = Place::volatile();
    let mut publication = place.publication();
    assert_eq!(publication.publish("a", &text("1")).unwrap(), Published::Written);
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&place.dir().join("a.json"));
    assert_eq!(publication.publish("a", &text("1")).unwrap(), Published::Unchanged);
    assert_eq!(inode(&place.dir().join("a.json")), before);
    let mut subscription = place.subscription();
    until(&mut subscription, &[("a", "1")]).await;
    assert_eq!(next(&mut subscription).await, Change::Synced);
    place.write("a.json", b"\"1\"");
    publication.publish("b", &text("2")).unwrap();
    assert_eq!(next(&mut subscription).await, put("b", "2", None));
}

#[tokio::test]
async fn a_burst_ends_with_the_latest_value() {
    let place = Place::volatile();
    let mut publication = place.publication();
    let mut subscription = place.subscription();
    for number in 0..500 {
        publication.publish("a", &number.to_string()).unwrap();
    }
    until(&mut subscription, &[("a", "499")]).await;
}

#[test]
fn there_is_one_publisher_and_a_dead_one_leaves_the_place() {
    let place = Place::volatile();
    let mut first = place.publication();
    first.publish("a", &text("1")).unwrap();
    let Err(refused) = place.topic_root.publication(place.name.clone(), codec()) else {
        panic!("two publishers")
    };
    let refused = refused.to_string();
    assert!(
        refused.contains("tester/Topic") && refused.contains(".lock") && refused.contains("stop"),
        "{refused}"
    );
    drop(first);
    assert_eq!(place.publication().get("a"), Some(&text("1")));
}

#[test]
fn d_p5_a_refused_key_changes_nothing() {
    let place = Place::volatile();
    let mut publication = place.publication();
    publication.publish("a/b", &text("1")).unwrap_err();
    publication.publish(&"k".repeat(251), &text("1")).unwrap_err();
    let long = "x".repeat(usize::try_from(pubsub::FILE_LIMIT_BYTES).unwrap());
    let refused = publication.publish("a", &long).unwrap_err().to_string();
    assert!(refused.contains("tester/Topic") && refused.contains("4194306") && refused.contains("4194304"));
    assert_eq!(publication.iter().count(), 0);
    assert_eq!(fs::read_dir(place.dir()).unwrap().count(), 0);
}

#[test]
fn d_p6_a_persistent_file_that_is_missing_empty_or_corrupt_is_taken_from_its_backup() {
    for damage in [None, Some(&b""[..]), Some(b"\"torn")] {
        let place = Place::persistent();
        let mut publication = place.publication();
        publication.publish("a", &text("1")).unwrap();
        publication.publish("a", &text("2")).unwrap();
        drop(publication);
        match damage {
            None => assert!(store::remove(&place.dir().join("a.json")).unwrap()),
            Some(bytes) => place.write("a.json", bytes),
        }
        let mut publication = place.publication();
        assert_eq!(publication.get("a"), Some(&text("1")));
        assert!(publication.take_findings()[0].reason.contains("backup"));
        assert_eq!([publication.was_older("a"), publication.was_older("b")], [true, false]);
        assert_eq!(store::read(&place.dir().join("a.json"), 99).unwrap().unwrap(), b"\"1\"");
    }
}

#[test]
fn a_volatile_topic_has_no_backup_and_a_bad_file_is_found_once() {
    let place = Place::volatile();
    let mut publication = place.publication();
    publication.publish("a", &text("1")).unwrap();
    publication.publish("a", &text("2")).unwrap();
    assert!(!place.dir().join("a.json.bak").exists());
    drop(publication);
    place.write("b.json", b"{");
    let mut publication = place.publication();
    assert_eq!(publication.take_findings().len(), 1);
    assert_eq!(publication.take_findings(), []);
    assert_eq!(publication.get("a"), Some(&text("2")));
}

#[tokio::test]
async fn a_plain_file_is_told_as_it_is_and_at_each_change() {
    let place = Place::volatile();
    let path = place.topic_root.path("persist/config/x.json");
    let mut watch = place.topic_root.file(&path, FileRule { limit_bytes: 4, order: true });
    assert_eq!(watch.next().await, FileState::Absent);
    store::replace(&path, b"1").unwrap();
    assert_eq!(watch.next().await, FileState::Present(b"1".to_vec()));
    store::replace(&path, b"12345").unwrap();
    let FileState::Bad(finding) = watch.next().await else { panic!("read past its limit") };
    assert!(finding.reason.contains("4 bytes"), "{finding}");
    store::remove(&path).unwrap();
    assert_eq!(watch.next().await, FileState::Absent);
}

#[tokio::test]
async fn the_author_of_a_file_is_its_owner_at_the_time_it_was_written_also_of_one_that_is_refused() {
    let place = Place::volatile();
    let path = place.topic_root.path("persist/kube-status/force.json");
    let mut watch = place.topic_root.file(&path, FileRule { limit_bytes: 4, order: true });
    assert_eq!((watch.next().await, watch.author()), (FileState::Absent, None));
    let us = rustix::process::geteuid().as_raw();
    for text in ["1", "12345"] {
        store::replace(&path, text.as_bytes()).unwrap();
        let state = watch.next().await;
        assert_eq!(matches!(state, FileState::Present(_)), text == "1");
        let author = watch.author().unwrap();
        assert_eq!((author.uid, author.written), (us, fs::metadata(&path).unwrap().modified().unwrap()));
    }
    store::remove(&path).unwrap();
    assert_eq!((watch.next().await, watch.author()), (FileState::Absent, None));
}

#[tokio::test]
async fn s3_an_order_that_others_could_have_written_is_refused_with_the_next_step() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::volatile();
    let path = place.topic_root.path("persist/kube-status/force.json");
    store::replace(&path, b"1").unwrap();
    let rule = FileRule { limit_bytes: 99, order: true };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let refused = async |word: &str| {
        let FileState::Bad(finding) = place.topic_root.file(&path, rule).next().await else {
            panic!("{word} was accepted")
        };
        assert!(finding.reason.contains(word), "{finding}");
    };
    mode(&path, 0o622);
    refused("chmod 600").await;
    mode(&path, 0o600);
    mode(path.parent().unwrap(), 0o777);
    refused("chmod 755").await;
    mode(path.parent().unwrap(), 0o1777);
    assert_eq!(place.topic_root.file(&path, rule).next().await, FileState::Present(b"1".to_vec()));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        refused("chown root").await;
    } else {
        writeln!(std::io::stderr(), "skipped: foreign owners can only be tried as root").unwrap();
    }
    let real = place.topic_root.path("real");
    store::replace(&real, b"1").unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    refused("link").await;
}

fn same(message: &[u8]) {
    match parse_request(message) {
        Ok(topic) => assert_eq!(format!("request {topic}").as_bytes(), message),
        Err(fault) => assert!(fault.to_string().len() < 200, "{fault}"),
    }
}

#[test]
fn what_fuzzing_kept_is_refused_or_read_as_it_is_written() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/record");
    let kept: Vec<_> = fs::read_dir(kept).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(kept.len() > 100, "{} messages kept", kept.len());
    for message in kept {
        same(&fs::read(message).unwrap());
    }
}

/// Bytes that look like requests more often than chance has it.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"request".to_vec()),
        Just(b"T".to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
        "[A-Za-z0-9+/]{0,12}={0,2}".prop_map(String::into_bytes),
    ];
    prop_oneof![
        prop::collection::vec(word, 0..6).prop_map(|words| words.join(&b' ')),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_message_is_refused_or_read_as_it_is_written(message in message()) {
        same(&message);
    }
}
