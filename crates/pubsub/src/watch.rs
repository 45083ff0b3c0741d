//! One watcher thread for all followed directories of a process, and the bells that it rings.
//!
//! An event only says that something may have changed; whoever hears the bell reads the files. Our own reading
//! causes no event: the kernel is not asked for opening, nor for closing what was only read. Where the kernel
//! can watch nothing more, the directory is looked at every two seconds.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use notify::event::{ModifyKind, RenameMode};
use notify::{
    Config, Event, EventHandler, EventKind, EventKindMask, PollWatcher, RecommendedWatcher, RecursiveMode,
    Watcher,
};
use tokio::sync::Notify;
use tracing::warn;

use crate::Error;
use crate::name::{RESTARTED, SUFFIX};

/// More changed names than this and the whole directory is read.
const MOST_NAMES: usize = 256;
/// How often a directory is looked at that the kernel does not watch.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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
    pub(crate) async fn wait(&self) {
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

/// The watchers and the bells that hang on each watched directory.
#[derive(Debug)]
pub(crate) struct Hub {
    watchers: Mutex<Watchers>,
    bells: Arc<Bells>,
}

type Bells = Mutex<HashMap<PathBuf, Vec<Weak<Bell>>>>;

impl Hub {
    pub(crate) fn open() -> Result<Arc<Self>, Error> {
        let bells: Arc<Bells> = Arc::default();
        let kernel = match kernel_watcher(listener(&bells)) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                warn!(%error, "files are looked at every two seconds; raise fs.inotify.max_user_instances");
                None
            }
        };
        Self::of(kernel, LOOK_EVERY, bells)
    }

    fn of(
        kernel: Option<RecommendedWatcher>,
        look_every: Duration,
        bells: Arc<Bells>,
    ) -> Result<Arc<Self>, Error> {
        let config = Config::default().with_poll_interval(look_every).with_compare_contents(true);
        let look = match &kernel {
            Some(_) => None,
            // Now, so that whoever opens learns that nothing can be watched at all.
            None => Some(
                PollWatcher::new(listener(&bells), config)
                    .map_err(|error| Error::io("watch files under", "/")(io_error(error)))?,
            ),
        };
        let watchers = Watchers { kernel, look, config, looked_at: BTreeSet::new() };
        Ok(Arc::new(Self { watchers: Mutex::new(watchers), bells }))
    }

    /// A bell for what is followed in the directory `dir`, which need not exist.
    pub(crate) fn bell(dir: &Path, follows: Follows) -> Arc<Bell> {
        let dirt = Mutex::new(Dirt::All);
        Arc::new(Bell { dir: dir.to_owned(), follows, dirt, rung: Notify::new() })
    }

    /// Watches the bell's directory and the one above it; where they are missing, the nearest one that exists.
    /// To be called before the directory is read, so that no change falls between.
    pub(crate) fn attend(&self, bell: &Arc<Bell>) {
        let mut watched = 0;
        for dir in bell.dir.ancestors() {
            if dir.as_os_str().is_empty() {
                break;
            }
            if self.watch(dir, bell) {
                watched += 1;
            }
            // The directory above tells when the watched one is replaced.
            if watched == 2 {
                break;
            }
        }
    }

    fn watch(&self, dir: &Path, bell: &Arc<Bell>) -> bool {
        if !dir.is_dir() {
            return false;
        }
        let mut bells = lock(&self.bells);
        let hung = bells.entry(dir.to_owned()).or_default();
        hung.retain(|known| known.strong_count() > 0);
        if !hung.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(bell))) {
            hung.push(Arc::downgrade(bell));
        }
        bells.retain(|_, hung| hung.iter().any(|known| known.strong_count() > 0));
        drop(bells);
        // Asked again each time: the path may be another directory than before. The kernel knows whether it is.
        match lock(&self.watchers).watch(dir, &self.bells) {
            Ok(()) => true,
            Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => false,
            Err(error) => {
                warn!(path = %dir.display(), %error, "cannot watch a directory in any way");
                true
            }
        }
    }
}

/// The kernel's events, and for want of them a look now and then.
#[derive(Debug)]
struct Watchers {
    kernel: Option<RecommendedWatcher>,
    look: Option<PollWatcher>,
    config: Config,
    /// Directories that the kernel does not watch.
    looked_at: BTreeSet<PathBuf>,
}

impl Watchers {
    fn watch(&mut self, dir: &Path, bells: &Arc<Bells>) -> notify::Result<()> {
        let refused = match self.kernel.as_mut().map(|kernel| kernel.watch(dir, RecursiveMode::NonRecursive))
        {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if matches!(error.kind, notify::ErrorKind::PathNotFound) => return Err(error),
            Some(Err(error)) => Some(error),
            None => None,
        };
        // Asked once only: each time would hide from the others what changed since the last look.
        if !self.looked_at.insert(dir.to_owned()) {
            return Ok(());
        }
        if let Some(error) = refused {
            let path = dir.display();
            warn!(%path, %error, "looked at every two seconds; raise fs.inotify.max_user_watches");
        }
        let look = match &mut self.look {
            Some(look) => look,
            none => none.insert(PollWatcher::new(listener(bells), self.config)?),
        };
        let watched = look.watch(dir, RecursiveMode::NonRecursive);
        if watched.is_err() {
            self.looked_at.remove(dir);
        }
        watched
    }
}

/// inotify for names that come and go, contents that are complete, owners and modes.
fn kernel_watcher(listener: impl EventHandler) -> notify::Result<RecommendedWatcher> {
    let kinds = EventKindMask::CREATE
        | EventKindMask::REMOVE
        | EventKindMask::MODIFY_META
        | EventKindMask::MODIFY_NAME
        // A file that is written in place is worth reading once its writer closes it.
        | EventKindMask::ACCESS_CLOSE;
    RecommendedWatcher::new(listener, Config::default().with_event_kinds(kinds))
}

