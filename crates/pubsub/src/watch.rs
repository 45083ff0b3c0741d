//! The kernel's events for all followed directories of a process, and the bells that they ring.
//!
//! An event only says that something may have changed; whoever hears the bell reads the files. Our own reading
//! causes no event. Events are taken by a task of the runtime that waits for them, so nobody else wakes up.

mod kernel;
mod look;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::name::{RESTARTED, SUFFIX};
use kernel::{Heard, Kernel, Watch};
use look::{LOOK_EVERY, Look};

/// More changed names than this and the whole directory is read.
const MOST_NAMES: usize = 256;

/// What may have changed since it was last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Dirt {
    /// Nothing.
    #[default]
    None,
    /// Files of these names.
    Names(BTreeSet<OsString>),
    /// Anything, the directory itself included.
    All,
}

/// What is followed in a directory; nothing else there wakes anybody.
#[derive(Debug)]
pub(crate) enum Follows {
    /// The files of a topic, without those that are being written and without backups.
    Topic,
    /// One file.
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

/// Rung when a followed directory may have changed.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The directory whose files are followed.
    dir: PathBuf,
    follows: Follows,
    dirt: Mutex<Dirt>,
    rung: Notify,
}

impl Bell {
    /// Takes what may have changed.
    pub(crate) fn take(&self) -> Dirt {
        std::mem::take(&mut *lock(&self.dirt))
    }

    /// Returns once something may have changed. Dropping it loses nothing.
    async fn wait(&self) {
        loop {
            let rung = self.rung.notified();
            if *lock(&self.dirt) != Dirt::None {
                return;
            }
            rung.await;
        }
    }

    fn ring_all(&self) {
        *lock(&self.dirt) = Dirt::All;
        self.rung.notify_one();
    }

    fn ring(&self, name: OsString) {
        let mut dirt = lock(&self.dirt);
        match &mut *dirt {
            Dirt::All => return,
            Dirt::None => *dirt = Dirt::Names(BTreeSet::from([name])),
            Dirt::Names(names) if names.len() < MOST_NAMES => {
                names.insert(name);
            }
            Dirt::Names(_) => *dirt = Dirt::All,
        }
        drop(dirt);
        self.rung.notify_one();
    }
}

/// The bells that hang on each watched directory.
#[derive(Debug, Default)]
struct Bells(Mutex<HashMap<PathBuf, Vec<Weak<Bell>>>>);

impl Bells {
    /// Hangs a bell on `dir`. Returns the directories on which none hangs any more.
    fn hang(&self, dir: &Path, bell: &Arc<Bell>) -> Vec<PathBuf> {
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

    fn ring(&self, heard: &Heard<'_>) {
        let bells = lock(&self.0);
        let on = |dir: &Path| bells.get(dir).into_iter().flatten().filter_map(Weak::upgrade);
        match heard {
            Heard::Everything => {
                bells.values().flatten().filter_map(Weak::upgrade).for_each(|bell| bell.ring_all());
            }
            Heard::Dir(dir) => on(dir).for_each(|bell| bell.ring_all()),
            Heard::Name(dir, name) => {
                for bell in on(dir) {
                    if bell.dir == *dir {
                        if bell.follows.wants(name) {
                            bell.ring((*name).to_owned());
                        }
                    } else if bell.dir.strip_prefix(dir).is_ok_and(|way| way.iter().next() == Some(*name)) {
                        // A step on the way to the directory.
                        bell.ring_all();
                    }
                }
            }
        }
    }

    /// What a look found.
    fn ring_looked(&self, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                warn!(%error, "cannot look at files, everything is read again");
                return self.ring(&Heard::Everything);
            }
        };
        for path in &event.paths {
            self.ring(&Heard::Dir(path));
            if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
                self.ring(&Heard::Name(dir, name));
            }
        }
    }
}

