//! The publisher's side of sockets with real peers: fast, slow, silent, rude and gone ones.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};

use super::{PATIENCE, Peer, codec, delete, restarted, to_wire, update};
use crate::files::{Place, text};
use pubsub::record::SocketRecord;
use pubsub::{Name, TopicRoot, store};

#[tokio::test]
async fn what_happens_between_two_wake_ups_is_one_batch_of_latest_values() {
    let place = Place::volatile();
    let mut publication = place.served();
    for key in ["gone", "again", "kept"] {
        publication.publish(key, &text("0")).unwrap();
    }
    let peer = place.peer().await;
    assert_eq!(peer.dump().await.len(), 3);
    // No wait in between: the peer's task runs after all of it.
    publication.signal_restarted().unwrap();
    for number in 0..100 {
        publication.publish("kept", &number.to_string()).unwrap();
    }
    publication.publish("brief", &text("x")).unwrap();
    publication.unpublish("brief").unwrap();
    publication.unpublish("again").unwrap();
    publication.publish("again", &text("1")).unwrap();
    publication.unpublish("gone").unwrap();
    assert_eq!(peer.hear().await, delete("gone"));
    assert_eq!(peer.hear().await, update("again", "1"));
    assert_eq!(peer.hear().await, update("kept", "99"));
    assert_eq!(peer.hear().await, restarted(1));
    publication.clear_restarted().unwrap();
    assert_eq!(peer.hear().await, restarted(0));
}

/// The reference's subscribers keep a key until it is named as deleted, also one that went while they were away.
#[tokio::test]
async fn d_p1_a_key_that_a_successor_removed_is_named_to_peers_that_come_later() {
    let place = Place::volatile();
    let mut first = place.served();
    for key in ["again", "gone", "kept"] {
        first.publish(key, &text("1")).unwrap();
    }
    // As a crash: the files stay.
    drop(first);
    let mut second = place.served();
    for key in ["again", "gone", "brief"] {
        second.publish(key, &text("2")).unwrap();
    }
    for key in ["again", "gone", "brief"] {
        second.unpublish(key).unwrap();
    }
    second.publish("again", &text("3")).unwrap();
    for _ in 0..2 {
        let peer = place.peer().await;
        assert!(matches!(peer.hear().await, SocketRecord::Hello { .. }));
        assert_eq!(peer.hear().await, delete("gone"));
        assert_eq!(peer.hear().await, update("again", "3"));
        assert_eq!(peer.hear().await, update("kept", "1"));
        assert!(matches!(peer.hear().await, SocketRecord::Complete { .. }));
    }
}

#[tokio::test]
async fn d_p1_a_key_that_was_removed_in_this_boot_is_named_by_every_later_publisher() {
    let place = Place::volatile();
    let mut first = place.served();
    for key in ["gone", "kept", "again"] {
        first.publish(key, &text("1")).unwrap();
    }
    // Taken back by the very publisher that published it.
    for key in ["gone", "again"] {
        first.unpublish(key).unwrap();
    }
    first.publish("again", &text("2")).unwrap();
    drop(first);
    for _ in 0..3 {
        let next = place.served();
        let peer = place.peer().await;
        assert!(matches!(peer.hear().await, SocketRecord::Hello { .. }));
        assert_eq!(peer.hear().await, delete("gone"));
        assert_eq!(peer.hear().await, update("again", "2"));
        assert_eq!(peer.hear().await, update("kept", "1"));
        assert!(matches!(peer.hear().await, SocketRecord::Complete { .. }));
        // Killed before anybody else came.
        drop((peer, next));
    }
    place.served().close().unwrap();
    let _last = place.served();
    let peer = place.peer().await;
    assert!(matches!(peer.hear().await, SocketRecord::Hello { .. }));
    for key in ["again", "gone", "kept"] {
        assert_eq!(peer.hear().await, delete(key));
    }
}

/// The reference compares what it sent, members sorted, with what is on disk, members in order: each key whose two
/// forms differ is sent at every wake-up.
#[tokio::test]
async fn d_p2_a_value_whose_wire_form_differs_is_not_sent_twice() {
    let place = Place::volatile();
    let mut publication = place.topic_root.publication(place.name.clone(), codec()).unwrap();
    place.topic_root.serve(&mut publication, |disk, _| Ok(disk.iter().rev().copied().collect())).unwrap();
    publication.publish("a", &text("abc")).unwrap();
    publication.publish("b", &text("def")).unwrap();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await, [(text("a"), text("cba")), (text("b"), text("fed"))]);
    publication.signal_restarted().unwrap();
    assert_eq!(peer.hear().await, restarted(1));
    publication.publish("a", &text("abc")).unwrap();
    publication.publish("b", &text("ghi")).unwrap();
    assert_eq!(peer.hear().await, update("b", "ihg"));
    // A file that somebody removed is written again, which is no change.
    assert!(store::remove(&place.topic_root.path("run/tester/Topic/a.json")).unwrap());
    publication.publish("a", &text("abc")).unwrap();
    publication.signal_restarted().unwrap();
    assert_eq!(peer.hear().await, restarted(2));
}

