//! Whatever a publisher does and whenever it dies: in the end its subscribers hold what it holds.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use pubsub::record::SocketRecord;

use super::wired::{Peer, Place, record};

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
        match record(std::str::from_utf8(&message).unwrap()).unwrap() {
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
    let place = Place::new();
    let mut publication = place.publication();
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
                publication = place.publication();
            }
            Step::Crash(removed) => {
                drop(publication);
                if let Some(key) = removed {
                    drop(fs::remove_file(place.topic_root.path(&format!("run/tester/Topic/{key}.json"))));
                }
                publication = place.publication();
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
