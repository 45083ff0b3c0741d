//! The one door to files: replaced whole or not at all, read within a limit, never through a link.
//!
//! Temporary file, fsync, rename, fsync of the directory: after a power cut the file holds the old or the new
//! content.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::disk::{self, Disk, Draft, HostDisk};
use crate::name::{BACKUP, NAME_LIMIT_BYTES};
use crate::reach::{self, lock};
use crate::{Error, FILE_LIMIT_BYTES};

/// Prefix of a file that is being written, as in the reference.
const TEMP: &str = "tmp";
/// Digits after it in names of ours; the reference has ten at most.
const TEMP_DIGITS: usize = 20;
static PROCESS: LazyLock<u32> = LazyLock::new(process::id);
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);
static SETTLED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Puts `bytes` at `path`. Missing directories are made with mode 700.
///
/// Errors: the step that failed. Until the last step, fsync of the directory, the file is unchanged; after
/// that readers may see either content until the next good write.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    reach::write(path, bytes, |path, bytes| replace_on(&HostDisk, &SETTLED, path, bytes))
}

pub(crate) fn replace_on(
    disk: &dyn Disk,
    settled: &Mutex<BTreeSet<PathBuf>>,
    path: &Path,
    bytes: &[u8],
) -> Result<(), Error> {
    let dir = parent(path);
    let written = beside(disk, settled, dir, bytes)?;
    disk.put(&written.path, path)?;
    // Held until here, so that no process removes the temporary file as litter.
    drop(written.claim);
    disk.sync_dir(dir)
}

/// Puts `bytes` at `path` unless a file exists; false when one did. Of several processes at the same time
/// exactly one succeeds.
///
/// Errors: the step that failed. Until the last step, fsync of the directory, `path` is unchanged.
pub fn create(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    reach::write(path, bytes, |path, bytes| {
        let (disk, dir): (&dyn Disk, _) = (&HostDisk, parent(path));
        let written = beside(disk, &SETTLED, dir, bytes)?;
        let linked = disk.link(&written.path, path);
        disk.take_away(&written.path)?;
        drop(written.claim);
        match linked {
            Ok(()) => disk.sync_dir(dir).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Error::io("create", path)(error)),
        }
    })
}

/// A temporary file with `bytes` in `dir`, which is made where it is missing.
fn beside(
    disk: &dyn Disk,
    settled: &Mutex<BTreeSet<PathBuf>>,
    dir: &Path,
    bytes: &[u8],
) -> Result<Written, Error> {
    settle(disk, settled, dir)?;
    match disk.write_beside(dir, bytes, TempFileOwner::Nobody) {
        // The directory was removed since.
        Err(error) if is_missing(&error) => {
            lock(settled).remove(dir);
            settle(disk, settled, dir)?;
            disk.write_beside(dir, bytes, TempFileOwner::Nobody)
        }
        written => written,
    }
}

/// Appends `bytes` to the regular file at `path`, which others may append to as well; a missing one is made.
/// A file longer than `limit` bytes is first cut to whole lines from its last `kept` bytes; where that fails
/// it stays whole.
///
/// Errors: it is a link or no regular file, or cannot be written. A power cut may leave a part of `bytes`.
pub fn append(path: &Path, bytes: &[u8], limit: u64, kept: u64) -> Result<(), Error> {
    reach::write(path, bytes, move |path, bytes| {
        let disk: &dyn Disk = &HostDisk;
        disk.make_dirs(parent(path))?;
        let (mut file, length) = disk::open_end(path)?;
        if length > limit
            && let Ok(mut all) = disk::last_lines(&file, length.saturating_sub(kept))
        {
            all.extend(bytes);
            if replace_on(disk, &SETTLED, path, &all).is_ok() {
                return Ok(());
            }
        }
        fill(&mut file, bytes).map_err(Error::io("append to", path))?;
        disk.sync_dir(parent(path))
    })
}

