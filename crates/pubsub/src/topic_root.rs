//! The door to all topics and files under one root. Copies share one watcher.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{FileRule, FileWatch};
use crate::lock;
use crate::watch::WatchHub;
use crate::{Codec, Error, Name, Publication, SocketFeed, Subscription, ToWire};

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

    /// A leading `/` means the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Becomes the only publisher of `name`. Within a runtime, files of a volatile topic that another process
    /// removes are written again.
    ///
    /// Errors: another live process publishes it, or its directory cannot be made or read.
    pub fn publication<T: Send + Sync + 'static>(
        &self,
        name: Name,
        codec: Codec<T>,
    ) -> Result<Publication<T>, Error> {
        Publication::open(&self.hub, &self.root, name, codec)
    }

    /// Whether a live process publishes `name`, in any PID namespace; `None` without a publisher, or with one
    /// that does not use our locks.
    pub fn is_published(&self, name: &Name) -> Result<Option<bool>, Error> {
        lock::is_held(&name.dir(&self.root))
    }

    /// Serves a publication over a socket as well, `<root>/run/<agent>/<topic>.sock`, from now until it is
    /// dropped. A value that an earlier publisher left and that cannot be sent is one of its findings. Topics
    /// without an agent have no socket. Needs a runtime. Errors: another process listens there, the path is
    /// no socket, or it is too long.
    pub fn serve<T: Send + Sync + 'static>(
        &self,
        publication: &mut Publication<T>,
        to_wire: ToWire,
    ) -> Result<(), Error> {
        publication.serve((&self.hub, &self.root), to_wire)
    }

    /// Follows `name`, published or not.
    pub fn subscription<T: Clone + PartialEq + Send + Sync + 'static>(
        &self,
        name: &Name,
        codec: Codec<T>,
    ) -> Subscription<T> {
        Subscription::new(Arc::clone(&self.hub), &name.dir(&self.root), codec)
    }

    /// Follows `name` over its socket alone, for keys that cannot be names of files; `None` where it has no
    /// socket.
    pub fn socket_feed(&self, name: &Name) -> Option<SocketFeed> {
        name.socket(&self.root).map(|socket| SocketFeed::new(socket, name.topic().to_owned()))
    }

    /// To be called now and then: the kernel reports no mount over a directory. Follows and writes again what
    /// lies in such a directory.
    pub fn look_again(&self) {
        self.hub.look_again();
    }

    /// Follows one plain file, existing or not.
    pub fn file(&self, path: impl Into<PathBuf>, rule: FileRule) -> FileWatch {
        FileWatch::new(Arc::clone(&self.hub), path.into(), rule)
    }
}
