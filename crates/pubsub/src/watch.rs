//! One watcher thread for all followed directories of a process, and the bells that it rings.
//!
//! An event only says that something may have changed; whoever hears the bell reads the files. Our own reading
//! rings no bell: opening and closing are not listened to.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tracing::warn;

use crate::Error;

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

/// Rung when a followed directory may have changed.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The directory whose files are followed.
    dir: PathBuf,
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

/// The watcher and the bells that hang on each watched directory.
#[derive(Debug)]
pub(crate) struct Hub {
    watcher: Mutex<RecommendedWatcher>,
    bells: Arc<Bells>,
}

type Bells = Mutex<HashMap<PathBuf, Vec<Weak<Bell>>>>;

impl Hub {
    pub(crate) fn open() -> Result<Arc<Self>, Error> {
        let bells: Arc<Bells> = Arc::default();
        let heard = Arc::clone(&bells);
        let watcher = notify::recommended_watcher(move |event| ring(&heard, event))
            .map_err(|error| Error::io("watch files under", "/")(io_error(error)))?;
        Ok(Arc::new(Self { watcher: Mutex::new(watcher), bells }))
    }

    /// A bell for the directory `dir`, which need not exist.
    pub(crate) fn bell(dir: &Path) -> Arc<Bell> {
        Arc::new(Bell { dir: dir.to_owned(), dirt: Mutex::new(Dirt::All), rung: Notify::new() })
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
        match lock(&self.watcher).watch(dir, RecursiveMode::NonRecursive) {
            Ok(()) => true,
            Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => false,
            Err(error) => {
                warn!(path = %dir.display(), %error, "cannot watch a directory; raise fs.inotify.max_user_watches");
                true
            }
        }
    }
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
        EventKind::Access(_) => return,
        EventKind::Any
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
                bell.ring(name.to_owned());
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

    #[test]
    fn an_overflow_makes_everyone_read_again() {
        let hub = Hub::open().unwrap();
        let root = tempfile::tempdir().unwrap();
        let bell = Hub::bell(root.path());
        hub.attend(&bell);
        assert_eq!(bell.take(), Dirt::All);
        assert_eq!(bell.take(), Dirt::None);
        ring(&hub.bells, Ok(Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan)));
        assert_eq!(bell.take(), Dirt::All);
    }

    #[test]
    fn our_own_reading_rings_no_bell() {
        let hub = Hub::open().unwrap();
        let root = tempfile::tempdir().unwrap();
        let bell = Hub::bell(root.path());
        hub.attend(&bell);
        bell.take();
        let access = EventKind::Access(notify::event::AccessKind::Any);
        ring(&hub.bells, Ok(Event::new(access).add_path(root.path().join("a.json"))));
        assert_eq!(bell.take(), Dirt::None);
        ring(&hub.bells, Ok(Event::new(EventKind::Any).add_path(root.path().join("a.json"))));
        assert_eq!(bell.take(), Dirt::Names(BTreeSet::from(["a.json".into()])));
    }

    #[test]
    fn very_many_names_become_one_full_read() {
        let bell = Hub::bell(Path::new("/x"));
        bell.take();
        for number in 0..=MOST_NAMES {
            bell.ring(format!("{number}").into());
        }
        assert_eq!(bell.take(), Dirt::All);
    }
}