/// `None` when there is no file.
///
/// Errors: it is a link or no regular file, is longer than `limit` bytes, or cannot be read.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    reach::at(path, move |path| HostDisk.read(path, limit))
}

/// At most `limit` bytes from the start of the regular file at `path`, `None` when there is none: for foreign
/// files of any length.
///
/// Errors: it is a link or no regular file, or cannot be read.
pub fn read_start(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    reach::at(path, move |path| {
        let Some((file, _)) = disk::open(path)? else { return Ok(None) };
        read_most(file, limit).map(Some).map_err(Error::io("read", path))
    })
}

/// The last `most` bytes of such a file.
///
/// Errors: as [`read_start`].
pub fn read_end(path: &Path, most: u32) -> Result<Option<Vec<u8>>, Error> {
    reach::at(path, move |path| {
        let Some((mut file, length)) = disk::open(path)? else { return Ok(None) };
        file.seek(SeekFrom::Start(length.saturating_sub(most.into()))).map_err(Error::io("read", path))?;
        // It may grow while it is read.
        read_most(file, most.into()).map(Some).map_err(Error::io("read", path))
    })
}

fn read_most(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names in a directory, UTF-8 only, sorted; none where there is no directory.
///
/// Errors: it cannot be read, or has more than `most` names.
pub fn names(dir: &Path, most: usize) -> Result<Vec<String>, Error> {
    let names = disk::names(dir, most.saturating_add(1))?;
    if names.len() > most {
        let reason = format!("it has more than {most} names");
        return Err(Error::Refused { path: dir.to_owned(), reason });
    }
    let mut names: Vec<String> = names.into_iter().flat_map(OsString::into_string).collect();
    names.sort_unstable();
    Ok(names)
}

/// False when there was no file.
///
/// Errors: it cannot be removed, or its directory cannot be synced.
pub fn remove(path: &Path) -> Result<bool, Error> {
    reach::at(path, |path| remove_on(&HostDisk, path))
}

pub(crate) fn remove_on(disk: &dyn Disk, path: &Path) -> Result<bool, Error> {
    let gone = disk.take_away(path)?;
    match disk.sync_dir(parent(path)) {
        // Also when there was no file: an earlier removal may not be on disk yet.
        Err(error) if is_missing(&error) && !gone => Ok(false),
        done => done.map(|()| gone),
    }
}

/// Which process may remove a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TempFileOwner {
    /// The one that holds the lock of the topic, so none while it is written.
    Topic,
    /// Any process that writes there and finds it unclaimed.
    Nobody,
}

pub(crate) struct Written {
    pub(crate) path: PathBuf,
    /// Kept open while it is claimed.
    claim: Option<Box<dyn Draft>>,
}

