//! Reads that fail, planted by a test for its own thread.

use std::cell::Cell;

use rustix::io::Errno;

use crate::disk::ReadCall;

thread_local! {
    static PLANTED: Cell<Option<(ReadCall, Errno)>> = const { Cell::new(None) };
}

pub(crate) fn plant(planted: Option<(ReadCall, Errno)>) {
    PLANTED.set(planted);
}

pub(in crate::disk) fn failure(call: ReadCall) -> Result<(), Errno> {
    match PLANTED.get() {
        Some((planted, error)) if planted == call => Err(error),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::{Change, FileRule, FileState, FileWatch, Name, Subscription, TopicRoot, plain_codec, store};

    /// Of the runtime's time, which passes at once.
    const LONG: Duration = Duration::from_secs(600);
    const CALLS: [ReadCall; 4] = [ReadCall::Open, ReadCall::LookAt, ReadCall::Read, ReadCall::List];
    const ERRORS: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::IO, Errno::NOMEM, Errno::ACCESS];

    fn follow(topic_root: &TopicRoot) -> Subscription<Vec<u8>> {
        topic_root.subscription(&Name::volatile("agent", "Topic"), plain_codec())
    }

    async fn silent(topic: &mut Subscription<Vec<u8>>) -> bool {
        tokio::time::timeout(LONG, topic.next()).await.is_err()
    }

    async fn state(file: &mut FileWatch) -> Option<FileState> {
        tokio::time::timeout(LONG, file.next()).await.ok()
    }

    async fn said(topic: &mut Subscription<Vec<u8>>) -> String {
        match tokio::time::timeout(LONG, topic.next()).await.unwrap() {
            Change::Put { key, .. } => format!("put {key}"),
            Change::Gone { key, .. } => format!("gone {key}"),
            Change::Synced => "synced".to_owned(),
            Change::Restarted(count) => format!("restarted {count}"),
            Change::Bad(finding) => format!("bad {finding}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k3_a_topic_that_cannot_be_read_at_the_start_is_not_empty_and_is_read_once_it_can_be() {
        for (call, error) in CALLS.into_iter().flat_map(|call| ERRORS.map(|error| (call, error))) {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            store::replace(&topic_root.path("run/agent/Topic/a.json"), b"1").unwrap();
            plant(Some((call, error)));
            let mut topic = follow(&topic_root);
            let bad = said(&mut topic).await;
            let why = std::io::Error::from(error).to_string();
            assert!(
                bad.starts_with("bad ") && bad.contains(&why) && bad.contains("run/agent/Topic"),
                "{bad}"
            );
            assert!(silent(&mut topic).await, "{call:?} {error:?}: reported again, or taken for absence");
            plant(None);
            assert_eq!([said(&mut topic).await, said(&mut topic).await], ["put a", "synced"]);
            assert!(silent(&mut topic).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k3_a_topic_keeps_its_values_while_it_cannot_be_read_and_nothing_is_gone() {
        for (call, error) in CALLS.into_iter().flat_map(|call| ERRORS.map(|error| (call, error))) {
            let root = tempfile::tempdir().unwrap();
            let topic_root = TopicRoot::open(root.path()).unwrap();
            let file = |key: &str| topic_root.path(&format!("run/agent/Topic/{key}.json"));
            let mut topic = follow(&topic_root);
            assert_eq!(said(&mut topic).await, "synced");
            store::replace(&file("a"), b"1").unwrap();
            store::replace(&file("b"), b"1").unwrap();
            assert_eq!([said(&mut topic).await, said(&mut topic).await], ["put a", "put b"]);
            // The directory is another one with other values; each call is needed to see that.
            std::fs::remove_dir_all(topic_root.path("run/agent")).unwrap();
            std::fs::create_dir_all(topic_root.path("run/agent/Topic")).unwrap();
            store::replace(&file("a"), b"2").unwrap();
            plant(Some((call, error)));
            let mut first = said(&mut topic).await;
            // There is no such file to be looked at or read, which is known.
            if matches!(call, ReadCall::LookAt | ReadCall::Read) && first == "gone b" {
                first = said(&mut topic).await;
            }
            assert!(first.starts_with("bad "), "{call:?} {error:?}: {first}");
            assert_eq!(topic.get("a").unwrap(), b"1");
            assert!(silent(&mut topic).await);
            plant(None);
            while topic.get("a").unwrap() != b"2" || topic.get("b").is_some() {
                said(&mut topic).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k3_a_file_that_cannot_be_read_is_neither_absent_nor_changed() {
        let order = FileRule { limit_bytes: 9, order: true };
        let plain = FileRule { limit_bytes: 9, order: false };
        for rule in [order, plain] {
            for (call, error) in CALLS.into_iter().flat_map(|call| ERRORS.map(|error| (call, error))) {
                if call == ReadCall::List || (rule.order && error == Errno::ACCESS) {
                    continue;
                }
                let root = tempfile::tempdir().unwrap();
                let topic_root = TopicRoot::open(root.path()).unwrap();
                store::replace(&topic_root.path("a"), b"1").unwrap();
                plant(Some((call, error)));
                let mut file = topic_root.file(topic_root.path("a"), rule);
                assert_eq!(state(&mut file).await, None, "{call:?} {error:?}");
                plant(None);
                assert_eq!(state(&mut file).await, Some(FileState::Present(b"1".to_vec())));
                plant(Some((call, error)));
                store::replace(&topic_root.path("a"), b"2").unwrap();
                assert_eq!(state(&mut file).await, None, "{call:?} {error:?}");
                plant(None);
                assert_eq!(state(&mut file).await, Some(FileState::Present(b"2".to_vec())));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_may_not_be_opened_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        plant(Some((ReadCall::Open, Errno::ACCESS)));
        let state =
            topic_root.file(topic_root.path("a"), FileRule { limit_bytes: 9, order: true }).next().await;
        plant(None);
        assert!(
            matches!(&state, FileState::Bad(finding) if finding.path == Path::new(&topic_root.path("a"))),
            "{state:?}"
        );
    }
}
