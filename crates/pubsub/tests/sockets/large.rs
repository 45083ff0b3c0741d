//! Large members that travel in files of their own: written, read, removed and refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pubsub::record::Record;
use pubsub::{Change, store};

use crate::wired::{PATIENCE, Place, next, put, restarted, text, update};

/// The path in the update of a large text.
fn told(record: Record) -> PathBuf {
    let Record::Update { value, .. } = record else { panic!("no update: {record:?}") };
    String::from_utf8(value).unwrap().strip_prefix("file:").unwrap().into()
}

#[tokio::test]
async fn each_peer_gets_its_own_files_and_they_go_with_it() {
    let place = Place::new();
    let mut publication = place.publication();
    let (one, two) = (place.peer().await, place.peer().await);
    assert_eq!((one.dump().await.len(), two.dump().await.len()), (0, 0));
    publication.publish("a", &text("large:1")).unwrap();
    let (first, second) = (told(one.hear().await), told(two.hear().await));
    assert!(first != second && first.parent() == Some(place.large().as_path()), "{}", first.display());
    assert_eq!(fs::read(&first).unwrap(), b"large:1");
    assert_eq!(place.files(), 2);
    // The reader removes what it read; what the other did not read goes with it.
    fs::remove_file(first).unwrap();
    drop(two);
    let third = place.peer().await;
    assert!(matches!(third.hear().await, Record::Hello { .. }));
    told(third.hear().await);
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
    let place = Place::new();
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
    let _publication = place.publication();
    let left = || [old, new, foreign].map(|file| place.large().join(file).exists());
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(left(), [true; 3], "a peer may still read them");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(left(), [false, false, true]);
}

#[tokio::test]
async fn unread_files_of_one_peer_are_bounded() {
    let place = Place::new();
    let mut publication = place.publication();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await, []);
    let mut paths = Vec::new();
    for number in 0..40 {
        publication.publish("a", &format!("large:{number} {}", "x".repeat(1_000_000))).unwrap();
        paths.push(told(peer.hear().await));
    }
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left.iter().filter(|left| **left).count(), 16);
    assert!(left.iter().rev().take(16).all(|left| *left), "the newest stay");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_costs_its_key_only_and_is_tried_again() {
    let place = Place::new();
    let mut publication = place.publication();
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
    assert_eq!(fs::read(told(peer.hear().await)).unwrap(), b"large:1");
    assert_eq!(peer.hear().await, update("b", "3"));
}

#[tokio::test]
async fn a_large_value_comes_over_the_socket_and_its_file_is_removed() {
    let place = Place::new();
    let mut publication = place.publication();
    let value = format!("large:{}", "x".repeat(1_000_000));
    publication.publish("a", &value).unwrap();
    let mut subscription = place.subscription();
    assert_eq!(next(&mut subscription).await, put("a", &value, None));
    assert_eq!(next(&mut subscription).await, Change::Synced);
    assert_eq!(place.files(), 0);
}

#[tokio::test]
async fn only_files_of_the_topic_are_read_and_removed() {
    let place = Place::new();
    let foreign = place.foreign();
    let mut subscription = place.subscription();
    let large = place.large();
    let good = large.join("pubsub-file-Text7");
    let secret = place.root.path().join("persist/secret");
    let other = place.bus.path("persist/pubsub-large/tester/Other/pubsub-file-Text7");
    for path in [&good, &secret, &other, &large.join("other"), &large.join("pubsub-file-Name7")] {
        store::replace(path, b"large:x").unwrap();
    }
    symlink(&secret, large.join("pubsub-file-Text8")).unwrap();
    fs::create_dir(large.join("pubsub-file-Text9")).unwrap();
    store::replace(&large.join("pubsub-file-Text6"), &vec![b'x'; 1 << 20]).unwrap();
    let serve = async {
        let peer = foreign.accept().await;
        peer.say(b"hello Topic false").await;
        for (at, path) in [
            secret.clone(),
            other.clone(),
            large.join("other"),
            large.join("pubsub-file-Name7"),
            large.join("pubsub-file-Text"),
            large.join("pubsub-file-Text7/../../../../secret"),
            large.join("../Other/pubsub-file-Text7"),
            large.join("./pubsub-file-Text7"),
            large.join("pubsub-file-Text8"),
            large.join("pubsub-file-Text9"),
            large.join("pubsub-file-Text6"),
            PathBuf::from("pubsub-file-Text7"),
        ]
        .iter()
        .enumerate()
        {
            let record = update(&at.to_string(), &format!("file:{}", path.display()));
            peer.say(record.to_message().as_bytes()).await;
        }
        let record = update("good", &format!("file:{}", good.display()));
        peer.say(record.to_message().as_bytes()).await;
        let record = update("missing", &format!("file:{}", good.display()));
        peer.say(record.to_message().as_bytes()).await;
        peer
    };
    let listen = async {
        for key in 0..12 {
            let Change::Bad(finding) = next(&mut subscription).await else { panic!("{key} was read") };
            assert!(finding.reason.contains(&format!("key \"{key}\"")), "{finding}");
        }
        assert_eq!(next(&mut subscription).await, put("good", "large:x", None));
        // Its file went with the first reading: the member is left at zero.
        assert_eq!(next(&mut subscription).await, put("missing", "", None));
    };
    let (_peer, ()) = tokio::join!(serve, listen);
    assert!(!good.exists() && secret.exists() && other.exists());
    assert!(large.join("pubsub-file-Text8").is_symlink() && large.join("other").exists());
}

#[tokio::test]
async fn a_directory_that_is_a_link_is_not_read() {
    let place = Place::new();
    let foreign = place.foreign();
    let mut subscription = place.subscription();
    let (real, large) = (place.root.path().join("real"), place.large());
    store::replace(&real.join("pubsub-file-Text7"), b"large:x").unwrap();
    fs::create_dir_all(large.parent().unwrap()).unwrap();
    symlink(&real, &large).unwrap();
    let serve = async {
        let peer = foreign.accept().await;
        let path = large.join("pubsub-file-Text7");
        let record = update("a", &format!("file:{}", path.display()));
        peer.say(record.to_message().as_bytes()).await;
        peer
    };
    let (_peer, change) = tokio::join!(serve, next(&mut subscription));
    let Change::Bad(finding) = change else { panic!("a link was followed") };
    assert!(finding.reason.contains("no directory"), "{finding}");
    assert!(real.join("pubsub-file-Text7").exists());
}
