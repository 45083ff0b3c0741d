//! Wakes subscribers when a followed directory may have changed.
//!
//! An event is a hint: its receiver reads the files. Our own reading causes no event. A task of the runtime
//! waits for the kernel's events, so other tasks do not wake up. `file` and `folder` use it.
//!
//! Not here: topics (`subscription`), how files are written (`store`).

pub(crate) mod file;
pub(crate) mod folder;

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

/// One follower's directory, and what may have changed there.
#[derive(Debug)]
struct DirNotifier {
    dir: PathBuf,
    follows: Follows,
    dirt: Mutex<Pending>,
    rung: Notify,
}

impl DirNotifier {
    fn new(dir: &Path, follows: Follows) -> Arc<Self> {
        let dirt = Mutex::new(Pending::All);
        Arc::new(Self { dir: dir.to_owned(), follows, dirt, rung: Notify::new() })
    }

    fn take(&self) -> Pending {
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

    /// `dir` itself changed, this directory or one on the way to it, or `name` in it.
    fn ring(&self, dir: &Path, name: Option<&OsStr>) {
        match name {
            Some(name) if self.dir == *dir => {
                if !self.follows.wants(name) {
                    return;
                }
                lock(&self.dirt).add(name.to_owned());
            }
            // Beside the way.
            Some(name) if !self.dir.strip_prefix(dir).is_ok_and(|way| way.iter().next() == Some(name)) => {
                return;
            }
            Some(_) | None => *lock(&self.dirt) = Pending::All,
        }
        self.rung.notify_one();
    }
}

/// Follows a directory, which need not exist.
#[derive(Debug)]
pub(crate) struct DirFollower {
    hub: Arc<WatchHub>,
    notifier: Arc<DirNotifier>,
    /// Of failed readings.
    pub(crate) retry: Retry,
}

impl DirFollower {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: &Path, follows: Follows) -> Self {
        Self { hub, notifier: DirNotifier::new(dir, follows), retry: Retry::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.notifier.dir
    }

    /// What may have changed since the last call, all of it at the first one; [`Pending::None`] when a failed
    /// reading is due again. Dropping it loses nothing.
    pub(crate) async fn changed(&mut self) -> Pending {
        loop {
            match self.notifier.take() {
                Pending::None => tokio::select! {
                    biased;
                    () = self.hub.wait(&self.notifier) => {}
                    () = self.retry.due() => return Pending::None,
                },
                dirt @ (Pending::Names(_) | Pending::All) => return dirt,
            }
        }
    }

    /// Watches the directory and its parent, or the nearest existing one. To be called before the directory is
    /// read, so that no change is missed.
    ///
    /// Errors: a change may be missed: call it again after a pause.
    pub(crate) fn attend(&self) -> impl FnOnce() -> Result<(), Error> + Send + 'static {
        let (hub, notifier) = (Arc::clone(&self.hub), Arc::clone(&self.notifier));
        move || hub.attend(&notifier)
    }
}

/// A watched directory.
#[derive(Debug, Default)]
struct WatchedDir {
    notifiers: Vec<Weak<DirNotifier>>,
    /// File system and inode.
    number: Option<(u64, u64)>,
    /// The kernel's watch. Two paths can be one directory, which has one watch.
    watch: Option<i32>,
}

impl WatchedDir {
    fn add(&mut self, notifier: &Arc<DirNotifier>) {
        if !self.notifiers.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(notifier))) {
            self.notifiers.push(Arc::downgrade(notifier));
        }
    }

    fn is_bare(&mut self) -> bool {
        self.notifiers.retain(|known| known.strong_count() > 0);
        self.notifiers.is_empty()
    }

    fn ring(&self, dir: &Path, name: Option<&OsStr>) {
        self.notifiers.iter().filter_map(Weak::upgrade).for_each(|it| it.ring(dir, name));
    }
}

/// All watched directories by path.
#[derive(Debug, Default)]
struct WatchedDirs(Mutex<HashMap<PathBuf, WatchedDir>>);

impl WatchedDirs {
    fn ring_all(&self) {
        lock(&self.0).iter().for_each(|(dir, it)| it.ring(dir, None));
    }

    fn ring(&self, dir: &Path, name: Option<&OsStr>) {
        if let Some(watched) = lock(&self.0).get(dir) {
            watched.ring(dir, name);
        }
    }

    fn hear(&self, heard: &KernelEvent<'_>) {
        let (watch, name) = match heard {
            KernelEvent::Everything => return self.ring_all(),
            KernelEvent::Name(watch, name) => (*watch, Some(*name)),
            KernelEvent::Dir(watch) | KernelEvent::Ended(watch) => (*watch, None),
        };
        let ended = matches!(heard, KernelEvent::Ended(_));
        for (dir, it) in lock(&self.0).iter_mut().filter(|(_, it)| it.watch == Some(watch)) {
            it.watch = it.watch.filter(|_| !ended);
            it.ring(dir, name);
        }
    }

