//! One publisher a topic: a lock beside its directory, `<topic>.lock`, freed by the kernel when its process ends.
//!
//! Beside it, as the directory itself may be removed and made anew, and readers need not know the file.

use std::fs::File;
use std::path::{Path, PathBuf};

use fs2::FileExt as _;
use rustix::fs::{Mode, OFlags};

use crate::Error;
use crate::store;

/// Held as long as the topic is published.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: File,
}

impl Lock {
    /// Takes the lock of the topic in `dir`.
    pub(crate) fn take(topic: &str, dir: &Path) -> Result<Self, Error> {
        let mut path = dir.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        if let Some(parent) = path.parent() {
            store::make_dirs(parent)?;
        }
        // Not open for writing: the file system can still be made read-only under it.
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|error| Error::io("open lock", &path)(error.into()))?;
        match file.try_lock_exclusive() {
            Ok(()) => Ok(Self { _held: file }),
            Err(error) if error.kind() == fs2::lock_contended_error().kind() => {
                Err(Error::Taken { topic: topic.to_owned(), lock: path })
            }
            Err(error) => Err(Error::io("lock", path)(error)),
        }
    }
}
