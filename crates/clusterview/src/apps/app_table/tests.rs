//! When a status is published: at once, then not too often, and what becomes of it without a cluster.

use super::*;
use topics::AppKubeStatus;

use super::super::samples::{WEB as KEY, at, config, pod};

fn app(designated: bool) -> App {
    let mut config = config("web", KEY, false);
    config.is_designated_node_id = designated;
    App::of(&config)
}

fn pods(phase: &str) -> Vec<AppPod> {
    vec![pod("web-d4f3a-0-x7k2p", "n1", phase)]
}

/// Does all that is due: the number of each status published, 9 for one withdrawn.
fn due(book: &mut AppTable, now: Mono) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some(act) = book.due(now) {
        said.push(match &act {
            AppAction::Publish(key, status) => {
                assert_eq!(key, KEY);
                status.app_kube_status.number()
            }
            AppAction::Withdraw(_) => 9,
        });
        book.done(now, act, true);
    }
    said
}

/// One application, configured and read, on a node of known name.
fn book() -> AppTable {
    let mut book = AppTable::new([]);
    book.configured(KEY.to_owned(), Some(app(true)));
    book.configs_read();
    assert!(!book.is_wanted(), "without the name of the node nothing can be told");
    book.node("n1".to_owned());
    assert!(book.is_wanted());
    book
}

#[test]
fn nothing_is_said_before_the_pods_are_known() {
    let mut book = book();
    assert_eq!((due(&mut book, at(0)), book.next_wake()), (vec![], None));
    book.set_pods(vec![]);
    assert_eq!(due(&mut book, at(0)), [2]);
    assert_eq!((due(&mut book, at(1000)), book.next_wake()), (vec![], None), "the same again is nothing new");
}

#[test]
fn a_change_is_said_at_once_and_the_next_one_after_the_gap_with_the_newest_value() {
    let mut book = book();
    book.set_pods(pods("Pending"));
    assert_eq!(due(&mut book, at(100)), [3]);
    book.set_pods(pods("Running"));
    assert_eq!((due(&mut book, at(100)), book.next_wake()), (vec![], Some(at(110))));
    book.set_pods(vec![]);
    assert_eq!((due(&mut book, at(109)), due(&mut book, at(110))), (vec![], vec![2]));
    // It goes and comes back within the gap: nothing to say.
    book.set_pods(pods("Running"));
    book.set_pods(vec![]);
    assert_eq!((due(&mut book, at(120)), book.next_wake()), (vec![], None));
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(500)), [4], "at once");
}

#[test]
fn a_config_that_is_another_is_said_and_one_that_is_gone_takes_its_status_back_at_once() {
    let mut book = book();
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(0)), [4]);
    book.configured(KEY.to_owned(), Some(app(false)));
    assert_eq!((due(&mut book, at(9)), due(&mut book, at(10))), (vec![], vec![4]));
    book.configured(KEY.to_owned(), None);
    assert_eq!((due(&mut book, at(10)), book.is_wanted()), (vec![9], false));
    // Its pods are unknown when it comes back.
    book.configured(KEY.to_owned(), Some(app(true)));
    assert!(due(&mut book, at(10)).is_empty());
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(10)), [4]);
}

#[test]
fn two_minutes_without_the_api_are_said_once_of_what_was_said_before() {
    let mut book = book();
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(0)), [4]);
    book.failed(at(100));
    book.failed(at(150));
    // Later configs are not judged by old pods.
    book.configured("new".to_owned(), Some(app(true)));
    assert_eq!((due(&mut book, at(219)), book.next_wake()), (vec![], Some(at(220))));
    let Some(AppAction::Publish(key, status)) = book.due(at(220)) else { panic!("nothing is said") };
    assert_eq!((key.as_str(), status.app_kube_status), (KEY, AppKubeStatus::ApiUnreachable));
    assert!(!status.scheduled_on_this_node && status.is_dnid_node);
    assert_eq!(due(&mut book, at(220)), [1]);
    book.failed(at(300));
    assert_eq!((due(&mut book, at(5000)), book.next_wake()), (vec![], None), "once");
    book.configured("new".to_owned(), None);
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(5001)), [4]);
}

#[test]
fn a_short_failure_says_nothing_and_a_new_one_is_counted_anew() {
    let mut book = book();
    book.set_pods(pods("Running"));
    assert_eq!(due(&mut book, at(0)), [4]);
    for from in [100, 200, 300] {
        book.failed(at(from));
        assert!(due(&mut book, at(from + 99)).is_empty());
        book.set_pods(pods("Running"));
        assert_eq!((due(&mut book, at(from + 99)), book.next_wake()), (vec![], None));
    }
}

#[test]
fn an_api_that_never_answered_leaves_what_an_earlier_run_said_unreachable() {
    let running = look::status(&app(true), "n1", &pods("Running"));
    let mut book = AppTable::new([(KEY.to_owned(), running)]);
    book.configured(KEY.to_owned(), Some(app(true)));
    book.configs_read();
    book.node("n1".to_owned());
    book.failed(at(7));
    assert_eq!((due(&mut book, at(126)), due(&mut book, at(127))), (vec![], vec![1]));
}

#[test]
fn what_could_not_be_written_is_written_after_the_gap() {
    let mut book = book();
    book.set_pods(pods("Running"));
    for from in [0, 10] {
        let act = book.due(at(from)).unwrap();
        book.done(at(from), act, false);
        assert_eq!((book.due(at(from)), book.next_wake()), (None, Some(at(from + 10))));
    }
    assert_eq!(due(&mut book, at(20)), [4]);
    book.configured(KEY.to_owned(), None);
    let act = book.due(at(21)).unwrap();
    book.done(at(21), act, false);
    assert_eq!((due(&mut book, at(30)), due(&mut book, at(31))), (vec![], vec![9]));
}
