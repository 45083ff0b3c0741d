//! The subscriber's side of a topic: the directory is read, what differs is told, bad files are told once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::name::{RESTARTED, SUFFIX};
use crate::store;
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
    values: BTreeMap<String, T>,
    /// Files that were there, and why those that are left out are.
    seen: BTreeMap<OsString, Option<String>>,
    restarted: u32,
    synced: bool,
    /// Changes of the last reading that were not yet handed over: at most a few for each key.
    told: VecDeque<Change<T>>,
}

impl<T: Clone + PartialEq> Subscription<T> {
    pub(crate) fn new(hub: Arc<Hub>, dir: PathBuf, codec: Codec<T>) -> Self {
        let bell = Hub::bell(&dir, Follows::Topic);
        Self {
            hub,
            bell,
            dir,
            codec,
            values: BTreeMap::new(),
            seen: BTreeMap::new(),
            restarted: 0,
            synced: false,
            told: VecDeque::new(),
        }
    }

    /// The next change. It waits for ever when there is none. Dropping it loses nothing.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = self.told.pop_front() {
                return change;
            }
            match self.bell.take() {
                Dirt::None => self.bell.wait().await,
                Dirt::All => {
                    self.hub.attend(&self.bell);
                    self.read_all();
                }
                Dirt::Names(names) => names.into_iter().for_each(|name| self.read(&name)),
            }
        }
    }

    /// The value under `key` as far as changes were read.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&T> {
        self.values.get(key)
    }

    /// All keys with their values as far as changes were read, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn read_all(&mut self) {
        let mut present = BTreeSet::new();
        match fs::read_dir(&self.dir) {
            Ok(entries) => present.extend(entries.flatten().map(|entry| entry.file_name())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let finding = Finding { path: self.dir.clone(), reason: error.to_string() };
                self.told.push_back(Change::Bad(finding));
            }
        }
        // Keys that went while nobody looked are read as well: they are found to be gone.
        present.extend(self.seen.keys().cloned());
        let (last, data): (Vec<_>, Vec<_>) = present.into_iter().partition(|name| name == RESTARTED);
        for name in data.iter().chain(&last) {
            self.read(name);
        }
        if !self.synced {
            self.synced = true;
            self.told.push_back(Change::Synced);
        }
    }

    fn read(&mut self, name: &OsString) {
        let path = self.dir.join(name);
        let key = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned);
        if key.is_none() && name != RESTARTED {
            return;
        }
        let content = match Self::content(&path) {
            Ok(None) => {
                self.seen.remove(name);
                match key {
                    Some(key) => self.gone(&key),
                    None => self.count(0),
                }
                return;
            }
            Ok(Some(bytes)) => Ok(bytes),
            Err(reason) => Err(reason),
        };
        let told = self.seen.remove(name).flatten();
        let bad = match (content, &key) {
            (Ok(bytes), Some(key)) => self.put(key, &bytes).err(),
            (Ok(bytes), None) => {
                // A text that is no number counts as one start, as the reference logs and does not do (D-P4).
                self.count(String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(1));
                None
            }
            (Err(reason), _) => Some(reason),
        };
        if let Some(reason) = &bad
            && told.as_ref() != Some(reason)
        {
            self.told.push_back(Change::Bad(Finding { path, reason: reason.clone() }));
        }
        self.seen.insert(name.clone(), bad);
    }

    fn content(path: &Path) -> Result<Option<Vec<u8>>, String> {
        match store::read(path, FILE_LIMIT_BYTES) {
            Ok(Some(bytes)) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        }
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), String> {
        let value = (self.codec.decode)(bytes).map_err(|error| error.to_string())?;
        if self.values.get(key) != Some(&value) {
            let old = self.values.insert(key.to_owned(), value.clone());
            self.told.push_back(Change::Put { key: key.to_owned(), value, old });
        }
        Ok(())
    }

    fn gone(&mut self, key: &str) {
        if let Some(old) = self.values.remove(key) {
            self.told.push_back(Change::Gone { key: key.to_owned(), old });
        }
    }

    fn count(&mut self, restarted: u32) {
        if self.restarted != restarted {
            self.restarted = restarted;
            self.told.push_back(Change::Restarted(restarted));
        }
    }
}