/// What rings the bells.
#[derive(Debug)]
pub(crate) struct Hub {
    kernel: Option<Arc<Kernel>>,
    look: Look,
    bells: Arc<Bells>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Hub {
    pub(crate) fn open() -> Arc<Self> {
        let kernel = Kernel::open().map_err(|error| {
            warn!(%error, "files are looked at every two seconds; raise fs.inotify.max_user_instances");
        });
        Self::of(kernel.ok(), LOOK_EVERY)
    }

    fn of(kernel: Option<Kernel>, look_every: Duration) -> Arc<Self> {
        let (bells, listening) = (Arc::default(), Mutex::default());
        Arc::new(Self { kernel: kernel.map(Arc::new), look: Look::new(look_every), bells, listening })
    }

    /// A bell for what is followed in the directory `dir`, which need not exist.
    pub(crate) fn bell(dir: &Path, follows: Follows) -> Arc<Bell> {
        let dirt = Mutex::new(Dirt::All);
        Arc::new(Bell { dir: dir.to_owned(), follows, dirt, rung: Notify::new() })
    }

    /// Watches the bell's directory and the one above it; where they are missing, the nearest one that exists.
    /// To be called before the directory is read, so that no change falls between.
    pub(crate) fn attend(&self, bell: &Arc<Bell>) {
        loop {
            let nearest = self.watch_nearest(bell);
            // A directory that was made before the one above it was watched has caused no event.
            if nearest.as_deref() == bell.dir.ancestors().find(|dir| dir.is_dir()) {
                return;
            }
        }
    }

    /// The nearest directory that is watched now.
    fn watch_nearest(&self, bell: &Arc<Bell>) -> Option<PathBuf> {
        let existing = bell.dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
        // The directory above tells when the watched one is replaced.
        let mut watched = existing.filter(|dir| self.watch(dir, bell)).take(2);
        let nearest = watched.next().map(Path::to_owned);
        watched.for_each(drop);
        nearest
    }

    fn watch(&self, dir: &Path, bell: &Arc<Bell>) -> bool {
        if !dir.is_dir() {
            return false;
        }
        for bare in self.bells.hang(dir, bell) {
            if let Some(kernel) = &self.kernel {
                kernel.forget(&bare);
            }
            self.look.forget(&bare);
        }
        let why = if dir == bell.dir { Watch::Files } else { Watch::Way };
        // Asked again each time: the path may be another directory than before. The kernel knows whether it is.
        let refused = match self.kernel.as_ref().map(|kernel| kernel.watch(dir, why)) {
            Some(Ok(())) => {
                self.look.forget(dir);
                return true;
            }
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => return false,
            Some(Err(error)) => Some(error),
            None => None,
        };
        let bells = Arc::clone(&self.bells);
        match (self.look.watch(dir, move |event| bells.ring_looked(event)), refused) {
            (Ok(true), Some(error)) => {
                let path = dir.display();
                warn!(%path, %error, "looked at every two seconds; raise fs.inotify.max_user_watches");
            }
            (Ok(_), _) => {}
            (Err(error), _) => warn!(path = %dir.display(), %error, "cannot follow changes in a directory"),
        }
        true
    }

    /// Returns once the bell has rung. Dropping it loses nothing.
    ///
    /// Events are taken by a task of the first runtime in which somebody waits; when that runtime is gone, by one
    /// of the next.
    pub(crate) async fn wait(&self, bell: &Bell) {
        if let Some(kernel) = &self.kernel {
            let mut listening = lock(&self.listening);
            if listening.as_ref().is_none_or(JoinHandle::is_finished) {
                let task = listen(Arc::clone(kernel), Arc::clone(&self.bells));
                *listening = Some(Handle::current().spawn(task));
            }
        }
        bell.wait().await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).take() {
            task.abort();
        }
    }
}

