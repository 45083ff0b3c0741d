//! Files of large members: one per peer, removed by the peer that reads it.
//!
//! The publisher removes what no peer will read any more. Not here: which members are large. Source:
//! lf-edge/eve pkg/pillar/pubsub/large.go.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{CodecError, Error, Name, reach};

/// The longest content of such a file; one byte more ends a publisher of the reference.
pub(crate) const MEMBER_LIMIT_BYTES: usize = (1 << 20) - 1;
/// A peer with more unread bytes loses its oldest files: it is many values behind.
const UNREAD_LIMIT_BYTES: usize = 16 << 20;
/// Files of an earlier process that have existed for so long have no reader any more.
pub(crate) const LEFT_OVER: Duration = Duration::from_secs(60);
/// How many of the last directories of their path are the topic's own: in these no link is followed.
const OWN_DIRS: usize = 3;
const PREFIX: &str = "pubsub-file-";
/// Numbers of ten digits, so that every path of a topic has the same length.
const NUMBERS: std::ops::Range<u64> = 1_000_000_000..10_000_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Large {
    dir: PathBuf,
}

impl Large {
    pub(crate) fn of(name: &Name, root: &Path) -> Self {
        Self { dir: name.below(&root.join("persist/pubsub-large")) }
    }

    /// A path as long as every one that [`Large::write`] returns for a member.
    pub(crate) fn sample(&self, member: &str) -> Result<String, CodecError> {
        text(&self.path(member, NUMBERS.start))
    }

    pub(crate) fn write(&self, member: &str, content: &[u8]) -> Result<String, CodecError> {
        let (large, member, content) = (self.clone(), member.to_owned(), content.to_vec());
        reach::at(&self.dir, move |_| Ok(large.write_here(&member, &content)))?
    }

    fn write_here(&self, member: &str, content: &[u8]) -> Result<String, CodecError> {
        DirBuilder::new().recursive(true).mode(0o755).create(&self.dir)?;
        self.refuse_links()?;
        loop {
            let random = RandomState::new().hash_one(member);
            let path = self.path(member, NUMBERS.start + random % (NUMBERS.end - NUMBERS.start));
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    if let Err(error) = file.write_all(content) {
                        drop(fs::remove_file(&path));
                        return Err(error.into());
                    }
                    return text(&path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The files of an earlier process, which the caller removes after [`LEFT_OVER`]. Their own age says nothing:
    /// the wall clock may have been set.
    pub(crate) fn left_over(&self) -> Result<Vec<PathBuf>, Error> {
        reach::at(&self.dir, |dir| {
            let entries = match fs::read_dir(dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(Error::io("list", dir)(error)),
            };
            let files = entries.flatten().filter(|it| it.file_name().to_string_lossy().starts_with(PREFIX));
            Ok(files.map(|it| it.path()).collect())
        })
    }

    fn path(&self, member: &str, number: u64) -> PathBuf {
        self.dir.join(named(member, &number.to_string()))
    }

    fn refuse_links(&self) -> Result<(), CodecError> {
        for dir in self.dir.ancestors().take(OWN_DIRS) {
            match fs::symlink_metadata(dir) {
                Ok(seen) if seen.is_dir() => {}
                Ok(_) => return Err(format!("{} is no directory; remove it", dir.display()).into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Files sent to one peer that it may not have read yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unread(VecDeque<(String, usize)>);

impl Unread {
    /// Adds a file, forgets those that were read, and removes the oldest ones above the limit.
    pub(crate) fn add(&mut self, path: String, bytes: usize) {
        self.0.retain(|(path, _)| Path::new(path).exists());
        self.0.push_back((path, bytes));
        let mut sum: usize = self.0.iter().map(|(_, bytes)| bytes).sum();
        while sum > UNREAD_LIMIT_BYTES
            && let Some((path, bytes)) = self.0.pop_front()
        {
            sum -= bytes;
            remove(Path::new(&path));
        }
    }

    /// To be called when the peer is gone.
    pub(crate) fn remove(self) {
        self.0.iter().for_each(|(path, _)| remove(Path::new(path)));
    }
}

fn named(member: &str, number: &str) -> String {
    format!("{PREFIX}{member}{number}")
}

fn text(path: &Path) -> Result<String, CodecError> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("{} is no text", path.display()).into())
}

pub(crate) fn remove(path: &Path) {
    match reach::at(path, |path| fs::remove_file(path).map_err(Error::io("remove", path))) {
        Ok(()) => {}
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot remove the file of a large member");
        }
    }
}