fn listener(bells: &Arc<Bells>) -> impl EventHandler + use<> {
    let bells = Arc::clone(bells);
    move |event| ring(&bells, event)
}

fn ring(bells: &Bells, event: notify::Result<Event>) {
    let bells = lock(bells);
    let all = || bells.values().flatten().filter_map(Weak::upgrade);
    let event = match event {
        Ok(event) => event,
        Err(error) => {
            warn!(%error, "the file watcher reports trouble, everything is read again");
            return all().for_each(|bell| bell.ring_all());
        }
    };
    if event.need_rescan() {
        return all().for_each(|bell| bell.ring_all());
    }
    match event.kind {
        // Both names were told before this, one by one.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return,
        EventKind::Any
        | EventKind::Access(_)
        | EventKind::Create(_)
        | EventKind::Remove(_)
        | EventKind::Other
        | EventKind::Modify(
            ModifyKind::Any
            | ModifyKind::Data(_)
            | ModifyKind::Metadata(_)
            | ModifyKind::Name(_)
            | ModifyKind::Other,
        ) => {}
    }
    for path in &event.paths {
        // The watched directory itself went or moved.
        for bell in bells.get(path).into_iter().flatten().filter_map(Weak::upgrade) {
            bell.ring_all();
        }
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
        for bell in bells.get(dir).into_iter().flatten().filter_map(Weak::upgrade) {
            if bell.dir == dir {
                if bell.follows.wants(name) {
                    bell.ring(name.to_owned());
                }
            } else if bell.dir.starts_with(path) {
                // A step on the way to the directory.
                bell.ring_all();
            }
        }
    }
}

fn io_error(error: notify::Error) -> std::io::Error {
    match error.kind {
        notify::ErrorKind::Io(cause) => cause,
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::PathNotFound
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_)
        | notify::ErrorKind::MaxFilesWatch => std::io::Error::other(error),
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Codec, FileRule, FileState, store};
    use std::fs;
    use std::sync::mpsc;

    fn topic_bell(hub: &Hub, dir: &Path) -> Arc<Bell> {
        let bell = Hub::bell(dir, Follows::Topic);
        hub.attend(&bell);
        assert_eq!(bell.take(), Dirt::All);
        bell
    }

    #[test]
    fn an_overflow_makes_everyone_read_again() {
        let hub = Hub::open().unwrap();
        let root = tempfile::tempdir().unwrap();
        let bell = topic_bell(&hub, root.path());
        assert_eq!(bell.take(), Dirt::None);
        ring(&hub.bells, Ok(Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan)));
        assert_eq!(bell.take(), Dirt::All);
    }

    #[test]
    fn our_own_reading_causes_no_event_at_all() {
        let root = tempfile::tempdir().unwrap();
        let (file, dir) = (root.path().join("a.json"), root.path());
        let outside = tempfile::tempdir().unwrap();
        store::replace(&file, b"1").unwrap();
        store::replace(&outside.path().join("mark"), b"1").unwrap();
        let (sender, heard) = mpsc::channel();
        let mut watcher = kernel_watcher(sender).unwrap();
        watcher.watch(dir, RecursiveMode::NonRecursive).unwrap();
        for _ in 0..100 {
            assert_eq!(store::read(&file, 9).unwrap().unwrap(), b"1");
            assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
            fs::File::open(dir).unwrap().sync_all().unwrap();
            assert!(file.exists());
        }
        // Events come in order, so the first one is that of the first change.
        fs::rename(outside.path().join("mark"), dir.join("mark")).unwrap();
        assert_eq!(heard.recv().unwrap().unwrap().paths, [dir.join("mark")]);
    }

    #[test]
    fn files_that_nobody_follows_wake_nobody() {
        let hub = Hub::open().unwrap();
        let root = tempfile::tempdir().unwrap();
        let bell = topic_bell(&hub, root.path());
        let single = Hub::bell(root.path(), Follows::File("b.json".into()));
        hub.attend(&single);
        single.take();
        let created = |name: &str| {
            let event = Event::new(EventKind::Create(notify::event::CreateKind::File));
            ring(&hub.bells, Ok(event.add_path(root.path().join(name))));
        };
        for name in ["tmp00000000010000000001", "a.json.bak", "a.lock"] {
            created(name);
        }
        assert_eq!((bell.take(), single.take()), (Dirt::None, Dirt::None));
        created("a.json");
        assert_eq!(
            (bell.take(), single.take()),
            (Dirt::Names(BTreeSet::from(["a.json".into()])), Dirt::None)
        );
        created("b.json");
        assert_eq!(single.take(), Dirt::Names(BTreeSet::from(["b.json".into()])));
        // A rename is told by each of its names; the pair of them says nothing new.
        let pair = Event::new(EventKind::Modify(ModifyKind::Name(RenameMode::Both)));
        bell.take();
        ring(&hub.bells, Ok(pair.add_path(root.path().join("tmp1")).add_path(root.path().join("a.json"))));
        assert_eq!(bell.take(), Dirt::None);
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

    #[tokio::test]
    async fn where_the_kernel_watches_nothing_changes_are_found_by_looking() {
        let hub = Hub::of(None, Duration::from_millis(5), Arc::default()).unwrap();
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("run/agent/Topic");
        let codec = Codec { encode: |bytes: &Vec<u8>| Ok(bytes.clone()), decode: |bytes| Ok(bytes.to_vec()) };
        let mut topic = crate::Subscription::new(Arc::clone(&hub), dir.clone(), codec);
        let rule = FileRule { limit_bytes: 9, order: false };
        let mut file = crate::FileWatch::new(hub, dir.join("a.json"), rule);
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