    fn hear_poll(&self, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                debug!(%error, "cannot look at files, everything is read again");
                return self.ring_all();
            }
        };
        for path in &event.paths {
            self.ring(path, None);
            if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
                self.ring(dir, Some(name));
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
    dirs: Arc<WatchedDirs>,
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
        let (dirs, listening) = (Arc::default(), Mutex::default());
        Arc::new(Self { kernel, open, look: DirPoller::new(look_every), dirs, listening })
    }

    fn attend(&self, notifier: &Arc<DirNotifier>) -> Result<(), Error> {
        loop {
            let nearest = self.watch_nearest(notifier)?;
            // A directory that was made before the one above it was watched has caused no event.
            if nearest == existing(notifier).next().transpose()? {
                return Ok(());
            }
        }
    }

    fn watch_nearest<'a>(&self, notifier: &'a Arc<DirNotifier>) -> Result<Option<&'a Path>, Error> {
        let mut nearest = None;
        for dir in existing(notifier) {
            let dir = dir?;
            if self.watch(dir, notifier)? {
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
    fn watch(&self, dir: &Path, notifier: &Arc<DirNotifier>) -> Result<bool, Error> {
        let why = if dir == notifier.dir { WatchPurpose::Files } else { WatchPurpose::Way };
        let kernel = self.kernel.get();
        // Before the watch: a replacement in between is found later.
        let number = number(dir);
        let (bare, watched) = {
            // Locked meanwhile, so that no event is taken before its watch is known.
            let dirs = &mut *lock(&self.dirs.0);
            let known = dirs.entry(dir.to_owned()).or_default();
            known.add(notifier);
            known.number = number.or(known.number);
            // Each time, because the path may be another directory now; the kernel knows.
            let watched = kernel.map(|kernel| kernel.watch(dir, why));
            let mut former = Vec::new();
            if let Some(Ok(watch)) = watched {
                former.extend(known.watch.replace(watch));
            }
            let bare: Vec<_> = dirs.extract_if(|_, it| it.is_bare()).collect();
            former.extend(bare.iter().filter_map(|(_, it)| it.watch));
            former.retain(|watch| dirs.values().all(|it| it.watch != Some(*watch)));
            if let Some(kernel) = kernel {
                for watch in former {
                    kernel.unwatch(watch);
                }
            }
            (bare, watched)
        };
        for (dir, _) in &bare {
            self.look.forget(dir);
        }
        let refused = match watched {
            Some(Ok(_)) => {
                self.look.forget(dir);
                return Ok(true);
            }
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => return Ok(false),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let dirs = Arc::clone(&self.dirs);
        match (self.look.watch(dir, why, move |event| dirs.hear_poll(event)), refused) {
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
        for (dir, it) in lock(&self.dirs.0).iter_mut().filter(|(dir, _)| !reach::is_elsewhere(dir)) {
            if it.number.take_if(|was| number(dir) != Some(*was)).is_some() {
                it.ring(dir, None);
            }
        }
    }

    /// Returns once the notifier is rung. Dropping it loses nothing.
    ///
    /// Events are taken by a task of the first runtime that waits here; when that runtime is gone, by one of
    /// the next.
    async fn wait(&self, notifier: &DirNotifier) {
        {
            let mut listening = lock(&self.listening);
            if listening.as_ref().is_none_or(JoinHandle::is_finished) {
                let task = listen(Arc::clone(&self.kernel), self.open, Arc::clone(&self.dirs));
                *listening = Some(Handle::current().spawn(task));
            }
        }
        notifier.wait().await;
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
fn existing(notifier: &DirNotifier) -> impl Iterator<Item = Result<&Path, Error>> {
    let way = notifier.dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    way.filter_map(|dir| match dir.metadata() {
        Ok(seen) => seen.is_dir().then_some(Ok(dir)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        // Without the permission to read it, changes there are not visible.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(error) => Some(Err(Error::io("look at", dir)(error))),
    })
}

/// Takes events and rings, again after a pause when that fails.
async fn listen(kernel: OpenedKernel, open: OpenKernel, dirs: Arc<WatchedDirs>) {
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
                    dirs.ring_all();
                }
                retry.worked();
                let error = take_events(queue, &dirs).await;
                warn!(%error, "cannot take file events, everything is read again");
                dirs.ring_all();
            }
            Err(error) => debug!(%error, "cannot wait for file events yet"),
        }
        retry.failed();
        retry.due().await;
    }
}

async fn take_events(queue: AsyncFd<KernelQueue>, dirs: &WatchedDirs) -> io::Error {
    loop {
        let mut ready = match queue.readable().await {
            Ok(ready) => ready,
            Err(error) => return error,
        };
        match ready.try_io(|queue| queue.get_ref().0.drain(|heard| dirs.hear(&heard))) {
            Err(_) => {}
            // In a storm, tasks with a rung notifier run first.
            Ok(Ok(())) => tokio::task::yield_now().await,
            Ok(Err(error)) => return error,
        }
    }
}
