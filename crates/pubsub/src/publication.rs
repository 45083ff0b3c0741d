//! The publisher's side of a topic: it owns the directory, and what is in memory is what is on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::lock::Lock;
use crate::name::{BACKUP, Name, RESTARTED, SUFFIX};
use crate::server::{Server, refuse_live};
use crate::{Codec, Error, FILE_LIMIT_BYTES, Finding, ToWire, store};

/// What publishing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The file has the new value.
    Written,
    /// The value is the one that is published already; nothing was written.
    Unchanged,
}

/// The only publisher of one topic. Dropping it leaves the files, as a crash would; [`Publication::close`] tidies.
pub struct Publication<T> {
    name: Name,
    dir: PathBuf,
    codec: Codec<T>,
    values: BTreeMap<String, T>,
    restarted: u32,
    findings: Vec<Finding>,
    /// Dropped before the lock: who gets the lock next must not meet our socket alive.
    server: Option<Server>,
    _lock: Lock,
}

impl<T: Clone + PartialEq> Publication<T> {
    /// Takes the topic over, with what an earlier publisher left.
    pub(crate) fn open(root: &Path, name: Name, codec: Codec<T>) -> Result<Self, Error> {
        let dir = name.dir(root);
        let lock = Lock::take(&name.to_string(), &dir)?;
        refuse_live(&name, root)?;
        store::make_dirs(&dir)?;
        store::sweep_temps(&dir)?;
        let mut publication = Self {
            name,
            dir,
            codec,
            values: BTreeMap::new(),
            restarted: 0,
            findings: Vec::new(),
            server: None,
            _lock: lock,
        };
        publication.load()?;
        Ok(publication)
    }

    /// What [`crate::Bus::serve`] does.
    pub(crate) fn serve(&mut self, root: &Path, to_wire: ToWire) -> Result<(), Error> {
        let Some(server) = Server::open(&self.name, root, to_wire)? else { return Ok(()) };
        for (key, value) in &self.values {
            if let Err(reason) = server.put_anew(key, (self.codec.encode)(value)) {
                let path = self.dir.join(self.name.file(key)?);
                self.findings.push(Finding { path, reason });
            }
        }
        server.count(self.restarted);
        self.server = Some(server);
        Ok(())
    }

