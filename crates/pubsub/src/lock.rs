//! One publisher a topic: a lock beside its directory, `<topic>.lock`, freed by the kernel when its process ends.
//!
//! Not inside, because the directory may be removed and made again.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fs2::FileExt;
use rustix::fs::{Mode, OFlags};

use crate::watch::number;
use crate::{Error, store};

/// Tries to lock while other processes hold the lock for a moment to test it.
const LOOKERS: usize = 2000;
/// Pause between tries: on a busy machine such a process may wait for the processor while it holds the lock.
const LOOK: Duration = Duration::from_millis(1);

/// Held as long as the topic is published.
#[derive(Debug)]
pub(crate) struct Lock {
    topic: String,
    dir: PathBuf,
    held: Mutex<HeldFile>,
}

#[derive(Debug)]
struct HeldFile(File);

impl Lock {
    pub(crate) fn take(topic: &str, dir: &Path) -> Result<Self, Error> {
        let held = Mutex::new(HeldFile::take(topic, dir)?);
        Ok(Self { topic: topic.to_owned(), dir: dir.to_owned(), held })
    }

    /// Takes the lock again where another file is in its place, or none: the directory was replaced or mounted over.
    /// Errors: another live process has it, or it cannot be made.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let path = beside(&self.dir);
        let locked = held.0.metadata().map_err(Error::io("look at", &path))?;
        if number(&path) != Some((locked.dev(), locked.ino())) {
            *held = HeldFile::take(&self.topic, &self.dir)?;
        }
        Ok(())
    }
}

impl HeldFile {
    fn take(topic: &str, dir: &Path) -> Result<Self, Error> {
        let path = beside(dir);
        if let Some(parent) = path.parent() {
            store::make_dirs(parent)?;
        }
        let file = open(&path, OFlags::CREATE).map_err(Error::io("open lock", &path))?;
        for _ in 0..LOOKERS {
            if locked(file.try_lock_exclusive()).map_err(Error::io("lock", &path))? {
                return Ok(Self(file));
            }
            if !locked(FileExt::try_lock_shared(&file)).map_err(Error::io("lock", &path))? {
                break;
            }
            // Not a publisher: a process that tests the lock.
            FileExt::unlock(&file).map_err(Error::io("unlock", &path))?;
            std::thread::sleep(LOOK);
        }
        Err(Error::Taken { topic: topic.to_owned(), lock: path })
    }
}

/// Closing the file is not enough: a starting child process holds a copy of it until it runs its program.
impl Drop for HeldFile {
    fn drop(&mut self) {
        if let Err(error) = FileExt::unlock(&self.0) {
            tracing::debug!(%error, "a lock is freed a moment later, when its last copy is closed");
        }
    }
}

/// Whether a live process publishes the topic in `dir`, in any PID namespace; `None` where the lock never
/// existed.
pub(crate) fn is_held(dir: &Path) -> Result<Option<bool>, Error> {
    let path = beside(dir);
    match open(&path, OFlags::empty()) {
        Ok(file) => {
            let free = locked(FileExt::try_lock_shared(&file)).map_err(Error::io("lock", &path))?;
            drop(free.then_some(HeldFile(file)));
            Ok(Some(!free))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(Error::io("open lock", path)(error)),
    }
}

fn beside(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Not opened for writing: the file system can still be remounted read-only.
fn open(path: &Path, create: OFlags) -> io::Result<File> {
    let flags = create | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from).map_err(Into::into)
}

/// False when another process holds it.
fn locked(tried: io::Result<()>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == fs2::lock_contended_error().kind() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k8_a_topic_has_a_publisher_as_long_as_its_lock_is_held() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("run/zedkube/NodeDrainStatus");
        assert_eq!(is_held(&dir).unwrap(), None);
        let lock = Lock::take("t", &dir).unwrap();
        assert_eq!(is_held(&dir).unwrap(), Some(true));
        assert!(matches!(Lock::take("t", &dir), Err(Error::Taken { .. })));
        drop(lock);
        assert_eq!(is_held(&dir).unwrap(), Some(false));
    }

    #[test]
    fn a_copy_of_its_file_in_a_child_that_is_being_started_keeps_no_lock() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t");
        let lock = Lock::take("t", &dir).unwrap();
        let _copy = lock.held.lock().unwrap().0.try_clone().unwrap();
        drop(lock);
        assert_eq!(is_held(&dir).unwrap(), Some(false));
        drop(Lock::take("t", &dir).unwrap());
    }

    #[test]
    fn whoever_looks_at_a_lock_keeps_no_publisher_from_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t");
        drop(Lock::take("t", &dir).unwrap());
        std::thread::scope(|scope| {
            let lookers = scope.spawn(|| (0..20_000).for_each(|_| assert!(is_held(&dir).unwrap().is_some())));
            while !lookers.is_finished() {
                drop(Lock::take("t", &dir).unwrap());
            }
        });
    }
}
