//! The publisher's side of a socket: values are put on a board, and a task per peer sends what the peer
//! lacks.
//!
//! The task remembers which state of which key it sent, not the bytes: changes while a peer is slow become
//! one record, and a peer that never reads blocks its own task only. Not here: files of topics, and what a
//! value means. Source: lf-edge/eve pkg/pillar/pubsub/socketdriver.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::peer::SocketBoard;
use crate::error::chain;
use crate::folder::keep;
use crate::large::{self, LEFT_OVER, Large, MEMBER_LIMIT_BYTES};
use crate::peer::{self, PeersShared};
use crate::record::{MESSAGE_LIMIT_BYTES, update_bytes};
use crate::removed::Removed;
use crate::socket::{SocketListener, SocketState, probe};
use crate::watch::{DirFollower, Follows, WatchHub};
use crate::{CodecError, Error, Name, ToWire};

/// Further subscribers of a topic are refused.
const MOST_PEERS: usize = 64;
/// How long peers of a closed topic may take to read their last records.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Pause in accepting when the kernel has no room for a connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves one topic. Dropping it ends every connection at once, as a crash would.
#[derive(Debug)]
pub(crate) struct SocketServer {
    shared: Arc<PeersShared>,
    place: Arc<SocketPlace>,
    board: watch::Sender<SocketBoard>,
    removed: Removed,
    tasks: JoinSet<()>,
    _keeper: JoinSet<()>,
}

/// Refuses a topic at whose socket somebody listens.
pub(crate) fn refuse_live(name: &Name, root: &Path) -> Result<(), Error> {
    name.socket(root).map_or(Ok(()), |socket| refuse_live_at(&name.to_string(), &socket))
}

fn refuse_live_at(topic: &str, socket: &Path) -> Result<(), Error> {
    match probe(socket)? {
        SocketState::Nothing | SocketState::Stale => Ok(()),
        SocketState::Live => Err(Error::Live { topic: topic.to_owned(), socket: socket.to_owned() }),
    }
}

#[derive(Debug)]
struct SocketPlace {
    topic: String,
    path: PathBuf,
    /// `None` once the service has ended.
    listener: Mutex<Option<Arc<SocketListener>>>,
}

impl SocketPlace {
    fn listener(&self) -> MutexGuard<'_, Option<Arc<SocketListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a socket that a dead publisher left.
    fn listen(&self) -> Result<SocketListener, Error> {
        refuse_live_at(&self.topic, &self.path)?;
        crate::store::make_dirs(crate::store::parent(&self.path))?;
        match fs::remove_file(&self.path) {
            Ok(()) => debug!(path = %self.path.display(), "a dead publisher's socket is replaced"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("remove", &self.path)(error)),
        }
        SocketListener::bind(&self.path)
    }

    /// Listens again where the socket was removed or replaced, alone or with its directory. Connected peers
    /// stay. Returns how many sockets were made.
    fn restore(&self) -> Result<usize, Error> {
        let mut listener = self.listener();
        if let Some(former) = &*listener
            && !former.is_at(&self.path)
        {
            let next = Arc::new(self.listen()?);
            former.close();
            *listener = Some(next);
            return Ok(1);
        }
        Ok(0)
    }

    fn close(&self) {
        if let Some(listener) = self.listener().take() {
            listener.close();
        }
    }
}

impl SocketServer {
    /// `None` for a topic without an agent.
    pub(crate) fn open(
        hub: &Arc<WatchHub>,
        name: &Name,
        root: &Path,
        to_wire: ToWire,
    ) -> Result<Option<Self>, Error> {
        let Some(path) = name.socket(root) else { return Ok(None) };
        let removed = Removed::load(&path)?;
        let place = Arc::new(SocketPlace { topic: name.to_string(), path, listener: Mutex::default() });
        *place.listener() = Some(Arc::new(place.listen()?));
        let shared = Arc::new(PeersShared::new(name, Large::of(name, root), to_wire));
        let left_over = shared.large.left_over()?;
        let former = removed.iter().map(str::to_owned).collect();
        let board = watch::Sender::new(SocketBoard::new(former));
        let (mut tasks, mut keeper) = (JoinSet::new(), JoinSet::new());
        if !left_over.is_empty() {
            tasks.spawn(async move {
                tokio::time::sleep(LEFT_OVER).await;
                for path in left_over {
                    large::remove(&path);
                }
            });
        }
        let name = place.path.file_name().unwrap_or_default().to_owned();
        let dir = crate::store::parent(&place.path);
        let dir = DirFollower::new(Arc::clone(hub), dir, Follows::File(name));
        let kept = Arc::clone(&place);
        let restore = Box::new(move |_: Option<&_>| Some(kept.restore()));
        keeper.spawn(keep(dir, "sockets", restore));
        tasks.spawn(welcome(Arc::clone(&shared), Arc::clone(&place), board.subscribe()));
        Ok(Some(Self { shared, place, board, removed, tasks, _keeper: keeper }))
    }

