//! Short reads with a limit: the names in a directory, the end of a file.
//!
//! Not here: following either (`watch`), whole files (`store`).

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use rustix::fs::CWD;

use crate::Error;
use crate::disk::{Disk as _, HostDisk, open_in};

/// UTF-8 names only, sorted; none where there is no directory.
///
/// Errors: it cannot be read, or has more than `most` names.
pub fn names(dir: &Path, most: usize) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", dir)(error)),
    };
    let mut names = Vec::new();
    for (nth, entry) in entries.enumerate() {
        if nth >= most {
            let reason = format!("it has more than {most} names");
            return Err(Error::Refused { path: dir.to_owned(), reason });
        }
        names.extend(entry.map_err(Error::io("list", dir))?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// None where there is no directory.
pub(crate) fn all(dir: &Path) -> Result<Vec<OsString>, Error> {
    match HostDisk.names(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::io("list", dir)),
    }
}

/// The last `most` bytes of the regular file at `path`, or `None` when there is none.
/// Errors: it is a link or no regular file, or cannot be read.
pub fn tail(path: &Path, most: u32) -> Result<Option<Vec<u8>>, Error> {
    let Some((mut file, length)) = open_in(CWD, path, &|| path.to_owned())? else { return Ok(None) };
    file.seek(SeekFrom::Start(length.saturating_sub(most.into()))).map_err(Error::io("read", path))?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(most.into()).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_come_in_order_and_too_many_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(names(&dir.path().join("none"), 1).unwrap(), [""; 0]);
        for name in ["b", "a", "c"] {
            fs::File::create(dir.path().join(name)).unwrap();
        }
        assert_eq!(names(dir.path(), 3).unwrap(), ["a", "b", "c"]);
        assert!(names(dir.path(), 2).unwrap_err().to_string().contains("more than 2 names"));
    }

    #[test]
    fn the_end_of_a_file_is_read_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(tail(&path, 4).unwrap(), None);
        crate::store::replace(&path, b"123456").unwrap();
        assert_eq!(tail(&path, 4).unwrap().unwrap(), b"3456");
        assert_eq!(tail(&path, 9).unwrap().unwrap(), b"123456");
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(tail(&link, 4).unwrap_err().to_string().contains("link"));
        assert!(tail(dir.path(), 4).unwrap_err().to_string().contains("no regular file"));
    }
}