/// Sequences of system calls that each leave whole files behind.
impl dyn Disk + '_ {
    pub(crate) fn write_beside(
        &self,
        dir: &Path,
        bytes: &[u8],
        owner: TempFileOwner,
    ) -> Result<Written, Error> {
        loop {
            let path = free_name(dir);
            let mut draft = match self.create(&path) {
                Ok(draft) => draft,
                // Left by a former process with the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(Error::io("create", path)(error)),
            };
            if owner == TempFileOwner::Nobody && !draft.claim().map_err(Error::io("lock", &path))? {
                continue;
            }
            if let Err(error) = fill(draft.as_mut(), bytes) {
                self.discard(&path);
                return Err(Error::io("write", path)(error));
            }
            // Closed before the rename, so that no watcher gets a close event under the new name.
            let claim = (owner == TempFileOwner::Nobody).then_some(draft);
            return Ok(Written { path, claim });
        }
    }

    pub(crate) fn put(&self, temp: &Path, path: &Path) -> Result<(), Error> {
        self.rename(temp, path).map_err(|error| {
            self.discard(temp);
            Error::io("rename to", path)(error)
        })
    }

    /// A temporary hard link to the content of `path`; `None` when it has none.
    pub(crate) fn second_name(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        if self.size_bytes(path).is_none_or(|size| size == 0) {
            return Ok(None);
        }
        loop {
            let temp = free_name(parent(path));
            match self.link(path, &temp) {
                Ok(()) => return Ok(Some(temp)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // The file system has no hard links.
                Err(_) => {
                    let Some(bytes) = self.read(path, FILE_LIMIT_BYTES)? else { return Ok(None) };
                    return self
                        .write_beside(parent(path), &bytes, TempFileOwner::Topic)
                        .map(|copy| Some(copy.path));
                }
            }
        }
    }

    /// False when there was none. The directory is not synced.
    pub(crate) fn take_away(&self, path: &Path) -> Result<bool, Error> {
        match self.remove(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("remove", path)(error)),
        }
    }

    /// Makes `dir` and its missing parents with mode 700, and syncs what it made.
    pub(crate) fn make_dirs(&self, dir: &Path) -> Result<(), Error> {
        match self.make_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir.parent().is_some() => {
                self.make_dirs(parent(dir))?;
                match self.make_dir(dir) {
                    // Another process was faster.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made.map_err(Error::io("make", dir))?,
                }
            }
            made => made.map_err(Error::io("make", dir))?,
        }
        self.sync_dir(parent(dir))
    }

    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        self.open_dir(dir).and_then(|held| held.sync()).map_err(Error::io("bring to disk", dir))
    }

    /// Ignores errors: the earlier failure matters, and the next start removes the file.
    pub(crate) fn discard(&self, temp: &Path) {
        drop(self.remove(temp));
    }
}

/// The name of the backup; `None` when it would be too long.
pub(crate) fn backup(name: &str) -> Option<String> {
    Some(format!("{name}{BACKUP}")).filter(|name| name.len() <= NAME_LIMIT_BYTES)
}

/// Makes `dir` and its missing parents with mode 700.
pub(crate) fn make_dirs(dir: &Path) -> Result<(), Error> {
    let disk: &dyn Disk = &HostDisk;
    disk.make_dirs(dir)
}

/// Whether `name` is a file that is being written, here or by the reference.
pub(crate) fn is_temp(name: &OsStr) -> bool {
    digits(name).is_some_and(|digits| digits > 0)
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a directory was missing.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// The number of digits after the prefix; `None` when anything else follows.
fn digits(name: &OsStr) -> Option<usize> {
    let rest = name.to_str()?.strip_prefix(TEMP)?;
    rest.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest.len())
}

fn free_name(dir: &Path) -> PathBuf {
    let number = NEXT_TEMP.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{TEMP}{:010}{number:010}", *PROCESS))
}

