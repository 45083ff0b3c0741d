//! One plain file, followed: a config, or an order, which is refused if others could have written it.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tracing::warn;

use crate::error::chain;
use crate::watch::{DirFollower, Follows, Pending, WatchHub};
use crate::{BadFile, Error, disk, reach, trust};

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
    dir: DirFollower,
    path: PathBuf,
    rule: FileRule,
    last: Option<FileState>,
    author: Option<FileAuthor>,
}

impl FileState {
    /// One look at the file.
    pub fn now(path: &Path, rule: FileRule) -> Result<Self, Error> {
        reach::at(path, move |path| rule.look(path).map(|(state, _)| state))
    }
}

impl FileWatch {
    pub(crate) fn new(hub: Arc<WatchHub>, path: PathBuf, rule: FileRule) -> Self {
        let follows = Follows::File(path.file_name().unwrap_or_default().to_owned());
        let dir = DirFollower::new(hub, path.parent().unwrap_or(Path::new("/")), follows);
        Self { dir, path, rule, last: None, author: None }
    }

    /// The present state at the first call, then each different state. A failed read is no state: it is
    /// logged once and repeated after a pause. Dropping it loses nothing.
    pub async fn next(&mut self) -> FileState {
        loop {
            let attended = match self.dir.changed().await {
                Pending::None | Pending::All => {
                    let attend = self.dir.attend();
                    reach::at(&self.path, |_| attend())
                }
                Pending::Names(_) => Ok(()),
            };
            let rule = self.rule;
            let looked = reach::at(&self.path, move |path| rule.look(path));
            match attended.as_ref().err().or(looked.as_ref().err()) {
                None => self.dir.retry.worked(),
                Some(error) if self.dir.retry.failed() => {
                    let (path, error) = (self.path.display(), chain(error));
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

    /// The author of the file that [`FileWatch::next`] returned last, if known.
    pub const fn author(&self) -> Option<FileAuthor> {
        self.author
    }
}

impl FileRule {
    fn look(self, path: &Path) -> Result<(FileState, Option<FileAuthor>), Error> {
        match disk::open(path) {
            Ok(Some((file, length))) => {
                let author = file.metadata().ok().as_ref().and_then(FileAuthor::of);
                Ok((self.read(path, &file, length)?, author))
            }
            Ok(None) => Ok((FileState::Absent, None)),
            Err(error) if error.is_refusal() || self.is_kept_from(&error) => {
                // A link is not opened, but its maker tried to order something.
                let author = fs::symlink_metadata(path).ok().as_ref().and_then(FileAuthor::of);
                Ok((bad(path, error.to_string()), author))
            }
            Err(error) => Err(error),
        }
    }

    /// An order that the agent may not open is no order.
    fn is_kept_from(self, error: &Error) -> bool {
        self.order
            && matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    fn read(self, path: &Path, opened: &File, length: u64) -> Result<FileState, Error> {
        if self.order
            && let Some(reason) = may_not_order(path, opened).map_err(Error::io("look at", path))?
        {
            return Ok(bad(path, reason));
        }
        match disk::read_open(opened, length, path, self.limit_bytes) {
            Ok(bytes) => Ok(FileState::Present(bytes)),
            Err(error) if error.is_refusal() => Ok(bad(path, error.to_string())),
            Err(error) => Err(error),
        }
    }
}

fn bad(path: &Path, reason: String) -> FileState {
    FileState::Bad(BadFile { path: path.to_owned(), reason })
}

/// Why the file may not order anything; `None` when it may.
fn may_not_order(path: &Path, file: &File) -> io::Result<Option<String>> {
    let (shown, seen) = (path.display(), file.metadata()?);
    if let Some(owner) = trust::foreign_owner(&seen) {
        return Ok(Some(format!("it belongs to user {owner}, not to root; chown root {shown}")));
    }
    if trust::others_may_write(&seen) {
        let mode = seen.mode() & 0o777;
        return Ok(Some(format!("others may write it (mode {mode:o}); chmod 600 {shown}")));
    }
    // A user who may write in the parent of its folder may replace the folder.
    for dir in path.ancestors().skip(1).take(2) {
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
