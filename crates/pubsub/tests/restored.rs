//! Files of a volatile topic that somebody removes while its publisher lives: they come back without another publish.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pubsub::{Change, FileRule, FileState, Publication, TopicRoot};

use crate::files::{PATIENCE, Place};
use crate::quoted::codec;

impl Place {
    fn published(&self) -> Publication<String> {
        let mut publication = self.topic_root.publication(self.name.clone(), codec()).unwrap();
        for key in ["a", "b"] {
            publication.publish(key, &key.to_owned()).unwrap();
        }
        publication.signal_restarted().unwrap();
        publication
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    async fn until(&self, name: &str, wanted: &str) {
        // Not by our own TopicRoot: another process.
        let topic_root = TopicRoot::open(self.topic_root.root()).unwrap();
        let mut file = topic_root.file(self.file(name), FileRule { limit_bytes: 99, order: false });
        let seen = async { while file.next().await != FileState::Present(wanted.as_bytes().to_vec()) {} };
        tokio::time::timeout(PATIENCE, seen).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_somebody_removes_is_back_without_another_publish() {
    let place = Place::volatile();
    let _publication = place.published();
    place.until("restarted", "1").await;
    for name in ["a.json", "restarted", "a.json"] {
        fs::remove_file(place.file(name)).unwrap();
        place.until(name, if name == "restarted" { "1" } else { "\"a\"" }).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "somebody else writes in place")]
#[tokio::test]
async fn a_file_that_somebody_overwrites_is_written_again_as_it_was() {
    let place = Place::volatile();
    let _publication = place.published();
    place.until("restarted", "1").await;
    let forged = place.file("forged");
    for (nth, bytes) in
        ["\"forged\"".to_owned(), "{torn".to_owned(), "x".repeat(70_000)].into_iter().enumerate()
    {
        let file = place.file("a.json");
        if nth == 1 {
            // As an editor does it; the others write in place.
            fs::write(&forged, &bytes).unwrap();
            fs::rename(&forged, &file).unwrap();
        } else {
            fs::write(&file, &bytes).unwrap();
        }
        let still = || fs::read_to_string(&file).unwrap();
        while still() != "\"a\"" {
            place.until("a.json", "\"a\"").await;
        }
    }
}

#[tokio::test]
async fn a_directory_that_somebody_removes_with_all_above_it_is_back_without_another_publish() {
    for above in ["run/tester/Topic", "run/tester", "run"] {
        let place = Place::volatile();
        let _publication = place.published();
        place.until("restarted", "1").await;
        fs::remove_dir_all(place.topic_root.path(above)).unwrap();
        for (name, wanted) in [("a.json", "\"a\""), ("b.json", "\"b\""), ("restarted", "1")] {
            place.until(name, wanted).await;
        }
    }
}

#[tokio::test]
async fn a_key_that_its_publisher_took_back_stays_away() {
    let place = Place::volatile();
    let mut publication = place.published();
    place.until("a.json", "\"a\"").await;
    publication.unpublish("a").unwrap();
    fs::remove_file(place.file("b.json")).unwrap();
    place.until("b.json", "\"b\"").await;
    assert!(!place.file("a.json").exists());
    // Nor does a publisher that is gone write anything.
    drop(publication);
    let mut next = place.topic_root.publication(place.name.clone(), codec()).unwrap();
    next.unpublish("b").unwrap();
    next.publish("c", &"c".to_owned()).unwrap();
    fs::remove_file(place.file("c.json")).unwrap();
    place.until("c.json", "\"c\"").await;
    assert!(!place.file("b.json").exists());
}

#[tokio::test(start_paused = true)]
async fn whoever_removes_a_file_again_and_again_is_answered_once_a_second() {
    let place = Place::volatile();
    let _publication = place.published();
    place.until("a.json", "\"a\"").await;
    #[expect(clippy::disallowed_methods, reason = "the runtime's time stands still in this test")]
    let began = tokio::time::Instant::now();
    for _ in 0..5 {
        fs::remove_file(place.file("a.json")).unwrap();
        place.until("a.json", "\"a\"").await;
    }
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_removed_from_a_persistent_topic_stays_away_until_it_is_published() {
    let place = Place::persistent();
    let mut publication = place.published();
    fs::remove_file(place.file("a.json")).unwrap();
    let mut follower = place.topic_root.subscription(&place.name, codec());
    while tokio::time::timeout(PATIENCE, follower.next()).await.unwrap() != Change::Synced {}
    publication.publish("b", &"other".to_owned()).unwrap();
    while follower.get("b").is_none_or(|it| it != "other") {
        tokio::time::timeout(PATIENCE, follower.next()).await.unwrap();
    }
    assert!(!place.file("a.json").exists());
    publication.publish("a", &"a".to_owned()).unwrap();
    assert!(place.file("a.json").exists());
}
