//! Wakes subscribers when a followed directory may have changed.
//!
//! An event is a hint: its receiver reads the files. Our own reading causes no event. A task of the runtime
//! waits for the kernel's events, so other tasks do not wake up. `file` and `folder` use it.
//!
//! Not here: topics (`subscription`), how files are written (`store`).

pub(crate) mod file;
pub(crate) mod folder;
pub mod glance;
pub(crate) mod removed;

mod kernel;
mod look;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::name::{RESTARTED, SUFFIX};
use crate::reach::{self, lock};
use crate::{Error, Retry};
use kernel::{Kernel, KernelEvent, WatchPurpose};
use look::{DirPoller, LOOK_EVERY};

/// Above this the whole directory is read.
const MOST_NAMES: usize = 256;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Pending {
    #[default]
    None,
    Names(BTreeSet<OsString>),
    /// Anything, the directory itself included.
    All,
}

impl Pending {
    pub(crate) fn add(&mut self, name: OsString) {
        match self {
            Self::All => {}
            Self::None => *self = Self::Names(BTreeSet::from([name])),
            Self::Names(names) if names.len() < MOST_NAMES => {
                names.insert(name);
            }
            Self::Names(_) => *self = Self::All,
        }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        match other {
            Self::None => self,
            Self::All => Self::All,
            Self::Names(names) => {
                for name in names {
                    self.add(name);
                }
                self
            }
        }
    }
}

/// What is followed in a directory; other names wake no task.
#[derive(Debug)]
pub(crate) enum Follows {
    /// Without temporary files and backups.
    Topic,
    File(OsString),
}

impl Follows {
    fn wants(&self, name: &OsStr) -> bool {
        match self {
            Self::Topic => name == RESTARTED || name.as_encoded_bytes().ends_with(SUFFIX.as_bytes()),
            Self::File(followed) => name == followed,
        }
    }
}

#[derive(Debug)]
pub(crate) struct DirNotifier {
    dir: PathBuf,
    follows: Follows,
    dirt: Mutex<Pending>,
    rung: Notify,
}

impl DirNotifier {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn take(&self) -> Pending {
        std::mem::take(&mut *lock(&self.dirt))
    }

    /// Returns once something may have changed. Dropping it loses nothing.
    async fn wait(&self) {
        loop {
            let rung = self.rung.notified();
            if *lock(&self.dirt) != Pending::None {
                return;
            }
            rung.await;
        }
    }

    fn ring_all(&self) {
        *lock(&self.dirt) = Pending::All;
        self.rung.notify_one();
    }

    fn ring(&self, name: OsString) {
        lock(&self.dirt).add(name);
        self.rung.notify_one();
    }
}

/// The notifiers of each watched directory.
#[derive(Debug, Default)]
struct Bells(Mutex<HashMap<PathBuf, Vec<Weak<DirNotifier>>>>);

impl Bells {
    /// Adds a notifier to `dir`. Returns the directories that have none any more.
    fn hang(&self, dir: &Path, bell: &Arc<DirNotifier>) -> Vec<PathBuf> {
        let mut bells = lock(&self.0);
        let hung = bells.entry(dir.to_owned()).or_default();
        if !hung.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(bell))) {
            hung.push(Arc::downgrade(bell));
        }
        let mut bare = Vec::new();
        bells.retain(|dir, hung| {
            hung.retain(|known| known.strong_count() > 0);
            if hung.is_empty() {
                bare.push(dir.clone());
            }
            !hung.is_empty()
        });
        bare
    }

    fn ring(&self, heard: &KernelEvent<'_>) {
        let bells = lock(&self.0);
        let on = |dir: &Path| bells.get(dir).into_iter().flatten().filter_map(Weak::upgrade);
        match heard {
            KernelEvent::Everything => {
                bells.values().flatten().filter_map(Weak::upgrade).for_each(|bell| bell.ring_all());
            }
            KernelEvent::Dir(dir) => on(dir).for_each(|bell| bell.ring_all()),
            KernelEvent::Name(dir, name) => {
                for bell in on(dir) {
                    if bell.dir == *dir {
                        if bell.follows.wants(name) {
                            bell.ring((*name).to_owned());
                        }
                    } else if bell.dir.strip_prefix(dir).is_ok_and(|way| way.iter().next() == Some(*name)) {
                        // A directory on the way.
                        bell.ring_all();
                    }
                }
            }
        }
    }

    fn ring_looked(&self, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                debug!(%error, "cannot look at files, everything is read again");
                return self.ring(&KernelEvent::Everything);
            }
        };
        for path in &event.paths {
            self.ring(&KernelEvent::Dir(path));
            if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
                self.ring(&KernelEvent::Name(dir, name));
            }
        }
    }
}