fn fill(draft: &mut dyn Draft, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        match draft.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => left = left.get(done..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    draft.sync()
}

/// Before the first plain file of this process in `dir`: makes it, syncs it and its parents, which an
/// interrupted process may not have done, and removes the litter of such processes.
fn settle(disk: &dyn Disk, settled: &Mutex<BTreeSet<PathBuf>>, dir: &Path) -> Result<(), Error> {
    // Not locked meanwhile: a disk may hang.
    if lock(settled).contains(dir) {
        return Ok(());
    }
    disk.make_dirs(dir)?;
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        match disk.sync_dir(above) {
            // A process that may not read it has not made a directory in it.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => break,
            done => done?,
        }
    }
    for name in disk.names(dir).map_err(Error::io("list", dir))? {
        // Shorter names are the reference's, which claims nothing.
        if digits(&name) == Some(TEMP_DIGITS) {
            disk.remove_unclaimed(&dir.join(&name));
        }
    }
    lock(settled).insert(dir.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_and_its_directories_are_for_the_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a/b/c.json");
        replace(&file, b"{}").unwrap();
        assert_eq!(
            (mode(&file), mode(&root.path().join("a")), mode(&root.path().join("a/b"))),
            (0o600, 0o700, 0o700)
        );
        assert_eq!(fs::read_dir(root.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn of_many_who_create_a_file_at_once_one_succeeds_and_all_read_its_bytes() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("run/boot-id");
        let created: Vec<usize> = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8_usize)
                .map(|number| {
                    let file = &file;
                    scope
                        .spawn(move || create(file, number.to_string().as_bytes()).unwrap().then_some(number))
                })
                .collect();
            tries.into_iter().filter_map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(created.len(), 1);
        assert_eq!(read(&file, 9).unwrap().unwrap(), created[0].to_string().as_bytes());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "a temporary file stayed");
    }

    #[test]
    fn links_folders_and_long_files_are_refused_with_the_path() {
        let root = tempfile::tempdir().unwrap();
        let (file, link, folder) = (root.path().join("f"), root.path().join("l"), root.path().join("d"));
        replace(&file, b"12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        fs::create_dir(&folder).unwrap();
        for (path, limit, word) in [(&link, 9, "link"), (&folder, 9, "regular"), (&file, 4, "4 bytes")] {
            let refused = read(path, limit).unwrap_err().to_string();
            assert!(refused.contains(word) && refused.contains(&path.display().to_string()), "{refused}");
        }
        assert_eq!(read(&file, 5).unwrap().unwrap(), b"12345");
        assert_eq!(read(&root.path().join("none"), 5).unwrap(), None);
    }

    #[test]
    fn names_come_in_order_and_too_many_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(names(&dir.path().join("none"), 1).unwrap(), [""; 0]);
        for name in ["b", "a", "c"] {
            File::create(dir.path().join(name)).unwrap();
        }
        assert_eq!(names(dir.path(), 3).unwrap(), ["a", "b", "c"]);
        assert!(names(dir.path(), 2).unwrap_err().to_string().contains("more than 2 names"));
    }

    #[test]
    fn the_end_of_a_file_is_read_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(read_end(&path, 4).unwrap(), None);
        replace(&path, b"123456").unwrap();
        assert_eq!(read_end(&path, 4).unwrap().unwrap(), b"3456");
        assert_eq!(read_end(&path, 9).unwrap().unwrap(), b"123456");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_end(&link, 4).unwrap_err().to_string().contains("link"));
        assert!(read_end(dir.path(), 4).unwrap_err().to_string().contains("no regular file"));
    }

    #[test]
    fn a_write_that_cannot_be_done_leaves_the_old_content_and_no_litter() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("f");
        fs::create_dir(&file).unwrap();
        assert!(replace(&file, b"x").unwrap_err().to_string().starts_with("rename to"));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_litter_of_a_dead_writer_is_swept_once_and_nobody_elses() {
        let root = tempfile::tempdir().unwrap();
        let name = |number: u32| format!("tmp{number:020}");
        let kept = ["tmp1234567890", "tmpl", "tmp", "a.json"];
        let plain = |name: &str| File::create(root.path().join(name)).unwrap();
        for name in kept {
            plain(name);
        }
        plain(&name(1));
        let alive = plain(&name(2));
        alive.lock().unwrap();
        replace(&root.path().join("b"), b"x").unwrap();
        let mut left: Vec<_> = fs::read_dir(root.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a.json", "b", "tmp", &name(2), "tmp1234567890", "tmpl"]);
    }

    #[test]
    fn a_claimed_file_that_was_taken_for_litter_is_known_to_be_gone() {
        let root = tempfile::tempdir().unwrap();
        let disk: &dyn Disk = &HostDisk;
        let path = root.path().join("tmp1");
        let mut draft = disk.create(&path).unwrap();
        disk.remove_unclaimed(&path);
        assert!(!draft.claim().unwrap());
        let mut draft = disk.create(&path).unwrap();
        assert!(draft.claim().unwrap());
        disk.remove_unclaimed(&path);
        assert!(path.exists());
    }
}
