//! The directory of one topic, as its publisher holds it: every change is on disk before subscribers get it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Dir, Disk};
use crate::store::{self, TempFileOwner};
use crate::{Error, FILE_LIMIT_BYTES};

/// Which directory a change went to: the former one, or one that replaced it and lacks its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum DirChange {
    Same,
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Former {
    Kept,
    Dropped,
}

/// Has one publisher.
#[derive(Debug)]
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The topmost directory that a publisher may have made.
    top: PathBuf,
    held: Box<dyn Dir>,
    /// A name changed since the last sync of the directory.
    behind: bool,
}

impl Folder {
    /// Makes missing directories, removes the litter of an interrupted publisher, and syncs what that one
    /// could not.
    pub(crate) fn open(disk: Arc<dyn Disk>, root: &Path, path: PathBuf) -> Result<Self, Error> {
        // The root too has a name that a publisher may have made.
        let top = root.parent().unwrap_or(root).to_owned();
        disk.make_dirs(&path)?;
        let held = disk.open_dir(&path).map_err(Error::io("open", &path))?;
        let mut folder = Self { disk, path, top, held, behind: true };
        for name in folder.names()?.iter().filter(|name| store::is_temp(name)) {
            folder.disk.take_away(&folder.path.join(name))?;
        }
        folder.hold()?;
        Ok(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn names(&self) -> Result<Vec<OsString>, Error> {
        self.disk.names(&self.path).map_err(Error::io("list", &self.path))
    }

    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.disk.read(&self.path(name), FILE_LIMIT_BYTES)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.disk.size_bytes(&self.path(name)).is_some()
    }

    /// A backup that cannot be made is no error.
    ///
    /// Errors: the step that failed. When it was the last one, readers may see the new content already.
    pub(crate) fn replace(&mut self, name: &str, bytes: &[u8], former: Former) -> Result<DirChange, Error> {
        let path = self.path(name);
        let mut place = DirChange::Same;
        let temp = match self.disk.write_beside(&self.path, bytes, TempFileOwner::Topic) {
            Err(error) if store::is_missing(&error) => {
                self.disk.make_dirs(&self.path)?;
                place = DirChange::New;
                self.disk.write_beside(&self.path, bytes, TempFileOwner::Topic)?
            }
            written => written?,
        };
        let backup = match former {
            Former::Kept => store::backup(name).map(|backup| self.path(&backup)),
            Former::Dropped => None,
        };
        // A hard link to the former content, which needs no writing; it becomes the backup only after the
        // file has been replaced, so that no content ever has both names.
        let kept = backup.and_then(|backup| match self.disk.second_name(&path) {
            Ok(second) => Some((second?, backup)),
            Err(error) => warn_backup(&path, &error),
        });
        self.behind = true;
        if let Err(error) = self.disk.put(&temp.path, &path) {
            if let Some((second, _)) = &kept {
                self.disk.discard(second);
            }
            return Err(error);
        }
        if let Some((second, backup)) = kept
            && let Err(error) = self.disk.put(&second, &backup)
        {
            warn_backup::<()>(&path, &error);
        }
        if self.sync()? == DirChange::New {
            place = DirChange::New;
        }
        Ok(place)
    }

    /// Missing names are no error.
    pub(crate) fn remove<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<DirChange, Error> {
        for name in names {
            if self.disk.take_away(&self.path(name))? {
                self.behind = true;
            }
        }
        if self.behind || !self.held.is_at(&self.path) { self.sync() } else { Ok(DirChange::Same) }
    }

    /// Syncs the directory that is at the path now.
    fn sync(&mut self) -> Result<DirChange, Error> {
        if self.held.is_at(&self.path) {
            self.held.sync().map_err(Error::io("bring to disk", &self.path))?;
            self.behind = false;
            return Ok(DirChange::Same);
        }
        self.disk.make_dirs(&self.path)?;
        self.hold()?;
        Ok(DirChange::New)
    }

    /// Opens the directory that is at the path now, once it and its parents are on disk.
    fn hold(&mut self) -> Result<(), Error> {
        let held = self.disk.open_dir(&self.path).map_err(Error::io("open", &self.path))?;
        held.sync().map_err(Error::io("bring to disk", &self.path))?;
        for above in self.path.ancestors().skip(1).take_while(|above| above.starts_with(&self.top)) {
            self.disk.sync_dir(above)?;
        }
        self.held = held;
        self.behind = false;
        Ok(())
    }
}

fn warn_backup<T>(path: &Path, error: &Error) -> Option<T> {
    tracing::warn!(path = %path.display(), %error, "cannot keep a backup");
    None
}