    /// Refuses a value that cannot be sent, before anything has changed.
    pub(crate) fn check(&self, key: &str, disk: &[u8]) -> Result<(), Error> {
        let topic = || self.shared.name.clone();
        if is_plain(disk) && update_bytes(&self.shared.topic, key, 6 * disk.len()) <= MESSAGE_LIMIT_BYTES {
            return Ok(());
        }
        let mut long = None;
        let wire = (self.shared.to_wire)(disk, &mut |member, content| {
            if content.len() > MEMBER_LIMIT_BYTES {
                long = Some((member.to_owned(), content.len()));
                return Err("too long".into());
            }
            self.shared.large.sample(member)
        });
        if let Some((member, bytes)) = long {
            let (topic, key, limit) = (topic(), key.to_owned(), MEMBER_LIMIT_BYTES);
            return Err(Error::MemberTooLong { topic, key, member, bytes, limit });
        }
        let wire = wire.map_err(|source| Error::Encode { topic: topic(), key: key.to_owned(), source })?;
        let bytes = update_bytes(&self.shared.topic, key, wire.len());
        if bytes > MESSAGE_LIMIT_BYTES {
            let limit = MESSAGE_LIMIT_BYTES;
            return Err(Error::MessageTooLong { topic: topic(), key: key.to_owned(), bytes, limit });
        }
        Ok(())
    }

    /// Puts up a value of an earlier process; the error says why it cannot be sent.
    pub(crate) fn put_anew(&self, key: &str, disk: Result<Vec<u8>, CodecError>) -> Result<(), String> {
        let disk = disk.map_err(|error| chain(&*error))?;
        self.check(key, &disk).map_err(|error| chain(&error))?;
        self.put(key, disk.into());
        self.board.send_modify(|board| board.former.push(key.to_owned()));
        Ok(())
    }

    pub(crate) fn put(&self, key: &str, disk: Arc<[u8]>) {
        self.board.send_if_modified(|board| board.put(key, disk));
    }

    /// Notes keys that are about to go, for peers of a later publisher.
    pub(crate) fn note_removed<'a>(&mut self, keys: impl Iterator<Item = &'a str>) {
        let board = self.board.borrow();
        self.removed.add(keys, |key| board.values.contains_key(key));
    }

    pub(crate) fn take(&self, key: &str) {
        self.board.send_if_modified(|board| board.values.remove(key).is_some());
    }

    pub(crate) fn count(&self, restarted: u32) {
        self.board.send_if_modified(|board| std::mem::replace(&mut board.restarted, restarted) != restarted);
    }

    /// Ends the service in order: peers that read get their last records, and the socket is gone.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.place.close();
        // The task ends by itself: it accepts no more, and its peers have a limit.
        self.tasks.detach_all();
        match fs::remove_file(&self.place.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &self.place.path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // The task ends later, at its next wait; a successor may probe before that.
        self.place.close();
    }
}

/// Whether the value has no large member, nor a name like the place of one: then its wire form is at most six
/// times as long. An escape may hide such a name.
fn is_plain(disk: &[u8]) -> bool {
    let has = |words: &[u8]| disk.windows(words.len()).any(|part| part == words);
    !has(b"pubsub-") && !has(b"\\u")
}

/// Accepts subscribers until the service is closed, then waits for the connected ones.
async fn welcome(shared: Arc<PeersShared>, place: Arc<SocketPlace>, board: watch::Receiver<SocketBoard>) {
    let mut peers = JoinSet::new();
    let (mut full, mut broken) = (false, false);
    loop {
        let Some(listener) = place.listener().clone() else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = peers.join_next() => continue,
        };
        // Frees the places of peers that have just gone.
        while peers.try_join_next().is_some() {}
        match accepted {
            Ok(None) => {}
            Ok(Some(link)) if peers.len() < MOST_PEERS => {
                full = false;
                broken = false;
                peers.spawn(peer::serve(Arc::clone(&shared), link, board.clone()));
            }
            Ok(Some(_)) => {
                if !std::mem::replace(&mut full, true) {
                    warn!(
                        topic = shared.name,
                        limit = MOST_PEERS,
                        "too many subscribers, one was turned away"
                    );
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut broken, true) {
                    warn!(topic = shared.name, %error, "cannot let a subscriber in; raise the limit of open files");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(board);
    let last = async { while peers.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_LIMIT, last).await.is_err() {
        debug!(topic = shared.name, "a subscriber did not read its last records");
    }
}
