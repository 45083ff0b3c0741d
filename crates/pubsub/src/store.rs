//! The one door to files: replaced whole or not at all, read within a limit, never through a link.
//!
//! A file is written beside its place, brought to disk, renamed, and the directory is brought to disk: after
//! a power cut it holds the old or the new content.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

use crate::Error;
use crate::name::BACKUP;

/// What the name of a file that is being written begins with; the reference's names begin so too.
const TEMP: &str = "tmp";
/// Makes temporary names differ within this process.
static NEXT_TEMP: AtomicU64 = AtomicU64::new(0);

/// Puts `bytes` in the place of `path`. Missing directories are made, open to the owner only.
///
/// # Errors
/// The step that failed; the file is as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = parent(path);
    make_dirs(dir)?;
    let temp = write_beside(dir, bytes)?;
    rename(&temp, path)?;
    sync_dir(dir)
}

/// [`replace`], with the former content kept as `<path>.bak`. That a backup cannot be made hinders nothing.
///
/// # Errors
/// The step that failed; the file is as it was.
pub fn replace_with_backup(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if let Ok(Some(former)) = read(path, crate::FILE_LIMIT_BYTES)
        && !former.is_empty()
        && let Err(error) = replace(&backup(path), &former)
    {
        tracing::warn!(path = %path.display(), %error, "cannot keep a backup");
    }
    replace(path, bytes)
}

/// Puts `bytes` at `path` unless a file is there already; false when there was one. Of several processes that
/// try it at the same time exactly one succeeds.
///
/// # Errors
/// The step that failed; nothing is at `path` that was not there before.
pub fn create(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    let dir = parent(path);
    make_dirs(dir)?;
    let temp = write_beside(dir, bytes)?;
    let linked = fs::hard_link(&temp, path);
    fs::remove_file(&temp).map_err(Error::io("remove", &temp))?;
    match linked {
        Ok(()) => sync_dir(dir).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("create", path)(error)),
    }
}

/// The backup of a file.
pub(crate) fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BACKUP);
    PathBuf::from(name)
}

/// The content of the regular file at `path`, or `None` when there is none.
///
/// # Errors
/// It is a link or no regular file, is longer than `limit` bytes, or cannot be read.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let Some(file) = open(path)? else { return Ok(None) };
    read_open(file, path, limit).map(Some)
}

/// Opens a regular file without following a link and without waiting for the other end of a pipe.
pub(crate) fn open(path: &Path) -> Result<Option<File>, Error> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
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

pub(crate) fn read_open(file: File, path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        let reason = format!("it is longer than {limit} bytes");
        return Err(Error::Refused { path: path.to_owned(), reason });
    }
    Ok(bytes)
}

/// Removes the file at `path`; false when there was none.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(parent(path)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("remove", path)(error)),
    }
}

/// Makes `dir` and what is missing above it, open to the owner only.
pub(crate) fn make_dirs(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::io("make", dir))
}

/// Removes what an interrupted [`replace`] of an earlier process left in `dir`. The caller holds its lock.
pub(crate) fn sweep_temps(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        if is_temp(&entry.file_name().to_string_lossy()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn is_temp(name: &str) -> bool {
    name.strip_prefix(TEMP)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_beside(dir: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
    loop {
        let number = NEXT_TEMP.fetch_add(1, Ordering::Relaxed);
        let temp = dir.join(format!("{TEMP}{}{number:06}", process::id()));
        let opened = File::options().write(true).create_new(true).mode(0o600).open(&temp);
        let mut file = match opened {
            Ok(file) => file,
            // A former process of the same number left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(Error::io("create", temp)(error)),
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        return match written {
            Ok(()) => Ok(temp),
            Err(error) => {
                // The cause is what matters; the temporary file is swept at the next start.
                drop(fs::remove_file(&temp));
                Err(Error::io("write", temp)(error))
            }
        };
    }
}

fn rename(temp: &Path, path: &Path) -> Result<(), Error> {
    fs::rename(temp, path).map_err(|error| {
        drop(fs::remove_file(temp));
        Error::io("rename to", path)(error)
    })
}

fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io("bring to disk", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn the_former_content_becomes_the_backup() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("c.json");
        replace_with_backup(&file, b"1").unwrap();
        assert_eq!(read(&backup(&file), 9).unwrap(), None);
        replace_with_backup(&file, b"2").unwrap();
        assert_eq!(read(&backup(&file), 9).unwrap().unwrap(), b"1");
        assert_eq!(read(&file, 9).unwrap().unwrap(), b"2");
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
    fn a_write_that_cannot_be_done_leaves_the_old_content_and_no_litter() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("f");
        fs::create_dir(&file).unwrap();
        assert!(replace(&file, b"x").unwrap_err().to_string().starts_with("rename to"));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_our_own_litter_is_swept() {
        let root = tempfile::tempdir().unwrap();
        for name in ["tmp123", "tmpl", "tmp", "a.json"] {
            replace(&root.path().join(name), b"x").unwrap();
        }
        sweep_temps(root.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(root.path())
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a.json", "tmp", "tmpl"]);
    }
}
