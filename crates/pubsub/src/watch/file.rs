//! One plain file, followed: a config, or an order, which is refused if others could have written it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tracing::warn;

use crate::error::chain;
use crate::watch::{DirNotifier, Follows, Pending, WatchHub};
use crate::{BadFile, Error, Retry, disk, reach, trust};

/// Only the owner of a file may remove it from such a directory.
const STICKY: u32 = 0o1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRule {
    pub limit_bytes: u64,
    /// It orders something, so only root or the user of this program may have written it: owner, no write
    /// permission for others, no link, in a directory where others cannot put files.
    pub order: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    Absent,
    Present(Vec<u8>),
    /// It breaks the rule, or is an order and may not be opened.
    Bad(BadFile),
}

/// From the file's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAuthor {
    /// Owner; of a link, the link's.
    pub uid: u32,
    pub written: SystemTime,
    pub inode: u64,
}

impl FileAuthor {
    fn of(seen: &Metadata) -> Option<Self> {
        seen.modified().ok().map(|written| Self { uid: seen.uid(), written, inode: seen.ino() })
    }
}

pub struct FileWatch {
    hub: Arc<WatchHub>,
    bell: Arc<DirNotifier>,
    place: WatchedPath,
    last: Option<FileState>,
    author: Option<FileAuthor>,
    retry: Retry,
}

#[derive(Clone)]
struct WatchedPath {
    path: PathBuf,
    rule: FileRule,
}

impl FileState {
    /// One look at the file.
    pub fn now(path: &Path, rule: FileRule) -> Result<Self, Error> {
        let place = WatchedPath { path: path.to_owned(), rule };
        reach::at(path, move || place.look().map(|(state, _)| state))
    }
}

impl FileWatch {
    pub(crate) fn new(hub: Arc<WatchHub>, path: PathBuf, rule: FileRule) -> Self {
        let follows = Follows::File(path.file_name().unwrap_or_default().to_owned());
        let bell = WatchHub::bell(path.parent().unwrap_or(Path::new("/")), follows);
        let place = WatchedPath { path, rule };
        Self { hub, bell, place, last: None, author: None, retry: Retry::default() }
    }

    /// The present state at the first call, then each different state. A failed read is no state: it is
    /// logged once and repeated after a pause. Dropping it loses nothing.
    pub async fn next(&mut self) -> FileState {
        loop {
            let attended = match self.bell.take() {
                Pending::None => tokio::select! {
                    biased;
                    () = self.hub.wait(&self.bell) => continue,
                    () = self.retry.due() => self.attend(),
                },
                Pending::All => self.attend(),
                Pending::Names(_) => Ok(()),
            };
            let place = self.place.clone();
            let looked = reach::at(&self.place.path, move || place.look());
            match attended.as_ref().err().or(looked.as_ref().err()) {
                None => self.retry.worked(),
                Some(error) if self.retry.failed() => {
                    let (path, error) = (self.place.path.display(), chain(error));
                    warn!(%path, error, "cannot read a file, retrying; what it said before counts until then");
                }
                Some(_) => {}
            }
            if let Ok((state, author)) = looked
                && self.last.as_ref() != Some(&state)
            {
                self.author = author;
                self.last = Some(state.clone());
                return state;
            }
        }
    }

    fn attend(&self) -> Result<(), Error> {
        let (hub, bell) = (Arc::clone(&self.hub), Arc::clone(&self.bell));
        reach::at(&self.place.path, move || hub.attend(&bell))
    }

    /// The author of the file that [`FileWatch::next`] returned last, if known.
    pub const fn author(&self) -> Option<FileAuthor> {
        self.author
    }
}

impl WatchedPath {
    fn look(&self) -> Result<(FileState, Option<FileAuthor>), Error> {
        match disk::open(&self.path) {
            Ok(Some(file)) => {
                let author = file.metadata().ok().as_ref().and_then(FileAuthor::of);
                Ok((self.read(&file)?, author))
            }
            Ok(None) => Ok((FileState::Absent, None)),
            Err(error) if error.is_refusal() || self.is_kept_from(&error) => {
                // A link is not opened, but its maker tried to order something.
                let author = fs::symlink_metadata(&self.path).ok().as_ref().and_then(FileAuthor::of);
                Ok((self.bad(error.to_string()), author))
            }
            Err(error) => Err(error),
        }
    }

    /// An order that the agent may not open is no order.
    fn is_kept_from(&self, error: &Error) -> bool {
        self.rule.order
            && matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    fn read(&self, opened: &File) -> Result<FileState, Error> {
        if self.rule.order
            && let Some(reason) = self.may_not_order(opened).map_err(Error::io("look at", &self.path))?
        {
            return Ok(self.bad(reason));
        }
        match disk::read_open(opened, &self.path, self.rule.limit_bytes) {
            Ok(bytes) => Ok(FileState::Present(bytes)),
            Err(error) if error.is_refusal() => Ok(self.bad(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn bad(&self, reason: String) -> FileState {
        FileState::Bad(BadFile { path: self.path.clone(), reason })
    }

    /// Why the file may not order anything; `None` when it may.
    fn may_not_order(&self, file: &File) -> io::Result<Option<String>> {
        let path = self.path.display();
        let seen = file.metadata()?;
        if let Some(owner) = trust::foreign_owner(&seen) {
            return Ok(Some(format!("it belongs to user {owner}, not to root; chown root {path}")));
        }
        if trust::others_may_write(&seen) {
            let mode = seen.mode() & 0o777;
            return Ok(Some(format!("others may write it (mode {mode:o}); chmod 600 {path}")));
        }
        // A user who may write in the parent of its folder may replace the folder.
        for dir in self.path.ancestors().skip(1).take(2) {
            let above = fs::metadata(dir)?;
            if trust::others_may_write(&above) && above.mode() & STICKY == 0 {
                return Ok(Some(format!("others may put files beside it; chmod 755 {}", dir.display())));
            }
            if let Some(owner) = trust::foreign_owner(&above) {
                let dir = dir.display();
                return Ok(Some(format!("{dir} belongs to user {owner}, not to root; chown root {dir}")));
            }
        }
        Ok(None)
    }
}
