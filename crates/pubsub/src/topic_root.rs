//! The door to all topics and files under one root. Copies share one watcher.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{FileRule, FileWatch};
use crate::lock;
use crate::watch::WatchHub;
use crate::{Codec, Error, Name, Publication, SocketFeed, Subscription, ToWire};

/// Topics and files under one root directory.
#[derive(Debug, Clone)]
pub struct TopicRoot {
    root: Arc<PathBuf>,
    hub: Arc<WatchHub>,
}

impl TopicRoot {
    /// The topics under `root`, `/` on a device. The directory need not exist yet.
    /// Errors: the working directory is gone, to which a relative `root` belongs.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let root = root.into();
        let root = std::path::absolute(&root).map_err(Error::io("find", root))?;
        Ok(Self { root: Arc::new(root), hub: WatchHub::open() })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `relative` under the root; a leading `/` is taken for the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Becomes the one publisher of `name`. Within a runtime, files of a volatile topic that somebody else removes
    /// are written again by themselves.
    /// Errors: another live process publishes it, or its directory cannot be made or read.
    pub fn publication<T: Send + Sync + 'static>(
        &self,
        name: Name,
        codec: Codec<T>,
    ) -> Result<Publication<T>, Error> {
        Publication::open(&self.hub, &self.root, name, codec)
    }

    /// Whether a live process publishes `name`, also one of another PID namespace; `None` where nobody ever did, or
    /// a publisher without our locks.
    pub fn is_published(&self, name: &Name) -> Result<Option<bool>, Error> {
        lock::is_held(&name.dir(&self.root))
    }

    /// Tells subscribers of a publication over a socket as well, `<root>/run/<agent>/<topic>.sock`, from now until
    /// it is dropped. A value that an earlier publisher left and that cannot be sent is one of its findings.
    /// Topics of no agent have no socket. To be called within a runtime.
    /// Errors: another process listens there, something else than a socket is there, or the path is too long.
    pub fn serve<T: Send + Sync + 'static>(
        &self,
        publication: &mut Publication<T>,
        to_wire: ToWire,
    ) -> Result<(), Error> {
        publication.serve((&self.hub, &self.root), to_wire)
    }

    /// Follows `name`, whether or not somebody publishes it yet.
    pub fn subscription<T: Clone + PartialEq + Send + Sync + 'static>(
        &self,
        name: &Name,
        codec: Codec<T>,
    ) -> Subscription<T> {
        Subscription::new(Arc::clone(&self.hub), name.dir(&self.root), codec)
    }

    /// Hears `name` over its socket alone, for keys that are no names of files; `None` where it has no socket.
    pub fn socket_feed(&self, name: &Name) -> Option<SocketFeed> {
        name.socket(&self.root).map(|socket| SocketFeed::new(socket, name.topic().to_owned()))
    }

    /// To be called now and then: whatever is followed or published in a directory over which something was mounted is read
    /// and written again. The kernel reports no mount.
    pub fn look_again(&self) {
        self.hub.look_again();
    }

    /// Follows one plain file, whether or not it exists yet.
    pub fn file(&self, path: impl Into<PathBuf>, rule: FileRule) -> FileWatch {
        FileWatch::new(Arc::clone(&self.hub), path.into(), rule)
    }
}
