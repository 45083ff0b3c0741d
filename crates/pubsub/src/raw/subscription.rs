//! The subscriber's side of a topic: reads the directory, and gives each change and each bad file once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use crate::disk::DirReader;
use crate::error::chain;
use crate::name::{RESTARTED, SUFFIX};
use crate::raw::{AnyValue, Change, Decode};
use crate::watch::{DirFollower, Follows, Pending, WatchHub};
use crate::{BadFile, Error, FILE_LIMIT_BYTES, disk, reach};

pub(crate) struct RawSubscription {
    dir: DirFollower,
    decode: Decode,
    /// The one key to read; `None` for all.
    only: Option<&'static str>,
    known: Mirror,
    /// Bad files, and why.
    bad: BTreeMap<OsString, String>,
    /// Files still to be read again.
    unread: Pending,
}

impl RawSubscription {
    pub(crate) fn new(hub: Arc<WatchHub>, dir: &Path, decode: Decode, same: Same) -> Self {
        Self {
            dir: DirFollower::new(hub, dir, Follows::Topic),
            decode,
            only: None,
            known: Mirror::new(same),
            bad: BTreeMap::new(),
            unread: Pending::None,
        }
    }

    pub(crate) const fn only(&mut self, key: &'static str) {
        self.only = Some(key);
    }

    fn is_wanted(&self, name: &OsStr) -> bool {
        let is_of = |key: &str| {
            name == RESTARTED || name.to_str().and_then(|it| it.strip_suffix(SUFFIX)) == Some(key)
        };
        self.only.is_none_or(is_of)
    }

    pub(crate) async fn next(&mut self) -> Change<AnyValue> {
        loop {
            if let Some(change) = self.known.told.pop_front() {
                return change;
            }
            let dirt = self.dir.changed().await;
            let failed = match dirt.and(mem::take(&mut self.unread)) {
                Pending::All => self.read_all(),
                Pending::Names(names) => {
                    let dir = self.dir.dir().to_owned();
                    self.read(&names, &mut DirReader::pass(&dir))
                }
                Pending::None => None,
            };
            match failed {
                None => {
                    self.dir.retry.worked();
                    self.known.synced();
                }
                Some(error) if self.dir.retry.failed() => {
                    self.known.told.push_back(Change::Bad(unreadable(self.dir.dir(), &error)));
                }
                Some(_) => {}
            }
        }
    }

    /// In the order of keys.
    pub(crate) const fn values(&self) -> &BTreeMap<String, AnyValue> {
        &self.known.values
    }

    /// Reads the directory; returns the first error. What could not be read is noted for later.
    fn read_all(&mut self) -> Option<Error> {
        let (dir, attend) = (self.dir.dir().to_owned(), self.dir.attend());
        let found = match reach::at(&dir, |dir| attend().and_then(|()| disk::names(dir, usize::MAX))) {
            Ok(names) => names,
            // Half a list does not prove that the other names are gone.
            Err(error) => {
                self.unread = Pending::All;
                return Some(error);
            }
        };
        // One by one: `collect` brings a sort into an image.
        let mut names = BTreeSet::new();
        names.extend(found);
        // Known keys too: their files may be gone.
        names.extend(self.values().keys().map(|key| OsString::from(format!("{key}{SUFFIX}"))));
        names.extend(self.bad.keys().cloned());
        names.remove(OsStr::new(RESTARTED));
        let mut files = DirReader::hold(&dir);
        let failed = self.read(&names, &mut files);
        failed.or(self.read(&BTreeSet::from([RESTARTED.into()]), &mut files))
    }

    fn read(&mut self, names: &BTreeSet<OsString>, files: &mut DirReader<'_>) -> Option<Error> {
        let mut failed = None;
        for name in names {
            if !self.is_wanted(name) {
                continue;
            }
            if let Err(error) = self.read_one(name, files) {
                self.unread.add(name.clone());
                failed = failed.or(Some(error));
            }
        }
        failed
    }

    fn read_one(&mut self, name: &OsStr, files: &mut DirReader<'_>) -> Result<(), Error> {
        let key = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        if key.is_none() && name != RESTARTED {
            return Ok(());
        }
        let mut fault = None;
        match (files.read(name, FILE_LIMIT_BYTES), key) {
            (Ok(None), Some(key)) => self.known.gone(key),
            (Ok(None), None) => self.known.count(0),
            (Ok(Some([])), _) => fault = Some("it is empty".to_owned()),
            (Ok(Some(bytes)), Some(key)) => match (self.decode)(bytes) {
                Ok(value) => self.known.put(key, value),
                Err(error) => fault = Some(error.to_string()),
            },
            // A text that is no number counts as one start, as the reference logs but does not do (D-P4).
            (Ok(Some(bytes)), None) => {
                self.known.count(String::from_utf8_lossy(bytes).trim().parse().unwrap_or(1));
            }
            (Err(error), _) if error.is_refusal() => fault = Some(error.to_string()),
            (Err(error), _) => return Err(error),
        }
        match fault {
            None => drop(self.bad.remove(name)),
            // Told already.
            Some(reason) if self.bad.get(name) == Some(&reason) => {}
            Some(reason) => {
                self.bad.insert(name.to_owned(), reason.clone());
                self.known.told.push_back(Change::Bad(BadFile { path: self.dir.dir().join(name), reason }));
            }
        }
        Ok(())
    }
}

fn unreadable(dir: &Path, error: &Error) -> BadFile {
    let path = if let Error::Io { path, .. } = error { path.clone() } else { dir.to_owned() };
    BadFile { path, reason: format!("cannot be read, retrying: {}", chain(error)) }
}

pub(crate) type Same = fn(&AnyValue, &AnyValue) -> bool;

/// The values of one topic as read so far. Equal values are no change.
struct Mirror {
    same: Same,
    values: BTreeMap<String, AnyValue>,
    restarted: u32,
    synced: bool,
    /// Changes that were not yet handed over: at most a few for each key.
    told: VecDeque<Change<AnyValue>>,
}

impl Mirror {
    fn new(same: Same) -> Self {
        Self { same, values: BTreeMap::new(), restarted: 0, synced: false, told: VecDeque::new() }
    }

    fn put(&mut self, key: &str, value: AnyValue) {
        let old = match self.values.get_mut(key) {
            Some(known) if (self.same)(known, &value) => return,
            Some(known) => Some(mem::replace(known, Arc::clone(&value))),
            None => self.values.insert(key.to_owned(), Arc::clone(&value)),
        };
        self.told.push_back(Change::Put { key: key.to_owned(), value, old });
    }

    fn gone(&mut self, key: &str) {
        if let Some(old) = self.values.remove(key) {
            self.told.push_back(Change::Gone { key: key.to_owned(), old });
        }
    }

    fn count(&mut self, restarted: u32) {
        if mem::replace(&mut self.restarted, restarted) != restarted {
            self.told.push_back(Change::Restarted(restarted));
        }
    }

    /// Marks the end of the first reading.
    fn synced(&mut self) {
        if !mem::replace(&mut self.synced, true) {
            self.told.push_back(Change::Synced);
        }
    }
}