#[tokio::test]
async fn t7_a_socket_and_a_lock_that_went_alone_or_with_their_directory_are_made_again() {
    for name in [Name::volatile("tester", "Topic"), Name::persistent("tester", "Topic")] {
        let place = Place::new(name);
        let mut publication = place.served();
        publication.publish("a", &text("0")).unwrap();
        let early = place.peer().await;
        assert_eq!(early.dump().await, [(text("a"), text("0"))]);
        for (number, gone) in
            ["run/tester/Topic.sock", "run/tester", "run", "persist"].into_iter().enumerate()
        {
            fs::create_dir_all(place.topic_root.path("persist")).unwrap();
            fs::rename(place.topic_root.path(gone), place.root.path().join(format!("former-{number}")))
                .unwrap();
            let value = number.to_string() + "th";
            // Of a persistent topic the next publish notices it.
            publication.publish("a", &value).unwrap();
            let back = async {
                while Peer::connect(&place.socket()).is_err()
                    || place.topic_root.is_published(&place.name).unwrap() != Some(true)
                {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, back).await.unwrap();
            assert_eq!(place.peer().await.dump().await, [(text("a"), value.clone())]);
            // Whoever was connected still hears of changes.
            assert_eq!(early.hear().await, update("a", &value));
            let other = TopicRoot::open(place.root.path()).unwrap();
            let refused = other.publication(place.name.clone(), codec()).err().unwrap();
            assert!(matches!(refused, pubsub::Error::Taken { .. }), "{refused}");
        }
        publication.close().unwrap();
        assert!(!place.socket().exists());
    }
}

/// As a second copy of an agent that starts where something was mounted over `run`.
#[tokio::test]
async fn t7_a_directory_in_the_place_of_ours_that_has_a_publisher_is_left_to_it() {
    let place = Place::volatile();
    let mut first = place.served();
    first.publish("a", &text("1")).unwrap();
    fs::rename(place.topic_root.path("run"), place.root.path().join("former")).unwrap();
    let other = TopicRoot::open(place.root.path()).unwrap();
    let mut second = other.publication(place.name.clone(), codec()).unwrap();
    other.serve(&mut second, to_wire).unwrap();
    second.publish("b", &text("2")).unwrap();
    let refused = first.publish("c", &text("3")).unwrap_err();
    assert!(matches!(refused, pubsub::Error::Taken { .. }), "{refused}");
    // All of the first one's tasks have looked once the second's peer has heard what there is.
    assert_eq!(place.peer().await.dump().await, [(text("b"), text("2"))]);
    assert!(!place.topic_root.path("run/tester/Topic/a.json").exists());
    drop(second);
    let back = async {
        while !place.topic_root.path("run/tester/Topic/a.json").exists()
            || Peer::connect(&place.socket()).is_err()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_reads_delays_nobody_and_later_hears_the_latest_only() {
    let place = Place::volatile();
    let mut publication = place.served();
    let silent = place.peer().await;
    let reading = place.peer().await;
    assert_eq!(reading.dump().await, []);
    let last = 300;
    for number in 0..=last {
        let value = format!("{number} {}", "x".repeat(20_000));
        publication.publish("a", &value).unwrap();
        assert_eq!(reading.hear().await, update("a", &value));
    }
    assert_eq!(silent.dump().await, []);
    let mut heard = 0;
    loop {
        let SocketRecord::Update { value, .. } = silent.hear().await else { panic!("no update") };
        heard += 1;
        if value.starts_with(format!("{last} ").as_bytes()) {
            break;
        }
    }
    // What the kernel keeps for a reader, and the one record that waited for room.
    assert!(heard < 50, "{heard} of {last} values were kept for a peer that did not read");
    publication.unpublish("a").unwrap();
    assert_eq!(silent.hear().await, delete("a"));
}

#[tokio::test]
async fn peers_that_send_garbage_are_disconnected_and_the_others_stay() {
    let place = Place::volatile();
    let mut publication = place.served();
    let good = place.peer().await;
    assert_eq!(good.dump().await, []);
    let longest = [b"request ".as_slice(), &[b'x'; 248]].concat();
    for garbage in
        [&b"\xff\xfe\0"[..], b"request", b"request Other", b"hello Topic", &longest, &vec![b'x'; 60_000]]
    {
        let peer = Peer::connect(&place.socket()).unwrap();
        peer.say(garbage).await;
        assert_eq!(peer.message().await, None, "{garbage:?}");
    }
    let chatty = place.peer().await;
    assert_eq!(chatty.dump().await, []);
    chatty.say(b"request Topic").await;
    assert_eq!(chatty.message().await, None);
    publication.publish("a", &text("1")).unwrap();
    assert_eq!(good.hear().await, update("a", "1"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_asks_for_nothing_is_disconnected() {
    let place = Place::volatile();
    let _publication = place.served();
    let peer = Peer::connect(&place.socket()).unwrap();
    assert_eq!(peer.message().await, None);
}

#[tokio::test]
async fn more_peers_than_a_topic_can_have_are_turned_away() {
    let place = Place::volatile();
    let mut publication = place.served();
    for (key, value) in [("a", "1"), ("b", "2")] {
        publication.publish(key, &text(value)).unwrap();
    }
    let mut peers = Vec::new();
    for _ in 0..64 {
        peers.push(place.peer().await);
    }
    for peer in &peers {
        assert_eq!(peer.dump().await, [(text("a"), text("1")), (text("b"), text("2"))]);
    }
    let refused = Peer::connect(&place.socket()).unwrap();
    assert_eq!(refused.message().await, None);
    // One goes: the publisher sees that without being asked, and there is room again.
    peers.pop();
    publication.publish("b", &text("3")).unwrap();
    for peer in &peers {
        assert_eq!(peer.hear().await, update("b", "3"));
    }
    assert_eq!(place.peer().await.dump().await.len(), 2);
}

#[tokio::test]
async fn a_dead_publishers_socket_is_taken_over_and_a_live_one_refused() {
    let place = Place::volatile();
    let mut first = place.served();
    first.publish("a", &text("1")).unwrap();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await.len(), 1);
    drop(first);
    assert!(fs::symlink_metadata(place.socket()).unwrap().file_type().is_socket(), "a crash leaves it");
    assert!(Peer::connect(&place.socket()).is_err(), "nobody listens any more");
    // At once: its tasks have had no time to end.
    let second = place.served();
    assert_eq!(place.peer().await.dump().await, [(text("a"), text("1"))]);
    assert_eq!(peer.message().await, None);
    drop(second);

    fs::remove_file(place.socket()).unwrap();
    let foreign = place.foreign();
    let litter = place.topic_root.path("run/tester/Topic/tmp123");
    store::replace(&litter, b"x").unwrap();
    let Err(refused) = place.topic_root.publication(place.name.clone(), codec()) else {
        panic!("two publishers")
    };
    let refused = refused.to_string();
    let socket = place.socket().display().to_string();
    assert!(
        refused.contains("tester/Topic") && refused.contains(&socket) && refused.contains("stop"),
        "{refused}"
    );
    assert!(litter.exists(), "the live publisher's files were touched");
    assert!(Peer::connect(&place.socket()).is_ok());
    drop(foreign);
    place.served();
}

#[tokio::test]
async fn what_is_no_socket_is_not_replaced() {
    let place = Place::volatile();
    let (real, path) = (place.root.path().join("real"), place.socket());
    store::replace(&path, b"x").unwrap();
    let refused = place.topic_root.publication(place.name.clone(), codec()).err().unwrap().to_string();
    assert!(refused.contains("no socket") && refused.contains("remove"), "{refused}");
    fs::remove_file(&path).unwrap();
    // A link, be it to the socket of another topic, is none either.
    let other = Place::volatile();
    let _live = other.served();
    fs::rename(other.socket(), &real).unwrap();
    symlink(&real, &path).unwrap();
    let refused = place.topic_root.publication(place.name.clone(), codec()).err().unwrap().to_string();
    assert!(refused.contains("no socket"), "{refused}");
    assert!(real.exists() && path.is_symlink());
}

#[tokio::test]
async fn sockets_lie_beside_volatile_topics_and_under_run_for_persistent_ones() {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, path) in [
        (Name::volatile("tester", "Topic"), "run/tester/Topic.sock"),
        (Name::persistent("tester", "Topic"), "run/tester/Topic.sock"),
    ] {
        let place = Place::new(name);
        let _publication = place.served();
        let path = place.root.path().join(path);
        assert!(Peer::connect(&path).is_ok(), "{}", path.display());
        let dir = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(dir.permissions().mode() & 0o777, 0o700);
    }
    let place = Place::new(Name::global("Topic"));
    let mut publication = place.served();
    publication.publish("a", &text("1")).unwrap();
    assert_eq!(place.name.socket(place.root.path()), None);
}

#[tokio::test]
async fn a_root_too_deep_for_a_socket_is_refused_with_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let topic_root = TopicRoot::open(root.path().join("x".repeat(100))).unwrap();
    let mut publication = topic_root.publication(Name::volatile("tester", "Topic"), codec()).unwrap();
    let refused = topic_root.serve(&mut publication, to_wire).unwrap_err().to_string();
    assert!(refused.contains("107") && refused.contains("shorter root"), "{refused}");
    publication.publish("a", &text("1")).unwrap();
}

#[test]
fn without_a_runtime_serving_is_an_error_and_files_go_on() {
    let place = Place::volatile();
    let mut publication = place.topic_root.publication(place.name.clone(), codec()).unwrap();
    assert!(place.topic_root.serve(&mut publication, to_wire).is_err());
    publication.publish("a", &text("1")).unwrap();
}

/// The reference tells peers and keeps the value, and then returns the error, or ends at the next peer.
#[tokio::test]
async fn d_p5_a_value_that_cannot_be_sent_changes_nothing() {
    let place = Place::volatile();
    let mut publication = place.served();
    publication.publish("a", &text("1")).unwrap();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await.len(), 1);
    // "update Topic YQ== " and the value in base64.
    let longest = "x".repeat((65_534 - 18) / 4 * 3);
    for (value, limit, bytes) in [
        (format!("{longest}x"), "65534", "65538"),
        (format!("large:{}", "x".repeat((1 << 20) - 6)), "1048575", "1048576"),
        (format!("large:{}", "x".repeat(4 << 20)), "4194304", "4194310"),
    ] {
        for key in ["a", "b"] {
            let refused = publication.publish(key, &value).unwrap_err().to_string();
            for word in ["tester/Topic", &format!("{key:?}"), limit, bytes] {
                assert!(refused.contains(word), "{refused}");
            }
        }
    }
    publication.publish("a/b", &text("2")).unwrap_err();
    assert_eq!(publication.iter().collect::<Vec<_>>(), [("a", &text("1"))]);
    assert_eq!(fs::read_dir(place.topic_root.path("run/tester/Topic")).unwrap().count(), 1);
    assert_eq!(place.files(), 0);
    // The next thing that the peer hears is the next good value, of the longest kind.
    publication.publish("a", &longest).unwrap();
    assert_eq!(peer.hear().await, update("a", &longest));
    publication.publish("a", &format!("large:{}", "x".repeat((1 << 20) - 7))).unwrap();
    assert!(matches!(peer.hear().await, SocketRecord::Update { .. }));
}

#[tokio::test]
async fn a_value_that_was_left_and_cannot_be_sent_is_a_finding() {
    let place = Place::volatile();
    let file = place.topic_root.path("run/tester/Topic/long.json");
    store::replace(&file, "x".repeat(60_000).as_bytes()).unwrap();
    let mut publication = place.served();
    let findings = publication.take_findings();
    assert!(findings.len() == 1 && findings[0].path == file, "{findings:?}");
    assert!(findings[0].reason.contains("65534"), "{findings:?}");
    assert_eq!(place.peer().await.dump().await, []);
    publication.publish("long", &text("short")).unwrap();
    assert_eq!(place.peer().await.dump().await.len(), 1);
}

#[tokio::test]
async fn closing_tells_the_deletes_before_the_end() {
    let place = Place::volatile();
    let mut publication = place.served();
    publication.publish("a", &text("1")).unwrap();
    publication.signal_restarted().unwrap();
    let peer = place.peer().await;
    assert_eq!(peer.dump().await.len(), 1);
    assert_eq!(peer.hear().await, restarted(1));
    publication.close().unwrap();
    assert!(!place.socket().exists());
    assert_eq!(peer.hear().await, delete("a"));
    assert_eq!(peer.hear().await, restarted(0));
    assert_eq!(peer.message().await, None);
    // Nobody is left to wait for: its tasks end by themselves, and that of the TopicRoot with the TopicRoot.
    drop(place);
    let tasks = tokio::runtime::Handle::current().metrics();
    let ended = async {
        while tasks.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
}