/// What the runtime waits for.
struct Queue(Arc<Kernel>);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Takes events for good, and rings.
async fn listen(kernel: Arc<Kernel>, bells: Arc<Bells>) {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; this descriptor is owned as long as it is waited for"
    )]
    let waiting = AsyncFd::with_interest(Queue(kernel), Interest::READABLE);
    let queue = match waiting {
        Ok(queue) => queue,
        Err(error) => return warn!(%error, "cannot wait for file events"),
    };
    while let Ok(mut ready) = queue.readable().await {
        match ready.try_io(|queue| queue.get_ref().0.drain(|heard| bells.ring(&heard))) {
            // Nothing is left.
            Err(_) => {}
            // A storm: those whose bell has rung have their turn first.
            Ok(Ok(())) => tokio::task::yield_now().await,
            Ok(Err(error)) => {
                warn!(%error, "cannot take file events, everything is read again");
                return bells.ring(&Heard::Everything);
            }
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Codec, FileRule, FileState, FileWatch, Subscription, store};
    use std::fs;

    fn bell(hub: &Hub, dir: &Path, follows: Follows) -> Arc<Bell> {
        let bell = Hub::bell(dir, follows);
        hub.attend(&bell);
        assert_eq!(bell.take(), Dirt::All);
        bell
    }

    fn names(names: &[&str]) -> Dirt {
        Dirt::Names(names.iter().map(OsString::from).collect())
    }

    fn codec() -> Codec<Vec<u8>> {
        Codec { encode: |bytes| Ok(bytes.clone()), decode: |bytes| Ok(bytes.to_vec()) }
    }

    #[test]
    fn an_overflow_makes_everyone_read_again() {
        let (hub, root) = (Hub::open(), tempfile::tempdir().unwrap());
        let bell = bell(&hub, root.path(), Follows::Topic);
        assert_eq!(bell.take(), Dirt::None);
        hub.bells.ring(&Heard::Everything);
        assert_eq!(bell.take(), Dirt::All);
    }

    #[test]
    fn files_that_nobody_follows_wake_nobody() {
        let (hub, root) = (Hub::open(), tempfile::tempdir().unwrap());
        let topic = bell(&hub, root.path(), Follows::Topic);
        let single = bell(&hub, root.path(), Follows::File("b.json".into()));
        let below = bell(&hub, &root.path().join("c"), Follows::Topic);
        let heard = |name: &str| hub.bells.ring(&Heard::Name(root.path(), name.as_ref()));
        for name in ["tmp00000000010000000001", "a.json.bak", "a.lock"] {
            heard(name);
        }
        assert_eq!((topic.take(), single.take()), (Dirt::None, Dirt::None));
        heard("a.json");
        assert_eq!((topic.take(), single.take()), (names(&["a.json"]), Dirt::None));
        heard("b.json");
        assert_eq!((topic.take(), single.take()), (names(&["b.json"]), names(&["b.json"])));
        assert_eq!(below.take(), Dirt::None);
        heard("c");
        assert_eq!((topic.take(), single.take(), below.take()), (Dirt::None, Dirt::None, Dirt::All));
    }

    #[test]
    fn a_directory_that_is_made_while_watches_are_placed_is_watched() {
        let hub = Hub::open();
        for _ in 0..300 {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("run/agent/Topic");
            let bell = Hub::bell(&dir, Follows::Topic);
            assert_eq!(bell.take(), Dirt::All);
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    fs::create_dir_all(&dir).unwrap();
                });
                start.wait();
                hub.attend(&bell);
            });
            // Either it is watched itself, or the kernel has an event on the way to it.
            let kernel = hub.kernel.as_ref().unwrap();
            drop(kernel.drain(|heard| hub.bells.ring(&heard)));
            let heard = bell.take() == Dirt::All;
            assert!(heard || kernel.watched().contains(&dir), "nobody will hear what happens there");
        }
    }

    #[test]
    fn very_many_names_become_one_full_read() {
        let bell = Hub::bell(Path::new("/x"), Follows::Topic);
        bell.take();
        for number in 0..=MOST_NAMES {
            bell.ring(format!("{number}").into());
        }
        assert_eq!(bell.take(), Dirt::All);
    }

    #[test]
    fn directories_that_nobody_follows_any_more_are_watched_no_more() {
        let (hub, root) = (Hub::open(), tempfile::tempdir().unwrap());
        let [first, second] = ["a", "b"].map(|name| root.path().join(name));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        drop(bell(&hub, &first, Follows::Topic));
        let _kept = bell(&hub, &second, Follows::Topic);
        assert_eq!(hub.kernel.as_ref().unwrap().watched(), [root.path().to_owned(), second]);
    }

    #[test]
    fn a_bus_outlives_the_runtime_in_which_it_was_followed() {
        let (hub, root) = (Hub::open(), tempfile::tempdir().unwrap());
        let mut topic = Subscription::new(hub, root.path().to_owned(), codec());
        for round in [b"1", b"2"] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                // Waits in vain once, so that the events are this runtime's.
                while let Some(change) = tokio::select! {
                    biased;
                    change = topic.next() => Some(change),
                    () = std::future::ready(()) => None,
                } {
                    drop(change);
                }
                store::replace(&root.path().join("a.json"), round).unwrap();
                while topic.get("a") != Some(&round.to_vec()) {
                    tokio::time::timeout(Duration::from_secs(60), topic.next()).await.unwrap();
                }
            });
        }
    }

    #[tokio::test]
    async fn where_the_kernel_watches_nothing_changes_are_found_by_looking() {
        let (hub, root) = (Hub::of(None, Duration::from_millis(5)), tempfile::tempdir().unwrap());
        let dir = root.path().join("run/agent/Topic");
        let mut topic = Subscription::new(Arc::clone(&hub), dir.clone(), codec());
        let rule = FileRule { limit_bytes: 9, order: false };
        let mut file = FileWatch::new(hub, dir.join("a.json"), rule);
        assert_eq!((topic.next().await, file.next().await), (Change::Synced, FileState::Absent));
        for round in [b"1", b"2"] {
            // Of the same length, within the same second, by a rename.
            store::replace(&dir.join("a.json"), round).unwrap();
            while topic.get("a") != Some(&round.to_vec()) {
                topic.next().await;
            }
            while file.next().await != FileState::Present(round.to_vec()) {}
        }
        fs::remove_dir_all(root.path().join("run")).unwrap();
        while topic.get("a").is_some() {
            topic.next().await;
        }
        while file.next().await != FileState::Absent {}
        store::replace(&dir.join("a.json"), b"3").unwrap();
        while topic.get("a") != Some(&b"3".to_vec()) {
            topic.next().await;
        }
    }
}
