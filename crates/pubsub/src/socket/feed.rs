//! A topic read from its socket alone, for keys that cannot be names of files.
//!
//! Not here: topics with files (`Subscription`). Source: lf-edge/eve pkg/pillar/pubsub/socketdriver.

use std::path::PathBuf;
use std::time::Duration;

use tracing::{debug, trace};

use crate::Retry;
use crate::error::chain;
use crate::record::{MESSAGE_LIMIT_BYTES, SocketRecord, parse_record};
use crate::socket::Link;

/// Longest pause between tries: the agent may not exist on this machine, and each try wakes the processor.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// Follows one topic, also before it is published.
pub struct SocketFeed {
    socket: PathBuf,
    topic: String,
    link: Option<Link>,
    retry: Retry,
}

impl SocketFeed {
    pub(crate) fn new(socket: PathBuf, topic: String) -> Self {
        Self { socket, topic, link: None, retry: Retry::up_to(LONGEST_PAUSE) }
    }

    /// The next value with its key, `None` for a deleted key: all keys after each connection, then each
    /// change. A missing publisher is tried again; its values stay true meanwhile. Dropping it may lose a
    /// record, so it needs a task of its own.
    pub async fn next(&mut self) -> (String, Option<Vec<u8>>) {
        let mut buffer = vec![0; MESSAGE_LIMIT_BYTES + 1];
        loop {
            let link = match self.link.take() {
                Some(link) => link,
                None => self.connected().await,
            };
            let Ok(bytes @ 1..) = link.recv(&mut buffer).await else {
                // Reconnects, but not at once: the publisher may close each connection.
                self.retry.failed();
                self.retry.due().await;
                continue;
            };
            self.retry.worked();
            self.link = Some(link);
            match buffer.get(..bytes).and_then(parse_record) {
                Some(SocketRecord::Update { topic, key, value }) if topic == self.topic => {
                    return (key, Some(value));
                }
                Some(SocketRecord::Delete { topic, key }) if topic == self.topic => return (key, None),
                Some(_) => {}
                None => debug!(topic = self.topic, bytes, "left out a record that makes no sense"),
            }
        }
    }

    async fn connected(&mut self) -> Link {
        loop {
            match Link::connect(&self.socket) {
                Ok(link) => match link.send(format!("request {}", self.topic).as_bytes()).await {
                    Ok(()) => return link,
                    Err(error) => debug!(topic = self.topic, %error, "cannot ask for a topic"),
                },
                Err(error) => {
                    trace!(topic = self.topic, error = chain(&error), "nobody to hear a topic from");
                }
            }
            self.retry.failed();
            self.retry.due().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::SocketListener;

    #[tokio::test(start_paused = true)]
    async fn u10_an_agent_that_is_not_there_is_looked_for_less_and_less_often_and_heard_once_it_is() {
        #[expect(clippy::disallowed_methods, reason = "the runtime's time stops in this test")]
        let now = tokio::time::Instant::now;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("T.sock");
        let mut feed = SocketFeed::new(path.clone(), "T".to_owned());
        let heard = feed.next();
        tokio::pin!(heard);
        tokio::select! {
            _ = &mut heard => panic!("nobody has said anything"),
            () = tokio::time::sleep(Duration::from_secs(3600)) => {}
        }
        let listener = SocketListener::bind(&path).unwrap();
        let began = now();
        tokio::select! {
            _ = &mut heard => panic!("it says nothing"),
            _ = listener.accept() => {}
        }
        let waited = began.elapsed();
        assert!(waited > Duration::from_secs(60) && waited <= LONGEST_PAUSE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_accepts_and_closes_is_asked_less_and_less_often() {
        #[expect(clippy::disallowed_methods, reason = "the runtime's time stops in this test")]
        let began = tokio::time::Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("T.sock");
        let listener = SocketListener::bind(&path).unwrap();
        let mut feed = SocketFeed::new(path, "T".to_owned());
        let closed = async {
            for _ in 0..8 {
                drop(listener.accept().await.unwrap());
            }
        };
        tokio::select! {
            _ = feed.next() => panic!("nobody has said anything"),
            () = closed => {}
        }
        let waited_ms = began.elapsed().as_millis();
        assert!(waited_ms >= 50 + 100 + 200 + 400 + 800 + 1_600 + 3_200, "{waited_ms} ms");
    }
}
