//! The publisher's side of a topic: it owns the directory, and memory equals disk.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::disk::{Disk, HostDisk};
use crate::folder::{DirKeeper, Folder, Former, SharedFolder};
use crate::lock::Lock;
use crate::name::{BACKUP, Name, RESTARTED, SUFFIX};
use crate::raw::{AnyValue, Decode, Encode, Published};
use crate::reach::{self, lock};
use crate::server::{SocketServer, refuse_live};
use crate::watch::WatchHub;
use crate::{BadFile, CodecError, Error, FILE_LIMIT_BYTES, ToWire, store};

pub(crate) struct RawPublication {
    name: Name,
    dir: PathBuf,
    /// Locked during disk calls, which may hang: what callers read is in `values`, too.
    files: SharedFolder,
    decode: Decode,
    values: BTreeMap<String, StoredValue>,
    /// Keys with a failed last write: what readers see of them is unknown.
    doubtful: BTreeSet<String>,
    restarted: u32,
    findings: Vec<BadFile>,
    /// Keys of which a backup was read.
    older: BTreeSet<String>,
    /// Dropped before the lock: the next owner of the lock must not find our socket alive.
    server: Option<SocketServer>,
    /// Dropped before the lock too: it writes no file then.
    keeper: Option<DirKeeper>,
    _lock: Arc<Lock>,
}

/// What readers see of a key.
struct StoredValue {
    bytes: Arc<[u8]>,
    /// Decoded on first use.
    value: OnceLock<AnyValue>,
}

impl RawPublication {
    pub(crate) fn open(hub: &Arc<WatchHub>, root: &Path, name: Name, decode: Decode) -> Result<Self, Error> {
        let (dir, top) = (name.dir(root), root.to_owned());
        let topic = name.to_string();
        let lock = reach::at(&dir, move |dir| Lock::take(&topic, dir))?;
        refuse_live(&name, root)?;
        let opened = move |_: &Path| Self::open_on(Arc::new(HostDisk), &top, name, decode, lock);
        let mut publication = reach::at(&dir, opened)?;
        // A file that a person removed from a persistent topic stays removed until the next publish.
        if !publication.name.is_persistent() {
            publication.keeper = DirKeeper::start(Arc::clone(hub), &publication.files);
        }
        Ok(publication)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        root: &Path,
        name: Name,
        decode: Decode,
        lock: Lock,
    ) -> Result<Self, Error> {
        let dir = name.dir(root);
        let lock = Arc::new(lock);
        let folder = Folder::open(disk, root, dir.clone(), Arc::downgrade(&lock))?;
        let mut publication = Self {
            name,
            dir,
            files: Arc::new(Mutex::new(folder)),
            decode,
            values: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            restarted: 0,
            findings: Vec::new(),
            older: BTreeSet::new(),
            server: None,
            keeper: None,
            _lock: lock,
        };
        publication.load()?;
        Ok(publication)
    }

    pub(crate) fn serve(
        &mut self,
        (hub, root): (&Arc<WatchHub>, &Path),
        to_wire: ToWire,
        encode: &Encode<'_>,
    ) -> Result<(), Error> {
        let Some(server) = SocketServer::open(hub, &self.name, root, to_wire)? else { return Ok(()) };
        let mut findings = Vec::new();
        for (key, value) in self.iter() {
            if let Err(reason) = server.put_anew(key, encode(value)) {
                let path = self.dir.join(self.name.file(key)?);
                findings.push(BadFile { path, reason });
            }
        }
        self.findings.append(&mut findings);
        server.count(self.restarted);
        self.server = Some(server);
        Ok(())
    }

