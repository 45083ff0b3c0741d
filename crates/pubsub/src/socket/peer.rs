//! The conversation of a publisher with one peer: its request, all values, then changes.
//!
//! Not here: which connections are accepted, and what is published. Source: lf-edge/eve
//! pkg/pillar/pubsub/socketdriver.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, warn};

use crate::error::chain;
use crate::large::{Large, Unread};
use crate::record::{MESSAGE_LIMIT_BYTES, REQUEST_LIMIT_BYTES, RecordFault, SocketRecord, parse_request};
use crate::socket::Link;
use crate::{Name, ToWire};

/// A peer that sends no request within this time is closed.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct PeersShared {
    /// With its agent, for logs and errors.
    pub(crate) name: String,
    /// Without its agent, as in records.
    pub(crate) topic: String,
    pub(crate) large: Large,
    pub(crate) to_wire: ToWire,
    persistent: bool,
    /// An invalid request was logged already.
    garbage: AtomicBool,
}

impl PeersShared {
    pub(crate) fn new(name: &Name, large: Large, to_wire: ToWire) -> Self {
        Self {
            name: name.to_string(),
            topic: name.topic().to_owned(),
            large,
            to_wire,
            persistent: name.is_persistent(),
            garbage: AtomicBool::new(false),
        }
    }

    fn refuse(&self, reason: &str) {
        if self.garbage.swap(true, Ordering::Relaxed) {
            debug!(topic = self.name, reason, "a subscriber was disconnected");
        } else {
            warn!(topic = self.name, reason, "a subscriber was disconnected; further ones are not reported");
        }
    }
}

/// Serves one peer until it goes or the topic ends. Its unread files go with the peer; when the topic ends
/// they stay, as the peer may still read them.
pub(crate) async fn serve(shared: Arc<PeersShared>, link: Link, board: watch::Receiver<SocketBoard>) {
    // The reference's subscribers keep a key of an earlier publisher until its deletion is sent.
    let sent = board.borrow().former.iter().map(|key| (key.clone(), 0)).collect();
    let mut peer = SocketPeer { shared, link, board, sent, restarted: 0, unread: Unread::default() };
    if !peer.is_asked().await {
        return;
    }
    if let Err(error) = peer.talk().await {
        debug!(topic = peer.shared.name, %error, "a subscriber is gone");
        peer.unread.remove();
    }
}

struct SocketPeer {
    shared: Arc<PeersShared>,
    link: Link,
    board: watch::Receiver<SocketBoard>,
    /// The state of each key that was sent last; 0 when an earlier publisher may have sent it.
    sent: BTreeMap<String, u64>,
    restarted: u32,
    unread: Unread,
}

impl SocketPeer {
    async fn is_asked(&self) -> bool {
        let mut buffer = [0; REQUEST_LIMIT_BYTES];
        let Ok(received) = tokio::time::timeout(REQUEST_LIMIT, self.link.recv(&mut buffer)).await else {
            self.shared.refuse("it sent no request");
            return false;
        };
        // A connection that only tests for a listener sends nothing.
        let Ok(bytes @ 1..) = received else { return false };
        let asked = match buffer.get(..bytes) {
            Some(message) => parse_request(message),
            None => Err(RecordFault::TooLong { bytes, limit: REQUEST_LIMIT_BYTES - 1 }),
        };
        match asked {
            Ok(topic) if topic == self.shared.topic => return true,
            Ok(topic) => self.shared.refuse(&format!("it asked for another topic, {topic:?}")),
            Err(fault) => self.shared.refuse(&fault.to_string()),
        }
        false
    }

