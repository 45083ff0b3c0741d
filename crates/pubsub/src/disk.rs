//! The seam below the store: one method for one system call, so that tests can cut the power after any of them.
//!
//! Not here: any order of calls; that is `store`. What a call leaves behind until it is brought to disk is told
//! by the model in `disk/model.rs`.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::Error;

#[cfg(test)]
mod cuts;
#[cfg(test)]
pub(crate) mod model;

/// Where files lie.
pub(crate) trait Disk: Debug + Send + Sync {
    /// A new empty file, open to the owner only; an error when the name is taken.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>>;
    /// A second name for a file. The name must be free.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Another name for a file, in place of the file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a name away.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Takes the name of a temporary file away, unless a process has claimed it.
    fn remove_unclaimed(&self, path: &Path);
    /// One directory, open to the owner only; an error when the name is taken.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Holds a directory.
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn Dir>>;
    /// All names in a directory.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// The length of the regular file at `path`; `None` when there is none.
    fn size_bytes(&self, path: &Path) -> Option<u64>;
    /// The content of a regular file, see [`crate::store::read`].
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, Error>;
}

/// A file that is being written.
pub(crate) trait Draft {
    /// Writes the beginning of `bytes` and says how much of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Brings what was written to disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Keeps other processes from taking the file for litter; false when one has done so already.
    fn claim(&mut self) -> io::Result<bool>;
}

/// A directory that is held, so that its number cannot become that of another one.
pub(crate) trait Dir: Debug + Send + Sync {
    /// Brings its names to disk.
    fn sync(&self) -> io::Result<()>;
    /// Whether it is still the directory at `path`.
    fn is_at(&self, path: &Path) -> bool;
}

/// The file systems of this machine.
#[derive(Debug)]
pub(crate) struct Machine;

impl Disk for Machine {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_unclaimed(&self, path: &Path) {
        if let Ok(Some(file)) = open(path)
            && file.try_lock().is_ok()
            && let Err(error) = fs::remove_file(path)
        {
            tracing::debug!(path = %path.display(), %error, "cannot remove what an interrupted write left");
        }
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(dir)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn Dir>> {
        let held = File::options().read(true).custom_flags(bits(OFlags::DIRECTORY)).open(dir)?;
        let seen = held.metadata()?;
        Ok(Box::new(HeldDir { number: (seen.dev(), seen.ino()), held }))
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn size_bytes(&self, path: &Path) -> Option<u64> {
        fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|seen| seen.len())
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = open(path)? else { return Ok(None) };
        read_open(file, path, limit_bytes).map(Some)
    }
}

impl Draft for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn claim(&mut self) -> io::Result<bool> {
        self.lock()?;
        Ok(self.metadata()?.nlink() > 0)
    }
}

#[derive(Debug)]
struct HeldDir {
    held: File,
    /// File system and number in it.
    number: (u64, u64),
}

impl Dir for HeldDir {
    fn sync(&self) -> io::Result<()> {
        match self.held.sync_all() {
            // A file system without anything to bring to disk, as one that can only be read.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|seen| (seen.dev(), seen.ino()) == self.number)
    }
}

/// Opens a regular file without following a link and without waiting for the other end of a pipe.
pub(crate) fn open(path: &Path) -> Result<Option<File>, Error> {
    let flags = bits(OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC);
    let refuse = |reason: &str| Error::Refused { path: path.to_owned(), reason: reason.to_owned() };
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(refuse("it is a link; put a regular file there"));
        }
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    let kind = file.metadata().map_err(Error::io("look at", path))?;
    if kind.is_file() {
        Ok(Some(file))
    } else {
        Err(refuse("it is no regular file; put a regular file there"))
    }
}

/// The content of an open file, unless it is longer than `limit_bytes`.
pub(crate) fn read_open(file: File, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit_bytes) {
        let reason = format!("it is longer than {limit_bytes} bytes");
        return Err(Error::Refused { path: path.to_owned(), reason });
    }
    Ok(bytes)
}

fn bits(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}
