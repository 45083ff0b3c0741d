//! One plain file as a level: a config or an order that a person or another program puts there.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::watch::{Bell, Dirt, Follows, Hub};
use crate::{Finding, disk};

/// Group and world may write.
const OTHERS_WRITE: u32 = 0o022;
/// Only the owner of a file may remove it from such a directory.
const STICKY: u32 = 0o1000;

/// What a followed file must be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRule {
    /// A longer one is refused.
    pub limit_bytes: u64,
    /// It orders something, so only root, or whoever runs this program, can have written it: owner, no write
    /// permission for others, no link, in a directory where others cannot put files.
    pub order: bool,
}

/// The file right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// There is none.
    Absent,
    /// Its content.
    Present(Vec<u8>),
    /// It breaks the rule, or cannot be read.
    Bad(Finding),
}

/// Who wrote a file and when, as the file itself tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Author {
    /// User who owns it; of a link, the link's.
    pub uid: u32,
    /// When its content was last written.
    pub written: SystemTime,
}

impl Author {
    fn of(seen: &Metadata) -> Option<Self> {
        seen.modified().ok().map(|written| Self { uid: seen.uid(), written })
    }
}

/// Follows one file for good.
pub struct FileWatch {
    hub: Arc<Hub>,
    bell: Arc<Bell>,
    path: PathBuf,
    rule: FileRule,
    last: Option<FileState>,
    author: Option<Author>,
}

impl FileWatch {
    pub(crate) fn new(hub: Arc<Hub>, path: PathBuf, rule: FileRule) -> Self {
        let follows = Follows::File(path.file_name().unwrap_or_default().to_owned());
        let bell = Hub::bell(path.parent().unwrap_or(Path::new("/")), follows);
        Self { hub, bell, path, rule, last: None, author: None }
    }

    /// The present state at the first call, then each state that differs from the last one. Dropping it loses
    /// nothing.
    pub async fn next(&mut self) -> FileState {
        loop {
            match self.bell.take() {
                Dirt::None => {
                    self.hub.wait(&self.bell).await;
                    continue;
                }
                Dirt::All => self.hub.attend(&self.bell),
                Dirt::Names(_) => {}
            }
            let (state, author) = self.look();
            if self.last.as_ref() != Some(&state) {
                self.author = author;
                self.last = Some(state.clone());
                return state;
            }
        }
    }

    /// Whose file it was that [`FileWatch::next`] told last; `None` without a file, or where it cannot be had.
    #[must_use]
    pub const fn author(&self) -> Option<Author> {
        self.author
    }

    fn look(&self) -> (FileState, Option<Author>) {
        let opened = match disk::open(&self.path) {
            Ok(Some(file)) => file,
            Ok(None) => return (FileState::Absent, None),
            Err(error) => {
                // A link is not opened, but its maker has tried to order something.
                let author = fs::symlink_metadata(&self.path).ok().as_ref().and_then(Author::of);
                return (self.bad(error.to_string()), author);
            }
        };
        let author = opened.metadata().ok().as_ref().and_then(Author::of);
        (self.read(&opened), author)
    }

    fn read(&self, opened: &File) -> FileState {
        if self.rule.order
            && let Err(reason) = self.may_order(opened)
        {
            return self.bad(reason);
        }
        match disk::read_open(opened, &self.path, self.rule.limit_bytes) {
            Ok(bytes) => FileState::Present(bytes),
            Err(error) => self.bad(error.to_string()),
        }
    }

    fn bad(&self, reason: String) -> FileState {
        FileState::Bad(Finding { path: self.path.clone(), reason })
    }

    fn may_order(&self, file: &File) -> Result<(), String> {
        let path = self.path.display();
        let seen = file.metadata().map_err(|error| error.to_string())?;
        let owner = seen.uid();
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(format!("it belongs to user {owner}, not to root; chown root {path}"));
        }
        if seen.mode() & OTHERS_WRITE != 0 {
            return Err(format!("others may write it (mode {:o}); chmod 600 {path}", seen.mode() & 0o777));
        }
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        let above = fs::metadata(dir).map_err(|error| error.to_string())?.mode();
        if above & OTHERS_WRITE != 0 && above & STICKY == 0 {
            return Err(format!("others may put files beside it; chmod 755 {}", dir.display()));
        }
        Ok(())
    }
}
