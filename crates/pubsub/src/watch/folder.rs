//! The directory of one topic, as its publisher holds it: every change is on disk before subscribers get it. Files of
//! a volatile topic are written again when another process removes or overwrites them.
//!
//! Not here: values, and subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::disk::{Dir, Disk};
use crate::error::chain;
use crate::lock::Lock;
use crate::name::RESTARTED;
use crate::reach::lock;
use crate::store::{self, TempFileOwner};
use crate::watch::{DirFollower, Follows, Pending, WatchHub};
use crate::{Error, FILE_LIMIT_BYTES};

/// Least time between two repairs.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Former {
    Kept,
    Dropped,
}

/// Has one publisher.
#[derive(Debug)]
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The topmost directory that a publisher may have made.
    top: PathBuf,
    dir: Box<dyn Dir>,
    /// A name changed since the last sync of the directory.
    behind: bool,
    held: BTreeMap<String, Arc<[u8]>>,
    /// Proof that no other process publishes the topic; gone with the publication.
    lock: Weak<Lock>,
    /// The directory was replaced, and the new one lacks files.
    renew: bool,
}

/// Shared by a publication and its [`DirKeeper`].
pub(crate) type SharedFolder = Arc<Mutex<Folder>>;

impl Folder {
    /// Makes missing directories, removes the litter of an interrupted publisher, and syncs what that one
    /// could not.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        root: &Path,
        path: PathBuf,
        lock: Weak<Lock>,
    ) -> Result<Self, Error> {
        // The root too has a name that a publisher may have made.
        let top = root.parent().unwrap_or(root).to_owned();
        disk.make_dirs(&path)?;
        let dir = disk.open_dir(&path).map_err(Error::io("open", &path))?;
        let mut folder =
            Self { disk, path, top, dir, behind: true, held: BTreeMap::new(), lock, renew: false };
        for name in folder.names()?.iter().filter(|name| store::is_temp(name)) {
            folder.disk.take_away(&folder.path.join(name))?;
        }
        folder.hold()?;
        Ok(folder)
    }

    pub(crate) fn names(&self) -> Result<Vec<OsString>, Error> {
        self.disk.names(&self.path).map_err(Error::io("list", &self.path))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.disk.read(&self.path.join(name), FILE_LIMIT_BYTES)
    }

    /// Reads a file, and keeps its content in memory.
    pub(crate) fn load(&mut self, name: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let bytes: Option<Arc<[u8]>> = self.read(name)?.map(Into::into);
        if let Some(bytes) = &bytes {
            self.held.insert(name.to_owned(), Arc::clone(bytes));
        }
        Ok(bytes)
    }

    /// Forgets a loaded file: it stays on disk and is not written again.
    pub(crate) fn disown(&mut self, name: &str) {
        self.held.remove(name);
    }

    pub(crate) fn is_there(&self, name: &str, bytes: &[u8]) -> bool {
        self.held.get(name).is_some_and(|held| **held == *bytes)
            && self.disk.size_bytes(&self.path.join(name)).is_some()
    }

    /// A backup that cannot be made is no error.
    ///
    /// Errors: the step that failed. When it was the last one, readers may see the new content already.
    pub(crate) fn replace(&mut self, name: &str, bytes: &Arc<[u8]>, former: Former) -> Result<(), Error> {
        let path = self.path.join(name);
        let temp = match self.disk.write_beside(&self.path, bytes, TempFileOwner::Topic) {
            Err(error) if store::is_missing(&error) => {
                self.disk.make_dirs(&self.path)?;
                self.renew = true;
                self.disk.write_beside(&self.path, bytes, TempFileOwner::Topic)?
            }
            written => written?,
        };
        let backup = match former {
            Former::Kept => store::backup(name).map(|backup| self.path.join(backup)),
            Former::Dropped => None,
        };
        // A hard link to the former content, which needs no writing; it becomes the backup only after the
        // file has been replaced, so that no content ever has both names.
        let kept = backup.and_then(|backup| match self.disk.second_name(&path) {
            Ok(second) => Some((second?, backup)),
            Err(error) => warn_backup(&path, &error),
        });
        self.behind = true;
        if let Err(error) = self.disk.put(&temp.path, &path) {
            if let Some((second, _)) = &kept {
                self.disk.discard(second);
            }
            return Err(error);
        }
        if let Some((second, backup)) = kept
            && let Err(error) = self.disk.put(&second, &backup)
        {
            warn_backup::<()>(&path, &error);
        }
        self.sync()?;
        match self.held.get_mut(name) {
            Some(held) => *held = Arc::clone(bytes),
            None => drop(self.held.insert(name.to_owned(), Arc::clone(bytes))),
        }
        Ok(())
    }

    /// Missing names are no error.
    pub(crate) fn remove(&mut self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            if self.disk.take_away(&self.path.join(name))? {
                self.behind = true;
            }
        }
        if self.behind || !self.dir.is_at(&self.path) {
            self.sync()?;
        }
        for name in names {
            self.held.remove(*name);
        }
        Ok(())
    }

    /// Syncs the directory that is at the path now.
    fn sync(&mut self) -> Result<(), Error> {
        if self.dir.is_at(&self.path) {
            self.dir.sync().map_err(Error::io("bring to disk", &self.path))?;
            self.behind = false;
            return Ok(());
        }
        self.disk.make_dirs(&self.path)?;
        self.hold()?;
        self.renew = true;
        Ok(())
    }

    /// Opens the directory that is at the path now, once it and its parents are on disk.
    fn hold(&mut self) -> Result<(), Error> {
        let dir = self.disk.open_dir(&self.path).map_err(Error::io("open", &self.path))?;
        dir.sync().map_err(Error::io("bring to disk", &self.path))?;
        for above in self.path.ancestors().skip(1).take_while(|above| above.starts_with(&self.top)) {
            self.disk.sync_dir(above)?;
        }
        self.dir = dir;
        self.behind = false;
        Ok(())
    }

    /// Writes everything again where the directory was removed or replaced.
    pub(crate) fn catch_up(&mut self) -> Result<(), Error> {
        if !self.renew {
            return Ok(());
        }
        self.keep_lock()?;
        self.renew = false;
        let names: Vec<String> = self.held.keys().cloned().collect();
        let written = self.write_again(names);
        self.renew |= written.is_err();
        written
    }

    /// Before foreign files are replaced: another process may publish in the new directory.
    fn keep_lock(&self) -> Result<(), Error> {
        self.lock.upgrade().map_or(Ok(()), |lock| lock.keep())
    }

    /// Values first, then the counter of starts.
    fn write_again(&mut self, names: Vec<String>) -> Result<(), Error> {
        let (counter, values): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == RESTARTED);
        for name in values.iter().chain(&counter) {
            if let Some(bytes) = self.held.get(name) {
                self.replace(name, &Arc::clone(bytes), Former::Dropped)?;
            }
        }
        Ok(())
    }

    /// Whether the file still has the content `held`.
    fn is_as_held(&self, name: &str, held: &[u8]) -> Result<bool, Error> {
        match self.read(name) {
            Ok(found) => Ok(found.is_some_and(|it| it == held)),
            Err(error) if error.is_refusal() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes changed files again, those of `names` or all. Returns how many.
    fn restore(&mut self, names: Option<&BTreeSet<OsString>>) -> Result<usize, Error> {
        self.keep_lock()?;
        let wanted = |name: &String| {
            names.is_none_or(|names| names.contains(name.as_str().as_ref() as &std::ffi::OsStr))
        };
        let mut others = Vec::new();
        for (name, held) in self.held.iter().filter(|(name, _)| wanted(name)) {
            if !self.is_as_held(name, held)? {
                others.push(name.clone());
            }
        }
        let count = others.len();
        self.write_again(others)?;
        if names.is_none() {
            // Also finds a replaced directory.
            self.remove(&[])?;
        }
        self.catch_up()?;
        Ok(count)
    }
}

/// Follows the directory of a volatile topic and repairs its files, until it is dropped.
#[derive(Debug)]
pub(crate) struct DirKeeper {
    task: AbortHandle,
    folder: SharedFolder,
}

impl DirKeeper {
    /// `None` outside of a runtime: then the next publish writes again what is missing.
    pub(crate) fn start(hub: Arc<WatchHub>, folder: &SharedFolder) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let dir = DirFollower::new(hub, &lock(folder).path, Follows::Topic);
        let weak = Arc::downgrade(folder);
        let restore = move |names: Option<&BTreeSet<OsString>>| {
            let folder = weak.upgrade()?;
            let restored = lock(&folder).restore(names);
            Some(restored)
        };
        let task = runtime.spawn(keep(dir, "files", Box::new(restore))).abort_handle();
        Some(Self { task, folder: Arc::clone(folder) })
    }
}

