//! The files of a topic as its publisher wrote them. Those of a volatile topic are written again when another
//! process removes or overwrites them.
//!
//! Not here: values, and subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::error::chain;
use crate::folder::{DirChange, Folder, Former};
use crate::lock::Lock;
use crate::name::RESTARTED;
use crate::watch::{DirNotifier, Follows, Pending, WatchHub};
use crate::{Error, Retry};

/// Least time between two repairs.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Files {
    folder: Folder,
    held: BTreeMap<String, Arc<[u8]>>,
    /// Proof that no other process publishes the topic; gone with the publication.
    lock: Weak<Lock>,
    /// The directory was replaced, and the new one lacks files.
    renew: bool,
}

/// Shared by a publication and its [`DirKeeper`].
pub(crate) type SharedFiles = Arc<Mutex<Files>>;

pub(crate) fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    pub(crate) const fn new(folder: Folder, lock: Weak<Lock>) -> Self {
        Self { folder, held: BTreeMap::new(), lock, renew: false }
    }

    pub(crate) fn names(&self) -> Result<Vec<OsString>, Error> {
        self.folder.names()
    }

    /// Reads a file, and keeps its content in memory.
    pub(crate) fn load(&mut self, name: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let bytes: Option<Arc<[u8]>> = self.folder.read(name)?.map(Into::into);
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
        self.held.get(name).is_some_and(|held| **held == *bytes) && self.folder.has(name)
    }

    pub(crate) fn replace(
        &mut self,
        name: &str,
        bytes: &Arc<[u8]>,
        former: Former,
    ) -> Result<DirChange, Error> {
        let place = self.folder.replace(name, bytes, former)?;
        match self.held.get_mut(name) {
            Some(held) => *held = Arc::clone(bytes),
            None => drop(self.held.insert(name.to_owned(), Arc::clone(bytes))),
        }
        Ok(place)
    }

    pub(crate) fn remove(&mut self, names: &[&str]) -> Result<DirChange, Error> {
        let place = self.folder.remove(names.iter().copied())?;
        for name in names {
            self.held.remove(*name);
        }
        Ok(place)
    }

    /// Notes which directory a change went to, for the next [`Files::catch_up`].
    pub(crate) fn note(&mut self, place: DirChange) {
        self.renew |= place == DirChange::New;
    }

    /// Writes everything again where the directory was removed or replaced.
    pub(crate) fn catch_up(&mut self, place: DirChange) -> Result<(), Error> {
        self.note(place);
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
                let place = self.folder.replace(name, bytes, Former::Dropped)?;
                self.note(place);
            }
        }
        Ok(())
    }

    /// Whether the file still has the content `held`.
    fn is_as_held(&self, name: &str, held: &[u8]) -> Result<bool, Error> {
        match self.folder.read(name) {
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
        // Also finds a replaced directory.
        let place = if names.is_none() { self.folder.remove([])? } else { DirChange::Same };
        self.catch_up(place)?;
        Ok(count)
    }
}

/// Follows the directory of a volatile topic and repairs its files, until it is dropped.
#[derive(Debug)]
pub(crate) struct DirKeeper {
    task: AbortHandle,
    files: SharedFiles,
}

impl DirKeeper {
    /// `None` outside of a runtime: then the next publish writes again what is missing.
    pub(crate) fn start(hub: Arc<WatchHub>, files: &SharedFiles) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let bell = WatchHub::bell(&lock(files).folder.path(""), Follows::Topic);
        let weak = Arc::downgrade(files);
        let restore = move |names: Option<&BTreeSet<OsString>>| {
            let files = weak.upgrade()?;
            let restored = lock(&files).restore(names);
            Some(restored)
        };
        let task = runtime.spawn(keep(hub, bell, "files", Box::new(restore))).abort_handle();
        Some(Self { task, files: Arc::clone(files) })
    }
}

impl Drop for DirKeeper {
    fn drop(&mut self) {
        self.task.abort();
        // A repair on another thread ends by itself; a later one finds nothing to write.
        lock(&self.files).held.clear();
    }
}

/// Repairs what was removed or replaced, of these names or at all. Returns how many; `None` once the owner is
/// gone.
type Restore = Box<dyn FnMut(Option<&BTreeSet<OsString>>) -> Option<Result<usize, Error>> + Send>;

/// Calls `restore`, which repairs `what`, whenever something in the followed directory changed.
pub(crate) async fn keep(
    hub: Arc<WatchHub>,
    bell: Arc<DirNotifier>,
    what: &'static str,
    mut restore: Restore,
) {
    let mut retry = Retry::default();
    loop {
        let names = match bell.take() {
            Pending::None => tokio::select! {
                biased;
                () = hub.wait(&bell) => continue,
                () = retry.due() => None,
            },
            Pending::Names(names) if !retry.is_failing() => Some(names),
            Pending::Names(_) | Pending::All => None,
        };
        let attended = if names.is_none() { hub.attend(&bell) } else { Ok(()) };
        let restored = match attended {
            Ok(()) => restore(names.as_ref()),
            Err(error) => Some(Err(error)),
        };
        let Some(restored) = restored else { return };
        let path = bell.dir().display();
        match restored {
            Ok(0) => retry.worked(),
            Ok(count) => {
                retry.worked();
                warn!(%path, count, "{what} of this topic were removed or replaced by somebody else and are made again");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                if retry.failed() {
                    warn!(%path, error = chain(&error), "cannot restore {what} of this topic, retrying");
                }
            }
        }
    }
}
