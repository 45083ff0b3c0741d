//! The subscriber's side of a socket: for publishers whose files cannot be seen. Files are the rule.
//!
//! Not here: how a topic is followed by its files. Source: lf-edge/eve pkg/pillar/pubsub/socketdriver.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Sleep;

use crate::large::{Large, Room};
use crate::mirror::Mirror;
use crate::record::{MESSAGE_LIMIT_BYTES, Record};
use crate::socket::Link;
use crate::{Change, Error, Finding, FromWire, Name};

/// How long after a vain try the publisher is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Follows one topic over its publisher's socket for good: before there is a publisher, and through its restarts.
///
/// While nobody listens the last values stay. A key that a publisher does not name between its first word and
/// its `complete` is gone (the reference keeps it for ever, D-P1).
pub struct SocketSubscription<T> {
    topic: String,
    persistent: bool,
    path: PathBuf,
    large: Large,
    from_wire: FromWire<T>,
    known: Mirror<T>,
    link: Option<Link>,
    retry: Option<Pin<Box<Sleep>>>,
    buffer: Vec<u8>,
    /// Keys since the publisher's first word, until it has named all.
    seen: Option<BTreeSet<String>>,
    /// The connection went well: the publisher has named all keys.
    through: bool,
    /// Why the last value of a key was left out.
    bad: BTreeMap<String, String>,
    /// The last fault of the publisher itself.
    fault: Option<String>,
}

impl<T: Clone + PartialEq> SocketSubscription<T> {
    pub(crate) fn new(name: &Name, root: &Path, from_wire: FromWire<T>) -> Result<Self, Error> {
        let Some(path) = name.socket(root) else {
            let reason = "a topic of no agent has no socket; follow its files".to_owned();
            return Err(Error::Refused { path: name.dir(root), reason });
        };
        Ok(Self {
            topic: name.topic().to_owned(),
            persistent: name.is_persistent(),
            path,
            large: Large::of(name, root),
            from_wire,
            known: Mirror::default(),
            link: None,
            retry: None,
            buffer: vec![0; MESSAGE_LIMIT_BYTES + 1],
            seen: None,
            through: false,
            bad: BTreeMap::new(),
            fault: None,
        })
    }

    /// The next change. It waits for ever when there is none. Dropping it loses nothing.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = self.known.take() {
                return change;
            }
            let Some(link) = &self.link else {
                self.connect().await;
                continue;
            };
            match link.recv(&mut self.buffer).await {
                Ok(0) | Err(_) => self.lost(),
                Ok(bytes) => self.hear(bytes),
            }
        }
    }

    /// The value under `key` as far as changes were read.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&T> {
        self.known.get(key)
    }

    /// All keys with their values as far as changes were read, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.known.iter()
    }

    /// Connects and asks, once the pause after the last try is over.
    async fn connect(&mut self) {
        if let Some(pause) = &mut self.retry {
            pause.await;
            self.retry = None;
        }
        match self.ask().await {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "nobody publishes here yet");
                self.retry = Some(Box::pin(tokio::time::sleep(RETRY)));
            }
        }
    }

    async fn ask(&self) -> io::Result<Link> {
        let link = Link::connect(&self.path)?;
        let request = Record::Request { topic: self.topic.clone() };
        link.send(request.to_message().as_bytes()).await?;
        Ok(link)
    }

    /// The connection ended. After one that went well the publisher is tried at once, else after the pause: one
    /// that turns us away is not asked in a busy loop.
    fn lost(&mut self) {
        self.link = None;
        self.seen = None;
        if !std::mem::take(&mut self.through) {
            self.retry = Some(Box::pin(tokio::time::sleep(RETRY)));
        }
    }

    fn hear(&mut self, bytes: usize) {
        let message = self.buffer.get(..bytes).unwrap_or(&self.buffer);
        match Record::parse_reply(message) {
            Ok(record) if record.topic() != self.topic => {
                self.blame(format!("it speaks of another topic, {:?}", record.topic()));
            }
            Ok(Record::Hello { persistent, .. }) => {
                self.seen = Some(BTreeSet::new());
                self.fault = None;
                if persistent.is_some_and(|persistent| persistent != self.persistent) {
                    let (ours, theirs) = (self.persistent, !self.persistent);
                    self.blame(format!("its topic survives a reboot: {theirs}, where {ours} was expected"));
                }
            }
            Ok(Record::Update { key, value, .. }) => self.put(key, &value),
            Ok(Record::Delete { key, .. }) => self.gone(&key),
            Ok(Record::Complete { .. }) => self.complete(),
            Ok(Record::Restarted { count, .. }) => self.known.count(count),
            Ok(Record::Request { .. }) => self.blame("it sent a request".to_owned()),
            Err(fault) => self.blame(fault.to_string()),
        }
    }

    fn put(&mut self, key: String, wire: &[u8]) {
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone());
        }
        let mut room = Room::default();
        let read = (self.from_wire)(wire, &mut |member, path| self.large.fetch(member, path, &mut room));
        match read {
            Ok(value) => {
                self.bad.remove(&key);
                self.known.put(&key, value);
            }
            Err(error) => {
                let reason = format!("key {key:?}: {}", crate::error::chain(&*error));
                if self.bad.insert(key, reason.clone()).as_ref() != Some(&reason) {
                    self.known.bad(Finding { path: self.path.clone(), reason });
                }
            }
        }
    }

    fn gone(&mut self, key: &str) {
        self.bad.remove(key);
        if let Some(seen) = &mut self.seen {
            seen.remove(key);
        }
        self.known.gone(key);
    }

    fn complete(&mut self) {
        let Some(seen) = self.seen.take() else { return };
        self.through = true;
        let stale = self.known.iter().map(|(key, _)| key).filter(|key| !seen.contains(*key));
        let stale: Vec<String> = stale.map(str::to_owned).collect();
        for key in stale {
            self.gone(&key);
        }
        self.bad.retain(|key, _| seen.contains(key));
        self.known.synced();
    }

    /// The publisher broke the protocol: told once in a row. What it said is dropped.
    fn blame(&mut self, reason: String) {
        if self.fault.as_ref() != Some(&reason) {
            self.fault = Some(reason.clone());
            self.known.bad(Finding { path: self.path.clone(), reason });
        }
    }
}
