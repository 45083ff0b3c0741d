//! The subscriber's side of a topic: the directory is read, what differs is told, bad files are told once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::Shelf;
use crate::mirror::Mirror;
use crate::name::{RESTARTED, SUFFIX};
use crate::watch::{Bell, Dirt, Follows, Hub};
use crate::{Codec, FILE_LIMIT_BYTES, Finding};

/// What a subscriber is told. Values that are equal to the last one are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// A key is new or has another value.
    Put {
        /// The key.
        key: String,
        /// Its value now.
        value: T,
        /// Its value before, if it had one.
        old: Option<T>,
    },
    /// A key is gone, also when it went while nobody looked.
    Gone {
        /// The key.
        key: String,
        /// Its last value.
        old: T,
    },
    /// The first reading is through, also when there is no directory yet. Told once.
    Synced,
    /// The publisher's counter of starts is another one; told after the data of the same reading.
    Restarted(u32),
    /// A file makes no sense. It is told once; the last good value of its key stays.
    Bad(Finding),
}

/// Follows one topic for good: before its publisher runs, before its directory exists, after both were replaced.
pub struct Subscription<T> {
    hub: Arc<Hub>,
    bell: Arc<Bell>,
    dir: PathBuf,
    codec: Codec<T>,
    known: Mirror<T>,
    /// Files that are left out, and why.
    bad: BTreeMap<OsString, String>,
}

impl<T: Clone + PartialEq> Subscription<T> {
    pub(crate) fn new(hub: Arc<Hub>, dir: PathBuf, codec: Codec<T>) -> Self {
        let bell = Hub::bell(&dir, Follows::Topic);
        Self { hub, bell, dir, codec, known: Mirror::default(), bad: BTreeMap::new() }
    }

    /// The next change. It waits for ever when there is none. Dropping it loses nothing.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = self.known.take() {
                return change;
            }
            match self.bell.take() {
                Dirt::None => self.hub.wait(&self.bell).await,
                Dirt::All => {
                    self.hub.attend(&self.bell);
                    self.read_all();
                }
                Dirt::Names(names) => {
                    let dir = self.dir.clone();
                    let mut files = Shelf::pass(&dir);
                    for name in &names {
                        self.read(name, &mut files);
                    }
                }
            }
        }
    }

    /// The value under `key` as far as changes were read.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&T> {
        self.known.get(key)
    }

    /// All keys with their values as far as changes were read, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.known.iter()
    }

    fn read_all(&mut self) {
        let dir = self.dir.clone();
        let mut files = Shelf::hold(&dir);
        let mut names: Vec<OsString> = Vec::new();
        match fs::read_dir(&dir) {
            Ok(entries) => names.extend(entries.flatten().map(|entry| entry.file_name())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                self.known.bad(Finding { path: dir.clone(), reason: error.to_string() });
            }
        }
        // Files that went while nobody looked are read as well: they are found to be gone.
        names.extend(self.known.iter().map(|(key, _)| OsString::from(format!("{key}{SUFFIX}"))));
        names.extend(self.bad.keys().cloned());
        names.sort_unstable();
        names.dedup();
        for name in names.iter().filter(|name| *name != RESTARTED) {
            self.read(name, &mut files);
        }
        self.read(RESTARTED.as_ref(), &mut files);
        self.known.synced();
    }

    fn read(&mut self, name: &OsStr, files: &mut Shelf<'_>) {
        let key = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        if key.is_none() && name != RESTARTED {
            return;
        }
        let fault = match (files.read(name, FILE_LIMIT_BYTES), key) {
            (Ok(None), Some(key)) => {
                self.known.gone(key);
                None
            }
            (Ok(None), None) => {
                self.known.count(0);
                None
            }
            (Ok(Some([])), _) => Some("it is empty".to_owned()),
            (Ok(Some(bytes)), Some(key)) => {
                let read = (self.codec.decode)(bytes).map(|value| self.known.put(key, value));
                read.err().map(|error| error.to_string())
            }
            // A text that is no number counts as one start, as the reference logs and does not do (D-P4).
            (Ok(Some(bytes)), None) => {
                self.known.count(String::from_utf8_lossy(bytes).trim().parse().unwrap_or(1));
                None
            }
            (Err(error), _) => Some(error.to_string()),
        };
        let Some(reason) = fault else {
            self.bad.remove(name);
            return;
        };
        if self.bad.get(name) != Some(&reason) {
            self.bad.insert(name.to_owned(), reason.clone());
            self.known.bad(Finding { path: self.dir.join(name), reason });
        }
    }
}