type OpenKernel = fn() -> io::Result<Kernel>;

type OpenedKernel = Arc<OnceLock<Arc<Kernel>>>;

#[derive(Debug)]
pub(crate) struct WatchHub {
    kernel: OpenedKernel,
    open: OpenKernel,
    look: DirPoller,
    bells: Arc<Bells>,
    /// File system and inode of each watched directory.
    watched: Mutex<HashMap<PathBuf, (u64, u64)>>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl WatchHub {
    pub(crate) fn open() -> Arc<Self> {
        Self::of(Kernel::open, LOOK_EVERY)
    }

    fn of(open: OpenKernel, look_every: Duration) -> Arc<Self> {
        let kernel = OpenedKernel::default();
        if let Err(error) = opened(&kernel, open) {
            warn!(
                %error,
                "cannot watch files, they are looked at every two seconds until it works; if it lasts, raise \
                 the limit of open files or fs.inotify.max_user_instances"
            );
        }
        let (bells, watched, listening) = (Arc::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { kernel, open, look: DirPoller::new(look_every), bells, watched, listening })
    }

    /// A notifier for `dir`, which need not exist.
    pub(crate) fn bell(dir: &Path, follows: Follows) -> Arc<DirNotifier> {
        let dirt = Mutex::new(Pending::All);
        Arc::new(DirNotifier { dir: dir.to_owned(), follows, dirt, rung: Notify::new() })
    }

    /// Watches the notifier's directory and its parent, or the nearest existing one. To be called before the
    /// directory is read, so that no change is missed.
    ///
    /// Errors: a change may be missed: call it again after a pause.
    pub(crate) fn attend(&self, bell: &Arc<DirNotifier>) -> Result<(), Error> {
        loop {
            let nearest = self.watch_nearest(bell)?;
            // A directory that was made before the one above it was watched has caused no event.
            if nearest == existing(bell).next().transpose()? {
                return Ok(());
            }
        }
    }

    fn watch_nearest<'a>(&self, bell: &'a Arc<DirNotifier>) -> Result<Option<&'a Path>, Error> {
        let mut nearest = None;
        for dir in existing(bell) {
            let dir = dir?;
            if self.watch(dir, bell)? {
                // The parent reports when the watched directory is replaced.
                if nearest.is_some() {
                    break;
                }
                nearest = Some(dir);
            }
        }
        Ok(nearest)
    }

    /// False when the directory has just gone.
    fn watch(&self, dir: &Path, bell: &Arc<DirNotifier>) -> Result<bool, Error> {
        let kernel = self.kernel.get();
        for bare in self.bells.hang(dir, bell) {
            if let Some(kernel) = kernel {
                kernel.forget(&bare);
            }
            self.look.forget(&bare);
            lock(&self.watched).remove(&bare);
        }
        // Before the watch: a replacement in between is found later.
        if let Some(number) = number(dir) {
            lock(&self.watched).insert(dir.to_owned(), number);
        }
        let why = if dir == bell.dir { WatchPurpose::Files } else { WatchPurpose::Way };
        // Each time, because the path may be another directory now; the kernel knows.
        let refused = match kernel.map(|kernel| kernel.watch(dir, why)) {
            Some(Ok(())) => {
                self.look.forget(dir);
                return Ok(true);
            }
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => return Ok(false),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let bells = Arc::clone(&self.bells);
        match (self.look.watch(dir, why, move |event| bells.ring_looked(event)), refused) {
            (Ok(true), Some(error)) => {
                let path = dir.display();
                warn!(%path, %error, "looked at every two seconds; raise fs.inotify.max_user_watches");
            }
            (Ok(_), _) => {}
            (Err(error), _) => return Err(Error::io("follow changes in", dir)(error)),
        }
        Ok(true)
    }

    /// Finds directories in memory that were replaced by a mount, which the kernel does not report. Their
    /// followers read and write everything again.
    pub(crate) fn look_again(&self) {
        let others: Vec<PathBuf> = {
            let mut watched = lock(&self.watched);
            let is_other = |dir: &Path, was| !reach::is_elsewhere(dir) && number(dir) != Some(was);
            watched.extract_if(|dir, was| is_other(dir, *was)).map(|(dir, _)| dir).collect()
        };
        for dir in others {
            self.bells.ring(&KernelEvent::Dir(&dir));
        }
    }

    /// Returns once the notifier is rung. Dropping it loses nothing.
    ///
    /// Events are taken by a task of the first runtime that waits here; when that runtime is gone, by one of
    /// the next.
    pub(crate) async fn wait(&self, bell: &DirNotifier) {
        {
            let mut listening = lock(&self.listening);
            if listening.as_ref().is_none_or(JoinHandle::is_finished) {
                let task = listen(Arc::clone(&self.kernel), self.open, Arc::clone(&self.bells));
                *listening = Some(Handle::current().spawn(task));
            }
        }
        bell.wait().await;
    }
}

