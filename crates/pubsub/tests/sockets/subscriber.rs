//! The subscriber's side of sockets: before, during and after its publisher, and with one that talks nonsense.

use std::time::Duration;

use pubsub::{Change, Finding, Name};

use crate::wired::{Place, clock, next, put, text, update};

fn gone(key: &str, old: &str) -> Change<String> {
    Change::Gone { key: key.into(), old: old.into() }
}

fn reason(change: Change<String>) -> String {
    let Change::Bad(Finding { path, reason }) = change else { panic!("no finding: {change:?}") };
    assert!(path.ends_with("run/tester/Topic.sock"), "{}", path.display());
    reason
}

#[tokio::test]
async fn data_then_synced_then_restarted_then_changes() {
    let place = Place::new();
    let mut publication = place.publication();
    publication.publish("a", &text("1")).unwrap();
    publication.signal_restarted().unwrap();
    let mut subscription = place.subscription();
    assert_eq!(next(&mut subscription).await, put("a", "1", None));
    assert_eq!(next(&mut subscription).await, Change::Synced);
    assert_eq!(next(&mut subscription).await, Change::Restarted(1));
    publication.publish("a", &text("2")).unwrap();
    assert_eq!(next(&mut subscription).await, put("a", "2", Some("1")));
    publication.unpublish("a").unwrap();
    assert_eq!(next(&mut subscription).await, gone("a", "2"));
    publication.clear_restarted().unwrap();
    assert_eq!(next(&mut subscription).await, Change::Restarted(0));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_may_start_before_its_publisher_and_tries_every_ten_seconds() {
    let place = Place::new();
    let mut subscription = place.subscription();
    let start = clock();
    let wait = tokio::time::timeout(Duration::from_secs(15), subscription.next());
    assert!(wait.await.is_err(), "something was told by nobody");
    let mut publication = place.publication();
    publication.publish("a", &text("1")).unwrap();
    // The wait was given up in between, which does not make it longer.
    assert_eq!(next(&mut subscription).await, put("a", "1", None));
    assert_eq!(start.elapsed().as_secs(), 20);
}

/// The reference keeps such a key for ever: nobody ever tells it of a delete (transcript, section 6).
#[tokio::test(start_paused = true)]
async fn d_p1_a_key_that_went_between_two_publishers_is_told_and_equal_ones_are_not() {
    let place = Place::new();
    let mut first = place.publication();
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        first.publish(key, &text(value)).unwrap();
    }
    let mut subscription = place.subscription();
    while next(&mut subscription).await != Change::Synced {}
    drop(first);
    // Nor does a publisher of ours name a key of which it found nothing.
    std::fs::remove_file(place.bus.path("run/tester/Topic/b.json")).unwrap();
    let mut second = place.publication();
    second.publish("c", &text("4")).unwrap();
    second.publish("d", &text("5")).unwrap();
    assert_eq!(next(&mut subscription).await, put("c", "4", Some("3")));
    assert_eq!(next(&mut subscription).await, put("d", "5", None));
    assert_eq!(next(&mut subscription).await, gone("b", "2"));
    assert_eq!(subscription.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a", "c", "d"]);
    second.publish("a", &text("6")).unwrap();
    assert_eq!(next(&mut subscription).await, put("a", "6", Some("1")), "told once more that it is in step");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_swept_by_a_publisher_that_does_not_get_to_the_end() {
    let place = Place::new();
    let foreign = place.foreign();
    let mut subscription = place.subscription();
    let start = clock();
    let serve = async {
        let peer = foreign.accept().await;
        assert_eq!(peer.message().await.unwrap(), b"request Topic");
        for message in
            ["hello Topic false", "update Topic YQ== MQ==", "update Topic Yg== Mg==", "complete Topic"]
        {
            peer.say(message.as_bytes()).await;
        }
        drop(peer);
        // At once, as all went well. This one ends before it has named all keys.
        let peer = foreign.accept().await;
        assert_eq!(start.elapsed().as_secs(), 0);
        peer.say(b"hello Topic").await;
        peer.say(b"update Topic YQ== Mw==").await;
        drop(peer);
        let peer = foreign.accept().await;
        assert_eq!(start.elapsed().as_secs(), 10);
        for message in ["hello Topic", "update Topic YQ== Mw==", "complete Topic"] {
            peer.say(message.as_bytes()).await;
        }
        peer
    };
    let listen = async {
        assert_eq!(next(&mut subscription).await, put("a", "1", None));
        assert_eq!(next(&mut subscription).await, put("b", "2", None));
        assert_eq!(next(&mut subscription).await, Change::Synced);
        assert_eq!(next(&mut subscription).await, put("a", "3", Some("1")));
        assert_eq!(subscription.get("b"), Some(&text("2")));
        assert_eq!(next(&mut subscription).await, gone("b", "2"));
    };
    tokio::join!(serve, listen);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_turns_everybody_away_is_not_asked_in_a_busy_loop() {
    let place = Place::new();
    let foreign = place.foreign();
    let mut subscription = place.subscription();
    let start = clock();
    let serve = async {
        for _ in 0..4 {
            drop(foreign.accept().await);
        }
    };
    tokio::select! {
        change = subscription.next() => panic!("{change:?} from nobody"),
        () = serve => {}
    }
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn nonsense_is_told_once_and_the_last_good_value_stays() {
    let place = Place::new();
    let foreign = place.foreign();
    let mut subscription = place.subscription();
    let serve = async {
        let peer = foreign.accept().await;
        peer.say(b"hello Topic true").await;
        peer.say(update("a", "1").to_message().as_bytes()).await;
        for message in [
            &b"\xff\xff"[..],
            b"\xff\xff",
            b"shout Topic",
            b"update Topic YQ==",
            b"update Topic YQ== !",
            b"update Other YQ== Mg==",
            b"request Topic",
            &vec![b'x'; 65_535],
        ] {
            peer.say(message).await;
        }
        for value in ["nonsense", "nonsense", "2", "nonsense"] {
            peer.say(update("a", value).to_message().as_bytes()).await;
        }
        peer.say(b"complete Topic").await;
        peer
    };
    let listen = async {
        assert!(reason(next(&mut subscription).await).contains("survives a reboot: true"));
        assert_eq!(next(&mut subscription).await, put("a", "1", None));
        for word in ["no text", "shout", "3 words", "base64", "Other", "request", "65535"] {
            let told = reason(next(&mut subscription).await);
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(reason(next(&mut subscription).await).contains("key \"a\": it is nonsense"));
        assert_eq!(next(&mut subscription).await, put("a", "2", Some("1")));
        assert!(reason(next(&mut subscription).await).contains("nonsense"));
        // It is published, if badly: the last good value is not swept.
        assert_eq!(next(&mut subscription).await, Change::Synced);
        assert_eq!(subscription.get("a"), Some(&text("2")));
    };
    tokio::join!(serve, listen);
}

#[test]
fn a_topic_of_no_agent_has_no_socket_to_follow() {
    let place = Place::of(Name::global("Topic"));
    let refused = place.bus.socket_subscription(&place.name, crate::wired::from_wire).err().unwrap();
    assert!(refused.to_string().contains("follow its files"), "{refused}");
}
