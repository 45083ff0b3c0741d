//! Whatever a publisher does and whenever it dies: in the end its subscribers hold what it holds.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use pubsub::{Change, SocketSubscription};

use crate::wired::{PATIENCE, Place};

/// What may happen between two moments.
#[derive(Debug, Clone)]
enum Step {
    /// The publisher publishes a value, a large one where asked.
    Publish(u8, u8, bool),
    /// It takes a key back, when it is there.
    Unpublish(u8),
    /// It says that it started again.
    Signal,
    /// It is ended in order and started again.
    Restart,
    /// It dies, somebody removes the file of a key meanwhile, and it is started again.
    Crash(Option<u8>),
    /// Subscribers get some time.
    Turns(u8),
    /// A subscriber takes so many changes.
    Listen(usize, u8),
    /// A subscriber comes again.
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
        3 => (0..2_usize, 1..4_u8).prop_map(|(who, changes)| Step::Listen(who, changes)),
        1 => (0..2_usize).prop_map(Step::Join),
    ]
}

fn held(subscription: &SocketSubscription<String>) -> BTreeMap<String, String> {
    subscription.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// Takes changes one by one; the values that they amount to must be the values that are held.
struct Listener {
    subscription: SocketSubscription<String>,
    told: BTreeMap<String, String>,
}

impl Listener {
    fn new(place: &Place) -> Self {
        Self { subscription: place.subscription(), told: BTreeMap::new() }
    }

    async fn listen(&mut self) {
        // By the paused clock, so it is over as soon as nothing can happen any more.
        let change = tokio::time::timeout(PATIENCE, self.subscription.next()).await;
        match change.unwrap() {
            Change::Put { key, value, old } => {
                assert_ne!(old.as_ref(), Some(&value), "{key} was told again");
                assert_eq!(self.told.insert(key, value), old);
            }
            Change::Gone { key, old } => assert_eq!(self.told.remove(&key), Some(old)),
            Change::Synced | Change::Restarted(_) => {}
            Change::Bad(finding) => panic!("{finding}"),
        }
    }
}

async fn run(steps: Vec<Step>) {
    let place = Place::new();
    let mut publication = place.publication();
    let mut listeners = [Listener::new(&place), Listener::new(&place)];
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
                    drop(fs::remove_file(place.bus.path(&format!("run/tester/Topic/{key}.json"))));
                }
                publication = place.publication();
            }
            Step::Turns(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Step::Listen(who, changes) => {
                for _ in 0..changes {
                    // Given up at any point: nothing is lost by that.
                    tokio::select! {
                        biased;
                        () = listeners[who].listen() => {}
                        () = tokio::task::yield_now() => {}
                    }
                }
            }
            Step::Join(who) => listeners[who] = Listener::new(&place),
        }
    }
    let last: BTreeMap<String, String> =
        publication.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    for listener in &mut listeners {
        // A last key tells that all before it was heard.
        publication.publish("end", &String::from("0")).unwrap();
        while !held(&listener.subscription).contains_key("end")
            || listener.told != held(&listener.subscription)
        {
            listener.listen().await;
        }
        publication.unpublish("end").unwrap();
        while listener.told.contains_key("end") {
            listener.listen().await;
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