impl Drop for WatchHub {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).take() {
            task.abort();
        }
    }
}

struct KernelQueue(Arc<Kernel>);

impl AsRawFd for KernelQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn opened(kernel: &OpenedKernel, open: OpenKernel) -> io::Result<Arc<Kernel>> {
    match kernel.get() {
        Some(kernel) => Ok(Arc::clone(kernel)),
        None => open().map(|opened| Arc::clone(kernel.get_or_init(|| Arc::new(opened)))),
    }
}

/// File system and inode.
pub(crate) fn number(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|seen| (seen.dev(), seen.ino()))
}

/// The existing directories on the way to the notifier's, the nearest first.
fn existing(bell: &DirNotifier) -> impl Iterator<Item = Result<&Path, Error>> {
    let way = bell.dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    way.filter_map(|dir| match dir.metadata() {
        Ok(seen) => seen.is_dir().then_some(Ok(dir)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        // Without the permission to read it, changes there are not visible.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(error) => Some(Err(Error::io("look at", dir)(error))),
    })
}

/// Takes events and rings, again after a pause when that fails.
async fn listen(kernel: OpenedKernel, open: OpenKernel, bells: Arc<Bells>) {
    let mut retry = Retry::default();
    loop {
        let late = kernel.get().is_none();
        let waiting = opened(&kernel, open).and_then(|kernel| {
            #[expect(
                deprecated,
                reason = "its successor is unsafe; this descriptor is owned as long as it is waited for"
            )]
            AsyncFd::with_interest(KernelQueue(kernel), Interest::READABLE)
        });
        match waiting {
            Ok(queue) => {
                if late || retry.is_failing() {
                    info!("files are watched from now on");
                    // All followers watch again, with the kernel's events.
                    bells.ring(&KernelEvent::Everything);
                }
                retry.worked();
                let error = take_events(queue, &bells).await;
                warn!(%error, "cannot take file events, everything is read again");
                bells.ring(&KernelEvent::Everything);
            }
            Err(error) => debug!(%error, "cannot wait for file events yet"),
        }
        retry.failed();
        retry.due().await;
    }
}

async fn take_events(queue: AsyncFd<KernelQueue>, bells: &Bells) -> io::Error {
    loop {
        let mut ready = match queue.readable().await {
            Ok(ready) => ready,
            Err(error) => return error,
        };
        match ready.try_io(|queue| queue.get_ref().0.drain(|heard| bells.ring(&heard))) {
            Err(_) => {}
            // In a storm, tasks with a rung notifier run first.
            Ok(Ok(())) => tokio::task::yield_now().await,
            Ok(Err(error)) => return error,
        }
    }
}
