//! Keys of a topic that were removed in this boot, kept beside its socket under `/run` so that every later
//! publisher can send their deletion to subscribers that were away.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::error::chain;
use crate::{Error, store};

const MOST_KEYS: usize = 1_000;
const LIMIT_BYTES: u64 = 256 << 10;
/// Follows a topic in the name of the list.
const SUFFIX: &str = ".removed";
/// Cannot be part of a key.
const SEPARATOR: u8 = 0;

/// The oldest first.
#[derive(Debug)]
pub(crate) struct Removed {
    path: PathBuf,
    keys: VecDeque<String>,
}

impl Removed {
    /// Errors: the list cannot be read.
    pub(crate) fn load(socket: &Path) -> Result<Self, Error> {
        let path = socket.with_extension(SUFFIX.trim_start_matches('.'));
        let bytes = match store::read(&path, LIMIT_BYTES) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) if error.is_refusal() => {
                warn!(path = %path.display(), error = chain(&error), "ignored the list of removed keys");
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let keys = bytes.split(|byte| *byte == SEPARATOR).filter_map(|key| std::str::from_utf8(key).ok());
        let keys = keys.filter(|key| !key.is_empty()).map(str::to_owned).collect();
        Ok(Self { path, keys })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Adds removed keys and drops those that are published again. A failed write is no error: it matters
    /// only to an absent subscriber after this publisher has died.
    pub(crate) fn add<'a>(
        &mut self,
        gone: impl Iterator<Item = &'a str>,
        is_published: impl Fn(&str) -> bool,
    ) {
        let mut names = BTreeSet::new();
        names.extend(gone);
        if names.is_empty() {
            return;
        }
        self.keys.retain(|key| !names.contains(key.as_str()) && !is_published(key));
        self.keys.extend(names.into_iter().map(str::to_owned));
        let over = self.keys.len().saturating_sub(MOST_KEYS);
        self.keys.drain(..over);
        let mut bytes = Vec::new();
        for key in &self.keys {
            bytes.extend_from_slice(key.as_bytes());
            bytes.push(SEPARATOR);
        }
        if let Err(error) = store::replace(&self.path, &bytes) {
            warn!(path = %self.path.display(), error = chain(&error), "cannot note removed keys for the next publisher");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_thousand_keys_are_kept_and_those_that_are_published_again_are_not() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("Topic.sock");
        let mut removed = Removed::load(&socket).unwrap();
        for number in 0..=MOST_KEYS {
            removed.keys.push_back(format!("key-{number}"));
        }
        removed.add(["a\nb", "key-7"].into_iter(), |key| key == "key-9");
        let again = Removed::load(&socket).unwrap();
        let keys: Vec<&str> = again.iter().collect();
        assert_eq!(keys.len(), MOST_KEYS);
        assert_eq!(keys[MOST_KEYS - 2..], ["a\nb", "key-7"]);
        assert_eq!(keys[0], "key-1");
        assert!(!keys.contains(&"key-9"));
        let longest = MOST_KEYS * 251;
        assert!(u64::try_from(longest).unwrap() <= LIMIT_BYTES);
    }

    #[test]
    fn a_list_that_is_no_file_is_ignored_and_one_that_cannot_be_read_is_not_taken_for_empty() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("Topic.sock");
        std::os::unix::fs::symlink("/etc/hostname", root.path().join("Topic.removed")).unwrap();
        assert_eq!(Removed::load(&socket).unwrap().iter().count(), 0);
        Removed::load(&root.path().join("t".repeat(300)).join("Topic.sock")).unwrap_err();
    }
}