    /// Publishes `value` under `key`, unless it is published already.
    ///
    /// # Errors
    /// A key that cannot be a file, a value without form or too long, or a write that failed. Neither memory nor
    /// disk nor any subscriber has changed then.
    pub fn publish(&mut self, key: &str, value: &T) -> Result<Published, Error> {
        let file = self.name.file(key)?;
        let (topic, owned) = (self.name.to_string(), key.to_owned());
        let encode = |source| Error::Encode { topic: topic.clone(), key: owned.clone(), source };
        let bytes = (self.codec.encode)(value).map_err(encode)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_LIMIT_BYTES) {
            return Err(Error::TooLong { topic, key: owned, bytes: bytes.len(), limit: FILE_LIMIT_BYTES });
        }
        // What readers will see, which is what equality is about.
        let seen = (self.codec.decode)(&bytes).map_err(encode)?;
        let path = self.dir.join(file);
        if self.values.get(key) == Some(&seen) && path.exists() {
            return Ok(Published::Unchanged);
        }
        if let Some(server) = &self.server {
            server.check(key, &bytes)?;
        }
        let renew = !self.dir.exists();
        self.write(&path, &bytes)?;
        self.values.insert(owned, seen);
        if let Some(server) = &self.server {
            server.put(key, &bytes);
        }
        if renew {
            self.write_all_but(key)?;
        }
        Ok(Published::Written)
    }

    /// Takes `key` back.
    ///
    /// # Errors
    /// It is not published, or its file cannot be removed.
    pub fn unpublish(&mut self, key: &str) -> Result<(), Error> {
        if !self.values.contains_key(key) {
            return Err(Error::UnknownKey { topic: self.name.to_string(), key: key.to_owned() });
        }
        let path = self.dir.join(self.name.file(key)?);
        if self.name.is_persistent() {
            store::remove(&store::backup(&path))?;
        }
        store::remove(&path)?;
        self.values.remove(key);
        if let Some(server) = &self.server {
            server.take(key);
        }
        Ok(())
    }

    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&T> {
        self.values.get(key)
    }

    /// All keys with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How often the publisher has said that it started anew; 0 when it has not.
    #[must_use]
    pub const fn restarted(&self) -> u32 {
        self.restarted
    }

    /// Says that the first values are all there.
    ///
    /// # Errors
    /// The counter's file cannot be written.
    pub fn signal_restarted(&mut self) -> Result<(), Error> {
        let count = self.restarted.saturating_add(1);
        store::replace(&self.dir.join(RESTARTED), count.to_string().as_bytes())?;
        self.count(count);
        Ok(())
    }

    /// Takes [`Publication::signal_restarted`] back.
    ///
    /// # Errors
    /// The counter's file cannot be removed.
    pub fn clear_restarted(&mut self) -> Result<(), Error> {
        store::remove(&self.dir.join(RESTARTED))?;
        self.count(0);
        Ok(())
    }

    fn count(&mut self, restarted: u32) {
        self.restarted = restarted;
        if let Some(server) = &self.server {
            server.count(restarted);
        }
    }

    /// The bad files that were left out at the start, once.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Ends the topic in order: a volatile one takes every key back, a persistent one keeps them.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn close(mut self) -> Result<(), Error> {
        if !self.name.is_persistent() {
            let keys: Vec<String> = self.values.keys().cloned().collect();
            for key in keys {
                self.unpublish(&key)?;
            }
        }
        self.clear_restarted()?;
        self.server.take().map_or(Ok(()), Server::close)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        if self.name.is_persistent() {
            store::replace_with_backup(path, bytes)
        } else {
            store::replace(path, bytes)
        }
    }

    /// The directory was removed behind our back: what it held is written again.
    fn write_all_but(&self, written: &str) -> Result<(), Error> {
        for (key, value) in self.values.iter().filter(|(key, _)| *key != written) {
            let encode = |source| Error::Encode { topic: self.name.to_string(), key: key.clone(), source };
            let bytes = (self.codec.encode)(value).map_err(encode)?;
            self.write(&self.dir.join(self.name.file(key)?), &bytes)?;
        }
        if self.restarted > 0 {
            store::replace(&self.dir.join(RESTARTED), self.restarted.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn load(&mut self) -> Result<(), Error> {
        let mut keys = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(Error::io("list", &self.dir))? {
            let name = entry.map_err(Error::io("list", &self.dir))?.file_name();
            let Some(name) = name.to_str() else { continue };
            let file =
                if self.name.is_persistent() { name.strip_suffix(BACKUP).unwrap_or(name) } else { name };
            if let Some(key) = file.strip_suffix(SUFFIX) {
                keys.insert(key.to_owned(), self.dir.join(file));
            }
        }
        for (key, path) in keys {
            self.load_key(key, &path)?;
        }
        let path = self.dir.join(RESTARTED);
        self.restarted = match store::read(&path, FILE_LIMIT_BYTES) {
            // A text that is no number counts as one start, as in the reference.
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(1),
            Ok(None) => 0,
            Err(error) => {
                self.findings.push(Finding { path, reason: error.to_string() });
                0
            }
        };
        Ok(())
    }

    fn load_key(&mut self, key: String, path: &Path) -> Result<(), Error> {
        let reason = match self.value_of(path) {
            Ok(value) => {
                self.values.insert(key, value);
                return Ok(());
            }
            Err(reason) => reason,
        };
        let backup = store::backup(path);
        if self.name.is_persistent()
            && let Ok(value) = self.value_of(&backup)
        {
            if let Some(bytes) = store::read(&backup, FILE_LIMIT_BYTES)? {
                store::replace(path, &bytes)?;
            }
            self.values.insert(key, value);
            self.findings
                .push(Finding { path: path.to_owned(), reason: format!("{reason}; its backup was used") });
            return Ok(());
        }
        self.findings.push(Finding { path: path.to_owned(), reason });
        Ok(())
    }

    fn value_of(&self, path: &Path) -> Result<T, String> {
        match store::read(path, FILE_LIMIT_BYTES) {
            Ok(Some(bytes)) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(Some(bytes)) => (self.codec.decode)(&bytes).map_err(|error| error.to_string()),
            Ok(None) => Err("it is missing".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