    async fn talk(&mut self) -> io::Result<()> {
        let topic = || self.shared.topic.clone();
        let hello = SocketRecord::Hello { topic: topic(), persistent: self.shared.persistent };
        let complete = SocketRecord::Complete { topic: topic() };
        self.say(&hello).await?;
        let restarted = self.bring_up().await?;
        self.say(&complete).await?;
        self.count(restarted).await?;
        loop {
            let mut word = [0];
            let ended = tokio::select! {
                news = self.board.changed() => news.is_err(),
                heard = self.link.recv(&mut word) => {
                    if heard? > 0 {
                        self.shared.refuse("it sent more than its request");
                    }
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
            };
            let restarted = self.bring_up().await?;
            self.count(restarted).await?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Sends deletions, then new values. Returns the counter of starts that belongs to them.
    async fn bring_up(&mut self) -> io::Result<u32> {
        let (gone, new, restarted) = self.due();
        for key in gone {
            if !self.board.borrow().values.contains_key(&key) {
                self.sent.remove(&key);
                self.say(&SocketRecord::Delete { topic: self.shared.topic.clone(), key }).await?;
            }
        }
        for key in new {
            self.update(key).await?;
        }
        Ok(restarted)
    }

    fn due(&mut self) -> (Vec<String>, Vec<String>, u32) {
        let board = self.board.borrow_and_update();
        let gone = self.sent.keys().filter(|key| !board.values.contains_key(*key)).cloned().collect();
        let new = |(key, held): &(&String, &PublishedValue)| self.sent.get(*key) != Some(&held.state);
        let new = board.values.iter().filter(new).map(|(key, _)| key.clone()).collect();
        (gone, new, board.restarted)
    }

    /// Sends the key's present value, which may be newer than the one that was due.
    async fn update(&mut self, key: String) -> io::Result<()> {
        let Some(held) = self.board.borrow().values.get(&key).cloned() else { return Ok(()) };
        let mut written = Vec::new();
        let message = self.message(&key, &held.disk, &mut written);
        match message {
            Ok(message) => {
                self.sent.insert(key, held.state);
                for (path, bytes) in written {
                    self.unread.add(path, bytes);
                }
                self.link.send(message.as_bytes()).await
            }
            Err(error) => {
                // It is tried again with the next change of the topic.
                warn!(topic = self.shared.name, key, error, "cannot send a value to a subscriber");
                for (path, _) in written {
                    crate::large::remove(path.as_ref());
                }
                Ok(())
            }
        }
    }

    fn message(&self, key: &str, disk: &[u8], written: &mut Vec<(String, usize)>) -> Result<String, String> {
        let wire = (self.shared.to_wire)(disk, &mut |member, content| {
            let path = self.shared.large.write(member, content)?;
            written.push((path.clone(), content.len()));
            Ok(path)
        });
        let value = wire.map_err(|error| chain(&*error))?;
        let message = SocketRecord::Update { topic: self.shared.topic.clone(), key: key.to_owned(), value }
            .to_message();
        if message.len() > MESSAGE_LIMIT_BYTES {
            return Err(format!(
                "its message has {} bytes, the limit is {MESSAGE_LIMIT_BYTES}",
                message.len()
            ));
        }
        Ok(message)
    }

    async fn count(&mut self, restarted: u32) -> io::Result<()> {
        if self.restarted == restarted {
            return Ok(());
        }
        self.restarted = restarted;
        self.say(&SocketRecord::Restarted { topic: self.shared.topic.clone(), count: restarted }).await
    }

    async fn say(&self, record: &SocketRecord) -> io::Result<()> {
        self.link.send(record.to_message().as_bytes()).await
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PublishedValue {
    /// Differs at each change of the topic; never 0.
    pub(crate) state: u64,
    pub(crate) disk: Arc<[u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct SocketBoard {
    pub(crate) values: BTreeMap<String, PublishedValue>,
    pub(crate) restarted: u32,
    /// Keys of earlier publishers of this boot: a peer may know them, also where they are gone by now.
    pub(crate) former: Vec<String>,
    states: u64,
}

impl SocketBoard {
    pub(super) fn new(former: Vec<String>) -> Self {
        Self { former, ..Self::default() }
    }

    /// Returns whether the value is new.
    pub(super) fn put(&mut self, key: &str, disk: Arc<[u8]>) -> bool {
        if self.values.get(key).is_some_and(|held| held.disk == disk) {
            return false;
        }
        self.states += 1;
        self.values.insert(key.to_owned(), PublishedValue { state: self.states, disk });
        true
    }
}
