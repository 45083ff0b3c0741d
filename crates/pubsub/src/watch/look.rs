//! Polls directories every two seconds where inotify is exhausted, as on machines with many containers.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use notify::{Config, EventHandler, PollWatcher, RecursiveMode, Watcher as _};

use super::kernel::WatchPurpose;
use crate::reach::lock;

pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The polled directories and their threads, started with the first directory.
#[derive(Debug)]
pub(super) struct DirPoller {
    every: Duration,
    looking: Mutex<Looking>,
}

/// Followed files are read at each poll, as two versions within one second have the same time. On the way
/// only names matter, and files, such as images in `/persist`, are not read.
#[derive(Debug, Default)]
struct Looking {
    contents: LookedAt,
    names: LookedAt,
}

#[derive(Debug, Default)]
struct LookedAt {
    watcher: Option<PollWatcher>,
    dirs: BTreeSet<PathBuf>,
}

impl DirPoller {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, looking: Mutex::default() }
    }

    /// True when `dir` was not polled before.
    pub(super) fn watch(
        &self,
        dir: &Path,
        why: WatchPurpose,
        listener: impl EventHandler,
    ) -> io::Result<bool> {
        let Looking { contents, names } = &mut *lock(&self.looking);
        let read = why == WatchPurpose::Files;
        // Once only: a restart would hide changes since the last poll from others.
        if contents.dirs.contains(dir) || !read && names.dirs.contains(dir) {
            return Ok(false);
        }
        let LookedAt { watcher, dirs } = if read { contents } else { names };
        let watcher = match watcher {
            Some(watcher) => watcher,
            none => {
                let config = Config::default().with_poll_interval(self.every).with_compare_contents(read);
                // A dangling link would fail at every poll.
                let config = config.with_follow_symlinks(false);
                none.insert(PollWatcher::new(listener, config).map_err(io_error)?)
            }
        };
        watcher.watch(dir, RecursiveMode::NonRecursive).map_err(io_error)?;
        Ok(dirs.insert(dir.to_owned()))
    }

    pub(super) fn forget(&self, dir: &Path) {
        let looking = &mut *lock(&self.looking);
        for LookedAt { watcher, dirs } in [&mut looking.contents, &mut looking.names] {
            if dirs.remove(dir)
                && let Some(watcher) = watcher
                && let Err(error) = watcher.unwatch(dir)
            {
                tracing::trace!(path = %dir.display(), %error, "nothing to look at any more");
            }
        }
    }
}

fn io_error(error: notify::Error) -> io::Error {
    match error.kind {
        notify::ErrorKind::Io(cause) => cause,
        notify::ErrorKind::PathNotFound => io::ErrorKind::NotFound.into(),
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_)
        | notify::ErrorKind::MaxFilesWatch => io::Error::other(error),
    }
}
