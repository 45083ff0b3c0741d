//! The seam below the store: one method for one system call, so that tests can cut the power after any of them.
//!
//! Not here: the order of calls (`store`). What a call leaves behind until it is on disk: `disk/tests/model.rs`.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, reach};

#[cfg(test)]
mod tests;

const NO_FILE: &str = "it is no regular file; put a regular file there";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadCall {
    Open,
    LookAt,
    Read,
    List,
}

/// The failure of a call that a test has planted.
#[cfg(test)]
use tests::planted::failure as planted;

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "tests plant failures here")]
const fn planted(_: ReadCall) -> Result<(), Errno> {
    Ok(())
}

pub(crate) trait Disk: Debug + Send + Sync {
    /// Mode 600; an error when the name exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>>;
    /// A second name for a file. The name must not exist.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a temporary file, unless a process has claimed it.
    fn remove_unclaimed(&self, path: &Path);
    /// One directory, mode 700; an error when the name exists.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn Dir>>;
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Its length; `None` when there is no regular file.
    fn size_bytes(&self, path: &Path) -> Option<u64>;
    /// The content of a regular file, see [`crate::store::read`].
    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, Error>;
}

pub(crate) trait Draft {
    /// Writes the beginning of `bytes`; returns its length.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn sync(&mut self) -> io::Result<()>;
    /// Keeps other processes from removing the file as litter; false when one has done so already.
    fn claim(&mut self) -> io::Result<bool>;
}

/// An open directory, so that its inode number cannot become that of another one.
pub(crate) trait Dir: Debug + Send + Sync {
    fn sync(&self) -> io::Result<()>;
    fn is_at(&self, path: &Path) -> bool;
}

#[derive(Debug)]
pub(crate) struct HostDisk;

impl Disk for HostDisk {
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
        if let Ok(Some((file, _))) = open(path)
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
        first_names(dir, usize::MAX)
    }

    fn size_bytes(&self, path: &Path) -> Option<u64> {
        fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|seen| seen.len())
    }

    fn read(&self, path: &Path, limit_bytes: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some((file, length)) = open(path)? else { return Ok(None) };
        read_open(&file, length, path, limit_bytes).map(Some)
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
            // A file system that cannot sync, for example a read-only one.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|seen| (seen.dev(), seen.ino()) == self.number)
    }
}

fn first_names(dir: &Path, most: usize) -> io::Result<Vec<OsString>> {
    planted(ReadCall::List)?;
    fs::read_dir(dir)?.take(most).map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// At most so many names; none where there is no directory.
pub(crate) fn names(dir: &Path, most: usize) -> Result<Vec<OsString>, Error> {
    match first_names(dir, most) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::io("list", dir)),
    }
}

/// Opens a regular file without following a link and without waiting for the other end of a pipe. Returns its length
/// too.
pub(crate) fn open(path: &Path) -> Result<Option<(File, u64)>, Error> {
    open_in(CWD, path, OFlags::RDONLY, &|| path.to_owned())
}

/// The same for appending; a missing file is made.
pub(crate) fn open_end(path: &Path) -> Result<(File, u64), Error> {
    let how = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
    let opened = open_in(CWD, path, how, &|| path.to_owned())?;
    opened.ok_or_else(|| Error::io("open", path)(Errno::NOENT.into()))
}

/// The same for `name` in `dir`; `path` is for errors.
fn open_in(
    dir: impl AsFd,
    name: impl AsRef<Path>,
    how: OFlags,
    path: &dyn Fn() -> PathBuf,
) -> Result<Option<(File, u64)>, Error> {
    let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |reason: &str| Error::Refused { path: path(), reason: reason.to_owned() };
    let opened = planted(ReadCall::Open);
    let file =
        match opened.and_then(|()| rustix::fs::openat(dir, name.as_ref(), flags, Mode::RUSR | Mode::WUSR)) {
            Ok(file) => File::from(file),
            // A path through something that is no directory leads to no file.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => return Err(refuse("it is a link; put a regular file there")),
            // A socket, or a device without a driver.
            Err(Errno::NXIO | Errno::NODEV) => return Err(refuse(NO_FILE)),
            Err(error) => return Err(Error::io("open", path())(error.into())),
        };
    let seen = planted(ReadCall::LookAt).and_then(|()| rustix::fs::fstat(&file));
    let seen = seen.map_err(|error| Error::io("look at", path())(error.into()))?;
    if FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile {
        Ok(Some((file, u64::try_from(seen.st_size).unwrap_or_default())))
    } else {
        Err(refuse(NO_FILE))
    }
}

pub(crate) fn read_open(file: &File, length: u64, path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    fill(file, length, limit_bytes, &mut bytes, &|| path.to_owned())?;
    Ok(bytes)
}

/// The whole lines of a file that begin behind `from`.
pub(crate) fn last_lines(mut file: &File, from: u64) -> io::Result<Vec<u8>> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    let cut = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Ok(bytes.split_off(cut))
}

/// Puts the content of a regular file into `bytes`, which it clears first.
fn fill(
    file: &File,
    length: u64,
    limit_bytes: u64,
    bytes: &mut Vec<u8>,
    path: &dyn Fn() -> PathBuf,
) -> Result<(), Error> {
    let too_long =
        || Error::Refused { path: path(), reason: format!("it is longer than {limit_bytes} bytes") };
    if length > limit_bytes {
        return Err(too_long());
    }
    bytes.clear();
    // One byte more: a read that fills less has met the end, and needs no second one.
    bytes.reserve(usize::try_from(length).unwrap_or_default().saturating_add(1));
    loop {
        let into = rustix::buffer::spare_capacity(bytes);
        match planted(ReadCall::Read).and_then(|()| rustix::io::read(file, into)) {
            Ok(0) => return Ok(()),
            Ok(_) if bytes.len() as u64 > limit_bytes => return Err(too_long()),
            Ok(_) if bytes.len() < bytes.capacity() => return Ok(()),
            // It grows while it is read.
            Ok(_) => bytes.reserve(bytes.len()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("read", path())(error.into())),
        }
    }
}

pub(crate) struct DirReader<'a> {
    path: &'a Path,
    /// `None` for names that are whole paths.
    held: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl<'a> DirReader<'a> {
    /// Opens the directory once for all reads; where that fails, each file is read by its path.
    pub(crate) fn hold(path: &'a Path) -> Self {
        if reach::is_elsewhere(path) {
            return Self::pass(path);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self { path, held: rustix::fs::open(path, flags, Mode::empty()).ok(), bytes: Vec::new() }
    }

    /// For a single file.
    pub(crate) fn pass(path: &'a Path) -> Self {
        Self { path, held: None, bytes: Vec::new() }
    }

    pub(crate) fn read(&mut self, name: &OsStr, limit_bytes: u64) -> Result<Option<&[u8]>, Error> {
        if reach::is_elsewhere(self.path) {
            let path = self.path.join(name);
            let read = reach::at(&path, move |path| HostDisk.read(path, limit_bytes))?;
            return Ok(read.map(|bytes| {
                self.bytes = bytes;
                &*self.bytes
            }));
        }
        let path = || self.path.join(name);
        let opened = match &self.held {
            Some(held) => open_in(held, name, OFlags::RDONLY, &path)?,
            None => open(&path())?,
        };
        let Some((file, length)) = opened else { return Ok(None) };
        fill(&file, length, limit_bytes, &mut self.bytes, &path)?;
        Ok(Some(&self.bytes))
    }
}

fn bits(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}