    pub(crate) fn publish(
        &mut self,
        key: &str,
        encoded: Result<Vec<u8>, CodecError>,
    ) -> Result<Published, Error> {
        let file = self.name.file(key)?;
        let no_form = |source| Error::Encode { topic: self.name.to_string(), key: key.to_owned(), source };
        let bytes = encoded.map_err(no_form)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_LIMIT_BYTES) {
            let (topic, key) = (self.name.to_string(), key.to_owned());
            return Err(Error::TooLong { topic, key, bytes: bytes.len(), limit: FILE_LIMIT_BYTES });
        }
        let bytes: Arc<[u8]> = bytes.into();
        if !self.doubtful.contains(key) && self.values.get(key).is_some_and(|it| it.bytes == bytes) {
            let (file, bytes) = (file.clone(), Arc::clone(&bytes));
            let is_there = self.on_disk(move |files| {
                let is_there = files.is_there(&file, &bytes);
                if is_there {
                    files.catch_up()?;
                }
                Ok(is_there)
            })?;
            if is_there {
                return Ok(Published::Unchanged);
            }
        }
        if let Some(server) = &self.server {
            server.check(key, &bytes)?;
        }
        self.doubtful.insert(key.to_owned());
        let former = if self.name.is_persistent() { Former::Kept } else { Former::Dropped };
        let caught_up = self.replace(file, &bytes, former)?;
        self.doubtful.remove(key);
        let value = StoredValue { bytes: Arc::clone(&bytes), value: OnceLock::new() };
        self.values.insert(key.to_owned(), value);
        if let Some(server) = &self.server {
            server.put(key, bytes);
        }
        caught_up.map(|()| Published::Written)
    }

    pub(crate) fn unpublish(&mut self, key: &str) -> Result<(), Error> {
        if !self.values.contains_key(key) && !self.doubtful.contains(key) {
            return Err(Error::UnknownKey { topic: self.name.to_string(), key: key.to_owned() });
        }
        let file = self.name.file(key)?;
        self.doubtful.insert(key.to_owned());
        // First: after a crash between the two, the list must have the key.
        if let Some(server) = &mut self.server {
            server.note_removed(std::iter::once(key));
        }
        let backup = if self.name.is_persistent() { store::backup(&file) } else { None };
        let caught_up = self.on_disk(move |files| {
            if let Some(backup) = backup {
                // First, and on disk: a power cut in between must not bring an older value back.
                files.remove(&[backup.as_str()])?;
            }
            files.remove(&[file.as_str()])?;
            Ok(files.catch_up())
        })?;
        self.doubtful.remove(key);
        self.values.remove(key);
        if let Some(server) = &self.server {
            server.take(key);
        }
        caught_up
    }

    /// Runs `work` on the files, as long as their disk answers.
    fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Folder) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let files = Arc::clone(&self.files);
        reach::at(&self.dir, move |_| work(&mut lock(&files)))
    }

    /// Replaces a file, then writes all that a replaced directory lacks.
    fn replace(&self, file: String, bytes: &Arc<[u8]>, former: Former) -> Result<Result<(), Error>, Error> {
        let (path, files, content) = (self.dir.join(&file), Arc::clone(&self.files), Arc::clone(bytes));
        reach::write(&path, bytes, move |_, _| {
            let mut files = lock(&files);
            files.replace(&file, &content, former)?;
            Ok(files.catch_up())
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&dyn Any> {
        self.values.get(key).and_then(|value| self.read(value))
    }

    pub(crate) fn was_older(&self, key: &str) -> bool {
        self.older.contains(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &dyn Any)> {
        self.values.iter().filter_map(|(key, value)| Some((key.as_str(), self.read(value)?)))
    }

    /// What readers see of a key. A codec that cannot read its own bytes leaves them without a value, as here.
    fn read<'a>(&self, StoredValue { bytes, value }: &'a StoredValue) -> Option<&'a dyn Any> {
        if value.get().is_none() {
            let seen = (self.decode)(bytes).ok()?;
            value.get_or_init(|| seen);
        }
        value.get().map(|seen| &**seen as &dyn Any)
    }

    pub(crate) const fn restarted(&self) -> u32 {
        self.restarted
    }

    pub(crate) fn signal_restarted(&mut self) -> Result<(), Error> {
        let count = self.restarted.saturating_add(1);
        let caught_up =
            self.replace(RESTARTED.to_owned(), &count.to_string().into_bytes().into(), Former::Dropped)?;
        self.count(count);
        caught_up
    }

    pub(crate) fn clear_restarted(&mut self) -> Result<(), Error> {
        let caught_up = self.on_disk(|files| {
            files.remove(&[RESTARTED])?;
            Ok(files.catch_up())
        })?;
        self.count(0);
        caught_up
    }

    fn count(&mut self, restarted: u32) {
        self.restarted = restarted;
        if let Some(server) = &self.server {
            server.count(restarted);
        }
    }

    pub(crate) fn take_findings(&mut self) -> Vec<BadFile> {
        std::mem::take(&mut self.findings)
    }

    pub(crate) fn close(mut self) -> Result<(), Error> {
        let keys: Vec<&String> =
            if self.name.is_persistent() { Vec::new() } else { self.values.keys().collect() };
        let files = keys.into_iter().map(|key| self.name.file(key)).collect::<Result<Vec<_>, _>>()?;
        if !self.name.is_persistent()
            && let Some(server) = &mut self.server
        {
            server.note_removed(self.values.keys().map(String::as_str));
        }
        self.on_disk(move |held| {
            let names: Vec<&str> = files.iter().map(String::as_str).chain([RESTARTED]).collect();
            held.remove(&names)
        })?;
        let Some(server) = self.server.take() else { return Ok(()) };
        if !self.name.is_persistent() {
            self.values.keys().for_each(|key| server.take(key));
        }
        server.count(0);
        server.close()
    }

    fn files(&self) -> MutexGuard<'_, Folder> {
        lock(&self.files)
    }

    fn load(&mut self) -> Result<(), Error> {
        let mut keys = BTreeMap::new();
        let names = self.files().names()?;
        for name in names {
            let Some(name) = name.to_str() else { continue };
            let file =
                if self.name.is_persistent() { name.strip_suffix(BACKUP).unwrap_or(name) } else { name };
            if let Some(key) = file.strip_suffix(SUFFIX) {
                keys.insert(key.to_owned(), file.to_owned());
            }
        }
        for (key, file) in keys {
            self.load_key(key, &file)?;
        }
        let counted = self.files().load(RESTARTED);
        self.restarted = match counted {
            // A text that is no number counts as one start, as in the reference.
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(1),
            Ok(None) => 0,
            Err(error) if error.is_refusal() => {
                let path = self.dir.join(RESTARTED);
                self.findings.push(BadFile { path, reason: error.to_string() });
                0
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn load_key(&mut self, key: String, file: &str) -> Result<(), Error> {
        let reason = match self.value_of(file)? {
            Ok(value) => {
                self.values.insert(key, value);
                return Ok(());
            }
            Err(reason) => reason,
        };
        let path = self.dir.join(file);
        if self.name.is_persistent()
            && let Some(backup) = store::backup(file)
            && let Ok(value) = self.value_of(&backup)?
        {
            self.files().disown(&backup);
            let mut files = self.files();
            if let Some(bytes) = files.load(&backup)? {
                files.replace(file, &bytes, Former::Dropped)?;
                files.disown(&backup);
            }
            drop(files);
            self.older.insert(key.clone());
            self.values.insert(key, value);
            self.findings.push(BadFile { path, reason: format!("{reason}; its backup was used") });
            return Ok(());
        }
        self.files().disown(file);
        self.findings.push(BadFile { path, reason });
        Ok(())
    }

    /// Errors: the file cannot be read. It may still be good then, so its backup must not replace it.
    fn value_of(&self, file: &str) -> Result<Result<StoredValue, String>, Error> {
        let read = self.files().load(file);
        Ok(match read {
            Ok(Some(bytes)) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(Some(bytes)) => (self.decode)(&bytes)
                .map(|value| StoredValue { bytes, value: value.into() })
                .map_err(|error| error.to_string()),
            Ok(None) => Err("it is missing".to_owned()),
            Err(error) if error.is_refusal() => Err(error.to_string()),
            Err(error) => return Err(error),
        })
    }
}
