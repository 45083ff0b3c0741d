//! Large members that travel in files of their own: written, read, removed and refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pubsub::record::SocketRecord;
use pubsub::store;

use super::wired::{PATIENCE, Place, restarted, text, update};

/// The path in the update of a large text.
fn large_path(record: SocketRecord) -> PathBuf {
    let SocketRecord::Update { value, .. } = record else { panic!("no update: {record:?}") };
    String::from_utf8(value).unwrap().strip_prefix("file:").unwrap().into()
}

#[tokio::test]
async fn each_peer_gets_its_own_files_and_they_go_with_it() {
    let place = Place::new();
    let mut publication = place.publication();
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
        paths.push(large_path(peer.hear().await));
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
    assert_eq!(fs::read(large_path(peer.hear().await)).unwrap(), b"large:1");
    assert_eq!(peer.hear().await, update("b", "3"));
}