impl Drop for DirKeeper {
    fn drop(&mut self) {
        self.task.abort();
        // A repair on another thread ends by itself; a later one finds nothing to write.
        lock(&self.folder).held.clear();
    }
}

/// Repairs what was removed or replaced, of these names or at all. Returns how many; `None` once the owner is
/// gone.
type Restore = Box<dyn FnMut(Option<&BTreeSet<OsString>>) -> Option<Result<usize, Error>> + Send>;

/// Calls `restore`, which repairs `what`, whenever something in the followed directory changed.
pub(crate) async fn keep(mut dir: DirFollower, what: &'static str, mut restore: Restore) {
    let at = dir.dir().to_owned();
    let path = at.display();
    loop {
        let names = match dir.changed().await {
            Pending::Names(names) if !dir.retry.is_failing() => Some(names),
            Pending::None | Pending::Names(_) | Pending::All => None,
        };
        let attended = if names.is_none() { dir.attend()() } else { Ok(()) };
        let restored = match attended {
            Ok(()) => restore(names.as_ref()),
            Err(error) => Some(Err(error)),
        };
        let Some(restored) = restored else { return };
        match restored {
            Ok(0) => dir.retry.worked(),
            Ok(count) => {
                dir.retry.worked();
                warn!(%path, count, "{what} of this topic were removed or replaced by somebody else and are made again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                if dir.retry.failed() {
                    warn!(%path, error = chain(&error), "cannot restore {what} of this topic, retrying");
                }
            }
        }
    }
}

fn warn_backup<T>(path: &Path, error: &Error) -> Option<T> {
    warn!(path = %path.display(), %error, "cannot keep a backup");
    None
}
