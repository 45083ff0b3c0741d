//! What can go wrong with files, each with the path concerned.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

pub type CodecError = Box<dyn std::error::Error + Send + Sync>;

/// A step that failed. Nothing has changed when it did.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("use key {key:?} of {topic}: {reason}")]
    Key { topic: String, key: String, reason: &'static str },
    #[error("unpublish key {key:?} of {topic}: it is not published")]
    UnknownKey { topic: String, key: String },
    #[error("encode key {key:?} of {topic}")]
    Encode { topic: String, key: String, source: CodecError },
    #[error("publish key {key:?} of {topic}: {bytes} bytes, the limit is {limit}")]
    TooLong { topic: String, key: String, bytes: usize, limit: u64 },
    #[error(
        "publish key {key:?} of {topic}: its message has {bytes} bytes, the limit is {limit}; shorten the value"
    )]
    MessageTooLong { topic: String, key: String, bytes: usize, limit: usize },
    #[error(
        "publish key {key:?} of {topic}: its member {member} has {bytes} bytes, the limit is {limit}; shorten it"
    )]
    MemberTooLong { topic: String, key: String, member: String, bytes: usize, limit: usize },
    #[error("listen at {}: the path has {bytes} bytes, the limit is {limit}; choose a shorter root", path.display())]
    SocketPath { path: PathBuf, bytes: usize, limit: usize },
    #[error(
        "publish {topic}: another process publishes it (it listens at {}); stop that process first",
        socket.display()
    )]
    Live { topic: String, socket: PathBuf },
    #[error("publish {topic}: another process publishes it (lock {}); stop that process first", lock.display())]
    Taken { topic: String, lock: PathBuf },
    #[error("{step} {}", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error("read {}: {reason}", path.display())]
    Refused { path: PathBuf, reason: String },
}

impl Error {
    /// Whether a file was read and found wrong. Any other error says nothing about the file.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether descriptors or memory were short, or the disk did not answer: transient, so a single read is
    /// worth a retry.
    pub fn is_shortage(&self) -> bool {
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
        let passes = |it: &io::Error| {
            it.kind() == io::ErrorKind::TimedOut
                || Errno::from_io_error(it).is_some_and(|it| short.contains(&it))
        };
        matches!(self, Self::Io { source, .. } if passes(source))
    }

    pub(crate) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { step, path, source }
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    pub path: PathBuf,
    pub reason: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.reason)
    }
}
